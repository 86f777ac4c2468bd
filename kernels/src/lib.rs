//! The op contract as one table, and the pure arithmetic on it.
//!
//! Host-only: no runtime, no device, no I/O. [`OPS`] and [`SLOTS`] are the table; [`plan()`], [`check_tensors`],
//! [`check_scratch`] and [`memory::check_memory`] judge what a caller asks; a [`Refusal`] says why not.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod code_object;
mod dtype;
pub mod fabric;
pub mod launch;
pub mod memory;
pub mod plan;
pub mod reference;
pub mod refusal;
pub mod scratch;
pub mod slot;
mod status;
pub mod tensor;
mod value;

pub use catalogue::{ABI_REVISION, MAX_PARAMS, MAX_RANK, MAX_SCRATCH, OPS, Op, SCRATCH_ALIGN, op_by_id, op_by_name};
pub use dtype::Dtype;
pub use fabric::Fabric;
pub use plan::{Caps, Plan, plan};
pub use refusal::{Reason, Refusal};
pub use scratch::{ScratchSpec, arena_layout, check_scratch};
pub use slot::{LATER_SLOTS, LaterSlot, SLOTS, Slot, slot_by_name};
pub use status::Status;
pub use tensor::{TensorDesc, check_tensors};
pub use value::ParamValue;
