//! `hippihx_v1_plan`.

use std::ffi::{CStr, c_int};
use std::mem::size_of;

use hippihx_kernels::plan::{Plan as Planned, check_param_count, complete, resolve};
use hippihx_kernels::{ABI_REVISION, Fabric, MAX_PARAMS, MAX_SCRATCH, ParamValue, Reason, Refusal, op_by_id};

use crate::guard::status;
use crate::last_error::Failure;
use crate::layout::{Caps, Param, Plan, ScratchSpec};
use crate::names::scratch_name;

/// Plans an op: host-only, no device work, no allocation, no lock.
///
/// # Safety
/// `caps`, its strings and its fabric, `params` (for `nparams` entries, when the count is the op's) and `out` are NULL or point
/// to what their types say; `out->struct_size` is set by the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hippihx_v1_plan(
    op: c_int,
    caps: *const Caps,
    params: *const Param,
    nparams: c_int,
    out: *mut Plan,
) -> c_int {
    status(|| {
        let op = op_by_id(op).ok_or_else(|| Refusal::of(Reason::UnknownOp { found: op }))?;
        let null = |what| Failure::from(Refusal::for_op(op, Reason::Null { what }));
        // SAFETY: NULL or a caps, as the caller promises.
        let caps = unsafe { caps.as_ref() }.ok_or_else(|| null("caps"))?;
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: a plan whose struct_size is set; the rest of it may be uninitialised, so no reference to it is made.
        let struct_size = unsafe { (&raw const (*out).struct_size).read() };
        if struct_size != size_of::<Plan>() {
            let (found, expected) = (i64::try_from(struct_size).unwrap_or(i64::MAX), size_of::<Plan>() as i64);
            return Err(Refusal::for_op(op, Reason::Abi { field: "out.struct_size", found, expected }).into());
        }
        // SAFETY: out is a whole plan of this size, as its struct_size says. A failed plan stays like this.
        unsafe { out.write(blank()) };

        // SAFETY: NULL or a C string, as the caller promises.
        let arch = if caps.arch.is_null() { None } else { Some(unsafe { CStr::from_ptr(caps.arch) }.to_bytes()) };
        let target = resolve(op, arch, caps.wave, caps.dtype)?;
        if nparams > 0 && params.is_null() {
            return Err(null("params"));
        }
        check_param_count(op, i64::from(nparams))?;
        let given: &[ParamValue] = if op.params.is_empty() {
            &[]
        } else {
            // SAFETY: not NULL (the count is the op's, so above 0), and `nparams` entries as the caller promises; Param is eight
            // plain bytes.
            unsafe { std::slice::from_raw_parts(params, op.params.len()) }
        };
        // SAFETY: NULL or a fabric, as the caller promises.
        let fabric = unsafe { caps.fabric.as_ref() }.map(|fabric| Fabric {
            hop: fabric.hop,
            pcie_switch: fabric.pcie_switch,
            width: fabric.width,
            acs_clear: fabric.acs_clear,
            large_bar: fabric.large_bar,
        });
        let planned = complete(&target, given, fabric.as_ref())?;
        // SAFETY: the whole plan was written above, and nobody else has it during the call.
        fill(unsafe { &mut *out }, &planned);
        Ok(())
    })
}

/// Everything zero but the size.
fn blank() -> Plan {
    Plan {
        struct_size: size_of::<Plan>(),
        abi_revision: 0,
        op: 0,
        arch: 0,
        wave: 0,
        dtype: 0,
        ready: 0,
        variant: 0,
        nparams: 0,
        params: [Param::default(); MAX_PARAMS],
        nscratch: 0,
        scratch: [ScratchSpec { name: std::ptr::null(), nbytes: 0, offset: 0, zeroed: 0 }; MAX_SCRATCH],
        scratch_nbytes: 0,
    }
}

/// Writes what was planned over a blank plan. `ready` stays 0: nothing is ever loaded in this process.
fn fill(plan: &mut Plan, planned: &Planned) {
    plan.abi_revision = ABI_REVISION;
    plan.op = planned.op.id;
    plan.arch = planned.slot.id;
    plan.wave = planned.wave;
    plan.dtype = planned.dtype.code();
    plan.variant = planned.variant;
    plan.nparams = planned.params().len() as i32;
    plan.nscratch = planned.scratch().len() as i32;
    plan.scratch_nbytes = planned.scratch_nbytes() as usize;
    for (to, param) in plan.params.iter_mut().zip(planned.params()) {
        *to = *param;
    }
    for (to, block) in plan.scratch.iter_mut().zip(planned.scratch()) {
        let name = scratch_name(planned.op, block.rule);
        *to = ScratchSpec { name, nbytes: block.nbytes as usize, offset: block.offset as usize, zeroed: 1 };
    }
}
