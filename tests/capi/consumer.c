/* A consumer of the V1 C ABI: every function, the layouts, the order of the checks. Exits with the line of the first
 * expectation that does not hold. Compiled as C11 and as C++17. */
#include <hippihx/v1.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #condition, hippihx_v1_last_error()); \
            return 1;                                                                            \
        }                                                                                        \
    } while (0)

static void decode_params(hippihx_v1_param *p) {
    const int64_t ints[] = {HIPPIHX_V1_ATTN_FA_FDOT2_MODE_DECODE, 128, 32, 8, 16, 4, 0, 0, 8};
    for (int i = 0; i < 9; i++) p[i].i = ints[i];
    p[HIPPIHX_V1_ATTN_FA_FDOT2_P_SCALE].f = 0.088388347648318447;
}

static void tensor(hippihx_v1_tensor *t, int dtype, int rank, const int64_t *shape) {
    static char somewhere[16];
    memset(t, 0, sizeof *t);
    t->data = somewhere;
    t->dtype = dtype;
    t->rank = rank;
    int64_t span = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        t->shape[axis] = shape[axis];
        t->stride[axis] = span;
        span *= shape[axis];
    }
}

static int layouts(void) {
    EXPECT(sizeof(hippihx_v1_param) == 8 && sizeof(hippihx_v1_fabric) == 20 && sizeof(hippihx_v1_caps) == 24);
    EXPECT(sizeof(hippihx_v1_tensor) == 112 && sizeof(hippihx_v1_scratch_spec) == 32 && sizeof(hippihx_v1_plan_t) == 312);
    EXPECT(offsetof(hippihx_v1_tensor, shape) == 16 && offsetof(hippihx_v1_tensor, stride) == 64);
    EXPECT(offsetof(hippihx_v1_plan_t, params) == 40 && offsetof(hippihx_v1_plan_t, nscratch) == 168);
    EXPECT(offsetof(hippihx_v1_plan_t, scratch) == 176 && offsetof(hippihx_v1_plan_t, scratch_nbytes) == 304);
    return 0;
}

static int names(void) {
    EXPECT(hippihx_v1_abi_revision() == HIPPIHX_V1_ABI_REVISION && HIPPIHX_V1_ABI_REVISION == 4);
    EXPECT(hippihx_v1_op_count() == 12);
    EXPECT(strcmp(hippihx_v1_op_name(HIPPIHX_V1_OP_ATTN_FA_FDOT2), "attention.fa_fdot2") == 0);
    EXPECT(strcmp(hippihx_v1_op_name(HIPPIHX_V1_OP_COMM_PCIE), "comm.pcie") == 0);
    EXPECT(hippihx_v1_op_name(12) == NULL && hippihx_v1_op_name(-1) == NULL);
    EXPECT(hippihx_v1_op_is_dot(5) == 1 && hippihx_v1_op_is_dot(7) == 0 && hippihx_v1_op_is_dot(99) == 0);
    EXPECT(hippihx_v1_op_fp16_act(1) == 1 && hippihx_v1_op_fp16_act(2) == 0 && hippihx_v1_op_fp16_act(-5) == 0);
    EXPECT(hippihx_v1_op_nparams(0) == HIPPIHX_V1_ATTN_FA_FDOT2_P_COUNT && hippihx_v1_op_nparams(3) == 0);
    EXPECT(hippihx_v1_op_nparams(12) == -1 && hippihx_v1_op_ntensors(-1) == -1);
    EXPECT(strcmp(hippihx_v1_op_param_name(0, HIPPIHX_V1_ATTN_FA_FDOT2_P_SCALE), "scale") == 0);
    EXPECT(hippihx_v1_op_param_name(0, 10) == NULL && hippihx_v1_op_param_name(0, -1) == NULL && hippihx_v1_op_param_name(12, 0) == NULL);
    EXPECT(hippihx_v1_op_ntensors(0) == HIPPIHX_V1_ATTN_FA_FDOT2_T_COUNT && hippihx_v1_op_ntensors(11) == 0);
    EXPECT(strcmp(hippihx_v1_op_tensor_name(0, HIPPIHX_V1_ATTN_FA_FDOT2_T_OUT), "out") == 0);
    EXPECT(hippihx_v1_op_tensor_name(0, 7) == NULL && hippihx_v1_op_tensor_name(1, 0) == NULL);
    return 0;
}

static int planning(void) {
    hippihx_v1_param p[16];
    hippihx_v1_caps caps = {"gfx1030", 0, HIPPIHX_V1_DTYPE_FP16, NULL};
    hippihx_v1_plan_t plan;
    decode_params(p);
    memset(&plan, 0xAA, sizeof plan);
    plan.struct_size = sizeof plan;
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_OK);
    EXPECT(plan.abi_revision == 4 && plan.op == 0 && plan.arch == HIPPIHX_V1_ARCH_GFX1030 && plan.wave == 32 && plan.dtype == 1);
    EXPECT(plan.ready == 0 && plan.variant == 0 && plan.nparams == 10 && plan.params[2].i == 32);
    EXPECT(plan.nscratch == 3 && plan.scratch_nbytes == 532480);
    EXPECT(strcmp(plan.scratch[1].name, "m_partial") == 0 && plan.scratch[1].nbytes == 4096 && plan.scratch[1].offset == 524288);
    EXPECT(plan.scratch[2].offset == 528384 && plan.scratch[2].zeroed == 1);

    /* The order: op, NULLs, struct_size (out untouched), then out is zeroed. */
    plan.struct_size = 311;
    plan.op = 77;
    EXPECT(hippihx_v1_plan(12, NULL, NULL, 0, NULL) == HIPPIHX_V1_ERR_UNKNOWN_OP);
    EXPECT(hippihx_v1_plan(0, NULL, p, 10, &plan) == HIPPIHX_V1_ERR_BAD_ARG && plan.op == 77);
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, NULL) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_ERR_ABI && plan.op == 77);
    plan.struct_size = sizeof plan;
    caps.arch = "gfx906";
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_ERR_UNSUPPORTED_ARCH);
    EXPECT(plan.op == 0 && plan.abi_revision == 0 && plan.struct_size == sizeof plan && strstr(hippihx_v1_last_error(), "Vega20") != NULL);
    caps.arch = NULL;
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_ERR_UNSUPPORTED_ARCH);
    caps.arch = "gfx1030";
    caps.dtype = HIPPIHX_V1_DTYPE_BF16;
    EXPECT(hippihx_v1_plan(0, &caps, NULL, 10, &plan) == HIPPIHX_V1_ERR_UNSUPPORTED_DTYPE);
    caps.dtype = 0;
    EXPECT(hippihx_v1_plan(0, &caps, NULL, 10, &plan) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_plan(0, &caps, p, 9, &plan) == HIPPIHX_V1_ERR_PARAM);
    EXPECT(hippihx_v1_plan(0, &caps, NULL, 0, &plan) == HIPPIHX_V1_ERR_PARAM);
    EXPECT(hippihx_v1_plan(0, &caps, p, -1, &plan) == HIPPIHX_V1_ERR_PARAM);
    p[9].f = NAN;
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_ERR_PARAM && strstr(hippihx_v1_last_error(), "scale") != NULL);
    decode_params(p);
    p[3].i = 0;
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_ERR_PARAM);

    /* comm.pcie and its fabric. */
    hippihx_v1_fabric fabric = {HIPPIHX_V1_HOP_PIX, HIPPIHX_V1_SWITCH_PEX88096, 16, 1, 1};
    p[0].i = 524288;
    EXPECT(hippihx_v1_plan(11, &caps, p, 1, &plan) == HIPPIHX_V1_ERR_UNSUPPORTED_FABRIC);
    caps.fabric = &fabric;
    EXPECT(hippihx_v1_plan(11, &caps, p, 1, &plan) == HIPPIHX_V1_OK && plan.ready == 0);
    fabric.acs_clear = 0;
    EXPECT(hippihx_v1_plan(11, &caps, p, 1, &plan) == HIPPIHX_V1_ERR_BAD_ARG);
    return 0;
}

static int running(void) {
    hippihx_v1_param p[16];
    hippihx_v1_caps caps = {"gfx1100", 32, 0, NULL};
    hippihx_v1_plan_t plan;
    decode_params(p);
    memset(&plan, 0, sizeof plan);
    plan.struct_size = sizeof plan;
    EXPECT(hippihx_v1_plan(0, &caps, p, 10, &plan) == HIPPIHX_V1_OK);

    const int64_t rows[] = {8, 32, 128}, cache[] = {64, 8, 16, 16, 8}, table[] = {8, 4}, lens[] = {8};
    hippihx_v1_tensor t[7];
    tensor(&t[0], HIPPIHX_V1_DTYPE_FP16, 3, rows);
    tensor(&t[1], HIPPIHX_V1_DTYPE_FP16, 5, cache);
    tensor(&t[2], HIPPIHX_V1_DTYPE_FP16, 5, cache);
    tensor(&t[3], HIPPIHX_V1_DTYPE_I32, 2, table);
    tensor(&t[4], HIPPIHX_V1_DTYPE_I32, 1, lens);
    memset(&t[5], 0xff, sizeof t[5]); /* not required by a decode: ignored, whatever it holds */
    tensor(&t[6], HIPPIHX_V1_DTYPE_FP16, 3, rows);
    void *scratch = (void *)(uintptr_t)0x10000;

    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, plan.scratch_nbytes, NULL) == HIPPIHX_V1_ERR_NOT_READY);
    EXPECT(hippihx_v1_run(NULL, t, 7, scratch, 0, NULL) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_run(&plan, t, 6, scratch, 0, NULL) == HIPPIHX_V1_ERR_TENSOR);
    EXPECT(hippihx_v1_run(&plan, NULL, 7, scratch, 0, NULL) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, plan.scratch_nbytes - 1, NULL) == HIPPIHX_V1_ERR_SCRATCH);
    EXPECT(hippihx_v1_run(&plan, t, 7, NULL, plan.scratch_nbytes, NULL) == HIPPIHX_V1_ERR_SCRATCH);
    EXPECT(hippihx_v1_run(&plan, t, 7, (void *)(uintptr_t)0x10080, plan.scratch_nbytes, NULL) == HIPPIHX_V1_ERR_SCRATCH);
    t[1].stride[4] = -1;
    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, plan.scratch_nbytes, NULL) == HIPPIHX_V1_ERR_TENSOR);
    EXPECT(strstr(hippihx_v1_last_error(), "k_cache") != NULL);
    t[1].stride[4] = 1;
    t[6].data = NULL;
    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, plan.scratch_nbytes, NULL) == HIPPIHX_V1_ERR_TENSOR);
    plan.op = 12;
    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, 0, NULL) == HIPPIHX_V1_ERR_UNKNOWN_OP);
    plan.abi_revision = 3;
    EXPECT(hippihx_v1_run(&plan, t, 7, scratch, 0, NULL) == HIPPIHX_V1_ERR_ABI);
    return 0;
}

static int loading(const char *path) {
    unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 64};
    image[16] = 3;
    image[18] = 224;
    image[48] = 0x36;
    EXPECT(hippihx_v1_load_image("gfx1030", image, sizeof image) == HIPPIHX_V1_ERR_NO_HIP);
    EXPECT(hippihx_v1_loaded("gfx1030") == 0 && hippihx_v1_loaded("nonsense") == 0 && hippihx_v1_loaded(NULL) == 0);
    EXPECT(hippihx_v1_load_image("gfx1031", image, sizeof image) == HIPPIHX_V1_ERR_FOREIGN_ISA);
    EXPECT(hippihx_v1_load_image("gfx1030", image, 63) == HIPPIHX_V1_ERR_CODE_OBJECT);
    EXPECT(hippihx_v1_load_image("gfx1030", NULL, 64) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_load_image("gfx1030,gfx1031", image, 64) == HIPPIHX_V1_ERR_UNSUPPORTED_ARCH);
    EXPECT(hippihx_v1_load(NULL, path) == HIPPIHX_V1_ERR_UNSUPPORTED_ARCH);
    EXPECT(hippihx_v1_load("gfx1030", NULL) == HIPPIHX_V1_ERR_BAD_ARG);
    EXPECT(hippihx_v1_load("gfx1030", "/nowhere/at/all") == HIPPIHX_V1_ERR_CODE_OBJECT);
    EXPECT(hippihx_v1_load("gfx1030", "/") == HIPPIHX_V1_ERR_CODE_OBJECT);
    /* This very program is an x86 ELF. */
    EXPECT(hippihx_v1_load("gfx1030", path) == HIPPIHX_V1_ERR_CODE_OBJECT);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    EXPECT(hippihx_v1_last_error()[0] == '\0');
    if (layouts() || names() || planning() || running() || loading(argv[0])) return 1;
    puts("every function of the C ABI answered as the contract says");
    return 0;
}
