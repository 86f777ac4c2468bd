//! Why the calling thread's last failed call failed.
//!
//! The failure is kept as data and becomes text only when somebody asks, so that a refusal costs no formatting.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use hippihx_kernels::code_object::ObjectError;
use hippihx_kernels::{Refusal, Status};

/// A failed call.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    Object(ObjectError),
    Other { status: Status, text: String },
    Panic,
}

impl Failure {
    pub(crate) const fn status(&self) -> Status {
        match self {
            Failure::Refused(refusal) => refusal.status(),
            Failure::Object(error) => error.status(),
            Failure::Other { status, .. } => *status,
            Failure::Panic => Status::BadArg,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Refused(refusal) => refusal.to_string(),
            Failure::Object(error) => error.to_string(),
            Failure::Other { text, .. } => text.clone(),
            Failure::Panic => "the library failed at this call; please report it with the arguments".to_owned(),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        Failure::Object(error)
    }
}

thread_local! {
    static LAST: RefCell<(Option<Failure>, CString)> = RefCell::new((None, CString::default()));
}

pub(crate) fn remember(failure: Failure) {
    // A thread that is ending has nobody left to ask.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.0 = Some(failure);
        }
    });
}

/// The text of the calling thread's last failed call: which argument, what was found, what is allowed. Never NULL; empty
/// before the first failure; good until the thread's next call of this function.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_last_error() -> *const c_char {
    crate::guard::value(c"".as_ptr(), || {
        LAST.try_with(|last| {
            let Ok(mut last) = last.try_borrow_mut() else { return c"".as_ptr() };
            if let Some(failure) = last.0.take() {
                let text = format!("{}: {}", failure.status().name(), failure.text()).replace('\0', " ");
                last.1 = CString::new(text).unwrap_or_default();
            }
            last.1.as_ptr()
        })
        .unwrap_or(c"".as_ptr())
    })
}
