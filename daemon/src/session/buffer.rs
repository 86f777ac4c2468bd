//! A session's buffers, and the bytes they count for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::Memory;
use crate::errors::Failure;

/// Bytes of memory that a session holds: counted from the moment it is asked for to the moment it is really freed, so a
/// released buffer that a run still uses counts on.
#[derive(Debug, Default)]
pub struct Quota {
    bytes: AtomicU64,
}

impl Quota {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Takes bytes out of what is left of `allowed`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub fn take(self: &Arc<Self>, bytes: u64, allowed: u64) -> Result<Share, Failure> {
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            held.checked_add(bytes).filter(|sum| *sum <= allowed)
        });
        match taken {
            Ok(_) => Ok(Share { quota: Arc::clone(self), bytes }),
            Err(held) => {
                let found = held.saturating_add(bytes);
                Err(Failure::Limit { what: "bytes of buffers (with this one)", key: "buffer_bytes", found, allowed })
            }
        }
    }
}

/// Bytes taken from a quota; dropping it gives them back.
#[derive(Debug)]
pub struct Share {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Share {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Memory that a session has named. Bindings and runs hold it too; the last holder frees it.
#[derive(Debug)]
pub struct Buffer {
    pub memory: Arc<dyn Memory>,
    pub label: String,
    /// After `memory`, so that the bytes are given back once they are free.
    pub share: Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_when_the_share_goes() {
        let quota = Arc::new(Quota::default());
        let first = quota.take(60, 100).unwrap();
        assert!(matches!(quota.take(41, 100), Err(Failure::Limit { found: 101, allowed: 100, .. })));
        assert!(quota.take(u64::MAX, u64::MAX).is_err());
        let second = quota.take(40, 100).unwrap();
        drop(first);
        assert_eq!(quota.bytes(), 40);
        drop(second);
        assert_eq!(quota.bytes(), 0);
    }
}
