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

    /// The whole memory.
    pub(super) fn into_memory(self) -> Arc<FakeMemory> {
        self.memory
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

    /// The kernel's name in the code object.
    pub(super) fn kernel(&self) -> &'static str {
        self.launch.kernel.name
    }

    pub(super) fn u32(&self, name: &str) -> Result<u32, DeviceError> {
        self.raw(name, ArgKind::U32).map(|word| word as u32)
    }

    /// A u32 that counts or sizes something.
    pub(super) fn count(&self, name: &str) -> Result<u64, DeviceError> {
        self.u32(name).map(u64::from)
    }

    /// An i64 stride in elements, which the checks of a binding let through only when it is not negative.
    pub(super) fn stride(&self, name: &str) -> Result<u64, DeviceError> {
        let stride = self.raw(name, ArgKind::I64)?.cast_signed();
        u64::try_from(stride).map_err(|_| self.failed(&format!("argument {name} is {stride}")))
    }

    pub(super) fn f32(&self, name: &str) -> Result<f32, DeviceError> {
        self.raw(name, ArgKind::F32).map(|word| f32::from_bits(word as u32))
    }

    /// The memory that a pointer argument leads to; a GPU would fault on one that leads nowhere.
    pub(super) fn buffer(&self, name: &str) -> Result<Buffer, DeviceError> {
        let missing = || self.failed(&format!("argument {name} is NULL"));
        self.optional_buffer(name)?.ok_or_else(missing)
    }

    /// The same; None for a NULL pointer.
    pub(super) fn optional_buffer(&self, name: &str) -> Result<Option<Buffer>, DeviceError> {
        let address = self.raw(name, ArgKind::Buffer)?;
        if address == 0 {
            return Ok(None);
        }
        let (memory, offset) = self
            .space
            .find(address)
            .ok_or_else(|| self.failed(&format!("argument {name}: no memory is at device address {address:#x}")))?;
        Ok(Some(Buffer { memory, offset }))
    }

    /// A failed launch of this kernel.
    pub(super) fn failed(&self, what: &str) -> DeviceError {
        DeviceError::LaunchFailed(format!("kernel {}: {what}", self.launch.kernel.name))
    }

    fn raw(&self, name: &str, kind: ArgKind) -> Result<u64, DeviceError> {
        let spec = self.launch.kernel.args.iter().find(|spec| spec.name == name && spec.kind == kind);
        let spec = spec.ok_or_else(|| self.failed(&format!("no argument {name} of kind {kind:?} in its table")))?;
        Ok(self.launch.kernarg.read(spec))
    }
}
