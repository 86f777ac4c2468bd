//! One daemon a socket and a device: a lock file that the kernel lets go of when its owner dies.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// Held for the daemon's life. The file stays: removing it would let two daemons lock two files of one name.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

#[derive(Debug, Error)]
pub enum LockError {
    #[error("already running: {what} is served by another hippihxd{}; stop it first", .pid.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    Held { what: String, pid: Option<u32> },
    #[error("cannot lock {}: {source}", path.display())]
    Os { path: PathBuf, source: std::io::Error },
}

impl Lock {
    /// Takes the lock on a path, or says who has it.
    ///
    /// # Errors
    /// [`LockError::Held`] while another process has it.
    pub fn take(path: &Path, what: &str) -> Result<Lock, LockError> {
        let os = |source| LockError::Os { path: path.to_owned(), source };
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .clone();
        let mut file = options.open(path).map_err(os)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(LockError::Held { what: what.to_owned(), pid: text.trim().parse().ok() });
            }
            Err(errno) => return Err(os(errno.into())),
        }
        // For people who look at it; the lock is what counts.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(os)?;
        Ok(Lock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_has_it_and_may_take_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path, "the socket").unwrap();
        let text = Lock::take(&path, "the socket").unwrap_err().to_string();
        assert!(text.contains("already running") && text.contains(&std::process::id().to_string()), "{text}");
        drop(first);
        Lock::take(&path, "the socket").unwrap();
    }
}
