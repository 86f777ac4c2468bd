//! How a command that failed says so: the sentence, and the exit status.

use std::fmt;

use hippihx_client::Error as Client;
use hippihx_kernels::Refusal;
use hippihx_kernels::code_object::ObjectError;
use hippihx_proto::errors::{DOMAIN, FIELD_KEY, STATUS_KEY};
use serde_json::{Value, json};
use tonic_types::StatusExt;

pub const REFUSED: u8 = 1;
pub const NO_DAEMON: u8 = 2;
pub const USAGE: u8 = 64;

/// The command line names something that does not exist or does not fit.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints a failure, and gives the exit status that belongs to it.
pub fn report(error: &anyhow::Error, as_json: bool) -> u8 {
    let (code, reason, status, field, message) = classify(error);
    if as_json {
        let error: Value = json!({"reason": reason, "status": status, "field": field, "message": message});
        crate::output::json(&json!({ "error": error }));
    } else if reason.is_empty() {
        eprintln!("hippihxctl: {message}");
    } else {
        eprintln!("hippihxctl: {reason}: {message}");
    }
    code
}

fn classify(error: &anyhow::Error) -> (u8, String, i32, String, String) {
    let plain = |code| (code, String::new(), 0, String::new(), format!("{error:#}"));
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        let status = refusal.status();
        return (REFUSED, status.name().to_owned(), status.code(), refusal.field().to_owned(), refusal.to_string());
    }
    if let Some(refusal) = error.downcast_ref::<ObjectError>() {
        let status = refusal.status();
        return (REFUSED, status.name().to_owned(), status.code(), String::new(), format!("{error:#}"));
    }
    if let Some(status) = error.downcast_ref::<tonic::Status>() {
        return match status.get_details_error_info().filter(|info| info.domain == DOMAIN) {
            Some(info) => {
                let number = info.metadata.get(STATUS_KEY).and_then(|number| number.parse().ok()).unwrap_or(0);
                let field = info.metadata.get(FIELD_KEY).cloned().unwrap_or_default();
                (REFUSED, info.reason, number, field, status.message().to_owned())
            }
            None if status.code() == tonic::Code::Unavailable => {
                (NO_DAEMON, "UNAVAILABLE".to_owned(), 0, String::new(), status.message().to_owned())
            }
            None => (REFUSED, format!("{:?}", status.code()), 0, String::new(), status.message().to_owned()),
        };
    }
    match error.downcast_ref::<Client>() {
        Some(Client::Unavailable { .. } | Client::Draining { .. }) => {
            (NO_DAEMON, "UNAVAILABLE".to_owned(), 0, String::new(), error.to_string())
        }
        _ if error.is::<Usage>() => plain(USAGE),
        _ => plain(REFUSED),
    }
}
