//! Kernel arguments from words, for command lines: values, and buffers that the emulator makes.
//!
//! | word | argument |
//! |---|---|
//! | `u32:N`, `i32:N`, `u64:N`, `i64:N`, `f32:X`, `f64:X` | a value |
//! | `in:PATH` | address of a read-only buffer with the file's bytes |
//! | `zeros:BYTES` | address of a read-only buffer of zeros |
//! | `normal16:N`, `normal32:N` | address of a read-only buffer of N halves or floats of N(0, 1), the same every time |
//! | `out:BYTES` | address of a buffer to be written; loading it before that is reported |
//! | `null` | address 0 |

use thiserror::Error;

use crate::exec::float::f32_to_f16;
use crate::memory::{Access, BindError, Buffer, Contents, Memory};

#[derive(Debug, Error)]
pub enum ArgumentError {
    #[error(
        "argument {at}: '{word}' is none of u32:N i32:N u64:N i64:N f32:X f64:X in:PATH zeros:BYTES normal16:N normal32:N out:BYTES null"
    )]
    Word { at: usize, word: String },
    #[error("argument {at}: cannot read '{path}': {source}")]
    File { at: usize, path: String, source: std::io::Error },
    #[error("argument {at}: {bytes} bytes; at most {MAX_BUFFER} are made")]
    Size { at: usize, bytes: u64 },
}

/// Bytes of a buffer that a word may ask for.
const MAX_BUFFER: u64 = 1 << 32;
/// Buffers lie this far apart, so that a step past an end meets nothing.
const APART: u64 = 1 << 36;

#[derive(Debug)]
struct Made {
    name: String,
    address: u64,
    buffer: Buffer,
    access: Access,
    contents: Contents,
}

/// Packed arguments and the buffers that they point at.
#[derive(Debug, Default)]
pub struct Arguments {
    kernarg: Vec<u8>,
    buffers: Vec<Made>,
}

impl Arguments {
    /// Packs the words in order, each aligned to its size.
    ///
    /// # Errors
    /// [`ArgumentError`] names the word, or the file that cannot be read.
    pub fn parse<W: AsRef<str>>(words: &[W]) -> Result<Self, ArgumentError> {
        let mut made = Self::default();
        for (at, word) in words.iter().enumerate() {
            made.add(at, word.as_ref())?;
        }
        Ok(made)
    }

    fn add(&mut self, at: usize, word: &str) -> Result<(), ArgumentError> {
        let wrong = || ArgumentError::Word { at, word: word.to_owned() };
        if word == "null" {
            self.push(&0_u64.to_le_bytes());
            return Ok(());
        }
        let (kind, text) = word.split_once(':').ok_or_else(wrong)?;
        let size = |unit: u64| {
            let bytes = text.parse::<u64>().map_err(|_| wrong())?.saturating_mul(unit);
            if bytes == 0 || bytes > MAX_BUFFER { Err(ArgumentError::Size { at, bytes }) } else { Ok(bytes) }
        };
        let (buffer, access) = match kind {
            "u32" => return self.value(text.parse::<u32>().map(u32::to_le_bytes).map_err(|_| wrong())),
            "i32" => return self.value(text.parse::<i32>().map(i32::to_le_bytes).map_err(|_| wrong())),
            "u64" => return self.value(text.parse::<u64>().map(u64::to_le_bytes).map_err(|_| wrong())),
            "i64" => return self.value(text.parse::<i64>().map(i64::to_le_bytes).map_err(|_| wrong())),
            "f32" => return self.value(text.parse::<f32>().map(f32::to_le_bytes).map_err(|_| wrong())),
            "f64" => return self.value(text.parse::<f64>().map(f64::to_le_bytes).map_err(|_| wrong())),
            "in" => {
                let bytes =
                    std::fs::read(text).map_err(|source| ArgumentError::File { at, path: text.to_owned(), source })?;
                (Buffer::from_bytes(&bytes), Access::Read)
            }
            "zeros" => (Buffer::zeroed(size(1)?), Access::Read),
            "normal16" => {
                let halves = normals(at).take((size(2)? / 2) as usize).flat_map(|x| f32_to_f16(x).to_le_bytes());
                (Buffer::from_bytes(&halves.collect::<Vec<u8>>()), Access::Read)
            }
            "normal32" => (Buffer::from_f32s(normals(at).take((size(4)? / 4) as usize)), Access::Read),
            "out" => (Buffer::zeroed(size(1)?), Access::ReadWrite),
            _ => return Err(wrong()),
        };
        let address = APART * (at as u64 + 1);
        self.push(&address.to_le_bytes());
        let contents = if access == Access::Read { Contents::Initialised } else { Contents::Unwritten };
        self.buffers.push(Made { name: format!("arg{at}"), address, buffer, access, contents });
        Ok(())
    }

    fn value<const N: usize>(&mut self, bytes: Result<[u8; N], ArgumentError>) -> Result<(), ArgumentError> {
        self.push(&bytes?);
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kernarg.resize(self.kernarg.len().next_multiple_of(bytes.len()), 0);
        self.kernarg.extend(bytes);
    }

    /// The explicit arguments.
    pub fn kernarg(&self) -> &[u8] {
        &self.kernarg
    }

    /// Memory with every buffer bound as `argN`, N counting all arguments from 0.
    ///
    /// # Errors
    /// [`BindError`] for an empty file.
    pub fn memory(&self) -> Result<Memory<'_>, BindError> {
        let mut memory = Memory::new();
        for made in &self.buffers {
            memory.bind(made.name.as_str(), made.address, &made.buffer, made.access, made.contents)?;
        }
        Ok(memory)
    }

    /// The buffers that kernels may write: name and bytes.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let written = self.buffers.iter().filter(|made| made.access == Access::ReadWrite);
        written.map(|made| (made.name.as_str(), made.buffer.to_bytes()))
    }
}

/// N(0, 1) by Box and Muller over SplitMix64.
fn normals(seed: usize) -> impl Iterator<Item = f32> {
    let mut state = seed as u64;
    let mut unit = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    std::iter::repeat_with(move || {
        let (a, b) = (unit(), unit());
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_packed_arguments() {
        let made = Arguments::parse(&["u32:7", "normal16:64", "f32:1.5", "null", "out:32"]).unwrap();
        let kernarg = made.kernarg();
        assert_eq!(kernarg.len(), 40);
        assert_eq!(kernarg[..4], 7_u32.to_le_bytes());
        assert_eq!(kernarg[8..16], (2 * APART).to_le_bytes());
        assert_eq!(kernarg[16..20], 1.5_f32.to_le_bytes());
        assert_eq!(kernarg[24..32], [0; 8]);
        let memory = made.memory().unwrap();
        let names: Vec<&str> = memory.ranges().iter().map(|range| range.name.as_str()).collect();
        assert_eq!(names, ["arg1", "arg4"]);
        assert_eq!(made.outputs().map(|(name, bytes)| (name, bytes.len())).collect::<Vec<_>>(), [("arg4", 32)]);
        for wrong in ["u32", "u32:x", "what:1", "u32:-1"] {
            assert!(matches!(Arguments::parse(&[wrong]), Err(ArgumentError::Word { at: 0, .. })), "{wrong}");
        }
        assert!(matches!(Arguments::parse(&["out:0"]), Err(ArgumentError::Size { .. })));
    }
}
