//! A small mutator: enough to walk a parser's branches from good seeds, with no compiler support.

/// Numbers that lengths and offsets break at.
const EDGES: [u64; 12] = [0, 1, 7, 8, 63, 64, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// A seeded generator.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.word() % end as u64) as usize }
    }
}

/// Changes a few things in place.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.word() as u8,
            2..=4 => {
                let width = 1 << random.below(4);
                let edge = if random.below(3) == 0 { random.word() } else { EDGES[random.below(EDGES.len())] };
                let word = edge.wrapping_add(random.below(3) as u64).to_le_bytes();
                for (to, from) in bytes.iter_mut().skip(at).zip(&word[..width]) {
                    *to = *from;
                }
            }
            5 => bytes.truncate(at),
            6 => {
                let from = random.below(other.len());
                let length = random.below(64).min(other.len() - from);
                for (to, from) in bytes.iter_mut().skip(at).zip(&other[from..from + length]) {
                    *to = *from;
                }
            }
            _ => bytes.extend((0..random.below(16)).map(|_| random.word() as u8)),
        }
    }
}
