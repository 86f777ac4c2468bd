//! Every way a call can fail, and the one place where failures become gRPC statuses.

use std::collections::HashMap;

use hippihx_kernels::code_object::ObjectError;
use hippihx_kernels::{Refusal, Status as V1};
use hippihx_proto::errors::{DOMAIN, FIELD_KEY, STATUS_KEY, reason};
use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::device::DeviceError;
use crate::memory::MemoryError;

/// What went wrong with a call, in classes that a caller can act on.
#[derive(Debug, Clone, Error)]
pub enum Failure {
    /// One of the contract's refusals.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Object(#[from] ObjectError),
    /// The contract's status with a sentence of the daemon's.
    #[error("{sentence}")]
    V1 { status: V1, field: &'static str, sentence: String },
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("{what} {id} does not exist in this session")]
    NotFound { what: &'static str, id: u64 },
    #[error("this session has {found} {what}, at most {allowed} are allowed; release some, or raise limits.{key}")]
    Limit { what: &'static str, key: &'static str, found: u64, allowed: u64 },
    #[error("bound under generation {bound}, the code object is at {now}: bind again")]
    StaleGeneration { bound: u64, now: u64 },
    #[error("the daemon is going and takes no new work; attach to the next one and try again")]
    Draining,
    #[error("{0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Denied(String),
    #[error("{field}: {sentence}")]
    Invalid { field: &'static str, sentence: String },
    #[error("{0}")]
    Incompatible(String),
    #[error("the session ended: {0}")]
    SessionEnded(String),
}

impl Failure {
    pub fn invalid(field: &'static str, sentence: impl Into<String>) -> Self {
        Failure::Invalid { field, sentence: sentence.into() }
    }

    /// The V1 status, where the contract has one.
    pub fn v1(&self) -> Option<V1> {
        match self {
            Failure::Refused(refusal) => Some(refusal.status()),
            Failure::Object(error) => Some(error.status()),
            Failure::V1 { status, .. } => Some(*status),
            Failure::Device(DeviceError::Absent(_)) => Some(V1::NoHip),
            Failure::Device(DeviceError::CodeObject(_)) => Some(V1::CodeObject),
            _ => None,
        }
    }

    /// `ErrorInfo.reason`: the V1 status name, or the daemon's own.
    pub fn reason(&self) -> &'static str {
        if let Some(status) = self.v1() {
            return status.name();
        }
        match self {
            Failure::Device(DeviceError::OutOfMemory { .. }) | Failure::Limit { .. } => reason::RESOURCE_EXHAUSTED,
            Failure::Device(DeviceError::Lost(_)) => reason::DEVICE_LOST,
            Failure::Device(DeviceError::LaunchFailed(_)) => reason::LAUNCH_FAILED,
            Failure::Device(_) => reason::UNSUPPORTED,
            Failure::Memory(error) if error.is_exhaustion() => reason::RESOURCE_EXHAUSTED,
            Failure::NotFound { .. } => reason::NOT_FOUND,
            Failure::StaleGeneration { .. } => reason::STALE_GENERATION,
            Failure::Draining => reason::DRAINING,
            Failure::Unauthenticated(_) => reason::UNAUTHENTICATED,
            Failure::Denied(_) => reason::PERMISSION_DENIED,
            Failure::Incompatible(_) => reason::INCOMPATIBLE,
            Failure::SessionEnded(_) => reason::SESSION_ENDED,
            _ => reason::INVALID_ARGUMENT,
        }
    }

    pub fn code(&self) -> Code {
        match self.v1() {
            Some(V1::UnknownOp) => return Code::NotFound,
            Some(V1::BadArg | V1::Abi | V1::Param | V1::Tensor | V1::Scratch) => return Code::InvalidArgument,
            Some(V1::NoHip) => return Code::Unavailable,
            Some(_) => return Code::FailedPrecondition,
            None => {}
        }
        match self.reason() {
            reason::RESOURCE_EXHAUSTED => Code::ResourceExhausted,
            reason::DEVICE_LOST | reason::DRAINING => Code::Unavailable,
            reason::LAUNCH_FAILED => Code::Internal,
            reason::UNSUPPORTED => Code::Unimplemented,
            reason::NOT_FOUND => Code::NotFound,
            reason::STALE_GENERATION | reason::SESSION_ENDED => Code::Aborted,
            reason::UNAUTHENTICATED => Code::Unauthenticated,
            reason::PERMISSION_DENIED => Code::PermissionDenied,
            reason::INCOMPATIBLE => Code::FailedPrecondition,
            _ => Code::InvalidArgument,
        }
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Failure::Refused(refusal) => Some(refusal.field()),
            Failure::V1 { field, .. } | Failure::Invalid { field, .. } => Some(field),
            Failure::Limit { key, .. } => Some(key),
            Failure::NotFound { what, .. } => Some(what),
            _ => None,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let mut metadata = HashMap::from([(STATUS_KEY.to_owned(), failure.v1().map_or(0, V1::code).to_string())]);
        if let Some(field) = failure.field() {
            metadata.insert(FIELD_KEY.to_owned(), field.to_owned());
        }
        let details = ErrorDetails::with_error_info(failure.reason(), DOMAIN, metadata);
        Status::with_error_details(failure.code(), failure.to_string(), details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_its_v1_name_number_and_field() {
        let refusal =
            hippihx_kernels::plan(0, &hippihx_kernels::Caps { arch: "gfx906", ..Default::default() }, &[]).unwrap_err();
        let status = Status::from(Failure::from(refusal));
        assert_eq!(status.code(), Code::FailedPrecondition);
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("ERR_UNSUPPORTED_ARCH", "hippihx.v1"));
        assert_eq!((info.metadata["status"].as_str(), info.metadata["field"].as_str()), ("2", "caps.arch"));
        assert!(status.message().contains("Vega20"));
    }

    #[test]
    fn what_can_be_tried_again_says_so_by_its_code() {
        for (failure, code, reason) in [
            (Failure::Draining, Code::Unavailable, "DRAINING"),
            (Failure::StaleGeneration { bound: 1, now: 2 }, Code::Aborted, "STALE_GENERATION"),
            (Failure::Device(DeviceError::Lost("x".to_owned())), Code::Unavailable, "DEVICE_LOST"),
            (Failure::NotFound { what: "buffer", id: 7 }, Code::NotFound, "NOT_FOUND"),
        ] {
            assert_eq!((failure.code(), failure.reason()), (code, reason));
        }
    }
}
