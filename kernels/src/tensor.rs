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
    let Some(rule) = plan.op.tensors.get(slot) else { return Ok(()) };
    if !plan.requires(rule.when) {
        return Ok(());
    }
    check_required(plan, slot, rule, tensor).map_err(|reason| Refusal::for_op(plan.op, reason))
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
}
