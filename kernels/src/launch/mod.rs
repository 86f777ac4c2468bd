//! Launch recipes: from a plan and bound tensors to the ordered launches of an op, pure and without a heap.
//!
//! [`KernelSpec`]s are the catalogue's word on each kernel; a code object whose metadata differs is refused at load, so the
//! packed bytes here are what the kernel reads.

mod fa_fdot2;

use crate::catalogue::{MAX_RANK, Op};
use crate::plan::Plan;
use crate::refusal::Refusal;

pub use fa_fdot2::KERNELS as FA_FDOT2_KERNELS;

/// Bytes of packed kernel arguments at most.
pub const MAX_KERNARG_BYTES: usize = 256;
/// Launches of one run at most.
pub const MAX_LAUNCHES: usize = 2;

/// What an argument is, as a code object's metadata says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// A device address, 8 bytes (`global_buffer`).
    Buffer,
    /// A value of 4 or 8 bytes (`by_value`).
    U32,
    I64,
    F32,
}

impl ArgKind {
    pub const fn bytes(self) -> u32 {
        match self {
            ArgKind::Buffer | ArgKind::I64 => 8,
            ArgKind::U32 | ArgKind::F32 => 4,
        }
    }

    /// `.value_kind` of the metadata.
    pub const fn value_kind(self) -> &'static str {
        match self {
            ArgKind::Buffer => "global_buffer",
            _ => "by_value",
        }
    }
}

/// One kernel argument.
#[derive(Debug, PartialEq, Eq)]
pub struct ArgSpec {
    pub name: &'static str,
    /// Bytes from the start of the kernarg segment.
    pub offset: u32,
    pub kind: ArgKind,
}

/// What a run of a binding may change in a launch, in O(1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepFields {
    /// Offsets in the kernarg segment of the address of q, of out, and of the row count (u32).
    pub q: u32,
    pub out: u32,
    pub rows: u32,
    /// Rows that one step of grid axis 0 covers.
    pub rows_per_group: u32,
}

/// A kernel of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelSpec {
    /// Its `extern "C"` name; the descriptor is `NAME.kd`.
    pub name: &'static str,
    pub args: &'static [ArgSpec],
    pub kernarg_bytes: u32,
    /// Upper bound of the kernel's static LDS on any slot, in bytes.
    pub static_lds_bytes: u32,
    /// Work-items of a workgroup.
    pub block: [u32; 3],
    /// A DOT kernel: wave32, and on DOT slots only.
    pub dot: bool,
    pub steps: StepFields,
}

/// Packed kernel arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernarg {
    bytes: [u8; MAX_KERNARG_BYTES],
    len: u16,
}

impl Kernarg {
    const fn zeroed(len: u32) -> Self {
        Kernarg { bytes: [0; MAX_KERNARG_BYTES], len: len as u16 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The argument as an unsigned integer of its size.
    pub fn read(&self, arg: &ArgSpec) -> u64 {
        let at = arg.offset as usize;
        let field = self.bytes.get(at..at + arg.kind.bytes() as usize).unwrap_or_default();
        field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) {
        let at = offset as usize;
        if let Some(field) = self.bytes.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    fn add(&mut self, offset: u32, more: u64) {
        let at = offset as usize;
        if let Some(field) = self.bytes.get_mut(at..at + 8) {
            let address = field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            field.copy_from_slice(&address.wrapping_add(more).to_le_bytes());
        }
    }
}

/// One kernel launch, ready to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    pub kernel: &'static KernelSpec,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub block: [u32; 3],
    /// Dynamic LDS beside the kernel's static one, in bytes.
    pub lds_bytes: u32,
    pub kernarg: Kernarg,
}

/// What one run changes: the number of query rows, and bytes added to the bound addresses of q and out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// 1 to the bound row count; 0 keeps it.
    pub rows: u32,
    pub q_bytes: u64,
    pub out_bytes: u64,
}

impl Launch {
    /// This launch for one step. The caller has checked the step against the bound tensors and their buffers.
    #[must_use]
    pub fn stepped(mut self, step: &Step) -> Launch {
        let fields = self.kernel.steps;
        if step.rows != 0 {
            self.kernarg.write(fields.rows, &step.rows.to_le_bytes());
            self.grid[0] = step.rows.div_ceil(fields.rows_per_group);
        }
        self.kernarg.add(fields.q, step.q_bytes);
        self.kernarg.add(fields.out, step.out_bytes);
        self
    }
}

/// The launches of one run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launches {
    list: [Option<Launch>; MAX_LAUNCHES],
}

impl Launches {
    pub fn iter(&self) -> impl Iterator<Item = &Launch> {
        self.list.iter().flatten()
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(&self) -> bool {
        self.list[0].is_none()
    }
}

/// A tensor as a kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BoundTensor {
    /// Device address of the first element.
    pub address: u64,
    /// Elements.
    pub shape: [i64; MAX_RANK],
    pub stride: [i64; MAX_RANK],
}

/// The kernels that a ready op needs in a slot's code object; none for an op without a body.
pub fn kernels_for_op(op: &Op) -> &'static [KernelSpec] {
    if op.id == crate::catalogue::fa_fdot2::OP { &FA_FDOT2_KERNELS } else { &[] }
}

/// The kernel of this name in the catalogue, if there is one.
pub fn kernel_by_name(name: &str) -> Option<&'static KernelSpec> {
    crate::catalogue::OPS.iter().flat_map(kernels_for_op).find(|kernel| kernel.name == name)
}

/// The launches of a bound plan. `tensors` passed the contract's and the memory rows and has an entry a slot; `scratch` is
/// the device address of the plan's scratch, 0 when it needs none.
///
/// # Errors
/// ERR_NOT_READY for an op without a body; ERR_TENSOR when an extent does not fit a grid.
pub fn launches(plan: &Plan, tensors: &[BoundTensor], scratch: u64) -> Result<Launches, Refusal> {
    if plan.op.id == crate::catalogue::fa_fdot2::OP {
        fa_fdot2::launches(plan, tensors, scratch)
    } else {
        let why = "no kernel body exists for this op under revision 4";
        Err(Refusal::for_op(plan.op, crate::refusal::Reason::NotReady { why }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::OPS;

    #[test]
    fn arguments_are_packed_without_holes_and_fit() {
        for kernel in OPS.iter().flat_map(kernels_for_op) {
            let mut end = 0;
            for arg in kernel.args {
                assert_eq!(arg.offset, end, "{}.{}", kernel.name, arg.name);
                assert_eq!(arg.offset % arg.kind.bytes(), 0, "{}.{}", kernel.name, arg.name);
                end += arg.kind.bytes();
            }
            assert_eq!(kernel.kernarg_bytes, end.next_multiple_of(8));
            assert!(kernel.kernarg_bytes as usize <= MAX_KERNARG_BYTES && kernel.static_lds_bytes <= 65536);
            assert_eq!(kernel_by_name(kernel.name), Some(kernel));
        }
    }

    #[test]
    fn an_op_with_a_body_has_kernels_and_no_other_has() {
        for op in &OPS {
            assert_eq!(op.has_body, !kernels_for_op(op).is_empty(), "{}", op.name);
        }
    }
}
