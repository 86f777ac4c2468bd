//! What a fake device is told to be: the text after `fake:` on the command line or in the configuration.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// How launches are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exec {
    /// The op's arithmetic in 32-bit floats, written for the CPU.
    #[default]
    Reference,
    /// The machine code of the loaded code object, one instruction after the other.
    Isa,
    /// Not at all: every run completes at once, inside the call that submits it. For benchmarks of the path to the device.
    Nothing,
}

/// A fake device's properties and the faults that it is told to have. Runs are counted over the whole device, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The architecture that the device says it has; no check is made of it here.
    pub arch: String,
    pub exec: Exec,
    /// A run takes at least this long.
    pub slow: Duration,
    /// This run completes with a failed launch, without having touched its memory.
    pub fail_nth: Option<u64>,
    /// This run is refused when it is submitted.
    pub refuse_nth: Option<u64>,
    /// This run never completes by itself.
    pub hang_nth: Option<u64>,
    /// From this run on the device is lost.
    pub lose_nth: Option<u64>,
    /// The computation of this run panics, which fails the run and nothing else.
    pub panic_nth: Option<u64>,
    /// Bytes of device memory; None takes what the machine has available at the start.
    pub oom_bytes: Option<u64>,
    /// There is no such device.
    pub absent: bool,
    /// The lock file of a device that only one daemon may own, as a GPU is; without one every daemon has a device of its own.
    pub claim: Option<PathBuf>,
}

/// A text that describes no fake device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("fake device option {found:?}: {problem}; allowed are {ALLOWED}")]
pub struct OptionsError {
    pub found: String,
    pub problem: String,
}

const ALLOWED: &str = "fake:ARCH followed by any of ,exec=reference|isa ,instant=0|1 ,slow=MICROSECONDS ,fail_nth=N \
                       ,refuse_nth=N ,hang_nth=N ,lose_nth=N ,panic_nth=N ,oom_bytes=BYTES ,absent=0|1 ,claim=LOCKFILE (N \
                       counts runs from 1)";

impl Options {
    /// A device without faults.
    pub fn new(arch: &str) -> Self {
        Self {
            arch: arch.to_owned(),
            exec: Exec::default(),
            slow: Duration::ZERO,
            fail_nth: None,
            refuse_nth: None,
            hang_nth: None,
            lose_nth: None,
            panic_nth: None,
            oom_bytes: None,
            absent: false,
            claim: None,
        }
    }

    /// Reads `gfx1030,slow=500,fail_nth=3`: what follows `fake:`.
    ///
    /// # Errors
    /// [`OptionsError`] for a missing architecture, an unknown or repeated key, or a value out of its range.
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let mut parts = text.split(',');
        let arch = parts.next().unwrap_or("");
        if arch.is_empty() || arch.contains(['=', ' ']) {
            return Err(refuse(arch, "an architecture comes first"));
        }
        let mut options = Self::new(arch);
        let mut seen = Vec::new();
        let mut instant = false;
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| refuse(part, "this is not KEY=VALUE"))?;
            if seen.contains(&key) {
                return Err(refuse(part, "the key is there twice"));
            }
            seen.push(key);
            match key {
                "exec" => {
                    options.exec = match value {
                        "reference" => Exec::Reference,
                        "isa" => Exec::Isa,
                        _ => return Err(refuse(part, "the value is neither reference nor isa")),
                    }
                }
                "instant" => instant = flag(part, value)?,
                "slow" => options.slow = Duration::from_micros(number(part, value)?),
                "fail_nth" => options.fail_nth = Some(nth(part, value)?),
                "refuse_nth" => options.refuse_nth = Some(nth(part, value)?),
                "hang_nth" => options.hang_nth = Some(nth(part, value)?),
                "lose_nth" => options.lose_nth = Some(nth(part, value)?),
                "panic_nth" => options.panic_nth = Some(nth(part, value)?),
                "oom_bytes" => options.oom_bytes = Some(number(part, value)?),
                "absent" => options.absent = flag(part, value)?,
                "claim" => options.claim = Some(PathBuf::from(value)),
                _ => return Err(refuse(part, "there is no such key")),
            }
        }
        if instant {
            if options.exec == Exec::Isa || options.slow > Duration::ZERO {
                return Err(refuse(
                    "instant=1",
                    "it computes nothing and takes no time, so exec=isa and slow exclude it",
                ));
            }
            options.exec = Exec::Nothing;
        }
        Ok(options)
    }
}

fn refuse(found: &str, problem: &str) -> OptionsError {
    OptionsError { found: found.to_owned(), problem: problem.to_owned() }
}

fn number(part: &str, value: &str) -> Result<u64, OptionsError> {
    value.parse().map_err(|_| refuse(part, "the value is no whole number of at most 64 bits"))
}

fn nth(part: &str, value: &str) -> Result<u64, OptionsError> {
    match number(part, value)? {
        0 => Err(refuse(part, "runs are counted from 1")),
        n => Ok(n),
    }
}

fn flag(part: &str, value: &str) -> Result<bool, OptionsError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(refuse(part, "the value is neither 0 nor 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reaches_its_field() {
        let text = "gfx1030:xnack-,exec=isa,slow=1500,fail_nth=1,refuse_nth=2,hang_nth=3,lose_nth=4,panic_nth=5,\
                    oom_bytes=4096,absent=1,claim=/run/lock/gpu";
        let expected = Options {
            arch: "gfx1030:xnack-".to_owned(),
            exec: Exec::Isa,
            slow: Duration::from_micros(1500),
            fail_nth: Some(1),
            refuse_nth: Some(2),
            hang_nth: Some(3),
            lose_nth: Some(4),
            panic_nth: Some(5),
            oom_bytes: Some(4096),
            absent: true,
            claim: Some(PathBuf::from("/run/lock/gpu")),
        };
        assert_eq!(Options::parse(text), Ok(expected));
        assert_eq!(Options::parse("gfx1100"), Ok(Options::new("gfx1100")));
        assert_eq!(Options::parse("gfx1030,instant=1").map(|o| o.exec), Ok(Exec::Nothing));
    }

    #[test]
    fn refusals_name_what_was_found_and_what_is_allowed() {
        for text in [
            "",
            "slow=1",
            "gfx1030,",
            "gfx1030,slow",
            "gfx1030,slow=",
            "gfx1030,slow=-1",
            "gfx1030,slow=99999999999999999999",
            "gfx1030,fail_nth=0",
            "gfx1030,fail_nth=1,fail_nth=2",
            "gfx1030,exec=gpu",
            "gfx1030,instant=yes",
            "gfx1030,instant=1,slow=5",
            "gfx1030,instant=1,exec=isa",
            "gfx1030,colour=red",
        ] {
            let error = Options::parse(text).expect_err(text);
            assert!(error.to_string().contains("oom_bytes=BYTES"), "{error}");
        }
        let error = Options::parse("gfx1030,colour=red").unwrap_err();
        assert_eq!(error.found, "colour=red");
    }
}
