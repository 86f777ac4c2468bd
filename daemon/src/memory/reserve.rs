//! Pages are reserved when memory is made or taken, so that a full machine is an answer and never a signal.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::MemoryError;

/// Bytes kept free for the daemon itself and everybody else on the machine.
const MARGIN: u64 = 16 << 20;

/// Makes every page of the file's first `size` bytes present.
///
/// Asks for room first: under a memory controller the kernel answers a page too many by killing the process, not by an
/// error, so the question has to come before the reservation. That answer may be outdated at once; it turns the common
/// case into an error and leaves the race to the kernel.
pub(super) fn reserve(fd: BorrowedFd<'_>, size: u64) -> Result<(), MemoryError> {
    let stat = fstat(fd).map_err(|source| MemoryError::Os { call: "fstat", source })?;
    let present = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    check_room(size.saturating_sub(present), headroom())?;
    check_file_limit(size)?;
    loop {
        match fallocate(fd, FallocateFlags::empty(), 0, size) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(MemoryError::os("fallocate", size, errno)),
        }
    }
}

/// Refuses a file that RLIMIT_FSIZE forbids: growing one beyond it is answered by SIGXFSZ, which ends the process.
pub(super) fn check_file_limit(size: u64) -> Result<(), MemoryError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if size > limit => {
            Err(MemoryError::NoRoom { asked: size, detail: format!("RLIMIT_FSIZE allows files of {limit} bytes") })
        }
        _ => Ok(()),
    }
}

/// Refuses `missing` bytes of new pages where `room` is known and too small.
pub(super) fn check_room(missing: u64, room: Option<u64>) -> Result<(), MemoryError> {
    match room {
        Some(room) if missing > room.saturating_sub(MARGIN) && missing > 0 => Err(MemoryError::NoRoom {
            asked: missing,
            detail: format!("{room} bytes are available, of which {MARGIN} stay free"),
        }),
        _ => Ok(()),
    }
}

/// Bytes that this process can still take: what the machine has available, and what each memory controller (cgroup v2)
/// above us leaves. None when /proc says nothing.
pub fn headroom() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_kib(&text))?.saturating_mul(1024);
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| unified_path(&text).map(str::to_owned));
    let controllers = group.map_or(u64::MAX, |group| controllers_room(Path::new("/sys/fs/cgroup"), &group));
    Some(machine.min(controllers))
}

fn available_kib(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemAvailable:")
}

/// The path in the line `0::/path` of /proc/self/cgroup.
fn unified_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The least room over the group and all its parents; u64::MAX where none has a limit.
fn controllers_room(root: &Path, group: &str) -> u64 {
    let own = root.join(group);
    own.ancestors().take_while(|path| path.starts_with(root)).filter_map(controller_room).min().unwrap_or(u64::MAX)
}

/// What one group's limit leaves; pages that only cache files count as free.
fn controller_room(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let max: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache = field(&stat, "file ").unwrap_or(0).saturating_sub(field(&stat, "shmem ").unwrap_or(0));
    Some(max.saturating_sub(current.saturating_sub(cache)))
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_how_much_is_available() {
        let room = headroom().unwrap();
        assert!(room > 0 && room < 1 << 50, "{room}");
    }

    #[test]
    fn the_margin_stays_free_and_present_pages_cost_nothing() {
        assert!(check_room(1, Some(MARGIN + 1)).is_ok());
        assert!(matches!(check_room(2, Some(MARGIN + 1)), Err(MemoryError::NoRoom { asked: 2, .. })));
        assert!(check_room(0, Some(0)).is_ok());
        assert!(check_room(u64::MAX, None).is_ok());
    }

    #[test]
    fn the_tightest_controller_on_the_way_up_decides() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("system.slice/hippihxd.service");
        fs::create_dir_all(&leaf).unwrap();
        let set = |dir: &Path, max: &str, current: &str, stat: &str| {
            fs::write(dir.join("memory.max"), max).unwrap();
            fs::write(dir.join("memory.current"), current).unwrap();
            fs::write(dir.join("memory.stat"), stat).unwrap();
        };
        set(&leaf, "max\n", "5000\n", "");
        assert_eq!(controllers_room(root.path(), "system.slice/hippihxd.service"), u64::MAX);
        // 9000 allowed, 6000 used, of which 1500 - 500 only cache files.
        set(&root.path().join("system.slice"), "9000\n", "6000\n", "anon 1\nfile 1500\nshmem 500\n");
        assert_eq!(controllers_room(root.path(), "system.slice/hippihxd.service"), 4000);
        set(&leaf, "7000\n", "6500\n", "");
        assert_eq!(controllers_room(root.path(), "system.slice/hippihxd.service"), 500);
    }

    #[test]
    fn a_hybrid_cgroup_file_names_its_unified_group() {
        assert_eq!(unified_path("4:memory:/a\n0::/b/c.service\n"), Some("b/c.service"));
        assert_eq!(unified_path("4:memory:/a\n"), None);
    }
}
