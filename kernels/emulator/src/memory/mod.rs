//! The device memory that a dispatch may touch: ranges of addresses, each backed by bytes of the caller's.
//!
//! The emulator holds no pointer. It asks a [`Backing`] to copy bytes out and in, so memory that other processes write at
//! the same time stays the business of whoever mapped it: the crate needs no `unsafe`.

mod buffer;
mod shadow;

pub use buffer::Buffer;
use shadow::Bits;
use thiserror::Error;

/// Bytes that a range lies over. Other threads and processes may change them at any time; a copy need not be of one moment,
/// but aligned accesses of 1, 2 or 4 bytes should not tear.
///
/// The emulator checks every access against [`len`](Self::len) as it was at [`Memory::bind`] before it calls the others.
pub trait Backing: Sync {
    /// Bytes.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from byte `offset` on.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies `data` to byte `offset` on.
    fn write(&self, offset: u64, data: &[u8]);
}

/// What a kernel may do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// What a range holds before the first dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Data of the caller's.
    Initialised,
    /// Nothing yet: a load of a byte that no dispatch on this [`Memory`] has stored is reported.
    Unwritten,
}

/// Why a range cannot be bound.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BindError {
    #[error("range '{name}' is empty")]
    Empty { name: String },
    #[error("range '{name}' of {len} bytes at {address:#x} wraps around the address space")]
    Wraps { name: String, address: u64, len: u64 },
    #[error("range '{name}' at {address:#x} overlaps range '{other}'; bind each address once")]
    Overlaps { name: String, address: u64, other: String },
}

pub(crate) struct Range<'m> {
    pub name: String,
    pub address: u64,
    pub len: u64,
    pub access: Access,
    backing: &'m dyn Backing,
    /// One bit a byte stored so far, for ranges that began unwritten.
    written: Option<Bits>,
}

/// The bound ranges.
#[derive(Default)]
pub struct Memory<'m> {
    /// Sorted by address, without overlap.
    ranges: Vec<Range<'m>>,
}

impl std::fmt::Debug for Memory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.ranges.iter().map(|r| format!("{} {:#x}+{} {:?}", r.name, r.address, r.len, r.access)))
            .finish()
    }
}

impl<'m> Memory<'m> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets kernels reach all of `backing` at `address` on. The name appears in reports and faults.
    ///
    /// # Errors
    /// [`BindError`] for an empty range, one that wraps, or one that overlaps another.
    pub fn bind(
        &mut self,
        name: impl Into<String>,
        address: u64,
        backing: &'m dyn Backing,
        access: Access,
        contents: Contents,
    ) -> Result<(), BindError> {
        let (name, len) = (name.into(), backing.len());
        if len == 0 {
            return Err(BindError::Empty { name });
        }
        let Some(end) = address.checked_add(len) else {
            return Err(BindError::Wraps { name, address, len });
        };
        let at = self.ranges.partition_point(|r| r.address < address);
        let before = at.checked_sub(1).map(|i| &self.ranges[i]).filter(|r| r.address + r.len > address);
        if let Some(other) = before.or_else(|| self.ranges.get(at).filter(|r| r.address < end)) {
            return Err(BindError::Overlaps { name, address, other: other.name.clone() });
        }
        let written = (contents == Contents::Unwritten).then(|| Bits::new(len));
        self.ranges.insert(at, Range { name, address, len, access, backing, written });
        Ok(())
    }

    pub(crate) fn ranges(&self) -> &[Range<'m>] {
        &self.ranges
    }

    /// The range that holds all of `len` bytes at `address`, looked for at `hint` first, and the offset in it.
    #[inline]
    pub(crate) fn locate(&self, address: u64, len: u64, hint: usize) -> Option<(usize, u64)> {
        if let Some(range) = self.ranges.get(hint)
            && let Some(offset) = range.offset_of(address, len)
        {
            return Some((hint, offset));
        }
        let at = self.ranges.partition_point(|r| r.address <= address).checked_sub(1)?;
        Some((at, self.ranges[at].offset_of(address, len)?))
    }

    /// The range nearest below `address`, for a message.
    pub(crate) fn neighbour(&self, address: u64) -> Option<&Range<'m>> {
        let at = self.ranges.partition_point(|r| r.address <= address);
        self.ranges.get(at.saturating_sub(1))
    }

    /// An address such that `len` bytes from it on meet no range.
    pub(crate) fn free_address(&self, len: u64) -> Option<u64> {
        const STEP: u64 = 1 << 32;
        (0x7e00..0x7f00)
            .map(|n| n * STEP)
            .find(|&from| !self.ranges.iter().any(|r| r.address < from + len && from < r.address + r.len))
    }
}

impl Range<'_> {
    #[inline]
    fn offset_of(&self, address: u64, len: u64) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        (offset < self.len && len <= self.len - offset).then_some(offset)
    }

    #[inline]
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        self.backing.read(offset, out);
    }

    #[inline]
    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        self.backing.write(offset, data);
        if let Some(written) = &self.written {
            written.set(offset, data.len() as u64);
        }
    }

    /// Whether a byte of these was never stored although the range began unwritten.
    #[inline]
    pub(crate) fn unwritten(&self, offset: u64, len: u64) -> bool {
        self.written.as_ref().is_some_and(|written| !written.all(offset, len))
    }
}

/// Which bytes of each range one dispatch loaded and stored.
#[derive(Debug)]
pub(crate) struct Touched {
    /// Loaded and stored, a range each.
    ranges: Vec<(Bits, Bits)>,
}

impl Touched {
    pub(crate) fn new(memory: &Memory<'_>) -> Self {
        Self { ranges: memory.ranges.iter().map(|r| (Bits::new(r.len), Bits::new(r.len))).collect() }
    }

    #[inline]
    pub(crate) fn load(&self, range: usize, offset: u64, len: u64) {
        self.ranges[range].0.set(offset, len);
    }

    #[inline]
    pub(crate) fn store(&self, range: usize, offset: u64, len: u64) {
        self.ranges[range].1.set(offset, len);
    }

    /// Bytes loaded and stored at least once.
    pub(crate) fn counts(&self, range: usize) -> (u64, u64) {
        (self.ranges[range].0.count(), self.ranges[range].1.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_address_and_overlaps_are_refused() {
        let (a, b) = (Buffer::zeroed(100), Buffer::zeroed(64));
        let mut memory = Memory::new();
        memory.bind("a", 0x1000, &a, Access::Read, Contents::Initialised).unwrap();
        memory.bind("b", 0x1064, &b, Access::ReadWrite, Contents::Unwritten).unwrap();
        assert_eq!(memory.locate(0x1000, 100, 9), Some((0, 0)));
        assert_eq!(memory.locate(0x1000, 101, 0), None);
        assert_eq!(memory.locate(0x1063, 2, 0), None);
        assert_eq!(memory.locate(0x10a3, 1, 0), Some((1, 63)));
        assert_eq!(memory.locate(0xfff, 1, 0), None);
        assert_eq!(memory.locate(u64::MAX, 16, 0), None);
        let clash = memory.bind("c", 0xff0, &b, Access::Read, Contents::Initialised);
        assert!(matches!(clash, Err(BindError::Overlaps { other, .. }) if other == "a"));
        let wraps = memory.bind("d", u64::MAX - 3, &b, Access::Read, Contents::Initialised);
        assert!(matches!(wraps, Err(BindError::Wraps { .. })));
        assert!(memory.ranges()[1].unwritten(0, 1));
        memory.ranges()[1].write(0, &[1, 2]);
        assert!(!memory.ranges()[1].unwritten(0, 2));
        assert!(memory.ranges()[1].unwritten(1, 2));
    }
}
