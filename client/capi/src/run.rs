//! `hippihx_v1_run`.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use hippihx_kernels::plan::Plan as Planned;
use hippihx_kernels::scratch::check_scratch;
use hippihx_kernels::tensor::{check_tensor, check_tensor_count, tensor_fits};
use hippihx_kernels::{ABI_REVISION, Reason, Refusal, TensorDesc, op_by_id};

use crate::guard::status;
use crate::last_error::Failure;
use crate::layout::{Plan, Tensor};

/// Enqueues a plan on a stream. Without a loaded slot every check is made and the answer is ERR_NOT_READY.
///
/// # Safety
/// `plan` and `tensors` (for `ntensors` entries, when the count is the op's) are NULL or point to what their types say.
/// `scratch` and `stream` are never dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hippihx_v1_run(
    plan: *const Plan,
    tensors: *const Tensor,
    ntensors: c_int,
    scratch: *mut c_void,
    scratch_nbytes: usize,
    _stream: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: NULL or a plan, as the caller promises.
        let plan = unsafe { plan.as_ref() }.ok_or_else(|| Refusal::of(Reason::Null { what: "plan" }))?;
        let planned = restore(plan)?;
        check_tensor_count(&planned, i64::from(ntensors))?;
        let op = planned.op;
        if ntensors > 0 && tensors.is_null() {
            return Err(Refusal::for_op(op, Reason::Null { what: "tensors" }).into());
        }
        for slot in 0..op.tensors.len() {
            // SAFETY: not NULL (the count is the op's and above 0), and one of `ntensors` entries.
            let tensor = unsafe { &*tensors.add(slot) };
            let (null, shape, stride) = (tensor.data.is_null(), &tensor.shape, &tensor.stride);
            if tensor_fits(&planned, slot, null, tensor.dtype, tensor.rank, shape, stride) {
                continue;
            }
            let (dtype, rank) = (tensor.dtype, tensor.rank);
            let desc = TensorDesc { data_null: null, dtype, rank, shape: *shape, stride: *stride };
            check_tensor(&planned, slot, &desc)?;
        }
        let address = (!scratch.is_null()).then(|| scratch.addr() as u64);
        check_scratch(&planned, address, scratch_nbytes as u64)?;
        let why =
            "no code object is loaded in this process (ready is 0); keep your own path, or run through the daemon";
        Err(Refusal::for_op(op, Reason::NotReady { why }).into())
    })
}

/// The plan that C holds, with the checks that come before the tensors. Its params were in their domains when it was made;
/// one that was changed since gets whatever the rows say of it, and nothing else.
fn restore(plan: &Plan) -> Result<Planned, Failure> {
    let abi = |field, found, expected| Failure::from(Refusal::of(Reason::Abi { field, found, expected }));
    if plan.struct_size != size_of::<Plan>() {
        let found = i64::try_from(plan.struct_size).unwrap_or(i64::MAX);
        return Err(abi("plan.struct_size", found, size_of::<Plan>() as i64));
    }
    if plan.abi_revision != ABI_REVISION {
        return Err(abi("plan.abi_revision", i64::from(plan.abi_revision), i64::from(ABI_REVISION)));
    }
    let op = op_by_id(plan.op).ok_or_else(|| Refusal::of(Reason::UnknownOp { found: plan.op }))?;
    Ok(Planned::restored(op, &plan.params, plan.scratch_nbytes as u64))
}
