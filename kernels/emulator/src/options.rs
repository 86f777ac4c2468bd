//! What a run checks and records.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Checks beside the one that nothing can turn off: every access stays inside bound memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Registers read before anything wrote them.
    pub undefined_registers: bool,
    /// Loads of bytes that nobody stored: LDS, and ranges bound as [`crate::Contents::Unwritten`].
    pub unwritten_memory: bool,
    /// Accesses to the same LDS bytes by two waves without a barrier between them.
    pub lds_races: bool,
    /// Counts LDS bank conflicts.
    pub bank_conflicts: bool,
    /// Counts which bytes of each range were loaded and stored at least once. Costs two bits of memory for each bound byte.
    pub unique_bytes: bool,
}

impl Checks {
    /// Everything.
    pub const ALL: Self = Self {
        undefined_registers: true,
        unwritten_memory: true,
        lds_races: true,
        bank_conflicts: true,
        unique_bytes: true,
    };
    /// Bounds only.
    pub const NONE: Self = Self {
        undefined_registers: false,
        unwritten_memory: false,
        lds_races: false,
        bank_conflicts: false,
        unique_bytes: false,
    };
}

/// The wave to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOf {
    pub workgroup: [u32; 3],
    pub wave: u32,
    /// Instructions to record at most.
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that share the workgroups; 0 is one a core.
    pub threads: usize,
    pub checks: Checks,
    pub trace: Option<TraceOf>,
    /// Instructions a wave may execute before the run is stopped with a fault.
    pub instruction_limit: u64,
    /// Stops the run with a fault soon after it becomes true.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    /// One thread a core, every check, no trace, 2^32 instructions a wave.
    fn default() -> Self {
        Self { threads: 0, checks: Checks::ALL, trace: None, instruction_limit: 1 << 32, cancel: None }
    }
}
