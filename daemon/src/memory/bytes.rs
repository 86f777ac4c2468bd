//! Access to bytes that other processes write at the same time.
//!
//! Why this is sound. The mapping is memory that no Rust object lives in: it is made by mmap, no `&` or `&mut` into it
//! exists in this process (only [`Bytes`] hands out access, and copies), and it stays mapped for the lifetime `'a`. Another
//! process may write any byte at any time. So no access may be assumed to be the only one: each is a relaxed atomic load or
//! store of an aligned 1, 2, 4 or 8 byte integer, which the compiler neither repeats nor drops nor splits, and which the
//! hardware does not tear. Any bit pattern is a valid integer, and every value is checked after it was copied, never in
//! place. What is not promised: that a range copied is of one moment. Two threads of this process that access the same bytes
//! with different widths get some mixture of old and new bytes; a queue runs its work in one thread, so that takes a client
//! that hands the same memfd to two sessions, which are two different mappings here.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use thiserror::Error;

/// An access that does not lie within the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{len} bytes at offset {offset} reach outside {size} bytes")]
pub struct OutOfBounds {
    pub offset: u64,
    pub len: u64,
    pub size: u64,
}

/// Shared bytes. Copying a `Bytes` copies the view, not the bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    base: NonNull<u8>,
    size: usize,
    mapping: PhantomData<&'a ()>,
}

// SAFETY: all access is by relaxed atomics; `new` promises that the memory outlives `'a` from whatever thread.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

/// Numbers for which every bit pattern is a value and which have no padding.
///
/// # Safety
/// Exactly those may implement it.
pub unsafe trait Plain: Copy + Default {}
// SAFETY: integers and floats, any bits, no padding.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

impl<'a> Bytes<'a> {
    /// # Safety
    /// `size` bytes from `base` stay mapped for reading and writing for all of `'a`, and while it lasts no Rust reference
    /// into them is made anywhere in this process. `size` is at most `isize::MAX`.
    pub(super) unsafe fn new(base: NonNull<u8>, size: usize) -> Self {
        Self { base, size, mapping: PhantomData }
    }

    /// Bytes.
    pub fn size(self) -> usize {
        self.size
    }

    /// `len` bytes from `offset` on.
    pub fn slice(self, offset: u64, len: u64) -> Result<Bytes<'a>, OutOfBounds> {
        let (at, size) = self.range(offset, len)?;
        // SAFETY: `range` keeps `at + size` within the mapping, so the pointer stays inside it (or one past its end).
        Ok(Self { base: unsafe { self.base.add(at) }, size, mapping: PhantomData })
    }

    /// Copies `out.len()` elements from byte `offset` on, which need not be aligned.
    pub fn read<T: Plain>(self, offset: u64, out: &mut [T]) -> Result<(), OutOfBounds> {
        let (at, len) = self.range(offset, size_of_val(out) as u64)?;
        // SAFETY: the source is inside the mapping (`range`); the destination is all of `out`, ours alone by `&mut`, and
        // any bytes are valid for a `Plain`.
        unsafe { copy_out(self.base.as_ptr().add(at), out.as_mut_ptr().cast(), len) };
        Ok(())
    }

    /// Copies all of `data` to byte `offset` on, which need not be aligned.
    pub fn write<T: Plain>(self, offset: u64, data: &[T]) -> Result<(), OutOfBounds> {
        let (at, len) = self.range(offset, size_of_val(data) as u64)?;
        // SAFETY: the destination is inside the mapping (`range`); the source is all of `data`, whose bytes are all
        // initialised, since a `Plain` has no padding.
        unsafe { copy_in(data.as_ptr().cast(), self.base.as_ptr().add(at), len) };
        Ok(())
    }

    /// One element at byte `offset`.
    pub fn get<T: Plain>(self, offset: u64) -> Result<T, OutOfBounds> {
        let mut one = [T::default()];
        self.read(offset, &mut one)?;
        Ok(one[0])
    }

    fn range(self, offset: u64, len: u64) -> Result<(usize, usize), OutOfBounds> {
        let size = self.size as u64;
        match offset.checked_add(len) {
            // Both are at most `self.size`, which is a usize.
            Some(end) if end <= size => Ok((offset as usize, len as usize)),
            _ => Err(OutOfBounds { offset, len, size }),
        }
    }
}

/// One relaxed load of the widest integer that is aligned at `$from` and fits `$left`, stored at `$to`; evaluates to its width.
macro_rules! step {
    ($shared:expr, $left:expr, $do:ident) => {{
        let address = $shared.addr();
        if $left >= 8 && address % 8 == 0 {
            $do!(AtomicU64, u64)
        } else if $left >= 4 && address % 4 == 0 {
            $do!(AtomicU32, u32)
        } else if $left >= 2 && address % 2 == 0 {
            $do!(AtomicU16, u16)
        } else {
            $do!(AtomicU8, u8)
        }
    }};
}

/// # Safety
/// `len` bytes from `shared` lie in a mapping as [`Bytes::new`] wants it; `len` bytes from `to` are ours to write.
unsafe fn copy_out(mut shared: *mut u8, mut to: *mut u8, mut len: usize) {
    while len > 0 {
        macro_rules! load {
            ($atomic:ty, $int:ty) => {{
                // SAFETY: aligned and inside the mapping by the conditions of `step`; `to` has as many bytes left.
                unsafe {
                    to.cast::<$int>().write_unaligned(<$atomic>::from_ptr(shared.cast()).load(Ordering::Relaxed))
                };
                size_of::<$int>()
            }};
        }
        let width = step!(shared, len, load);
        // SAFETY: `width <= len`, so both stay within their ranges or one past the end.
        unsafe {
            shared = shared.add(width);
            to = to.add(width);
        }
        len -= width;
    }
}

/// # Safety
/// `len` bytes from `shared` lie in a mapping as [`Bytes::new`] wants it; `len` bytes from `from` are initialised.
unsafe fn copy_in(mut from: *const u8, mut shared: *mut u8, mut len: usize) {
    while len > 0 {
        macro_rules! store {
            ($atomic:ty, $int:ty) => {{
                // SAFETY: aligned and inside the mapping by the conditions of `step`; `from` has as many bytes left.
                unsafe {
                    <$atomic>::from_ptr(shared.cast()).store(from.cast::<$int>().read_unaligned(), Ordering::Relaxed)
                };
                size_of::<$int>()
            }};
        }
        let width = step!(shared, len, store);
        // SAFETY: `width <= len`, so both stay within their ranges or one past the end.
        unsafe {
            shared = shared.add(width);
            from = from.add(width);
        }
        len -= width;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SharedMemory;
    use super::*;

    proptest! {
        #[test]
        fn reads_and_writes_agree_with_a_slice(offset in 0_usize..70, len in 0_usize..70, seed in any::<u8>()) {
            let memory = SharedMemory::create("bytes", 64).unwrap();
            let mut model: Vec<u8> = (0..64_u8).map(|i| i.wrapping_mul(31)).collect();
            memory.bytes().write(0, &model).unwrap();
            let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_add(seed)).collect();
            let done = memory.bytes().write(offset as u64, &data);
            prop_assert_eq!(done.is_ok(), offset + len <= 64);
            if done.is_ok() {
                model[offset..offset + len].copy_from_slice(&data);
            }
            let mut all = vec![0_u8; 64];
            memory.bytes().read(0, &mut all).unwrap();
            prop_assert_eq!(&all, &model);
            let mut part = vec![0_u8; len];
            if memory.bytes().read(offset as u64, &mut part).is_ok() {
                prop_assert_eq!(part, data);
            }
        }
    }

    #[test]
    fn offsets_that_wrap_are_out_of_bounds() {
        let memory = SharedMemory::create("bytes", 8192).unwrap();
        for (offset, len) in [(u64::MAX - 7, 16), (0, 1 << 63), (8192, 1), (8191, 2)] {
            let error = memory.bytes().slice(offset, len).unwrap_err();
            assert_eq!(error, OutOfBounds { offset, len, size: 8192 });
        }
        assert_eq!(memory.bytes().slice(8192, 0).unwrap().size(), 0);
        assert!(memory.bytes().slice(8191, 1).unwrap().get::<u16>(0).is_err());
    }
}
