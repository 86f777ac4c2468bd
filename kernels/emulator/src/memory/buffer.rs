//! Memory of the emulator's own, for tests, benchmarks and tools.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Backing;

/// Bytes that threads may share. Whole aligned words are loaded and stored at once; parts of a word are merged into it.
#[derive(Debug)]
pub struct Buffer {
    words: Box<[AtomicU32]>,
    len: u64,
}

impl Buffer {
    pub fn zeroed(len: u64) -> Self {
        Self { words: (0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(), len }
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        let buffer = Self::zeroed(bytes.len() as u64);
        buffer.write(0, bytes);
        buffer
    }

    /// Little-endian, as the device reads them.
    pub fn from_u32s(values: impl IntoIterator<Item = u32>) -> Self {
        Self::from_bytes(&values.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>())
    }

    pub fn from_f32s(values: impl IntoIterator<Item = f32>) -> Self {
        Self::from_u32s(values.into_iter().map(f32::to_bits))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.len as usize];
        self.read(0, &mut out);
        out
    }

    /// Whole words only; a rest of fewer than 4 bytes is left out.
    pub fn to_u32s(&self) -> Vec<u32> {
        self.words[..(self.len / 4) as usize].iter().map(|w| w.load(Ordering::Relaxed)).collect()
    }

    pub fn to_f32s(&self) -> Vec<f32> {
        self.to_u32s().into_iter().map(f32::from_bits).collect()
    }
}

impl Backing for Buffer {
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn read(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        if at.is_multiple_of(4) && out.len().is_multiple_of(4) {
            let words = &self.words[at / 4..];
            for (to, word) in out.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            return;
        }
        let mut out = out;
        while !out.is_empty() {
            let (start, n) = (at % 4, (4 - at % 4).min(out.len()));
            let word = self.words[at / 4].load(Ordering::Relaxed).to_le_bytes();
            let (head, rest) = out.split_at_mut(n);
            head.copy_from_slice(&word[start..start + n]);
            (out, at) = (rest, at + n);
        }
    }

    #[inline]
    fn write(&self, offset: u64, data: &[u8]) {
        let (mut at, mut data) = (offset as usize, data);
        while !data.is_empty() {
            let (start, n) = (at % 4, (4 - at % 4).min(data.len()));
            let (head, rest) = data.split_at(n);
            let word = &self.words[at / 4];
            if let Ok(whole) = <[u8; 4]>::try_from(head) {
                word.store(u32::from_le_bytes(whole), Ordering::Relaxed);
            } else {
                let mut update = |old: u32| {
                    let mut bytes = old.to_le_bytes();
                    bytes[start..start + n].copy_from_slice(head);
                    Some(u32::from_le_bytes(bytes))
                };
                // The closure never refuses, so neither does the update.
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &mut update);
            }
            (data, at) = (rest, at + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_buffer_behaves_like_a_slice(ops in proptest::collection::vec((0_usize..64, 0_usize..20, any::<u8>()), 1..20)) {
            let mut model = [0_u8; 64];
            let buffer = Buffer::zeroed(64);
            for (offset, len, seed) in ops {
                let len = len.min(64 - offset);
                let data: Vec<u8> = (0..len).map(|i| seed.wrapping_add(i as u8)).collect();
                model[offset..offset + len].copy_from_slice(&data);
                buffer.write(offset as u64, &data);
                let mut back = vec![0; len];
                buffer.read(offset as u64, &mut back);
                prop_assert_eq!(back, data);
                prop_assert_eq!(&buffer.to_bytes()[..], &model[..]);
            }
        }
    }
}
