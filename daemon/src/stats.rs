//! Counters since start, cheap enough to be fed by every run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;

/// Upper bounds of the latency buckets, in microseconds: four a factor of two keeps a quantile within a fifth of the truth.
const BUCKETS: usize = 96;

fn bound_us(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4, (bucket % 4) as u64);
    ((4 + quarter) << octave) >> 2
}

/// A histogram of durations on a logarithmic scale.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            count: AtomicU64::new(0),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Upper bound in microseconds and count of each bucket; the last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .map(|(bucket, count)| ((bucket + 1 < BUCKETS).then(|| bound_us(bucket)), count.load(Ordering::Relaxed)))
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }

    /// Upper bound of the bucket that holds the quantile, in microseconds; 0 without records.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let counts: Vec<_> = self.buckets().collect();
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let wanted = (total as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (bound, count) in counts {
            seen += count;
            if seen >= wanted && seen > 0 {
                return bound.unwrap_or_else(|| bound_us(BUCKETS - 1));
            }
        }
        0
    }
}

/// The first bucket whose bound is at least this; the last one takes the rest.
fn bucket_of(us: u64) -> usize {
    let (mut low, mut high) = (0, BUCKETS - 1);
    while low < high {
        let middle = usize::midpoint(low, high);
        if bound_us(middle) >= us { high = middle } else { low = middle + 1 }
    }
    low
}

/// Everything that is counted for the whole daemon.
#[derive(Debug)]
pub struct Stats {
    started: Instant,
    /// Accepted runs that ended, by op and status or reason.
    runs: DashMap<(&'static str, &'static str), u64>,
    pub run_latency: Histogram,
    pub queue_latency: Histogram,
    pub grpc_bytes_in: AtomicU64,
    pub grpc_bytes_out: AtomicU64,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            started: Instant::now(),
            runs: DashMap::new(),
            run_latency: Histogram::default(),
            queue_latency: Histogram::default(),
            grpc_bytes_in: AtomicU64::new(0),
            grpc_bytes_out: AtomicU64::new(0),
        }
    }
}

impl Stats {
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts a run that ended. Ops and statuses come from fixed lists, so the map stays small.
    pub fn ran(&self, op: &'static str, status: &'static str) {
        *self.runs.entry((op, status)).or_insert(0) += 1;
    }

    /// Sorted by op and status.
    pub fn runs(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut runs: Vec<_> = self.runs.iter().map(|entry| (entry.key().0, entry.key().1, *entry.value())).collect();
        runs.sort_unstable();
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quantile_is_never_below_and_at_most_a_third_above(us in 4_u64..10_000_000) {
            let histogram = Histogram::default();
            histogram.record(Duration::from_micros(us));
            let found = histogram.quantile_us(0.5);
            prop_assert!(found >= us && found <= us + us / 3, "{} for {}", found, us);
        }
    }

    #[test]
    fn bounds_grow_and_quantiles_order() {
        assert!((1..BUCKETS).all(|bucket| bound_us(bucket) >= bound_us(bucket - 1)));
        let histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let [p50, p99] = [0.5, 0.99].map(|quantile| histogram.quantile_us(quantile));
        assert!((500..=640).contains(&p50) && (990..=1300).contains(&p99), "{p50} {p99}");
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(Histogram::default().quantile_us(0.5), 0);
    }

    #[test]
    fn runs_are_counted_by_op_and_status() {
        let stats = Stats::default();
        stats.ran("attention.fa_fdot2", "OK");
        stats.ran("attention.fa_fdot2", "OK");
        stats.ran("attention.fa_fdot2", "DEVICE_LOST");
        assert_eq!(stats.runs(), [("attention.fa_fdot2", "DEVICE_LOST", 1), ("attention.fa_fdot2", "OK", 2)]);
    }
}
