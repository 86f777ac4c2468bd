//! Loaded code objects and recorded sequences.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use hippihx_emulator::Program;
use hippihx_kernels::code_object;
use hippihx_kernels::launch::Launch;

use super::LDS_BYTES;
use super::options::Exec;
use crate::device::{DeviceError, Module, Sequence};

/// What launches need of a code object: kept by runs in flight after the module itself is gone.
#[derive(Debug)]
pub(super) struct Kernels {
    names: HashSet<String>,
    /// The decoded machine code, where that is what runs.
    program: Option<Program>,
}

impl Kernels {
    /// The machine code to run; None where the op's arithmetic is computed instead.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Refuses launches that a GPU would refuse: of a kernel that the object has not, or beyond a workgroup's limits.
    pub(super) fn check(&self, launches: &[Launch]) -> Result<(), DeviceError> {
        for launch in launches {
            let name = launch.kernel.name;
            let refuse = |what: String| Err(DeviceError::LaunchFailed(format!("kernel {name}: {what}")));
            if !self.names.contains(name) {
                return refuse("the loaded code object has none of that name".to_owned());
            }
            if launch.lds_bytes.saturating_add(launch.kernel.static_lds_bytes) > LDS_BYTES {
                return refuse(format!("{} bytes of LDS, at most {LDS_BYTES} are there", launch.lds_bytes));
            }
            let threads = launch.block.iter().try_fold(1_u32, |all, n| all.checked_mul(*n));
            if !threads.is_some_and(|threads| (1..=1024).contains(&threads)) {
                return refuse(format!("a workgroup of {:?} threads, 1 to 1024 are possible", launch.block));
            }
            if launch.grid.contains(&0) {
                return refuse(format!("a grid of {:?}", launch.grid));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct FakeModule {
    kernels: Arc<Kernels>,
}

impl Module for FakeModule {}

impl FakeModule {
    pub(super) fn load(image: &[u8], how: Exec) -> Result<Self, DeviceError> {
        let object = code_object::inspect(image).map_err(|error| DeviceError::CodeObject(error.to_string()))?;
        let names = object.kernels.into_iter().map(|kernel| kernel.name).collect();
        let program = match how {
            Exec::Isa => Some(Program::load(image).map_err(|error| DeviceError::CodeObject(error.to_string()))?),
            Exec::Reference | Exec::Nothing => None,
        };
        Ok(Self { kernels: Arc::new(Kernels { names, program }) })
    }

    /// A module for work that launches nothing.
    #[cfg(test)]
    pub(super) fn without_kernels() -> Self {
        Self { kernels: Arc::new(Kernels { names: HashSet::new(), program: None }) }
    }

    /// The fake's own module behind the trait.
    pub(super) fn of(module: &dyn Module) -> Result<&Self, DeviceError> {
        (module as &dyn Any).downcast_ref().ok_or_else(|| of_another_device("module"))
    }

    pub(super) fn kernels(&self) -> &Arc<Kernels> {
        &self.kernels
    }
}

/// Launches in their order. Keeps the kernels that they were recorded for.
#[derive(Debug)]
pub(super) struct FakeSequence {
    kernels: Arc<Kernels>,
    launches: Arc<[Launch]>,
}

impl Sequence for FakeSequence {}

impl FakeSequence {
    pub(super) fn new(module: &FakeModule, launches: &[Launch]) -> Self {
        Self { kernels: Arc::clone(&module.kernels), launches: launches.into() }
    }

    pub(super) fn of(sequence: &dyn Sequence) -> Result<&Self, DeviceError> {
        (sequence as &dyn Any).downcast_ref().ok_or_else(|| of_another_device("sequence"))
    }

    pub(super) fn kernels(&self) -> &Arc<Kernels> {
        &self.kernels
    }

    pub(super) fn launches(&self) -> &Arc<[Launch]> {
        &self.launches
    }
}

fn of_another_device(what: &str) -> DeviceError {
    DeviceError::Refused(format!("the {what} was made by another device"))
}
