//! Tensor checks: the contract's rows, in the contract's order.

use crate::catalogue::{Dim, Layout, MAX_RANK, TensorSlot};
use crate::plan::Plan;
use crate::refusal::{Reason, Refusal};

/// What a caller says of one tensor. Shapes and strides are in elements; entries at `rank` and beyond are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorDesc {
    pub data_null: bool,
    /// A dtype's number.
    pub dtype: i32,
    pub rank: i32,
    pub shape: [i64; MAX_RANK],
    pub stride: [i64; MAX_RANK],
}

impl TensorDesc {
    /// What stands in a slot that is not required.
    pub const ABSENT: TensorDesc =
        TensorDesc { data_null: true, dtype: 0, rank: 0, shape: [0; MAX_RANK], stride: [0; MAX_RANK] };
}

/// Checks the tensors of a run against the plan's op.
///
/// # Errors
/// ERR_TENSOR, naming the slot, the axis, what was found and what is allowed.
pub fn check_tensors(plan: &Plan, tensors: &[TensorDesc]) -> Result<(), Refusal> {
    check_tensor_count(plan, tensors.len() as i64)?;
    for (index, tensor) in tensors.iter().enumerate() {
        check_tensor(plan, index, tensor)?;
    }
    Ok(())
}

/// Compares a tensor count of a caller with the op's.
///
/// # Errors
/// ERR_TENSOR.
pub fn check_tensor_count(plan: &Plan, found: i64) -> Result<(), Refusal> {
    if usize::try_from(found) == Ok(plan.op.tensors.len()) {
        Ok(())
    } else {
        Err(Refusal::for_op(plan.op, Reason::TensorCount { found }))
    }
}

/// Checks the tensor of one slot; a slot that this plan does not require passes whatever it holds.
///
/// # Errors
/// ERR_TENSOR.
pub fn check_tensor(plan: &Plan, slot: usize, tensor: &TensorDesc) -> Result<(), Refusal> {
    if tensor_fits(plan, slot, tensor.data_null, tensor.dtype, tensor.rank, &tensor.shape, &tensor.stride) {
        return Ok(());
    }
    let Some(rule) = plan.op.tensors.get(slot) else { return Ok(()) };
    check_required(plan, slot, rule, tensor).map_err(|reason| Refusal::for_op(plan.op, reason))
}

/// Whether a tensor passes, in one walk and without a reason: what a run asks every time. [`check_tensor`] asks again for
/// the reason, in the contract's order.
#[inline]
pub fn tensor_fits(
    plan: &Plan,
    slot: usize,
    data_null: bool,
    dtype: i32,
    rank: i32,
    shape: &[i64; MAX_RANK],
    stride: &[i64; MAX_RANK],
) -> bool {
    let Some(rule) = plan.op.tensors.get(slot) else { return true };
    if !plan.requires(rule.when) {
        return true;
    }
    let dims = rule.dims;
    if data_null || dtype != rule.dtype.code() || i64::from(rank) != dims.len() as i64 {
        return false;
    }
    let mut span: i64 = 1;
    let mut axis = dims.len();
    while axis > 0 {
        axis -= 1;
        let (Some(dim), Some(extent), Some(stride)) = (dims.get(axis), shape.get(axis), stride.get(axis)) else {
            return false;
        };
        let (extent, stride) = (*extent, *stride);
        let extent_fits = match *dim {
            Dim::Any => true,
            Dim::EqualTo(param) => extent == plan.int(param),
            Dim::AtMost(param) => extent <= plan.int(param),
            Dim::Literal(literal) => extent == literal,
        };
        if extent < 1 || stride < 0 || !extent_fits {
            return false;
        }
        if rule.layout != Layout::Strided && extent != 1 {
            let padded = rule.layout == Layout::Rows && axis + 1 != dims.len();
            if !(stride == span || (padded && stride > span)) {
                return false;
            }
            let Some(next) = stride.checked_mul(extent) else { return false };
            span = next;
        }
    }
    true
}

fn check_required(plan: &Plan, slot: usize, rule: &TensorSlot, tensor: &TensorDesc) -> Result<(), Reason> {
    if tensor.data_null {
        return Err(Reason::TensorNull { slot });
    }
    if tensor.dtype != rule.dtype.code() {
        return Err(Reason::TensorDtype { slot, found: tensor.dtype });
    }
    let rank = rule.dims.len();
    if usize::try_from(tensor.rank) != Ok(rank) {
        return Err(Reason::TensorRank { slot, found: tensor.rank });
    }
    for (axis, (dim, found)) in rule.dims.iter().zip(tensor.shape).enumerate() {
        let (fits, allowed) = match *dim {
            Dim::Any => (true, 1),
            Dim::EqualTo(param) => (found == plan.int(param), plan.int(param)),
            Dim::AtMost(param) => (found <= plan.int(param), plan.int(param)),
            Dim::Literal(extent) => (found == extent, extent),
        };
        if found < 1 || !fits {
            return Err(Reason::TensorExtent { slot, axis, found, allowed });
        }
    }
    for (axis, found) in tensor.stride[..rank].iter().copied().enumerate() {
        if found < 0 {
            return Err(Reason::TensorStride { slot, axis, found });
        }
    }
    if rule.layout == Layout::Strided {
        return Ok(());
    }
    let mut span: i64 = 1;
    for axis in (0..rank).rev() {
        let (extent, stride) = (tensor.shape[axis], tensor.stride[axis]);
        if extent == 1 {
            continue;
        }
        let innermost = axis + 1 == rank;
        let fits = if rule.layout == Layout::Rows && !innermost { stride >= span } else { stride == span };
        if !fits {
            return Err(Reason::TensorLayout { slot, axis, found: stride, span });
        }
        span = stride.checked_mul(extent).ok_or(Reason::TensorSpan { slot, axis })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::fa_fdot2::*;
    use crate::plan::{Caps, plan};
    use crate::status::Status;
    use crate::value::ParamValue;

    fn decode() -> Plan {
        let mut params: Vec<_> = [0, 128, 32, 8, 16, 4, 0, 0, 8].map(ParamValue::from_i64).to_vec();
        params.push(ParamValue::from_f64(0.1));
        plan(OP, &Caps { arch: "gfx1030", ..Caps::default() }, &params).unwrap()
    }

    fn tensor(dtype: i32, shape: &[i64], stride: &[i64]) -> TensorDesc {
        let mut desc = TensorDesc { data_null: false, dtype, rank: shape.len() as i32, ..TensorDesc::ABSENT };
        desc.shape[..shape.len()].copy_from_slice(shape);
        desc.stride[..stride.len()].copy_from_slice(stride);
        desc
    }

    fn good() -> [TensorDesc; 7] {
        let rows = tensor(1, &[8, 32, 128], &[4096, 128, 1]);
        let cache = tensor(1, &[64, 8, 16, 16, 8], &[16384, 2048, 128, 8, 1]);
        [rows, cache, cache, tensor(4, &[8, 4], &[4, 1]), tensor(4, &[8], &[1]), TensorDesc::ABSENT, rows]
    }

    fn refused(change: impl FnOnce(&mut [TensorDesc; 7])) -> Refusal {
        let mut tensors = good();
        change(&mut tensors);
        check_tensors(&decode(), &tensors).unwrap_err()
    }

    #[test]
    fn good_tensors_pass_and_an_unrequired_slot_is_ignored() {
        assert_eq!(check_tensors(&decode(), &good()), Ok(()));
        let mut tensors = good();
        tensors[T_CU_QUERY_LENS] = tensor(3, &[-5, i64::MIN], &[-1, -1]);
        assert_eq!(check_tensors(&decode(), &tensors), Ok(()));
    }

    #[test]
    fn each_row_is_refused_by_name() {
        for (refusal, field, word) in [
            (refused(|t| t[T_Q].data_null = true), "q", "NULL"),
            (refused(|t| t[T_Q].dtype = 2), "q", "bf16"),
            (refused(|t| t[T_OUT].rank = 4), "out", "rank 4"),
            (refused(|t| t[T_Q].shape[0] = 9), "q", "max_tokens (8)"),
            (refused(|t| t[T_Q].shape[0] = 0), "q", "at least 1"),
            (refused(|t| t[T_K_CACHE].shape[1] = 4), "k_cache", "num_kv_heads is 8"),
            (refused(|t| t[T_V_CACHE].stride[2] = -1), "v_cache", "never negative"),
            (refused(|t| t[T_Q].stride[1] = 129), "q", "exactly 128"),
            (refused(|t| t[T_BLOCK_TABLE].stride[0] = 3), "block_table", "at least 4"),
            (refused(|t| t[T_BLOCK_TABLE].stride = [i64::MAX, 1, 0, 0, 0, 0]), "block_table", "2^63"),
        ] {
            assert_eq!((refusal.status(), refusal.field()), (Status::Tensor, field), "{refusal}");
            assert!(refusal.to_string().contains(word), "{refusal}");
        }
    }

    #[test]
    fn an_axis_of_extent_one_has_no_stride_rule() {
        let mut tensors = good();
        tensors[T_Q] = tensor(1, &[1, 32, 128], &[7, 128, 1]);
        assert_eq!(check_tensors(&decode(), &tensors), Ok(()));
        tensors[T_Q].stride[0] = -7;
        assert_eq!(check_tensors(&decode(), &tensors).unwrap_err().status(), Status::Tensor);
    }

    #[test]
    fn padded_rows_pass_where_rows_are_allowed() {
        let mut tensors = good();
        tensors[T_BLOCK_TABLE] = tensor(4, &[8, 4], &[32, 1]);
        assert_eq!(check_tensors(&decode(), &tensors), Ok(()));
    }

    proptest! {
        /// The walk without a reason and the one with a reason must agree on everything.
        #[test]
        fn both_walks_agree(slot in 0_usize..7, axis in 0_usize..6, value in prop_oneof![-1_i64..300, any::<i64>()], what in 0_u8..5) {
            let (plan, mut tensor) = (decode(), good()[slot]);
            match what {
                0 => tensor.shape[axis] = value,
                1 => tensor.stride[axis] = value,
                2 => tensor.rank = value as i32,
                3 => tensor.dtype = value as i32,
                _ => tensor.data_null = value % 2 == 0,
            }
            let rule = &plan.op.tensors[slot];
            let expected = !plan.requires(rule.when) || check_required(&plan, slot, rule, &tensor).is_ok();
            let fits = tensor_fits(&plan, slot, tensor.data_null, tensor.dtype, tensor.rank, &tensor.shape, &tensor.stride);
            prop_assert_eq!(fits, expected);
        }
    }
}
