//! What memory safety needs beyond the contract's rows, checked where tensors are bound to real memory.
//!
//! The C ABI checks exactly the contract's rows; the daemon binds memory that a kernel will touch, so it also checks how the
//! tensors of one op relate, that every element that shape and strides can reach lies inside its buffer, and that what the
//! kernel writes overlaps nothing that it reads.

use std::fmt;

use crate::catalogue::fa_fdot2 as fa;
use crate::catalogue::{Access, OPS};
use crate::plan::Plan;
use crate::refusal::{Reason, Refusal};
use crate::status::Status;
use crate::tensor::TensorDesc;

/// Where a tensor lies: device address of its buffer, the buffer's size, and the tensor's offset in it, all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub base: u64,
    pub buffer_bytes: u64,
    pub offset: u64,
}

/// A violated memory rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFault {
    /// Two tensors that must agree on an extent do not.
    Extent { slot: usize, axis: usize, found: i64, other: usize, wanted: i64 },
    /// `k_cache` packs D as [D / x, …, x], and the product is not head_dim.
    Packing { slot: usize, groups: i64, lanes: i64, head_dim: i64 },
    /// Fewer rows than the other tensor has.
    TooFewRows { slot: usize, found: i64, other: usize, wanted: i64 },
    /// `cu_query_lens` needs one entry more than `seq_lens`.
    Entries { slot: usize, found: i64, wanted: i64 },
    /// The offset is no multiple of the element size.
    Misaligned { slot: usize, offset: u64, elem_bytes: u64 },
    /// Shape and strides reach beyond the buffer.
    Reach { slot: usize, offset: u64, needed: Option<u64>, buffer_bytes: u64 },
    /// The scratch block reaches beyond its buffer.
    ScratchReach { offset: u64, nbytes: u64, buffer_bytes: u64 },
    /// What the kernel writes overlaps what it reads; `None` is scratch.
    Overlap { written: Option<usize>, other: usize },
}

impl MemoryFault {
    pub(crate) const fn status(self) -> Status {
        match self {
            MemoryFault::ScratchReach { .. } | MemoryFault::Overlap { written: None, .. } => Status::Scratch,
            _ => Status::Tensor,
        }
    }

    pub(crate) const fn tensor(self) -> Option<usize> {
        match self {
            MemoryFault::Extent { slot, .. }
            | MemoryFault::Packing { slot, .. }
            | MemoryFault::TooFewRows { slot, .. }
            | MemoryFault::Entries { slot, .. }
            | MemoryFault::Misaligned { slot, .. }
            | MemoryFault::Reach { slot, .. } => Some(slot),
            MemoryFault::Overlap { written, .. } => written,
            MemoryFault::ScratchReach { .. } => None,
        }
    }

    pub(crate) fn write(self, f: &mut fmt::Formatter<'_>, of: &Refusal) -> fmt::Result {
        let name = |slot| of.tensor_name(slot);
        match self {
            MemoryFault::Extent { slot, axis, found, other, wanted } => {
                write!(f, "tensor {} has extent {found} on axis {axis}; {} has {wanted} there", name(slot), name(other))
            }
            MemoryFault::Packing { slot, groups, lanes, head_dim } => {
                write!(f, "tensor {} packs {groups} groups of {lanes}, which is not head_dim {head_dim}", name(slot))
            }
            MemoryFault::TooFewRows { slot, found, other, wanted } => {
                write!(f, "tensor {} has {found} rows; the {wanted} of {} need as many", name(slot), name(other))
            }
            MemoryFault::Entries { slot, found, wanted } => {
                write!(f, "tensor {} has {found} entries; one more than seq_lens, {wanted}, is needed", name(slot))
            }
            MemoryFault::Misaligned { slot, offset, elem_bytes } => {
                write!(
                    f,
                    "tensor {} starts at byte {offset}, which is no multiple of its element size, {elem_bytes}",
                    name(slot)
                )
            }
            MemoryFault::Reach { slot, offset, needed: Some(needed), buffer_bytes } => write!(
                f,
                "tensor {} at byte {offset} reaches {needed} bytes further; its buffer has {buffer_bytes} in all",
                name(slot)
            ),
            MemoryFault::Reach { slot, offset, needed: None, buffer_bytes } => write!(
                f,
                "tensor {} at byte {offset} reaches further than 64 bits say; its buffer has {buffer_bytes} bytes in all",
                name(slot)
            ),
            MemoryFault::ScratchReach { offset, nbytes, buffer_bytes } => {
                write!(f, "scratch at byte {offset} with {nbytes} bytes leaves its buffer of {buffer_bytes} bytes")
            }
            MemoryFault::Overlap { written, other } => {
                let written = written.map_or("scratch", name);
                write!(f, "{written} is written by the kernel and overlaps {}; give it memory of its own", name(other))
            }
        }
    }
}

/// Bytes from the first element to the end of the last that shape and strides can reach; `None` beyond 64 bits. Shapes are
/// at least 1 and strides not negative, as the contract's rows make sure.
pub fn reach_bytes(tensor: &TensorDesc, elem_bytes: u64) -> Option<u64> {
    let rank = usize::try_from(tensor.rank).ok()?;
    let mut last: u64 = 0;
    for (extent, stride) in tensor.shape.get(..rank)?.iter().zip(tensor.stride.get(..rank)?) {
        let steps = u64::try_from(*extent).ok()?.checked_sub(1)?;
        last = last.checked_add(steps.checked_mul(u64::try_from(*stride).ok()?)?)?;
    }
    last.checked_add(1)?.checked_mul(elem_bytes)
}

/// Checks the tensors of a bind, which passed [`crate::check_tensors`], against the memory they lie in. `places` has an
/// entry a slot; those of slots that the plan does not require are ignored. `scratch` is the block's place and size.
///
/// # Errors
/// ERR_TENSOR or ERR_SCRATCH, naming the slot, what was found and what is allowed.
pub fn check_memory(
    plan: &Plan,
    tensors: &[TensorDesc],
    places: &[Placement],
    scratch: Option<(Placement, u64)>,
) -> Result<(), Refusal> {
    let refuse = |fault| Refusal::for_op(plan.op, Reason::Memory(fault));
    if *plan.op == OPS[fa::OP as usize] {
        relations_of_attention(plan, tensors).map_err(refuse)?;
    }
    let mut ranges = [(0_u64, 0_u64); 16];
    let slots = plan.op.tensors.iter().zip(tensors).zip(places).take(ranges.len()).enumerate();
    for (slot, ((rule, tensor), place)) in slots.filter(|(_, ((rule, _), _))| plan.requires(rule.when)) {
        let elem_bytes = rule.dtype.bytes();
        if !place.offset.is_multiple_of(elem_bytes.max(1)) {
            return Err(refuse(MemoryFault::Misaligned { slot, offset: place.offset, elem_bytes }));
        }
        let needed = reach_bytes(tensor, elem_bytes);
        let range = needed.and_then(|needed| inside(place, needed));
        let Some(range) = range else {
            return Err(refuse(MemoryFault::Reach {
                slot,
                offset: place.offset,
                needed,
                buffer_bytes: place.buffer_bytes,
            }));
        };
        ranges[slot] = range;
    }
    let overlaps = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1;
    for (written, rule) in plan.op.tensors.iter().enumerate().filter(|(_, rule)| rule.access == Access::Output) {
        debug_assert!(rule.when.is_empty());
        if let Some(other) =
            (0..plan.op.tensors.len()).find(|other| *other != written && overlaps(ranges[written], ranges[*other]))
        {
            return Err(refuse(MemoryFault::Overlap { written: Some(written), other }));
        }
    }
    if let Some((place, nbytes)) = scratch {
        let fault = MemoryFault::ScratchReach { offset: place.offset, nbytes, buffer_bytes: place.buffer_bytes };
        let range = inside(&place, nbytes).ok_or_else(|| refuse(fault))?;
        if let Some(other) = (0..plan.op.tensors.len()).find(|other| overlaps(range, ranges[*other])) {
            return Err(refuse(MemoryFault::Overlap { written: None, other }));
        }
    }
    Ok(())
}

/// The address range of `needed` bytes at a place, when it lies inside the buffer.
fn inside(place: &Placement, needed: u64) -> Option<(u64, u64)> {
    let end = place.offset.checked_add(needed)?;
    if end > place.buffer_bytes {
        return None;
    }
    Some((place.base.checked_add(place.offset)?, place.base.checked_add(end)?))
}

fn relations_of_attention(plan: &Plan, tensors: &[TensorDesc]) -> Result<(), MemoryFault> {
    let Some([q, k, v, table, lens, cu, out]) = tensors.first_chunk::<7>() else { return Ok(()) };
    if out.shape[0] != q.shape[0] {
        return Err(MemoryFault::Extent {
            slot: fa::T_OUT,
            axis: 0,
            found: out.shape[0],
            other: fa::T_Q,
            wanted: q.shape[0],
        });
    }
    for axis in 0..5 {
        let (found, wanted) = (v.shape[axis], k.shape[axis]);
        if found != wanted {
            return Err(MemoryFault::Extent { slot: fa::T_V_CACHE, axis, found, other: fa::T_K_CACHE, wanted });
        }
    }
    let (groups, lanes, head_dim) = (k.shape[2], k.shape[4], plan.int(fa::P_HEAD_DIM));
    if groups.checked_mul(lanes) != Some(head_dim) {
        return Err(MemoryFault::Packing { slot: fa::T_K_CACHE, groups, lanes, head_dim });
    }
    let at_least = |slot, found: i64, other, wanted: i64| {
        if found < wanted { Err(MemoryFault::TooFewRows { slot, found, other, wanted }) } else { Ok(()) }
    };
    if plan.int(fa::P_MODE) == fa::MODE_DECODE {
        at_least(fa::T_BLOCK_TABLE, table.shape[0], fa::T_Q, q.shape[0])?;
        at_least(fa::T_SEQ_LENS, lens.shape[0], fa::T_Q, q.shape[0])
    } else {
        if cu.shape[0] != lens.shape[0].saturating_add(1) {
            let wanted = lens.shape[0].saturating_add(1);
            return Err(MemoryFault::Entries { slot: fa::T_CU_QUERY_LENS, found: cu.shape[0], wanted });
        }
        at_least(fa::T_BLOCK_TABLE, table.shape[0], fa::T_SEQ_LENS, lens.shape[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Caps, plan};
    use crate::tensor::check_tensors;
    use crate::value::ParamValue;

    const DECODE: [i64; 9] = [0, 128, 32, 8, 16, 4, 0, 0, 8];

    fn planned(ints: [i64; 9]) -> Plan {
        let mut params: Vec<_> = ints.map(ParamValue::from_i64).to_vec();
        params.push(ParamValue::from_f64(0.1));
        plan(fa::OP, &Caps { arch: "gfx1030", ..Caps::default() }, &params).unwrap()
    }

    fn dense(dtype: i32, shape: &[i64]) -> TensorDesc {
        let mut desc = TensorDesc { data_null: false, dtype, rank: shape.len() as i32, ..TensorDesc::ABSENT };
        let mut span = 1;
        for axis in (0..shape.len()).rev() {
            (desc.shape[axis], desc.stride[axis]) = (shape[axis], span);
            span *= shape[axis];
        }
        desc
    }

    fn tensors() -> [TensorDesc; 7] {
        let (rows, cache) = (dense(1, &[8, 32, 128]), dense(1, &[64, 8, 16, 16, 8]));
        [rows, cache, cache, dense(4, &[8, 4]), dense(4, &[8]), dense(4, &[9]), rows]
    }

    /// Every tensor in a buffer of its own, exactly as large as it reaches.
    fn places(tensors: &[TensorDesc; 7]) -> [Placement; 7] {
        let mut base = 0x10_0000;
        std::array::from_fn(|slot| {
            let buffer_bytes = reach_bytes(&tensors[slot], OPS[0].tensors[slot].dtype.bytes()).unwrap_or(64);
            base += 1 << 24;
            Placement { base, buffer_bytes, offset: 0 }
        })
    }

    fn fault(ints: [i64; 9], change: impl FnOnce(&mut [TensorDesc; 7], &mut [Placement; 7])) -> String {
        let (plan, mut descs) = (planned(ints), tensors());
        let mut at = places(&descs);
        change(&mut descs, &mut at);
        assert_eq!(check_tensors(&plan, &descs), Ok(()), "the contract's rows must pass first");
        let refusal = check_memory(&plan, &descs, &at, None).unwrap_err();
        assert_eq!(refusal.status(), Status::Tensor);
        refusal.to_string()
    }

    #[test]
    fn tensors_that_fill_their_buffers_pass() {
        let (descs, plan) = (tensors(), planned(DECODE));
        assert_eq!(check_memory(&plan, &descs, &places(&descs), None), Ok(()));
    }

    #[test]
    fn one_element_short_is_refused_and_so_is_every_wrap() {
        let words = "k_cache";
        assert!(fault(DECODE, |_, at| at[1].buffer_bytes -= 2).contains(words));
        assert!(fault(DECODE, |_, at| at[1].offset = 2).contains(words));
        assert!(fault(DECODE, |_, at| at[1].offset = u64::MAX - 7).contains(words));
        assert!(fault(DECODE, |_, at| at[1].offset = 1).contains("multiple"));
        assert!(fault(DECODE, |descs, _| descs[1].stride[0] = i64::MAX).contains("64 bits"));
        assert!(fault(DECODE, |descs, _| descs[1].stride = [1 << 62, 1 << 62, 1, 1, 1, 0]).contains("64 bits"));
    }

    #[test]
    fn relations_between_tensors() {
        assert!(fault(DECODE, |descs, _| descs[6].shape[0] = 7).contains("out has extent 7"));
        assert!(fault(DECODE, |descs, _| descs[2].shape[0] = 63).contains("v_cache has extent 63"));
        let packing = fault(DECODE, |descs, _| (descs[1].shape[2], descs[2].shape[2]) = (8, 8));
        assert!(packing.contains("8 groups of 8"), "{packing}");
        assert!(fault(DECODE, |descs, _| descs[3].shape[0] = 7).contains("block_table has 7 rows"));
        assert!(fault(DECODE, |descs, _| descs[4].shape[0] = 7).contains("seq_lens has 7 rows"));
        let prefill = [1, 128, 32, 8, 16, 1, 0, 1, 8];
        assert!(fault(prefill, |descs, _| descs[5].shape[0] = 8).contains("cu_query_lens has 8 entries"));
        assert!(fault(prefill, |descs, _| descs[3].shape[0] = 7).contains("block_table has 7 rows"));
    }

    #[test]
    fn what_is_written_overlaps_nothing() {
        assert!(fault(DECODE, |_, at| at[6] = at[0]).contains("overlaps q"));
        let (descs, plan) = (tensors(), planned(DECODE));
        let at = places(&descs);
        let scratch = Placement { base: at[1].base, buffer_bytes: 1 << 20, offset: 0 };
        let refusal = check_memory(&plan, &descs, &at, Some((scratch, plan.scratch_nbytes()))).unwrap_err();
        assert_eq!(refusal.status(), Status::Scratch);
        assert!(refusal.to_string().contains("overlaps k_cache"));
        let free = Placement { base: 0x1_0000, buffer_bytes: plan.scratch_nbytes() - 1, offset: 0 };
        let refusal = check_memory(&plan, &descs, &at, Some((free, plan.scratch_nbytes()))).unwrap_err();
        assert!(refusal.to_string().contains("leaves its buffer"));
    }
}
