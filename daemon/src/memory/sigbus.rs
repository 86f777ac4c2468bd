//! Keeps a page that vanished under one of our mappings from ending the daemon.
//!
//! A page of a memfd that cannot be made present (a hole in a peer's memory while the machine is full, or broken RAM) is
//! answered by SIGBUS in the thread that touched it. The handler looks the address up among the registered mappings. Ours:
//! the mapping is marked as faulted and replaced by zeros, and the thread goes on; the owner notices the mark and ends the
//! session. Not ours: whatever handled SIGBUS before gets it, by default the end of the process.
//!
//! The whole mapping is replaced at once, not the page alone: each replaced page would be a mapping of its own, and a peer
//! that punches many holes could drive the process into the limit on mappings, where nothing can be replaced any more.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// One registered mapping, or a free place for one. `version` is odd while the place is in use and changes whenever the
/// addresses do, so that a reader notices that it read a mixture.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    faulted: AtomicBool,
}

/// Slots are never freed, only reused: the handler may look at any of them at any time.
struct Chunk {
    slots: [Slot; 128],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        let free = [const {
            Slot {
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                faulted: AtomicBool::new(false),
            }
        }; 128];
        Self { slots: free, next: AtomicPtr::new(null_mut()) }
    }
}

static TABLE: Chunk = Chunk::new();
/// Orders those who change the table; the handler never takes it.
static FREE_SLOTS: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
static FAULTS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// How many mappings have faulted since start. Cheap to poll: as long as it stays the same, no session has to end.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Acquire)
}

/// One mapping in the table, for as long as it may be touched.
#[derive(Debug)]
pub struct Region {
    slot: Option<&'static Slot>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("faulted", &self.faulted).finish_non_exhaustive()
    }
}

impl Region {
    /// Contains faults in `size` bytes from `start`, a mapping of this process. Installs the handler if nobody has yet.
    pub(super) fn register(start: usize, size: usize) -> Self {
        install();
        let slot = claim();
        slot.faulted.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(start.saturating_add(size), Ordering::Relaxed);
        // Pairs with (R1): whoever sees the odd version sees the addresses.
        slot.version.fetch_add(1, Ordering::Release);
        Self { slot: Some(slot) }
    }

    /// True once a page of it could not come back.
    pub fn faulted(&self) -> bool {
        self.slot.is_some_and(|slot| slot.faulted.load(Ordering::Acquire))
    }

    /// Must come before the addresses are unmapped.
    pub(super) fn unregister(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.version.fetch_add(1, Ordering::AcqRel);
            FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.unregister();
    }
}

/// A slot that nobody else has, adding places for more when there is none.
fn claim() -> &'static Slot {
    static FIRST: OnceLock<()> = OnceLock::new();
    let mut free = FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    FIRST.get_or_init(|| free.extend(TABLE.slots.iter()));
    if let Some(slot) = free.pop() {
        return slot;
    }
    let chunk: &'static Chunk = Box::leak(Box::new(Chunk::new()));
    // Inserted behind the head; the lock keeps other writers away. Pairs with (R2).
    chunk.next.store(TABLE.next.load(Ordering::Acquire), Ordering::Relaxed);
    TABLE.next.store(std::ptr::from_ref(chunk).cast_mut(), Ordering::Release);
    let (first, rest) = (&chunk.slots[0], &chunk.slots[1..]);
    free.extend(rest.iter());
    first
}

/// The registered mapping that `address` lies in, as (slot, start, end).
///
/// Runs inside the signal handler: no lock, no allocation. The mapping looked for is borrowed by the very thread that
/// faulted, so its slot cannot change during the search; a slot that does change is another's and is passed over.
fn find(address: usize) -> Option<(&'static Slot, usize, usize)> {
    let mut chunk = &TABLE;
    loop {
        for slot in &chunk.slots {
            let version = slot.version.load(Ordering::Acquire); // (R1)
            if version % 2 == 0 {
                continue;
            }
            let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if slot.version.load(Ordering::Relaxed) == version && (start..end).contains(&address) {
                return Some((slot, start, end));
            }
        }
        let next = chunk.next.load(Ordering::Acquire); // (R2)
        // SAFETY: only pointers to leaked chunks are ever stored, so they are valid for ever.
        chunk = unsafe { next.as_ref() }?;
    }
}

fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: with no new action the call only fills `previous`, for which zeroes are a valid value too (SIG_DFL).
        let previous = unsafe {
            libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr());
            previous.assume_init()
        };
        // Known before the handler can run.
        let _ = PREVIOUS.set(previous);
        // SAFETY: `action` is fully initialised (zeroes, then the fields that matter), the mask is empty, and `on_sigbus`
        // has the signature that SA_SIGINFO asks for. It runs on the thread's alternate stack where there is one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
        }
    });
}

/// Only async-signal-safe things happen here: atomics and bare system calls (rustix makes them without errno).
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO; for the two codes looked at below
    // its address field is the one that is set.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR) && contain(address) {
        return;
    }
    pass_on(signal, code);
}

fn contain(address: usize) -> bool {
    let Some((slot, start, end)) = find(address) else { return false };
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    slot.faulted.store(true, Ordering::Release);
    // SAFETY: [start, end) is a registered mapping that the faulting thread borrows, so it stays mapped throughout and
    // nothing else lives there. It is only ever accessed as raw shared bytes, for which zeroes are as good as any value.
    let replaced = unsafe {
        mmap_anonymous(
            std::ptr::with_exposed_provenance_mut(start),
            end - start,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    };
    if replaced.is_ok() {
        FAULTS.fetch_add(1, Ordering::AcqRel);
    }
    replaced.is_ok()
}

/// Puts back who handled the signal before; returning then lets the access fault again, into that one.
fn pass_on(signal: c_int, code: c_int) {
    // SAFETY: async-signal-safe by POSIX. PREVIOUS was set before the handler was installed; zeroes are SIG_DFL.
    unsafe {
        let default = MaybeUninit::<libc::sigaction>::zeroed();
        // A code of 0 or less was sent by kill() and not by an access: nothing would fault again, and Rust's own handler
        // would count on that. So the process ends here as it would have without any handler.
        let sent = code <= 0;
        let next = PREVIOUS.get().filter(|_| !sent).map_or(default.as_ptr(), std::ptr::from_ref);
        libc::sigaction(signal, next, null_mut());
        if sent {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::fs::ftruncate;

    use super::super::SharedMemory;
    use super::*;

    #[test]
    fn addresses_are_found_only_while_registered() {
        // Far from anything mapped; the table does not touch what it is told.
        let base = 0x10_0000_usize;
        let mut regions: Vec<_> = (0..1000).map(|i| Region::register(base + i * 0x2000, 0x1000)).collect();
        for i in 0..1000 {
            let start = base + i * 0x2000;
            assert_eq!(find(start).map(|(_, s, e)| (s, e)), Some((start, start + 0x1000)));
            assert_eq!(find(start + 0xfff).map(|(_, s, _)| s), Some(start));
            assert!(find(start + 0x1000).is_none() && find(start - 1).is_none());
        }
        regions.truncate(500);
        assert!(find(base + 499 * 0x2000).is_some() && find(base + 500 * 0x2000).is_none());
        // A reused place starts without its predecessor's mark.
        let slot = regions[0].slot.unwrap();
        slot.faulted.store(true, Ordering::Release);
        drop(regions);
        assert!(!Region::register(base, 0x1000).faulted());
    }

    /// Runs this test alone in a process of its own, where `HIPPIHX_CHILD` is set, and gives how it ended.
    fn in_child(test: &str) -> std::process::ExitStatus {
        let name = format!("memory::sigbus::tests::{test}");
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env("HIPPIHX_CHILD", "1")
            .output()
            .unwrap();
        eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        output.status
    }

    fn is_child() -> bool {
        std::env::var_os("HIPPIHX_CHILD").is_some()
    }

    #[test]
    fn a_page_that_cannot_come_back_faults_its_mapping_alone() {
        if !is_child() {
            assert!(in_child("a_page_that_cannot_come_back_faults_its_mapping_alone").success());
            return;
        }
        let (memory, fd) = SharedMemory::unsealed(4 * 4096);
        let (other, _other_fd) = SharedMemory::unsealed(4096);
        memory.bytes().write(0, &[7_u8; 4 * 4096]).unwrap();
        other.bytes().write(0, &[8_u8; 4096]).unwrap();
        // The thread is in the middle of reading when the file goes.
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut page = [1_u8; 4096];
                while page[0] != 0 {
                    memory.bytes().read(3 * 4096, &mut page).unwrap();
                }
            });
            ftruncate(&fd, 0).unwrap();
            reader.join().unwrap();
        });
        assert!(memory.faulted());
        assert_eq!(faults(), 1);
        memory.bytes().write(0, &[9_u8; 4 * 4096]).unwrap();
        assert_eq!(memory.bytes().get::<u8>(4 * 4096 - 1), Ok(9));
        assert_eq!(faults(), 1, "the whole mapping was replaced at once");
        assert!(!other.faulted());
        assert_eq!(other.bytes().get::<u8>(4095), Ok(8));
    }

    #[test]
    fn a_fault_outside_the_table_still_ends_the_process() {
        if is_child() {
            let (mut memory, fd) = SharedMemory::unsealed(4096);
            memory.forget_region();
            ftruncate(&fd, 0).unwrap();
            let _ = memory.bytes().get::<u8>(0);
            unreachable!("the access faults");
        }
        let status = in_child("a_fault_outside_the_table_still_ends_the_process");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }

    #[test]
    fn a_signal_sent_by_a_process_is_not_swallowed() {
        if is_child() {
            let (_memory, _fd) = SharedMemory::unsealed(4096);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS).unwrap();
            std::thread::park_timeout(std::time::Duration::from_secs(30));
            unreachable!("the signal ends the process");
        }
        let status = in_child("a_signal_sent_by_a_process_is_not_swallowed");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }
}
