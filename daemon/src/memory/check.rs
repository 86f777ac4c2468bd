//! What a received descriptor must be before it is mapped.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};
use rustix::io::Errno;

use super::MemoryError;

/// `f_type` of the kernel's internal tmpfs, on which memfds live.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// `f_type` of the file system behind MFD_HUGETLB.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Says how many bytes a received memfd has, for good: at least 1, at most `max_bytes`.
///
/// A memfd that passes can neither shrink nor grow, and maps for writing. Only a memfd can carry those two seals: a file
/// on a mounted tmpfs answers the question for its seals too, but is made with `F_SEAL_SEAL` and can never be given more.
///
/// # Errors
/// One of [`MemoryError`]'s refusals, naming what was found.
pub fn check_received(fd: BorrowedFd<'_>, max_bytes: u64) -> Result<u64, MemoryError> {
    let stat = fstat(fd).map_err(|source| MemoryError::Os { call: "fstat", source })?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type != FileType::RegularFile {
        return Err(MemoryError::NotMemfd { found: describe_type(file_type).to_owned() });
    }
    let seals = match fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => return Err(MemoryError::NotMemfd { found: "a file that takes no seals".to_owned() }),
        Err(source) => return Err(MemoryError::Os { call: "fcntl(F_GET_SEALS)", source }),
    };
    let filesystem = fstatfs(fd).map_err(|source| MemoryError::Os { call: "fstatfs", source })?;
    let magic = u64::from_ne_bytes(filesystem.f_type.to_ne_bytes()) & 0xffff_ffff;
    if magic == HUGETLBFS_MAGIC {
        return Err(MemoryError::HugePages);
    }
    // A memfd has no name in any directory; a file on a mounted tmpfs that was unlinked has none either, but no seals.
    if magic != TMPFS_MAGIC || stat.st_nlink != 0 {
        return Err(MemoryError::NotMemfd {
            found: format!("a file on a file system of type {magic:#x} with {} links", stat.st_nlink),
        });
    }
    let missing = (SealFlags::SHRINK | SealFlags::GROW).difference(seals);
    if !missing.is_empty() {
        return Err(MemoryError::NotSealed { found: seal_names(seals), missing: seal_names(missing) });
    }
    let write_seals = seals.intersection(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
    if !write_seals.is_empty() {
        return Err(MemoryError::NotWritable { found: format!("sealed with {}", seal_names(write_seals)) });
    }
    let mode = fcntl_getfl(fd).map_err(|source| MemoryError::Os { call: "fcntl(F_GETFL)", source })?;
    if mode.intersection(OFlags::RWMODE) != OFlags::RDWR {
        return Err(MemoryError::NotWritable {
            found: "the descriptor is not open for reading and writing".to_owned(),
        });
    }
    // The size counts only now that the seals were seen: before, the peer could still have changed it. Seals never go.
    let sealed = fstat(fd).map_err(|source| MemoryError::Os { call: "fstat", source })?;
    let size = u64::try_from(sealed.st_size).unwrap_or(0);
    if size == 0 {
        return Err(MemoryError::Empty);
    }
    if size > max_bytes {
        return Err(MemoryError::TooLarge { found: size, allowed: max_bytes });
    }
    Ok(size)
}

fn describe_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "an anonymous inode",
    }
}

fn seal_names(seals: SealFlags) -> String {
    const NAMES: [(SealFlags, &str); 6] = [
        (SealFlags::SEAL, "F_SEAL_SEAL"),
        (SealFlags::SHRINK, "F_SEAL_SHRINK"),
        (SealFlags::GROW, "F_SEAL_GROW"),
        (SealFlags::WRITE, "F_SEAL_WRITE"),
        (SealFlags::FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"),
        (SealFlags::EXEC, "F_SEAL_EXEC"),
    ];
    let names: Vec<_> = NAMES.iter().filter(|(seal, _)| seals.contains(*seal)).map(|(_, name)| *name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" | ") }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    const BOTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

    fn memfd(size: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create("check", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, size).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn a_sealed_memfd_has_its_sealed_size() {
        assert_eq!(check_received(memfd(8192, BOTH).as_fd(), 8192), Ok(8192));
        assert_eq!(check_received(memfd(1, BOTH | SealFlags::SEAL).as_fd(), u64::MAX), Ok(1));
    }

    #[test]
    fn each_missing_seal_is_named() {
        for (seals, missing) in [
            (SealFlags::empty(), "F_SEAL_SHRINK | F_SEAL_GROW"),
            (SealFlags::SHRINK, "F_SEAL_GROW"),
            (SealFlags::GROW, "F_SEAL_SHRINK"),
        ] {
            let error = check_received(memfd(4096, seals).as_fd(), 4096).unwrap_err();
            assert!(matches!(&error, MemoryError::NotSealed { missing: m, .. } if m == missing), "{error}");
        }
    }

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        assert_eq!(check_received(memfd(0, BOTH).as_fd(), 4096), Err(MemoryError::Empty));
        let error = check_received(memfd(4097, BOTH).as_fd(), 4096).unwrap_err();
        assert_eq!(error, MemoryError::TooLarge { found: 4097, allowed: 4096 });
        assert!(error.is_exhaustion());
    }

    #[test]
    fn write_seals_and_read_only_descriptors_are_refused() {
        for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            let error = check_received(memfd(4096, BOTH | seal).as_fd(), 4096).unwrap_err();
            assert!(matches!(error, MemoryError::NotWritable { .. }), "{error}");
        }
        let fd = memfd(4096, BOTH);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        let read_only = std::fs::File::open(path).unwrap();
        let error = check_received(read_only.as_fd(), 4096).unwrap_err();
        assert!(matches!(error, MemoryError::NotWritable { .. }), "{error}");
    }

    #[test]
    fn what_is_no_memfd_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(matches!(check_received(file.as_fd(), 4096), Err(MemoryError::NotMemfd { .. })));
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(check_received(pipe.as_fd(), 4096), Err(MemoryError::NotMemfd { found: "a pipe".to_owned() }));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(check_received(null.as_fd(), 4096), Err(MemoryError::NotMemfd { .. })));
    }

    #[test]
    fn a_file_on_a_mounted_tmpfs_is_refused_even_unlinked() {
        let named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        named.as_file().set_len(4096).unwrap();
        // Without this the test would only show what an ordinary file shows: tmpfs does answer with seals.
        assert_eq!(fcntl_get_seals(named.as_file()), Ok(SealFlags::SEAL));
        assert!(matches!(check_received(named.as_file().as_fd(), 4096), Err(MemoryError::NotMemfd { .. })));
        let file = named.into_file();
        assert!(matches!(check_received(file.as_fd(), 4096), Err(MemoryError::NotSealed { .. })));
    }

    #[test]
    fn huge_pages_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without a huge page pool still makes the descriptor; only touching it would fail.
        let fd = memfd_create("huge", flags).unwrap();
        ftruncate(&fd, 2 << 20).unwrap();
        fcntl_add_seals(&fd, BOTH).unwrap();
        assert_eq!(check_received(fd.as_fd(), u64::MAX), Err(MemoryError::HugePages));
    }
}
