//! Runs a launch's machine code, over the memory that its pointer arguments lead to and nothing else.

use std::sync::Arc;

use hippihx_emulator::{Access, Backing, Checks, Contents, Dispatch, Kernel, Memory, Options, Program};
use hippihx_kernels::launch::{ArgKind, Launch};

use super::super::memory::FakeMemory;
use super::kernargs::Kernargs;
use crate::device::{DeviceError, Memory as _};

impl Backing for FakeMemory {
    fn len(&self) -> u64 {
        self.size()
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        // The emulator asks for nothing outside `len`; were it to, it would read zeros and write nowhere.
        if self.shared().bytes().read(offset, out).is_err() {
            out.fill(0);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let _ = self.shared().bytes().write(offset, data);
    }
}

pub(super) fn run(program: &Program, args: &Kernargs<'_>, launch: &Launch) -> Result<(), DeviceError> {
    let mut reached: Vec<Arc<FakeMemory>> = Vec::new();
    for arg in launch.kernel.args.iter().filter(|arg| arg.kind == ArgKind::Buffer) {
        if let Some(buffer) = args.optional_buffer(arg.name)? {
            let memory = buffer.into_memory();
            if !reached.iter().any(|known| Arc::ptr_eq(known, &memory)) {
                reached.push(memory);
            }
        }
    }
    let mut memory = Memory::new();
    for range in &reached {
        let name = format!("memory at {:#x}", range.address());
        memory
            .bind(name, range.address(), range.as_ref(), Access::ReadWrite, Contents::Initialised)
            .map_err(|error| args.failed(&error.to_string()))?;
    }
    let declared = program.kernel(launch.kernel.name).map_or(0, Kernel::static_lds_bytes);
    let dispatch = Dispatch {
        kernel: launch.kernel.name,
        grid: launch.grid,
        block: launch.block,
        lds_bytes: declared.saturating_add(launch.lds_bytes),
        kernarg: launch.kernarg.as_bytes(),
    };
    let options = Options { checks: Checks::NONE, ..Options::default() };
    program.run(&dispatch, &memory, &options).map_err(|error| args.failed(&error.to_string()))?;
    if reached.iter().any(|memory| memory.faulted()) {
        return Err(args.failed("memory fault: a page of shared memory is gone"));
    }
    Ok(())
}
