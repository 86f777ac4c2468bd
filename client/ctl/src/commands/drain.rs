//! `hippihxctl drain`: the daemon finishes what it accepted, and ends.

use std::path::Path;

use anyhow::Result;
use hippihx_proto::v1;
use serde_json::json;

use crate::output;

pub async fn run(socket: &Path, json: bool) -> Result<u8> {
    let answer = super::connect(socket).await?.drain(v1::DrainRequest {}).await?.into_inner();
    if json {
        output::json(&json!({ "runs_in_flight": answer.runs_in_flight, "sessions": answer.sessions }));
    } else {
        output::line(&format!(
            "draining: {} runs are finished first; {} sessions are told",
            answer.runs_in_flight, answer.sessions
        ));
    }
    Ok(0)
}
