//! Memory shared with the daemon: made or fetched as a memfd, mapped once, seen as tensors without a copy.
//!
//! This is the crate's only unsafe code. The other side writes while we look, so no reference to the bytes is ever made:
//! elements are read and written one at a time, each as one volatile access of its own size.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use half::f16;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::Error;

mod sealed {
    pub trait Sealed {}
}

/// An element type of a tensor: every bit pattern is a value.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($kind:ty),*) => { $(impl sealed::Sealed for $kind {} impl Element for $kind {})* };
}
elements!(f16, f32, i8, u8, i32, i64);

/// A mapped memfd.
#[derive(Debug)]
pub struct SharedMemory {
    memfd: OwnedFd,
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the value until it is dropped, and is reached through volatile accesses only, which are
// allowed from any thread; what other threads or processes write meanwhile is seen element by element.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method makes a reference to the bytes.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes zeroed memory of `size` bytes, its pages reserved, sealed against shrinking and growing as the daemon wants it.
    ///
    /// # Errors
    /// [`Error::System`]: no room for the pages, or no descriptor.
    pub fn create(label: &str, size: usize) -> Result<SharedMemory, Error> {
        if size == 0 {
            return Err(Error::Argument("shared memory of 0 bytes".to_owned()));
        }
        let name: String = label.chars().filter(|c| *c != '\0').take(60).collect();
        let memfd = memfd_create(name.as_str(), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(Error::system("memfd_create"))?;
        // Reserves the pages too: memory that is not there is an error here, not a SIGBUS at the first touch.
        fallocate(&memfd, FallocateFlags::empty(), 0, size as u64).map_err(Error::system("shared memory"))?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).map_err(Error::system("sealing shared memory"))?;
        SharedMemory::map(memfd, size)
    }

    /// Maps a memfd that the daemon made; the daemon keeps it from shrinking.
    pub(crate) fn map(memfd: OwnedFd, size: usize) -> Result<SharedMemory, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; size is not 0.
        let base = unsafe {
            mmap(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memfd, 0)
        }
        .map_err(Error::system("mapping shared memory"))?;
        let base = NonNull::new(base.cast())
            .ok_or_else(|| Error::Protocol("shared memory was mapped at address 0".to_owned()))?;
        Ok(SharedMemory { memfd, base, size })
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// `len` elements from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is not inside, or not aligned to the element.
    pub fn view<T: Element>(&self, offset: usize, len: usize) -> Result<View<'_, T>, Error> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        if bytes.is_none_or(|end| end > self.size) || !offset.is_multiple_of(align_of::<T>()) {
            return Err(Error::Argument(format!(
                "{len} elements of {} bytes at byte {offset} are not inside {} bytes, or not aligned",
                size_of::<T>(),
                self.size
            )));
        }
        // SAFETY: offset is at most size, so the result is inside the mapping or one past its end.
        let first = unsafe { self.base.add(offset) };
        Ok(View { first: first.cast(), len, _memory: PhantomData })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made; views borrow the value, so none is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// A tensor's elements in shared memory; nothing is copied but what is asked for.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T> {
    first: NonNull<T>,
    len: usize,
    _memory: PhantomData<&'a SharedMemory>,
}

impl<T: Element> View<'_, T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Panics
    /// Beyond the view's end, as a slice would.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len, "index {index} of a view of {}", self.len);
        // SAFETY: inside the view, which is inside the mapping and aligned; every bit pattern is a T.
        unsafe { self.first.add(index).read_volatile() }
    }

    /// # Panics
    /// Beyond the view's end, as a slice would.
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.len, "index {index} of a view of {}", self.len);
        // SAFETY: as in get.
        unsafe { self.first.add(index).write_volatile(value) }
    }

    /// All elements, copied out.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len).map(|index| self.get(index)).collect()
    }

    /// Writes the first elements.
    ///
    /// # Panics
    /// When there are more values than elements.
    pub fn write(&self, values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            self.set(index, *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_of_the_memory_and_inside_it() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        memory.view::<f32>(8, 2).unwrap().write(&[1.5, -2.0]);
        assert_eq!(memory.view::<u8>(8, 4).unwrap().to_vec(), 1.5_f32.to_le_bytes());
        assert!(memory.view::<i64>(4088, 1).is_ok());
        for (offset, len) in [(4088, 2), (4, 1), (4096, 1), (0, usize::MAX), (usize::MAX - 7, 1)] {
            assert!(memory.view::<i64>(offset, len).is_err(), "{offset} {len}");
        }
        assert_eq!(memory.view::<i64>(4096, 0).unwrap().len(), 0);
    }

    #[test]
    fn what_is_made_can_neither_shrink_nor_grow() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        assert!(rustix::fs::ftruncate(&memory, 0).is_err() && rustix::fs::ftruncate(&memory, 8192).is_err());
        assert!(SharedMemory::create("none", 0).is_err());
    }
}
