//! Memory that is shared with client processes: memfds, received or made here, and their mappings.
//!
//! Nothing here knows a device. What a peer may still do to memory that it shares with us, and what comes of it:
//!
//! | the peer | what happens |
//! |---|---|
//! | hands over something else than a sealed memfd of base pages | refused before it is mapped ([`check_received`]) |
//! | shrinks the file after the hand-off | impossible: `F_SEAL_SHRINK` is a condition of the hand-off |
//! | punches a hole into its own memory | the page reads as zeros, for its session alone |
//! | ... and the page cannot come back | SIGBUS, contained ([`sigbus`]): the mapping becomes zeros and its session ends |
//! | punches a hole into memory that we made | refused by the kernel once [`seal_handed_over`] was called |
//! | writes while we read | each element is one of the values that were there ([`Bytes`]) |

mod bytes;
mod check;
mod mapping;
mod reserve;
pub mod sigbus;

pub use bytes::{Bytes, OutOfBounds, Plain};
pub use check::check_received;
pub use mapping::{SharedMemory, seal_handed_over};
pub use reserve::headroom;

use thiserror::Error;

/// Why memory was not taken or not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The descriptor is something else than a memfd.
    #[error("the descriptor is no memfd ({found}); only memory made with memfd_create is taken")]
    NotMemfd { found: String },
    /// The seals that keep the mapping from vanishing under us are not there.
    #[error(
        "the memfd lacks the seals {missing} (found {found}); seal it with F_SEAL_SHRINK and F_SEAL_GROW before handing \
         it over"
    )]
    NotSealed { found: String, missing: String },
    /// The memfd was made with MFD_HUGETLB, whose pages come from a pool that can run dry.
    #[error("the memfd is on huge pages (MFD_HUGETLB), which are not taken; make it without that flag")]
    HugePages,
    /// Kernels write through the mapping, so it has to be writable.
    #[error("the memfd cannot be mapped for writing ({found}); hand over a read-write descriptor without write seals")]
    NotWritable { found: String },
    /// No bytes at all.
    #[error("the memory has 0 bytes; at least 1 is needed")]
    Empty,
    /// More than this caller may have, or than an address can say.
    #[error("the memory has {found} bytes; at most {allowed} are allowed")]
    TooLarge { found: u64, allowed: u64 },
    /// The machine, a limit or a memory controller has no room for it.
    #[error("no room for {asked} bytes of memory: {detail}")]
    NoRoom { asked: u64, detail: String },
    /// The kernel refused a call for another reason.
    #[error("{call} failed: {source}")]
    Os { call: &'static str, source: rustix::io::Errno },
}

impl MemoryError {
    /// True when asking for less, or later, may succeed (RESOURCE_EXHAUSTED); false when the request itself is wrong.
    pub fn is_exhaustion(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::NoRoom { .. })
    }

    fn os(call: &'static str, asked: u64, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            // EFBIG is RLIMIT_FSIZE, EMFILE and ENFILE the descriptor tables.
            Errno::NOSPC | Errno::NOMEM | Errno::FBIG | Errno::MFILE | Errno::NFILE => {
                Self::NoRoom { asked, detail: format!("{call}: {errno}") }
            }
            source => Self::Os { call, source },
        }
    }
}
