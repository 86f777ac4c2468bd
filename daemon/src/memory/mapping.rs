//! A memfd and our mapping of it, as one owned thing.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::reserve::{check_file_limit, check_room, headroom, reserve};
use super::{Bytes, MemoryError, check_received, sigbus};

/// A mapping of the whole of a memfd that can neither shrink nor grow. Readable and writable by us and by every process
/// that holds the descriptor; dropping it unmaps our side only.
pub struct SharedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    size: usize,
    region: sigbus::Region,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until the drop. `base` is only handed out as
// `Bytes`, whose accesses are atomic.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method takes a Rust reference into the mapping.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Takes a memfd from a peer: checks it ([`check_received`]), makes its missing pages present and maps it.
    ///
    /// Takes time for a memfd with holes (the kernel zeroes each page); do not call it where blocking matters.
    ///
    /// # Errors
    /// Every refusal of [`check_received`], and [`MemoryError::NoRoom`].
    pub fn import(fd: OwnedFd, max_bytes: u64) -> Result<Self, MemoryError> {
        let size = check_received(fd.as_fd(), max_bytes)?;
        reserve(fd.as_fd(), size)?;
        Self::map(fd, size)
    }

    /// Makes zeroed memory of `size` bytes with every page present, sealed against a change of its size, and maps it.
    /// `name` shows in /proc/PID/maps.
    ///
    /// The descriptor can still be mapped for writing, since the peer has to; call [`seal_handed_over`] once it has.
    ///
    /// # Errors
    /// [`MemoryError::Empty`], [`MemoryError::TooLarge`] beyond what an address can say, [`MemoryError::NoRoom`].
    pub fn create(name: &str, size: u64) -> Result<Self, MemoryError> {
        if size == 0 {
            return Err(MemoryError::Empty);
        }
        let allowed = isize::MAX.unsigned_abs() as u64;
        if size > allowed {
            return Err(MemoryError::TooLarge { found: size, allowed });
        }
        // Before the file is given its size, since beyond RLIMIT_FSIZE that alone would end the process.
        check_file_limit(size)?;
        check_room(size, headroom())?;
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| MemoryError::os("memfd_create", size, errno))?;
        ftruncate(&fd, size).map_err(|errno| MemoryError::os("ftruncate", size, errno))?;
        reserve(fd.as_fd(), size)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|errno| MemoryError::os("fcntl(F_ADD_SEALS)", size, errno))?;
        Self::map(fd, size)
    }

    /// Maps all of a file whose size is sealed.
    pub(super) fn map(fd: OwnedFd, size: u64) -> Result<Self, MemoryError> {
        let too_large = MemoryError::TooLarge { found: size, allowed: isize::MAX.unsigned_abs() as u64 };
        let size = usize::try_from(size).ok().filter(|size| isize::try_from(*size).is_ok()).ok_or(too_large)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address =
            unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0) }
                .map_err(|errno| MemoryError::os("mmap", size as u64, errno))?;
        // SAFETY: exactly the mapping made above, which nothing else refers to. A child has no use for it, and a core
        // file of the daemon should not hold its clients' data; both are only advice, so failure changes nothing.
        unsafe {
            let _ = madvise(address, size, Advice::LinuxDontFork);
            let _ = madvise(address, size, Advice::LinuxDontDump);
        }
        // mmap never gives address 0 for a request without MAP_FIXED.
        let base = NonNull::new(address.cast::<u8>()).unwrap_or(NonNull::dangling());
        let region = sigbus::Region::register(base.as_ptr().addr(), size);
        Ok(Self { fd, base, size, region })
    }

    /// Bytes; the file's sealed size, not rounded to pages.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the first byte is mapped. A name for the memory, not a way to reach it.
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The memfd, to be handed to a peer.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True once a page of the mapping could not come back: since then it holds zeros that no peer sees, and the session
    /// that it belongs to has to end.
    pub fn faulted(&self) -> bool {
        self.region.faulted()
    }

    /// A mapping such as the checks never let through: its file, the second of the two, can still be truncated.
    #[cfg(test)]
    pub(crate) fn unsealed(size: u64) -> (Self, OwnedFd) {
        let fd = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        (Self::map(fd.try_clone().unwrap(), size).unwrap(), fd)
    }

    #[cfg(test)]
    pub(super) fn forget_region(&mut self) {
        self.region.unregister();
    }

    /// All bytes of the mapping.
    pub fn bytes(&self) -> Bytes<'_> {
        // SAFETY: `base` is valid for reads and writes of `size` bytes while `self` is borrowed, and no Rust reference
        // into the mapping exists anywhere.
        unsafe { Bytes::new(self.base, self.size) }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("size", &self.size).field("faulted", &self.faulted()).finish()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // First out of the table: from here on the addresses may become somebody else's.
        self.region.unregister();
        // SAFETY: exactly the mapping of `map`; `Bytes` borrow `self`, so none is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// Closes what a peer could still do to memory that we made: once it has mapped the descriptor of [`SharedMemory::create`]
/// for writing and said so, no new writable mapping and no hole can be made, and no seal added. Then every page is made
/// present again, since the peer may have punched holes before.
///
/// The order is forced: a memfd under F_SEAL_FUTURE_WRITE cannot be mapped for writing any more, so the seal has to wait for
/// the peer's word. Until then a hole hurts nobody but the peer's own session.
///
/// # Errors
/// [`MemoryError::Os`] when the peer sealed the seals itself, [`MemoryError::NoRoom`] when a page cannot come back; either
/// way the memory must not be used on.
pub fn seal_handed_over(fd: BorrowedFd<'_>, size: u64) -> Result<(), MemoryError> {
    fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
        .map_err(|errno| MemoryError::os("fcntl(F_ADD_SEALS)", size, errno))?;
    reserve(fd, size)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    use super::*;

    const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

    fn peer_of(memory: &SharedMemory) -> OwnedFd {
        memory.descriptor().try_clone_to_owned().unwrap()
    }

    #[test]
    fn made_memory_is_zeroed_present_and_keeps_its_size() {
        let memory = SharedMemory::create("made", 10_000).unwrap();
        assert_eq!(memory.size(), 10_000);
        let mut all = vec![1_u8; 10_000];
        memory.bytes().read(0, &mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 0));
        let stat = rustix::fs::fstat(memory.descriptor()).unwrap();
        assert!(stat.st_blocks * 512 >= 10_000, "{} blocks", stat.st_blocks);
        assert_eq!(ftruncate(memory.descriptor(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(memory.descriptor(), 20_000), Err(Errno::PERM));
    }

    #[test]
    fn both_sides_see_each_other() {
        let ours = SharedMemory::create("both", 4096).unwrap();
        let theirs = SharedMemory::import(peer_of(&ours), 4096).unwrap();
        ours.bytes().write(100, &[1_u8, 2, 3]).unwrap();
        let mut seen = [0_u8; 3];
        theirs.bytes().read(100, &mut seen).unwrap();
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn a_hole_in_imported_memory_reads_as_zeros() {
        let theirs = SharedMemory::create("hole", 8192).unwrap();
        let ours = SharedMemory::import(peer_of(&theirs), 8192).unwrap();
        ours.bytes().write(0, &[7_u8; 8192]).unwrap();
        fallocate(theirs.descriptor(), HOLE, 0, 4096).unwrap();
        let mut seen = [1_u8; 8192];
        ours.bytes().read(0, &mut seen).unwrap();
        assert!(seen[..4096].iter().all(|byte| *byte == 0) && seen[4096..].iter().all(|byte| *byte == 7));
        assert!(!ours.faulted());
    }

    #[test]
    fn after_the_last_seals_a_peer_keeps_its_mapping_and_can_do_nothing_else() {
        let ours = SharedMemory::create("sealed", 8192).unwrap();
        let theirs = SharedMemory::import(peer_of(&ours), 8192).unwrap();
        theirs.bytes().write(0, &[9_u8; 16]).unwrap();
        fallocate(theirs.descriptor(), HOLE, 4096, 4096).unwrap();
        assert_eq!(rustix::fs::fstat(ours.descriptor()).unwrap().st_blocks, 8);

        seal_handed_over(ours.descriptor(), 8192).unwrap();

        assert_eq!(rustix::fs::fstat(ours.descriptor()).unwrap().st_blocks, 16, "the hole is filled again");
        assert_eq!(fallocate(theirs.descriptor(), HOLE, 0, 4096), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(theirs.descriptor(), SealFlags::EXEC), Err(Errno::PERM));
        let again = SharedMemory::map(peer_of(&theirs), 8192).unwrap_err();
        assert_eq!(again, MemoryError::Os { call: "mmap", source: Errno::PERM });
        theirs.bytes().write(0, &[5_u8]).unwrap();
        let mut seen = [0_u8; 2];
        ours.bytes().read(0, &mut seen).unwrap();
        assert_eq!(seen, [5, 9]);
    }

    #[test]
    fn a_peer_that_sealed_the_seals_first_is_an_error() {
        let ours = SharedMemory::create("seal-seal", 4096).unwrap();
        fcntl_add_seals(peer_of(&ours), SealFlags::SEAL).unwrap();
        let error = seal_handed_over(ours.descriptor(), 4096).unwrap_err();
        assert!(matches!(error, MemoryError::Os { source: Errno::PERM, .. }), "{error}");
    }

    #[test]
    fn limits_of_the_process_are_answers_and_not_signals() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        if std::env::var_os("HIPPIHX_CHILD").is_none() {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "memory::mapping::tests::limits_of_the_process_are_answers_and_not_signals"])
                .env("HIPPIHX_CHILD", "1")
                .output()
                .unwrap();
            assert!(output.status.success(), "{}{}", output.status, String::from_utf8_lossy(&output.stdout));
            return;
        }
        let limit = |resource, bytes| {
            let maximum = getrlimit(resource).maximum;
            setrlimit(resource, Rlimit { current: bytes, maximum }).unwrap();
        };
        let theirs = SharedMemory::create("theirs", 64 << 20).unwrap();
        limit(Resource::Fsize, Some(1 << 20));
        let error = SharedMemory::create("file-limit", 2 << 20).unwrap_err();
        assert!(matches!(&error, MemoryError::NoRoom { detail, .. } if detail.contains("RLIMIT_FSIZE")), "{error}");
        limit(Resource::Fsize, None);
        limit(Resource::As, Some(1 << 20));
        for error in [
            SharedMemory::import(peer_of(&theirs), u64::MAX).unwrap_err(),
            SharedMemory::create("address-space", 64 << 20).unwrap_err(),
        ] {
            assert!(matches!(&error, MemoryError::NoRoom { detail, .. } if detail.contains("mmap")), "{error}");
        }
        limit(Resource::As, None);
        limit(Resource::Nofile, Some(0));
        let error = SharedMemory::create("descriptors", 4096).unwrap_err();
        assert!(matches!(error, MemoryError::NoRoom { .. }), "{error}");
    }

    #[test]
    fn more_than_there_is_room_for_is_exhaustion() {
        let error = SharedMemory::create("vast", 1 << 50).unwrap_err();
        assert!(matches!(error, MemoryError::NoRoom { .. }) && error.is_exhaustion(), "{error}");
        assert_eq!(SharedMemory::create("none", 0).unwrap_err(), MemoryError::Empty);
        assert!(matches!(SharedMemory::create("wrap", u64::MAX), Err(MemoryError::TooLarge { .. })));
    }
}
