//! What every implementation of [`Device`] has to do, as one suite of checks over `&dyn Device`.
//!
//! A test makes a [`Subject`] for its implementation and calls [`run_all`]. A check that does not apply to a subject
//! (memfds on a GPU without them) says so in its [`Verdict`]; a test that expects it to apply asserts the number of those
//! that passed.

mod compute;
mod memory;
mod queue;

use std::fmt;
use std::sync::Arc;

use hippihxd::device::{Device, DeviceError, Export, Memory};

pub use compute::Bound;
pub use queue::Recorder;

/// How a test reaches the bytes of device memory, as a client would.
pub trait Reach: Sync {
    fn read(&self, memory: &dyn Memory, offset: u64, out: &mut [u8]) -> Result<(), String>;
    fn write(&self, memory: &dyn Memory, offset: u64, data: &[u8]) -> Result<(), String>;
}

/// One implementation under test.
pub struct Subject<'a> {
    pub device: &'a dyn Device,
    /// The slot that its code objects are built for.
    pub slot: &'static str,
    /// A good code object for that slot, with every kernel of fa_fdot2.
    pub image: Arc<[u8]>,
    pub reach: &'a dyn Reach,
    /// It takes memfds.
    pub takes_memfds: bool,
    /// Launches compute what the op means, so outputs are compared. False for stand-ins that only record calls.
    pub computes: bool,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("device", &self.device).field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// How one check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// With the reason.
    DoesNotApply(&'static str),
    Failed(String),
}

/// A check's way to say that it failed; `?` works on device errors and on text.
#[derive(Debug)]
pub struct Failure(String);

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// What a check returns: it applied and passed, or why it does not apply.
#[derive(Debug)]
pub enum Applied {
    Yes,
    No(&'static str),
}

pub type Outcome = Result<Applied, Failure>;

/// A name and what it does.
pub type Check = (&'static str, fn(&Subject<'_>) -> Outcome);

/// All checks, cheapest first.
pub fn checks() -> Vec<Check> {
    [memory::CHECKS, queue::CHECKS, compute::CHECKS].concat()
}

/// Runs every check, also after one failed.
pub fn run_all(subject: &Subject<'_>) -> Vec<(&'static str, Verdict)> {
    let verdict = |check: fn(&Subject<'_>) -> Outcome| match check(subject) {
        Ok(Applied::Yes) => Verdict::Passed,
        Ok(Applied::No(why)) => Verdict::DoesNotApply(why),
        Err(Failure(text)) => Verdict::Failed(text),
    };
    checks().into_iter().map(|(name, check)| (name, verdict(check))).collect()
}

/// Panics with every failure of a run, and gives how many checks passed.
pub fn assert_passed(verdicts: &[(&'static str, Verdict)]) -> usize {
    let failures: Vec<String> = verdicts
        .iter()
        .filter_map(|(name, verdict)| match verdict {
            Verdict::Failed(text) => Some(format!("{name}: {text}")),
            _ => None,
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Passed).count()
}

/// Fails a check with a text unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::from(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

/// Reaches memory through the memfd that it exports.
#[derive(Debug, Default)]
pub struct ThroughMemfd;

impl ThroughMemfd {
    fn file(memory: &dyn Memory) -> Result<std::fs::File, String> {
        match memory.export().map_err(|error| error.to_string())? {
            Export::Memfd(fd) => fd.try_clone_to_owned().map(Into::into).map_err(|error| error.to_string()),
            Export::HipIpc(_) => Err("the memory exports a HIP IPC handle, not a memfd".to_owned()),
        }
    }
}

impl Reach for ThroughMemfd {
    fn read(&self, memory: &dyn Memory, offset: u64, out: &mut [u8]) -> Result<(), String> {
        use std::os::unix::fs::FileExt;
        Self::file(memory)?.read_exact_at(out, offset).map_err(|error| error.to_string())
    }

    fn write(&self, memory: &dyn Memory, offset: u64, data: &[u8]) -> Result<(), String> {
        use std::os::unix::fs::FileExt;
        Self::file(memory)?.write_all_at(data, offset).map_err(|error| error.to_string())
    }
}
