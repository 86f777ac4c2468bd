//! What the benchmarks share: a clock that a busy machine does not disturb, and medians with their spread.

#![forbid(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that this thread has run: on a shared machine, waiting for a core is no cost of the call's.
pub fn busy() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The first quarter, the median and the third quarter.
pub fn quartiles(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at =
        |part: f64| values.get((values.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    (at(0.25), at(0.5), at(0.75))
}
