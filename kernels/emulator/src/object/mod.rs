//! A code object: its loaded image, its kernels, its decoded instructions.

mod descriptor;
mod elf;
mod metadata;

pub(crate) use descriptor::Descriptor;
pub(crate) use elf::Image;
pub(crate) use metadata::{HiddenKind, KernelMetadata, parse as parse_metadata};
use thiserror::Error;

/// Why bytes are no code object that can be run here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    #[error("not an AMDGPU ELF of the HSA kind: {0}")]
    Format(String),
    #[error("built for machine {mach:#04x} of e_flags; this emulator runs gfx1030 to gfx1036")]
    Machine { mach: u32 },
    #[error("the metadata note does not parse: {0}")]
    Metadata(String),
    #[error("kernel '{kernel}': {problem}")]
    Kernel { kernel: String, problem: String },
    #[error(
        "relocation of type {kind} at {offset:#x} is not one that this loader applies (R_AMDGPU_RELATIVE64, R_AMDGPU_ABS64)"
    )]
    Relocation { kind: u32, offset: u64 },
}
