//! The rows of the catalogue. The index is the op id; never renumber.

use super::fa_fdot2::*;
use super::{
    Access, Check, Condition, Dim, EnumValue, Layout, Op, Param, ParamKind, ScratchDim, ScratchRule, TensorSlot,
};
use crate::dtype::Dtype;

const fn unpinned(
    id: i32,
    name: &'static str,
    c_name: &'static str,
    dot: bool,
    fp16_act: bool,
    summary: &'static str,
) -> Op {
    Op {
        id,
        name,
        c_name,
        dot,
        fp16_act,
        needs_fabric: false,
        summary,
        pinned: false,
        has_body: false,
        params: &[],
        checks: &[],
        tensors: &[],
        scratch: &[],
        variant_param: None,
    }
}

pub static OPS: [Op; 12] = [
    FA_FDOT2,
    unpinned(1, "attention.gdn_scan", "ATTN_GDN_SCAN", false, true, "gated-delta-net hybrid-state scan"),
    unpinned(2, "attention.kda_scan", "ATTN_KDA_SCAN", false, false, "KDA linear-state scan"),
    unpinned(3, "attention.qsa_indexer", "ATTN_QSA_INDEXER", false, false, "group-select indexer"),
    unpinned(4, "attention.dsa_nope", "ATTN_DSA_NOPE", false, false, "sparse MLA without rope"),
    unpinned(5, "gemm.w4a16_fdot2", "GEMM_W4A16_FDOT2", true, true, "int4 weights with zero point, fp16 activations"),
    unpinned(6, "gemm.exl3_3inst", "GEMM_EXL3_3INST", true, true, "EXL3 3inst weights, consume only"),
    unpinned(7, "moe.routed", "MOE_ROUTED", false, false, "routed experts gate / up / down"),
    unpinned(8, "moe.shared", "MOE_SHARED", true, true, "shared expert"),
    unpinned(9, "moe.leftover_bf16", "MOE_LEFTOVER_BF16", false, false, "leftover dense bf16, scalar FMA in fp32"),
    unpinned(10, "sequence.causal_conv", "SEQUENCE_CAUSAL_CONV", false, false, "short causal convolution, scalar FMA"),
    COMM_PCIE,
];

const fn int(name: &'static str, lo: i64, hi: Option<i64>, meaning: &'static str) -> Param {
    Param { name, kind: ParamKind::Int { lo: Some(lo), hi }, meaning }
}

const fn labelled(value: i64, label: &'static str) -> EnumValue {
    EnumValue { value, label: Some(label) }
}

const fn plain(value: i64) -> EnumValue {
    EnumValue { value, label: None }
}

const PREFILL_ONLY: &[Condition] = &[Condition::Equals { param: P_MODE, value: MODE_PREFILL }];
const PARTIALS: &[Condition] =
    &[Condition::Equals { param: P_MODE, value: MODE_DECODE }, Condition::Above { param: P_KV_SPLITS, value: 1 }];
const QUERY_ROWS: &[Dim] = &[Dim::AtMost(P_MAX_TOKENS), Dim::EqualTo(P_NUM_Q_HEADS), Dim::EqualTo(P_HEAD_DIM)];
const ROW_HEAD_SPLIT: [ScratchDim; 3] =
    [ScratchDim::Param(P_MAX_TOKENS), ScratchDim::Param(P_NUM_Q_HEADS), ScratchDim::Param(P_KV_SPLITS)];

const fn input(
    name: &'static str,
    dtype: Dtype,
    dims: &'static [Dim],
    layout: Layout,
    when: &'static [Condition],
    meaning: &'static str,
) -> TensorSlot {
    TensorSlot { name, dtype, dims, layout, when, access: Access::Input, steps: false, meaning }
}

const FA_FDOT2: Op = Op {
    id: OP,
    name: "attention.fa_fdot2",
    c_name: "ATTN_FA_FDOT2",
    dot: true,
    fp16_act: true,
    needs_fabric: false,
    summary: "paged / varlen flash attention with fdot2",
    pinned: true,
    has_body: true,
    params: &[
        Param {
            name: "mode",
            kind: ParamKind::Enum(&[labelled(MODE_DECODE, "decode"), labelled(MODE_PREFILL, "prefill")]),
            meaning: "decode: split-K plus combine; prefill: paged varlen",
        },
        Param {
            name: "head_dim",
            kind: ParamKind::Enum(&[plain(128), plain(256)]),
            meaning: "elements of one head, D",
        },
        int("num_q_heads", 1, None, "query heads H_q, a multiple of num_kv_heads"),
        int("num_kv_heads", 1, None, "KV heads H_kv; query head h reads KV head h / (H_q / H_kv)"),
        int("block_size", 1, None, "tokens of one KV page"),
        int("kv_splits", 1, Some(16), "split-K partitions"),
        int("sliding_window", 0, None, "visible positions up to the query's own; 0 is off"),
        Param { name: "causal", kind: ParamKind::Bool, meaning: "prefill mask; decode ignores it" },
        int("max_tokens", 1, None, "bound on query rows (the capture bucket); sizes the partials"),
        Param { name: "scale", kind: ParamKind::Float, meaning: "softmax scale, commonly 1 / sqrt(head_dim)" },
    ],
    checks: &[Check { num: P_NUM_Q_HEADS, by: P_NUM_KV_HEADS }],
    tensors: &[
        TensorSlot {
            name: "q",
            dtype: Dtype::Fp16,
            dims: QUERY_ROWS,
            layout: Layout::Contiguous,
            when: &[],
            access: Access::Input,
            steps: true,
            meaning: "queries [rows, H_q, D]",
        },
        input(
            "k_cache",
            Dtype::Fp16,
            &[Dim::Any, Dim::EqualTo(P_NUM_KV_HEADS), Dim::Any, Dim::EqualTo(P_BLOCK_SIZE), Dim::Any],
            Layout::Strided,
            &[],
            "keys [blocks, H_kv, D / x, block_size, x]",
        ),
        input(
            "v_cache",
            Dtype::Fp16,
            &[Dim::Any, Dim::Any, Dim::Any, Dim::Any, Dim::Any],
            Layout::Strided,
            &[],
            "values, the extents of k_cache with strides of their own",
        ),
        input(
            "block_table",
            Dtype::I32,
            &[Dim::Any, Dim::Any],
            Layout::Rows,
            &[],
            "KV block of each page [sequences, pages]",
        ),
        input("seq_lens", Dtype::I32, &[Dim::Any], Layout::Contiguous, &[], "tokens of context of each sequence"),
        input(
            "cu_query_lens",
            Dtype::I32,
            &[Dim::Any],
            Layout::Contiguous,
            PREFILL_ONLY,
            "first query row of each sequence, then the last one's end",
        ),
        TensorSlot {
            name: "out",
            dtype: Dtype::Fp16,
            dims: QUERY_ROWS,
            layout: Layout::Contiguous,
            when: &[],
            access: Access::Output,
            steps: true,
            meaning: "attention [rows, H_q, D]",
        },
    ],
    scratch: &[
        ScratchRule {
            name: "o_partial",
            elem_bytes: 4,
            dims: &[ROW_HEAD_SPLIT[0], ROW_HEAD_SPLIT[1], ROW_HEAD_SPLIT[2], ScratchDim::Param(P_HEAD_DIM)],
            max_elems: i32::MAX as i64,
            when: PARTIALS,
        },
        ScratchRule { name: "m_partial", elem_bytes: 4, dims: &ROW_HEAD_SPLIT, max_elems: 0, when: PARTIALS },
        ScratchRule { name: "l_partial", elem_bytes: 4, dims: &ROW_HEAD_SPLIT, max_elems: 0, when: PARTIALS },
    ],
    variant_param: Some(P_MODE),
};

const COMM_PCIE: Op = Op {
    id: 11,
    name: "comm.pcie",
    c_name: "COMM_PCIE",
    dot: false,
    fp16_act: false,
    needs_fabric: true,
    summary: "PCIe all-reduce, custom path on a PIX hop only",
    pinned: true,
    has_body: false,
    params: &[int("max_bytes", 1, Some(super::AR_MAX_KB * 1024), "largest message, in bytes")],
    checks: &[],
    tensors: &[],
    scratch: &[],
    variant_param: None,
};
