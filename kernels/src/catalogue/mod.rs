//! The op catalogue: the one table that everything else is rendered from or checked against.
//!
//! This file says how a row reads; `ops.rs` holds the rows.

mod ops;

use crate::dtype::Dtype;

pub use ops::OPS;

/// ABI revision that this catalogue states.
pub const ABI_REVISION: i32 = 4;
/// Axes of a tensor at most.
pub const MAX_RANK: usize = 6;
/// Params of an op at most.
pub const MAX_PARAMS: usize = 16;
/// Scratch blocks of a plan at most.
pub const MAX_SCRATCH: usize = 4;
/// Alignment of scratch and of each block in it, in bytes.
pub const SCRATCH_ALIGN: u64 = 256;
/// Largest message of comm.pcie's custom path, in KiB.
pub const AR_MAX_KB: i64 = 512;

/// One kernel class of the contract.
#[derive(Debug)]
pub struct Op {
    /// Stable: never renumbered.
    pub id: i32,
    /// Qualified name, such as `attention.fa_fdot2`.
    pub name: &'static str,
    /// Suffix of the C enum, such as `ATTN_FA_FDOT2`.
    pub c_name: &'static str,
    /// Uses packed fp16 dot products: DOT slots, wave32 and fp16 activations only.
    pub dot: bool,
    /// Takes fp16 activations only.
    pub fp16_act: bool,
    pub needs_fabric: bool,
    pub summary: &'static str,
    /// Whether revision 4 pins its schema; an op without one takes no params and no tensors.
    pub pinned: bool,
    /// Whether a kernel body exists; readiness also asks for a loaded slot.
    pub has_body: bool,
    pub params: &'static [Param],
    pub checks: &'static [Check],
    pub tensors: &'static [TensorSlot],
    pub scratch: &'static [ScratchRule],
    /// The enum param whose value's rank is the plan's variant.
    pub variant_param: Option<usize>,
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.id == other.id
    }
}

impl Eq for Op {}

#[derive(Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
    pub meaning: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// Both bounds inclusive; `None` is open.
    Int {
        lo: Option<i64>,
        hi: Option<i64>,
    },
    Enum(&'static [EnumValue]),
    Bool,
    /// Finite and above zero.
    Float,
}

/// A value of an enum param; its index in the list is its explore rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EnumValue {
    pub value: i64,
    pub label: Option<&'static str>,
}

/// `params[num] % params[by] == 0`; `by == 0` fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    pub num: usize,
    pub by: usize,
}

/// What an extent must be. Every extent is at least 1 besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dim {
    Any,
    EqualTo(usize),
    AtMost(usize),
    Literal(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Every axis is dense.
    Contiguous,
    /// The innermost axis is dense, the others may be padded.
    Rows,
    /// Any strides that are not negative.
    Strided,
}

impl Layout {
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Contiguous => "contiguous",
            Layout::Rows => "rows",
            Layout::Strided => "strided",
        }
    }
}

/// One comparison of a param; a rule with several applies when any of them holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    Equals { param: usize, value: i64 },
    Above { param: usize, value: i64 },
}

/// Who writes a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Input,
    Output,
}

#[derive(Debug)]
pub struct TensorSlot {
    pub name: &'static str,
    pub dtype: Dtype,
    pub dims: &'static [Dim],
    pub layout: Layout,
    /// Required when any holds; always when empty.
    pub when: &'static [Condition],
    pub access: Access,
    /// Row count and byte offset may change from run to run of one binding.
    pub steps: bool,
    pub meaning: &'static str,
}

#[derive(Debug)]
pub struct ScratchRule {
    pub name: &'static str,
    pub elem_bytes: u64,
    pub dims: &'static [ScratchDim],
    /// Bound on the product of the dims; 0 is none.
    pub max_elems: i64,
    pub when: &'static [Condition],
}

/// A factor of a scratch block's element count: a param's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScratchDim {
    Param(usize),
    Literal(i64),
}

/// The op with this id, if there is one.
pub fn op_by_id(id: i32) -> Option<&'static Op> {
    OPS.get(usize::try_from(id).ok()?)
}

/// The op with this qualified name, if there is one.
pub fn op_by_name(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name)
}

/// Names by which the rows of `attention.fa_fdot2` are reached in code, so that no index stands bare.
pub mod fa_fdot2 {
    pub const OP: i32 = 0;

    pub const P_MODE: usize = 0;
    pub const P_HEAD_DIM: usize = 1;
    pub const P_NUM_Q_HEADS: usize = 2;
    pub const P_NUM_KV_HEADS: usize = 3;
    pub const P_BLOCK_SIZE: usize = 4;
    pub const P_KV_SPLITS: usize = 5;
    pub const P_SLIDING_WINDOW: usize = 6;
    pub const P_CAUSAL: usize = 7;
    pub const P_MAX_TOKENS: usize = 8;
    pub const P_SCALE: usize = 9;

    pub const MODE_DECODE: i64 = 0;
    pub const MODE_PREFILL: i64 = 1;

    pub const T_Q: usize = 0;
    pub const T_K_CACHE: usize = 1;
    pub const T_V_CACHE: usize = 2;
    pub const T_BLOCK_TABLE: usize = 3;
    pub const T_SEQ_LENS: usize = 4;
    pub const T_CU_QUERY_LENS: usize = 5;
    pub const T_OUT: usize = 6;

    pub const S_O_PARTIAL: usize = 0;
    pub const S_M_PARTIAL: usize = 1;
    pub const S_L_PARTIAL: usize = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_ids_and_keep_the_limits() {
        for (index, op) in OPS.iter().enumerate() {
            assert_eq!(op.id as usize, index);
            assert!(op.params.len() <= MAX_PARAMS && op.scratch.len() <= MAX_SCRATCH);
            assert!(op.tensors.iter().all(|slot| slot.dims.len() <= MAX_RANK && !slot.dims.is_empty()));
            assert!(
                op.pinned || (op.params.is_empty() && op.tensors.is_empty() && op.scratch.is_empty() && !op.has_body)
            );
            assert!(!op.dot || op.fp16_act, "a DOT op takes fp16 activations only");
            assert_eq!(op_by_name(op.name), Some(op));
        }
        assert_eq!(
            OPS.iter().filter(|op| op.pinned).map(|op| op.name).collect::<Vec<_>>(),
            ["attention.fa_fdot2", "comm.pcie"]
        );
    }

    #[test]
    fn every_index_in_a_row_points_into_the_row() {
        for op in &OPS {
            let params = op.params.len();
            assert!(op.checks.iter().all(|check| check.num < params && check.by < params));
            assert!(op.variant_param.is_none_or(|p| matches!(op.params[p].kind, ParamKind::Enum(_))));
            for dim in op.tensors.iter().flat_map(|slot| slot.dims) {
                assert!(!matches!(dim, Dim::EqualTo(p) | Dim::AtMost(p) if *p >= params));
            }
            let conditions =
                op.tensors.iter().flat_map(|slot| slot.when).chain(op.scratch.iter().flat_map(|rule| rule.when));
            for condition in conditions {
                let (Condition::Equals { param, .. } | Condition::Above { param, .. }) = *condition;
                assert!(param < params);
            }
        }
    }

    #[test]
    fn the_named_indices_of_fa_fdot2_are_the_rows() {
        let op = &OPS[fa_fdot2::OP as usize];
        assert_eq!(op.params[fa_fdot2::P_SCALE].name, "scale");
        assert_eq!(op.params[fa_fdot2::P_KV_SPLITS].name, "kv_splits");
        assert_eq!(op.params[fa_fdot2::P_MAX_TOKENS].name, "max_tokens");
        assert_eq!(op.tensors[fa_fdot2::T_CU_QUERY_LENS].name, "cu_query_lens");
        assert_eq!(op.tensors[fa_fdot2::T_OUT].name, "out");
        assert_eq!(op.scratch[fa_fdot2::S_L_PARTIAL].name, "l_partial");
    }
}
