/* The hippihx V1 op contract, ABI revision 4.
 *
 * Rendered from the op catalogue by `cargo xtask codegen`; do not edit.
 * C11 and C++17. Link with -lhippihx_v1, or open libhippihx_v1.so at run time.
 */
#ifndef HIPPIHX_V1_H
#define HIPPIHX_V1_H

#include <stddef.h>
#include <stdint.h>

#define HIPPIHX_V1_ABI_REVISION 4 /* revision of this contract */
#define HIPPIHX_V1_MAX_RANK 6 /* axes of a tensor at most */
#define HIPPIHX_V1_MAX_PARAMS 16 /* params of an op at most */
#define HIPPIHX_V1_MAX_SCRATCH 4 /* scratch blocks of a plan at most */
#define HIPPIHX_V1_SCRATCH_ALIGN 256 /* alignment of scratch, bytes */
#define HIPPIHX_V1_AR_MAX_KB 512 /* largest comm.pcie message, KiB */

/* Statuses */
enum hippihx_v1_status {
    HIPPIHX_V1_OK = 0, /* success */
    HIPPIHX_V1_ERR_UNKNOWN_OP = 1, /* no such op id */
    HIPPIHX_V1_ERR_UNSUPPORTED_ARCH = 2, /* not a built slot, or the op or wave is not allowed on it */
    HIPPIHX_V1_ERR_BAD_ARG = 3, /* NULL pointer, or a malformed fabric */
    HIPPIHX_V1_ERR_SCRATCH = 4, /* scratch too small, NULL, or not 256-byte aligned */
    HIPPIHX_V1_ERR_NOT_READY = 5, /* the contract exists, the body does not, or its slot is not loaded */
    HIPPIHX_V1_ERR_UNSUPPORTED_DTYPE = 6, /* activation dtype that the op does not take */
    HIPPIHX_V1_ERR_ABI = 7, /* struct_size or revision mismatch, or a plan that failed */
    HIPPIHX_V1_ERR_PARAM = 8, /* param count, domain, cross-check, or scratch overflow */
    HIPPIHX_V1_ERR_TENSOR = 9, /* tensor count, dtype, rank, extent, layout, or NULL data */
    HIPPIHX_V1_ERR_UNSUPPORTED_FABRIC = 10, /* not a custom all-reduce hop; the engine keeps RCCL */
    HIPPIHX_V1_ERR_CODE_OBJECT = 11, /* unreadable, not one raw AMDGPU ELF, or rejected by HIP */
    HIPPIHX_V1_ERR_FOREIGN_ISA = 12, /* the ELF's machine is not the slot's, or HSA_OVERRIDE_GFX_VERSION is set */
    HIPPIHX_V1_ERR_NO_HIP = 13 /* no device behind the library: the image was validated, nothing was loaded */
};

/* Element types */
enum hippihx_v1_dtype {
    HIPPIHX_V1_DTYPE_UNSET = 0, /* 0 bytes */
    HIPPIHX_V1_DTYPE_FP16 = 1, /* 2 bytes */
    HIPPIHX_V1_DTYPE_BF16 = 2, /* 2 bytes */
    HIPPIHX_V1_DTYPE_FP32 = 3, /* 4 bytes */
    HIPPIHX_V1_DTYPE_I32 = 4, /* 4 bytes */
    HIPPIHX_V1_DTYPE_I64 = 5, /* 8 bytes */
    HIPPIHX_V1_DTYPE_U8 = 6, /* 1 bytes */
    HIPPIHX_V1_DTYPE_I8 = 7 /* 1 bytes */
};

/* GPU slots; one code object each */
enum hippihx_v1_arch {
    HIPPIHX_V1_ARCH_GFX1030 = 0, /* machine 0x36, DOT, wave 32; Radeon PRO V620, the primary target */
    HIPPIHX_V1_ARCH_GFX1100 = 1, /* machine 0x41, DOT, wave 32 */
    HIPPIHX_V1_ARCH_GFX1101 = 2, /* machine 0x46, DOT, wave 32 */
    HIPPIHX_V1_ARCH_GFX1102 = 3, /* machine 0x47, DOT, wave 32 */
    HIPPIHX_V1_ARCH_GFX1200 = 4, /* machine 0x48, DOT, wave 32 */
    HIPPIHX_V1_ARCH_GFX1151 = 5, /* machine 0x4a, DOT, wave 32; Strix Halo; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX1031 = 6, /* machine 0x37, DOT, wave 32; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX1032 = 7, /* machine 0x38, DOT, wave 32; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX1033 = 8, /* machine 0x39, DOT, wave 32; Steam Deck; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX1035 = 9, /* machine 0x3d, DOT, wave 32; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX1036 = 10, /* machine 0x45, DOT, wave 32; portable, not tuned */
    HIPPIHX_V1_ARCH_GFX900 = 11 /* machine 0x2c, no DOT, wave 64; Vega; never carries a DOT kernel */
};
/* Known by name, and refused:
 * gfx906: Vega20 is a later slot: it is not built under revision 4 and will never carry a DOT kernel
 * gfx1013: BC-250 (Cyan Skillfish) is a later slot: it is not true RDNA2, so no gfx103x object may be loaded on it, with or without HSA_OVERRIDE_GFX_VERSION
 */

/* Ops */
enum hippihx_v1_op {
    HIPPIHX_V1_OP_ATTN_FA_FDOT2 = 0, /* attention.fa_fdot2: paged / varlen flash attention with fdot2 */
    HIPPIHX_V1_OP_ATTN_GDN_SCAN = 1, /* attention.gdn_scan: gated-delta-net hybrid-state scan */
    HIPPIHX_V1_OP_ATTN_KDA_SCAN = 2, /* attention.kda_scan: KDA linear-state scan */
    HIPPIHX_V1_OP_ATTN_QSA_INDEXER = 3, /* attention.qsa_indexer: group-select indexer */
    HIPPIHX_V1_OP_ATTN_DSA_NOPE = 4, /* attention.dsa_nope: sparse MLA without rope */
    HIPPIHX_V1_OP_GEMM_W4A16_FDOT2 = 5, /* gemm.w4a16_fdot2: int4 weights with zero point, fp16 activations */
    HIPPIHX_V1_OP_GEMM_EXL3_3INST = 6, /* gemm.exl3_3inst: EXL3 3inst weights, consume only */
    HIPPIHX_V1_OP_MOE_ROUTED = 7, /* moe.routed: routed experts gate / up / down */
    HIPPIHX_V1_OP_MOE_SHARED = 8, /* moe.shared: shared expert */
    HIPPIHX_V1_OP_MOE_LEFTOVER_BF16 = 9, /* moe.leftover_bf16: leftover dense bf16, scalar FMA in fp32 */
    HIPPIHX_V1_OP_SEQUENCE_CAUSAL_CONV = 10, /* sequence.causal_conv: short causal convolution, scalar FMA */
    HIPPIHX_V1_OP_COMM_PCIE = 11 /* comm.pcie: PCIe all-reduce, custom path on a PIX hop only */
};

/* Hops between two GPUs */
enum hippihx_v1_hop {
    HIPPIHX_V1_HOP_UNSET = 0,
    HIPPIHX_V1_HOP_PIX = 1,
    HIPPIHX_V1_HOP_PXB = 2,
    HIPPIHX_V1_HOP_PHB = 3
};

/* PCIe switches */
enum hippihx_v1_switch {
    HIPPIHX_V1_SWITCH_UNSET = 0,
    HIPPIHX_V1_SWITCH_PEX88096 = 1,
    HIPPIHX_V1_SWITCH_PEX8749 = 2,
    HIPPIHX_V1_SWITCH_GENERIC = 3
};

/* attention.fa_fdot2 */
enum {
    HIPPIHX_V1_ATTN_FA_FDOT2_P_MODE = 0, /* one of 0, 1: decode: split-K plus combine; prefill: paged varlen */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_HEAD_DIM = 1, /* one of 128, 256: elements of one head, D */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_NUM_Q_HEADS = 2, /* int 1 to open: query heads H_q, a multiple of num_kv_heads */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_NUM_KV_HEADS = 3, /* int 1 to open: KV heads H_kv; query head h reads KV head h / (H_q / H_kv) */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_BLOCK_SIZE = 4, /* int 1 to open: tokens of one KV page */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_KV_SPLITS = 5, /* int 1 to 16: split-K partitions */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_SLIDING_WINDOW = 6, /* int 0 to open: visible positions up to the query's own; 0 is off */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_CAUSAL = 7, /* 0 or 1: prefill mask; decode ignores it */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_MAX_TOKENS = 8, /* int 1 to open: bound on query rows (the capture bucket); sizes the partials */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_SCALE = 9, /* double, finite and above 0: softmax scale, commonly 1 / sqrt(head_dim) */
    HIPPIHX_V1_ATTN_FA_FDOT2_P_COUNT = 10,
    HIPPIHX_V1_ATTN_FA_FDOT2_T_Q = 0, /* fp16, contiguous: queries [rows, H_q, D] */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_K_CACHE = 1, /* fp16, strided: keys [blocks, H_kv, D / x, block_size, x] */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_V_CACHE = 2, /* fp16, strided: values, the extents of k_cache with strides of their own */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_BLOCK_TABLE = 3, /* i32, rows: KV block of each page [sequences, pages] */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_SEQ_LENS = 4, /* i32, contiguous: tokens of context of each sequence */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_CU_QUERY_LENS = 5, /* i32, contiguous, not always required: first query row of each sequence, then the last one's end */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_OUT = 6, /* fp16, contiguous: attention [rows, H_q, D] */
    HIPPIHX_V1_ATTN_FA_FDOT2_T_COUNT = 7
};
#define HIPPIHX_V1_ATTN_FA_FDOT2_MODE_DECODE 0
#define HIPPIHX_V1_ATTN_FA_FDOT2_MODE_PREFILL 1

/* comm.pcie */
enum {
    HIPPIHX_V1_COMM_PCIE_P_MAX_BYTES = 0, /* int 1 to 524288: largest message, in bytes */
    HIPPIHX_V1_COMM_PCIE_P_COUNT = 1,
    HIPPIHX_V1_COMM_PCIE_T_COUNT = 0
};

/* An int64 or a double, as the op's schema says. */
typedef union hippihx_v1_param {
    int64_t i;
    double f;
} hippihx_v1_param;

typedef struct hippihx_v1_fabric {
    int32_t hop;
    int32_t pcie_switch;
    int32_t width; /* PCIe lanes: 1, 2, 4, 8 or 16 */
    int32_t acs_clear; /* 0 or 1 */
    int32_t large_bar; /* 0 or 1 */
} hippihx_v1_fabric;

typedef struct hippihx_v1_caps {
    const char *arch; /* slot name, such as gfx1030 */
    int wave; /* 32, 64, or 0 for the slot's default */
    int dtype; /* activation dtype */
    const hippihx_v1_fabric *fabric; /* comm only */
} hippihx_v1_caps;

typedef struct hippihx_v1_tensor {
    void *data; /* device address; NULL where the plan does not require the slot */
    int32_t dtype;
    int32_t rank;
    int64_t shape[HIPPIHX_V1_MAX_RANK]; /* elements */
    int64_t stride[HIPPIHX_V1_MAX_RANK]; /* elements */
} hippihx_v1_tensor;

typedef struct hippihx_v1_scratch_spec {
    const char *name; /* static, owned by the library */
    size_t nbytes;
    size_t offset; /* bytes from the start of the plan's scratch */
    int zeroed; /* always 1: zeroed once by its owner */
} hippihx_v1_scratch_spec;

typedef struct hippihx_v1_plan_t {
    size_t struct_size; /* set to sizeof(hippihx_v1_plan_t) before planning */
    int32_t abi_revision; /* 0 in a plan that failed */
    int32_t op;
    int32_t arch;
    int32_t wave; /* resolved */
    int32_t dtype;
    int32_t ready; /* 1 when the op has a body and its slot is loaded */
    int32_t variant;
    int32_t nparams;
    hippihx_v1_param params[HIPPIHX_V1_MAX_PARAMS];
    int32_t nscratch;
    hippihx_v1_scratch_spec scratch[HIPPIHX_V1_MAX_SCRATCH];
    size_t scratch_nbytes; /* a multiple of HIPPIHX_V1_SCRATCH_ALIGN */
} hippihx_v1_plan_t;

#ifdef __cplusplus
extern "C" {
#endif

int hippihx_v1_abi_revision(void);
int hippihx_v1_op_count(void);
/* NULL out of range, like every name. */
const char *hippihx_v1_op_name(int op);
int hippihx_v1_op_is_dot(int op);
int hippihx_v1_op_fp16_act(int op);
/* -1 out of range. */
int hippihx_v1_op_nparams(int op);
const char *hippihx_v1_op_param_name(int op, int index);
int hippihx_v1_op_ntensors(int op);
const char *hippihx_v1_op_tensor_name(int op, int index);

/* Host-only: no device work, no allocation, safe during graph capture. */
int hippihx_v1_plan(int op, const hippihx_v1_caps *caps, const hippihx_v1_param *params, int nparams,
                    hippihx_v1_plan_t *out);
/* Enqueues on a stream; never allocates, never synchronises. */
int hippihx_v1_run(const hippihx_v1_plan_t *plan, const hippihx_v1_tensor *tensors, int ntensors, void *scratch,
                   size_t scratch_nbytes, void *stream);

int hippihx_v1_load(const char *arch, const char *path);
int hippihx_v1_load_image(const char *arch, const void *image, size_t nbytes);
/* 1 when the slot has a loaded code object. */
int hippihx_v1_loaded(const char *arch);

/* Text of the calling thread's last failed call: never NULL, good until the thread asks again. */
const char *hippihx_v1_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* HIPPIHX_V1_H */
