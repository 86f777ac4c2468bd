//! Code objects: what a loader accepts, in two levels.
//!
//! Level one, [`check_header`], is what the C ABI asks: one raw AMDGPU ELF of the slot's machine. Level two, [`inspect`] and
//! [`CodeObject::admit`], is what a daemon asks that launches what it loads: the whole file parses, the metadata names the
//! slot, and every kernel of a ready op is there and agrees with the catalogue.
//!
//! The parsers are total: no input makes them panic, and they keep no more than a small multiple of the file's size.

mod admit;
mod elf;
mod header;
mod metadata;
#[cfg(test)]
pub(crate) mod testing;

use thiserror::Error;

use crate::slot::Slot;
use crate::status::Status;

pub use elf::inspect;
pub use header::{EF_AMDGPU_MACH_MASK, check_header};

/// A parsed code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// e_flags, xnack and sramecc bits included.
    pub flags: u32,
    /// `amdhsa.target`, such as `amdgcn-amd-amdhsa--gfx1030`.
    pub target: String,
    /// `amdhsa.version`.
    pub version: (u64, u64),
    /// In the metadata's order.
    pub kernels: Vec<Kernel>,
}

/// A kernel as its metadata and its descriptor say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kernel {
    pub name: String,
    /// Name of the descriptor's symbol.
    pub symbol: String,
    pub kernarg_bytes: u64,
    pub static_lds_bytes: u64,
    /// Scratch (private segment) of a work-item, in bytes.
    pub private_bytes: u64,
    pub wavefront_size: u64,
    pub max_workgroup: u64,
    pub vgprs: u64,
    pub sgprs: u64,
    pub vgpr_spills: u64,
    pub sgpr_spills: u64,
    pub args: Vec<KernelArg>,
    pub descriptor: Descriptor,
}

/// One argument of the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelArg {
    pub offset: u64,
    pub size: u64,
    /// `global_buffer`, `by_value`, or one of the hidden kinds.
    pub value_kind: String,
}

/// The parts of a 64-byte kernel descriptor that a launch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// Virtual address of the descriptor and of the kernel's first instruction.
    pub address: u64,
    pub entry: u64,
    pub static_lds_bytes: u32,
    pub private_bytes: u32,
    pub kernarg_bytes: u32,
    pub rsrc1: u32,
    pub rsrc2: u32,
    pub rsrc3: u32,
    pub properties: u16,
}

impl Descriptor {
    /// ENABLE_WAVEFRONT_SIZE32.
    pub const fn wave32(&self) -> bool {
        self.properties & 1 << 10 != 0
    }
}

/// Why an image is no code object that may be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ObjectError {
    #[error(
        "the image is {format}, not one raw AMDGPU ELF; compile with --cuda-device-only and --no-gpu-bundle-output to get one"
    )]
    Bundle { format: &'static str },
    #[error("the image has {found} bytes; an ELF header has 64")]
    Short { found: usize },
    #[error("{field} of the ELF header is {found}; {allowed} is needed")]
    Header { field: &'static str, found: String, allowed: &'static str },
    #[error(
        "the ELF's machine is {found:#04x}{}; slot {} needs {:#04x}: build the object with --offload-arch={}",
        machine_name(*found), .slot.name, .slot.mach, .slot.name
    )]
    ForeignIsa { found: u32, slot: &'static Slot },
    #[error("{part} of the ELF {what}")]
    Elf { part: &'static str, what: String },
    #[error("the metadata note: {0}")]
    Metadata(String),
    #[error("the metadata's target is {found:?}; slot {} needs amdgcn-amd-amdhsa--{}", .slot.name, .slot.name)]
    Target { found: String, slot: &'static Slot },
    #[error("the metadata's version is {}.{}; 1.0 to 1.2 are known", .found.0, .found.1)]
    Version { found: (u64, u64) },
    #[error("kernel {kernel}, which {op} needs, is not in the object")]
    Missing { kernel: String, op: &'static str },
    #[error("kernel {kernel}: {field} is {found}; {expected} is expected")]
    Kernel { kernel: String, field: String, expected: String, found: String },
    #[error("kernel {kernel} is a DOT kernel; an object for slot {} carries none", .slot.name)]
    DotKernel { kernel: String, slot: &'static Slot },
}

impl ObjectError {
    /// ERR_FOREIGN_ISA where the object is for another slot, ERR_CODE_OBJECT for everything else.
    pub const fn status(&self) -> Status {
        match self {
            ObjectError::ForeignIsa { .. } | ObjectError::Target { .. } => Status::ForeignIsa,
            _ => Status::CodeObject,
        }
    }
}

/// " (gfx1100)" for a machine that is known by name.
fn machine_name(mach: u32) -> String {
    let slots = crate::slot::SLOTS.iter().map(|slot| (slot.mach, slot.name));
    let later = crate::slot::LATER_SLOTS.iter().map(|slot| (slot.mach, slot.name));
    slots.chain(later).find(|(known, _)| *known == mach).map_or_else(String::new, |(_, name)| format!(" ({name})"))
}
