//! The workgroup's local memory, and what its checks remember.

/// Who touched two bytes since the last barrier.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    epoch: u32,
    /// A bit a wave.
    writers: u32,
    readers: u32,
    /// Instruction index of the last write.
    writer_at: u32,
}

/// Two accesses to the same bytes by different waves without a barrier between them, at least one of them a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Race {
    pub offset: u32,
    /// Index of the other's write, where it was one.
    pub other_write: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Lds {
    bytes: Vec<u8>,
    /// A bit for each byte that was written.
    written: Vec<u64>,
    cells: Vec<Cell>,
    epoch: u32,
    check_races: bool,
    check_unwritten: bool,
}

impl Lds {
    pub(crate) fn new(size: usize, check_races: bool, check_unwritten: bool) -> Self {
        let size_up = size.next_multiple_of(16);
        Self {
            bytes: vec![0; size_up],
            written: vec![0; if check_unwritten { size_up.div_ceil(64) + 1 } else { 0 }],
            cells: vec![Cell::default(); if check_races { size_up / 2 } else { 0 }],
            epoch: 1,
            check_races,
            check_unwritten,
        }
        .limited(size)
    }

    fn limited(mut self, size: usize) -> Self {
        self.bytes.truncate(size);
        self
    }

    /// For the next workgroup: contents are undefined again. They are filled with a pattern that shows.
    pub(crate) fn reset(&mut self) {
        self.bytes.fill(0xa5);
        self.written.fill(0);
        self.barrier();
    }

    /// Accesses on both sides of this are ordered.
    pub(crate) fn barrier(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes at `at`, or `None` outside.
    #[inline(always)]
    pub(crate) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        self.bytes.get(at..at.checked_add(len)?)
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, at: u64, data: &[u8]) -> Option<()> {
        let at = usize::try_from(at).ok()?;
        self.bytes.get_mut(at..at.checked_add(data.len())?)?.copy_from_slice(data);
        if self.check_unwritten {
            for byte in at..at + data.len() {
                self.written[byte / 64] |= 1 << (byte % 64);
            }
        }
        Some(())
    }

    /// Whether one of these bytes, which are inside, was never written by this workgroup.
    #[inline(always)]
    pub(crate) fn unwritten(&self, at: u64, len: usize) -> bool {
        if !self.check_unwritten {
            return false;
        }
        let at = at as usize;
        let mask = (1_u128 << len) - 1;
        let word = u128::from(self.written[at / 64]) | u128::from(self.written[at / 64 + 1]) << 64;
        word >> (at % 64) & mask != mask
    }

    /// Notes a read of bytes that are inside.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, at: u64, len: usize, wave: u32) -> Option<Race> {
        if !self.check_races {
            return None;
        }
        let (mut race, me) = (None, 1_u32 << wave);
        for index in at as usize / 2..(at as usize + len).div_ceil(2) {
            let cell = &mut self.cells[index];
            if cell.epoch != self.epoch {
                *cell = Cell { epoch: self.epoch, ..Cell::default() };
            }
            if cell.writers & !me != 0 {
                race = Some(Race { offset: index as u32 * 2, other_write: Some(cell.writer_at) });
            }
            cell.readers |= me;
        }
        race
    }

    /// Notes a write of bytes that are inside by the instruction with index `by`.
    #[inline(always)]
    pub(crate) fn note_write(&mut self, at: u64, len: usize, wave: u32, by: u32) -> Option<Race> {
        if !self.check_races {
            return None;
        }
        let (mut race, me) = (None, 1_u32 << wave);
        for index in at as usize / 2..(at as usize + len).div_ceil(2) {
            let cell = &mut self.cells[index];
            if cell.epoch != self.epoch {
                *cell = Cell { epoch: self.epoch, ..Cell::default() };
            }
            if (cell.writers | cell.readers) & !me != 0 {
                let other_write = (cell.writers & !me != 0).then_some(cell.writer_at);
                race = Some(Race { offset: index as u32 * 2, other_write });
            }
            cell.writers |= me;
            cell.writer_at = by;
        }
        race
    }
}

/// Extra cycles that 32 banks of 4 bytes need for these addresses: lanes are served in groups (32 lanes for up to 4 bytes a
/// lane, 16 for 8, 8 for more); in a group each bank serves one word a cycle, and lanes that want the same word share it.
pub(crate) fn bank_conflicts(addresses: &[u64], bytes: usize) -> u64 {
    let group = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut extra = 0;
    for lanes in addresses.chunks(group) {
        // Distinct words, by bank: at most 32 a group.
        let mut words = [0_u64; 32];
        let mut n = 0;
        let mut depth = [0_u8; 32];
        for &address in lanes {
            for word in address / 4..(address + bytes as u64).div_ceil(4) {
                if n < 32 && !words[..n].contains(&word) {
                    words[n] = word;
                    n += 1;
                    depth[(word % 32) as usize] += 1;
                }
            }
        }
        let most = depth.iter().copied().max().unwrap_or(0);
        extra += u64::from(most.saturating_sub(1));
    }
    extra
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks() {
        let stride = |bytes: u64| (0..32).map(|l| l * bytes).collect::<Vec<u64>>();
        assert_eq!(bank_conflicts(&stride(4), 4), 0);
        assert_eq!(bank_conflicts(&stride(8), 4), 1);
        assert_eq!(bank_conflicts(&stride(128), 4), 31);
        assert_eq!(bank_conflicts(&stride(132), 4), 0);
        assert_eq!(bank_conflicts(&[64; 32], 4), 0);
        assert_eq!(bank_conflicts(&stride(8), 8), 0);
        assert_eq!(bank_conflicts(&stride(16), 16), 0);
        // Eight lanes 256 bytes apart: eight rows of the same four banks, in each of four groups.
        assert_eq!(bank_conflicts(&stride(256), 16), 28);
    }

    #[test]
    fn races_are_seen_between_barriers_only() {
        let mut lds = Lds::new(64, true, true);
        lds.reset();
        assert_eq!(lds.note_write(0, 4, 0, 7), None);
        assert_eq!(lds.note_read(0, 4, 0), None);
        assert_eq!(lds.note_read(2, 2, 1), Some(Race { offset: 2, other_write: Some(7) }));
        assert_eq!(lds.note_write(8, 4, 1, 9), None);
        lds.barrier();
        assert_eq!(lds.note_read(0, 4, 1), None);
        assert_eq!(lds.note_write(0, 2, 0, 11), Some(Race { offset: 0, other_write: None }));
        assert_eq!(lds.note_write(4, 4, 0, 11), None);
        assert!(lds.unwritten(0, 4));
        assert_eq!(lds.put(0, &[1, 2, 3]), Some(()));
        assert!(!lds.unwritten(0, 3));
        assert!(lds.unwritten(1, 3));
        assert_eq!(lds.put(62, &[0; 3]), None);
    }
}
