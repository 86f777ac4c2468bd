//! A device that needs no GPU: memory is shared memory, queues are threads, kernels are computed on the CPU.
//!
//! It keeps the promises of [`Device`] as a GPU would: work runs in order, after its submission returned and before its
//! completion; addresses outside live memory fail the launch; kernels that the loaded object lacks are refused. It can be
//! told to be slow and to fail in each of the ways that a GPU fails ([`Options`]), which is how the rest is tested.
//!
//! What it has not: HIP IPC handles and IPC events (both are answered with [`DeviceError::Refused`], since there is no HIP
//! stream of another process to order with; ordering is the host's), and a graph that a client could capture.

mod exec;
#[cfg(test)]
mod fault_tests;
mod memory;
mod module;
mod options;
mod queue;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::memory::AddressSpace;
use self::module::FakeModule;
pub use self::options::{Exec, Options, OptionsError};
use self::queue::{FakeQueue, State};
use super::{CompletionSink, Description, Device, DeviceError, Event, Memory, MemoryInfo, Module, Queue};

/// What a workgroup may use on every slot of the contract.
const LDS_BYTES: u32 = 64 << 10;
/// Leaves room on the machine for everybody else when no size was asked for.
const SHARE_OF_AVAILABLE: u64 = 2;

/// See the [module](self).
#[derive(Debug)]
pub struct FakeDevice {
    description: Description,
    space: Arc<AddressSpace>,
    state: Arc<State>,
}

impl FakeDevice {
    /// # Errors
    /// [`DeviceError::Absent`] when the options say so.
    pub fn new(options: Options) -> Result<Self, DeviceError> {
        if options.absent {
            return Err(DeviceError::Absent(format!("the fake {} was told to be absent", options.arch)));
        }
        let how = match options.exec {
            Exec::Reference => "computes with 32-bit floats on the CPU",
            Exec::Isa => "emulates the code object's instructions on the CPU",
            Exec::Nothing => "instant: completes runs without computing them",
        };
        let description = Description {
            kind: "fake",
            name: format!("fake {} ({how})", options.arch),
            arch: options.arch.clone(),
            compute_units: 1,
            wavefront_size: if options.arch.split(':').next() == Some("gfx900") { 64 } else { 32 },
            lds_per_workgroup_bytes: LDS_BYTES,
            ordering: "host: a fake device has no events".to_owned(),
            ..Description::default()
        };
        let total = options.oom_bytes.unwrap_or_else(|| {
            let available = crate::memory::headroom().unwrap_or(1 << 30);
            available / SHARE_OF_AVAILABLE
        });
        let space = AddressSpace::new(total);
        let state = Arc::new(State::new(options, Arc::clone(&space)));
        Ok(Self { description, space, state })
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        // Lets a run that hangs end, and with it the thread of its queue.
        self.state.close();
    }
}

impl Device for FakeDevice {
    fn describe(&self) -> &Description {
        &self.description
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.state.check_alive()?;
        Ok(self.space.info())
    }

    fn load(&self, image: Arc<[u8]>) -> Result<Arc<dyn Module>, DeviceError> {
        self.state.check_alive()?;
        Ok(Arc::new(FakeModule::load(&image, self.state.exec())?))
    }

    fn import_shared(&self, memfd: OwnedFd, size: u64) -> Result<Arc<dyn Memory>, DeviceError> {
        self.state.check_alive()?;
        Ok(self.space.import(memfd, size)?)
    }

    fn import_ipc(&self, _handle: &[u8; 64]) -> Result<Arc<dyn Memory>, DeviceError> {
        Err(DeviceError::Refused("a fake device has no HIP IPC; hand over shared memory".to_owned()))
    }

    fn import_event(&self, _handle: &[u8; 64]) -> Result<Arc<dyn Event>, DeviceError> {
        Err(DeviceError::Refused("a fake device has no IPC events; runs are ordered by the host".to_owned()))
    }

    fn allocate(&self, size: u64) -> Result<Arc<dyn Memory>, DeviceError> {
        self.state.check_alive()?;
        Ok(self.space.allocate(size)?)
    }

    fn queue(&self, sink: Arc<dyn CompletionSink>) -> Result<Box<dyn Queue>, DeviceError> {
        self.state.check_alive()?;
        Ok(Box::new(FakeQueue::start(Arc::clone(&self.state), sink)?))
    }
}
