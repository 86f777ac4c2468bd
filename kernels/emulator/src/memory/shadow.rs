//! One bit for each byte of a range, set by many threads.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Bits {
    words: Box<[AtomicU64]>,
}

impl Bits {
    pub(super) fn new(len: u64) -> Self {
        Self { words: (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The words that hold bits `from .. from + len`, each with those bits of it. `len` is at least 1.
    fn spans(&self, from: u64, len: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let (first, last) = (from / 64, (from + len - 1) / 64);
        (first..=last).map(move |word| {
            let low = if word == first { u64::MAX << (from % 64) } else { u64::MAX };
            let high = if word == last { u64::MAX >> (63 - (from + len - 1) % 64) } else { u64::MAX };
            (&self.words[word as usize], low & high)
        })
    }

    #[inline]
    pub(super) fn set(&self, from: u64, len: u64) {
        for (word, mask) in self.spans(from, len) {
            // Most bytes are touched more than once; a plain load is cheaper than a locked or.
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub(super) fn all(&self, from: u64, len: u64) -> bool {
        self.spans(from, len).all(|(word, mask)| word.load(Ordering::Relaxed) & mask == mask)
    }

    pub(super) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_across_words_are_set_once() {
        let bits = Bits::new(200);
        bits.set(60, 70);
        bits.set(60, 1);
        assert_eq!(bits.count(), 70);
        assert!(bits.all(60, 70));
        assert!(!bits.all(59, 2));
        assert!(!bits.all(129, 2));
    }
}
