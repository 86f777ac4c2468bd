//! The fake device's memory: memfds, found by address.
//!
//! A device address is the address of the mapping, which makes it unique, but it is only ever looked up, never followed: a
//! launch whose address lies in no live memory fails as a GPU's page fault would, and hurts nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::device::{DeviceError, Export, Memory, MemoryInfo};
use crate::memory::{MemoryError, SharedMemory};

/// Allocations are rounded up to whole pages.
const GRANULARITY: u64 = 4096;

/// All memory of one device.
#[derive(Debug)]
pub(super) struct AddressSpace {
    total: u64,
    live: RwLock<Live>,
}

#[derive(Debug, Default)]
struct Live {
    by_address: BTreeMap<u64, Weak<FakeMemory>>,
    used: u64,
}

impl AddressSpace {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, live: RwLock::default() })
    }

    pub(super) fn info(&self) -> MemoryInfo {
        let used = self.live.read().unwrap_or_else(PoisonError::into_inner).used;
        MemoryInfo { total: self.total, free: self.total.saturating_sub(used) }
    }

    pub(super) fn allocate(self: &Arc<Self>, size: u64) -> Result<Arc<FakeMemory>, DeviceError> {
        let rounded = size.checked_next_multiple_of(GRANULARITY).ok_or_else(|| self.full(size))?;
        self.add(size, rounded, || SharedMemory::create("hippihx-fake", rounded))
    }

    pub(super) fn import(self: &Arc<Self>, memfd: OwnedFd, size: u64) -> Result<Arc<FakeMemory>, DeviceError> {
        self.add(size, size, || SharedMemory::import(memfd, size))
    }

    /// `size` bytes are charged for the `asked` ones.
    fn add(
        self: &Arc<Self>,
        asked: u64,
        size: u64,
        make: impl FnOnce() -> Result<SharedMemory, MemoryError>,
    ) -> Result<Arc<FakeMemory>, DeviceError> {
        self.charge(size).map_err(|()| self.full(asked))?;
        // From here on the drop of `charge` gives the bytes back.
        let charge = Charge { space: Arc::clone(self), size };
        let shared = make().map_err(|error| {
            if error.is_exhaustion() {
                DeviceError::OutOfMemory { asked, detail: error.to_string() }
            } else {
                DeviceError::Refused(error.to_string())
            }
        })?;
        if shared.size() as u64 != size {
            return Err(DeviceError::Refused(format!("the memfd has {} bytes, not {size}", shared.size())));
        }
        let memory = Arc::new(FakeMemory { shared, charge });
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.by_address.insert(memory.address(), Arc::downgrade(&memory));
        Ok(memory)
    }

    fn charge(&self, size: u64) -> Result<(), ()> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        match live.used.checked_add(size) {
            Some(used) if used <= self.total => {
                live.used = used;
                Ok(())
            }
            _ => Err(()),
        }
    }

    fn full(&self, asked: u64) -> DeviceError {
        let MemoryInfo { total, free } = self.info();
        DeviceError::OutOfMemory { asked, detail: format!("{free} of the fake device's {total} bytes are free") }
    }

    /// The live memory that holds `address`, and the offset of it there.
    pub(super) fn find(&self, address: u64) -> Option<(Arc<FakeMemory>, u64)> {
        let (base, memory) = {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            let (base, memory) = live.by_address.range(..=address).next_back()?;
            (*base, memory.upgrade()?)
        };
        // Outside the lock, since `memory` may be the last reference by now and its drop takes the lock.
        let offset = address - base;
        (offset < memory.size()).then_some((memory, offset))
    }
}

/// Bytes taken from the device's total, until dropped.
#[derive(Debug)]
struct Charge {
    space: Arc<AddressSpace>,
    size: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut live = self.space.live.write().unwrap_or_else(PoisonError::into_inner);
        live.used = live.used.saturating_sub(self.size);
    }
}

/// One memfd as device memory. Its bytes count as used until the mapping is gone (fields drop in their order).
pub(super) struct FakeMemory {
    shared: SharedMemory,
    charge: Charge,
}

impl FakeMemory {
    pub(super) fn shared(&self) -> &SharedMemory {
        &self.shared
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        // Before the mapping goes: afterwards the address may be another memory's.
        let mut live = self.charge.space.live.write().unwrap_or_else(PoisonError::into_inner);
        live.by_address.remove(&self.address());
    }
}

impl fmt::Debug for FakeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeMemory").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Memory for FakeMemory {
    fn address(&self) -> u64 {
        self.shared.address()
    }

    fn size(&self) -> u64 {
        self.charge.size
    }

    fn export(&self) -> Result<Export<'_>, DeviceError> {
        Ok(Export::Memfd(self.shared.descriptor()))
    }

    fn faulted(&self) -> bool {
        self.shared.faulted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_live_memory_only() {
        let space = AddressSpace::new(1 << 20);
        let memory = space.allocate(5000).unwrap();
        assert_eq!(memory.size(), 8192);
        let (found, offset) = space.find(memory.address() + 8191).unwrap();
        assert!(Arc::ptr_eq(&found, &memory) && offset == 8191);
        assert!(space.find(memory.address() + 8192).is_none());
        assert!(space.find(memory.address() - 1).is_none());
        let address = memory.address();
        drop((memory, found));
        assert!(space.find(address).is_none());
    }

    #[test]
    fn bytes_are_counted_until_the_last_reference_goes() {
        let space = AddressSpace::new(3 * 4096);
        let first = space.allocate(4096).unwrap();
        let again = Arc::clone(&first);
        let second = space.allocate(8192).unwrap();
        let error = space.allocate(1).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { asked: 1, .. }), "{error}");
        drop(first);
        assert_eq!(space.info().free, 0);
        drop(again);
        assert_eq!(space.info().free, 4096);
        drop(second);
        assert_eq!(space.info().free, 3 * 4096);
    }

    #[test]
    fn what_fails_to_be_made_costs_nothing() {
        let space = AddressSpace::new(u64::MAX);
        assert!(matches!(space.allocate(1 << 50), Err(DeviceError::OutOfMemory { .. })));
        assert!(matches!(space.allocate(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
        assert!(matches!(space.allocate(0), Err(DeviceError::Refused(_))));
        assert_eq!(space.info().free, u64::MAX);
    }

    #[test]
    fn memory_that_lost_a_page_says_so() {
        let space = AddressSpace::new(1 << 20);
        let (shared, file) = SharedMemory::unsealed(8192);
        let memory = space.add(8192, 8192, || Ok(shared)).unwrap();
        let before = crate::memory::sigbus::faults();
        assert!(!memory.faulted());
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert_eq!(memory.shared().bytes().get::<u32>(4096), Ok(0));
        assert!(memory.faulted());
        assert!(crate::memory::sigbus::faults() > before);
    }
}
