//! What stands between C and Rust: no panic gets through, and every failure leaves its text.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hippihx_kernels::Status;

use crate::last_error::{Failure, remember};

/// Runs a call for its status, and remembers why when it is not OK.
pub(crate) fn status(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Status::Ok.code(),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Panic,
    };
    let status = failure.status();
    remember(failure);
    status.code()
}

/// Runs a call for a value.
pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}
