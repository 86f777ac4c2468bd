//! What can go wrong, in classes that a caller can act on.

use hippihx_kernels::Status as V1;
use hippihx_proto::errors::{DOMAIN, FIELD_KEY, STATUS_KEY, reason};
use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// A refusal of the daemon's, whole.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: Code,
    /// The contract's status, where it has one.
    pub status: Option<V1>,
    /// The V1 status name or the daemon's own reason.
    pub reason: String,
    /// What was wrong: a param's or tensor slot's name, or the argument's.
    pub field: String,
    pub message: String,
}

#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The request is wrong; the same one will be refused again.
    #[error("{}: {}", .0.reason, .0.message)]
    Refused(Refusal),
    /// A limit of the session or of the machine: release something, or ask for less.
    #[error("{}", .0.message)]
    Exhausted(Refusal),
    /// Nobody listens at the socket, and nobody came within the time that was allowed.
    #[error("no daemon at {socket}: {detail}")]
    Unavailable { socket: String, detail: String },
    /// The daemon is going and none took its place within the time that was allowed.
    #[error("the daemon at {socket} is draining and no other came")]
    Draining { socket: String },
    /// The device was lost or refused this run.
    #[error("{}", .0.message)]
    Device(Refusal),
    /// The connection broke while this run was on its way: it may have run or not, and is not run again.
    #[error(
        "the connection broke while the run was on its way; whether it ran is not known, and it is not run again ({detail})"
    )]
    RunLost { detail: String },
    /// Memory that a daemon owned which is gone; make it anew.
    #[error("buffer {label:?} was the memory of a daemon that is gone; allocate it again and fill it")]
    ContentsLost { label: String },
    /// The system refused memory or a descriptor.
    #[error("{what}: {source}")]
    System { what: &'static str, source: rustix::io::Errno },
    /// The daemon said something that the protocol does not have.
    #[error("the daemon's answer is no answer: {0}")]
    Protocol(String),
    /// An argument that is wrong before anybody was asked.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// The contract's status, where the error has one.
    pub fn v1(&self) -> Option<V1> {
        match self {
            Error::Refused(refusal) | Error::Exhausted(refusal) | Error::Device(refusal) => refusal.status,
            _ => None,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |source| Error::System { what, source }
    }
}

/// What the session layer does about a failed call.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// Tell the caller.
    Final(Error),
    /// Nothing was accepted: attach to the next daemon, then ask again.
    AttachAgain,
    /// Nothing was accepted: bind again, then ask again.
    BindAgain,
    /// The transport failed; whether the daemon acted is not known.
    Broken(String),
}

impl From<Status> for Verdict {
    fn from(status: Status) -> Verdict {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN);
        let Some(info) = info else {
            // Without ErrorInfo it is not the daemon who speaks, but tonic of a broken connection.
            return match status.code() {
                Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal => {
                    Verdict::Broken(status.message().to_owned())
                }
                _ => Verdict::Final(Error::Protocol(format!("{}: {}", status.code(), status.message()))),
            };
        };
        let number = info.metadata.get(STATUS_KEY).and_then(|number| number.parse().ok()).filter(|number| *number != 0);
        let refusal = Refusal {
            code: status.code(),
            status: number.and_then(V1::from_code),
            field: info.metadata.get(FIELD_KEY).cloned().unwrap_or_default(),
            message: status.message().to_owned(),
            reason: info.reason,
        };
        match refusal.reason.as_str() {
            reason::DRAINING | reason::UNAUTHENTICATED | reason::SESSION_ENDED => Verdict::AttachAgain,
            reason::STALE_GENERATION => Verdict::BindAgain,
            reason::RESOURCE_EXHAUSTED => Verdict::Final(Error::Exhausted(refusal)),
            reason::DEVICE_LOST | reason::LAUNCH_FAILED => Verdict::Final(Error::Device(refusal)),
            _ => Verdict::Final(Error::Refused(refusal)),
        }
    }
}
