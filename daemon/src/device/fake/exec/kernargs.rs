//! A launch's packed arguments, found by name in the kernel's argument table.

use std::sync::Arc;

use hippihx_kernels::launch::{ArgKind, Launch};

use super::super::memory::{AddressSpace, FakeMemory};
use crate::device::DeviceError;
use crate::memory::Bytes;

/// Reads the arguments of one launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernargs<'a> {
    launch: &'a Launch,
    space: &'a AddressSpace,
}

/// Device memory from an argument's address on, kept alive while it is computed with.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Arc<FakeMemory>,
    offset: u64,
}

impl Buffer {
    /// From the address to the end of its memory.
    pub(super) fn bytes(&self) -> Bytes<'_> {
        let all = self.memory.shared().bytes();
        // The offset was found inside the memory, so the slice exists; without it there would be nothing to read.
        all.slice(self.offset, all.size() as u64 - self.offset).unwrap_or(all)
    }

    /// True when a page of the memory was lost, so that what was computed is worth nothing.
    pub(super) fn faulted(&self) -> bool {
        self.memory.shared().faulted()
    }
}

impl<'a> Kernargs<'a> {
    pub(super) fn new(launch: &'a Launch, space: &'a AddressSpace) -> Self {
        Self { launch, space }
    }

    pub(super) fn u32(&self, name: &str) -> Result<u32, DeviceError> {
        self.raw(name, ArgKind::U32).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&self, name: &str) -> Result<i32, DeviceError> {
        self.raw(name, ArgKind::I32).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&self, name: &str) -> Result<i64, DeviceError> {
        self.raw(name, ArgKind::I64).map(i64::from_le_bytes)
    }

    pub(super) fn f32(&self, name: &str) -> Result<f32, DeviceError> {
        self.raw(name, ArgKind::F32).map(f32::from_le_bytes)
    }

    /// The memory that a pointer argument leads to; a GPU would fault on one that leads nowhere.
    pub(super) fn buffer(&self, name: &str) -> Result<Buffer, DeviceError> {
        let address = self.raw(name, ArgKind::Buffer).map(u64::from_le_bytes)?;
        let (memory, offset) = self
            .space
            .find(address)
            .ok_or_else(|| self.failed(&format!("argument {name}: no memory is at device address {address:#x}")))?;
        Ok(Buffer { memory, offset })
    }

    /// A failed launch of this kernel.
    pub(super) fn failed(&self, what: &str) -> DeviceError {
        DeviceError::LaunchFailed(format!("kernel {}: {what}", self.launch.kernel.name))
    }

    fn raw<const N: usize>(&self, name: &str, kind: ArgKind) -> Result<[u8; N], DeviceError> {
        let spec = self.launch.kernel.args.iter().find(|spec| spec.name == name && spec.kind == kind);
        let spec = spec.ok_or_else(|| self.failed(&format!("no argument {name} of kind {kind:?} in its table")))?;
        let start = spec.offset as usize;
        let bytes = self.launch.kernarg().get(start..start + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| {
            self.failed(&format!("argument {name} lies outside the {} bytes given", self.launch.kernarg().len()))
        })
    }
}
