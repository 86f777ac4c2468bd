//! `libhippihx_v1.so`: the V1 C ABI, revision 4.
//!
//! Symbols, layouts and the order of the checks are the contract's; `include/hippihx/v1.h` is rendered from the same table.
//! There is no daemon behind this library yet: a valid image is validated and answered with ERR_NO_HIP, and nothing is loaded,
//! so no plan is ready.
//!
//! No panic crosses into C: every function catches one and answers as for a malformed argument.

mod guard;
mod last_error;
mod layout;
mod load;
mod names;
mod plan;
mod run;

pub use last_error::hippihx_v1_last_error;
pub use layout::{Caps, Fabric, Param, Plan, ScratchSpec, Tensor};
pub use load::{hippihx_v1_load, hippihx_v1_load_image, hippihx_v1_loaded};
pub use names::{
    hippihx_v1_abi_revision, hippihx_v1_op_count, hippihx_v1_op_fp16_act, hippihx_v1_op_is_dot, hippihx_v1_op_name,
    hippihx_v1_op_nparams, hippihx_v1_op_ntensors, hippihx_v1_op_param_name, hippihx_v1_op_tensor_name,
};
pub use plan::hippihx_v1_plan;
pub use run::hippihx_v1_run;
