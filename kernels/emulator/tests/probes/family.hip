// Probe kernels of the attention family: what a compiler makes of them covers most instructions that are executed here.
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device)) inline
#define SHARED __attribute__((shared))
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));

DEVICE unsigned tid() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE unsigned group() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE int bits(float x) { return __builtin_bit_cast(int, x); }
DEVICE float number(int x) { return __builtin_bit_cast(float, x); }
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL vadd(const float *a, const float *b, float *c, int n) {
    unsigned i = group() * 64 + tid();
    if (i < n) c[i] = a[i] * 2.0f + b[i];
}

// Online softmax over n keys; lanes sum their dot products by DPP and ds_bpermute.
KERNEL attn(const half8 *q, const half8 *k, const half8 *v, _Float16 *o, int n, float scale) {
    SHARED float tile[8 * 64];
    float peak = -__builtin_inff(), sum = 0, acc[8] = {};
    half8 query = q[tid()];
    for (int j = 0; j < n; j++) {
        half8 key = k[(long)j * 64 + tid()];
        float s = 0;
        for (int x = 0; x < 4; x++) {
            half2 a = {query[2 * x], query[2 * x + 1]}, b = {key[2 * x], key[2 * x + 1]};
            s = __builtin_amdgcn_fdot2(a, b, s, false);
        }
        s += number(__builtin_amdgcn_update_dpp(0, bits(s), 0xb1, 0xf, 0xf, true));
        s += number(__builtin_amdgcn_update_dpp(0, bits(s), 0x4e, 0xf, 0xf, true));
        s += number(__builtin_amdgcn_update_dpp(0, bits(s), 0x141, 0xf, 0xf, true));
        s += number(__builtin_amdgcn_ds_bpermute((tid() ^ 16) * 4, bits(s)));
        s *= scale;
        float next = __builtin_fmaxf(peak, s);
        float rescale = __builtin_amdgcn_exp2f(peak - next), weight = __builtin_amdgcn_exp2f(s - next);
        peak = next;
        sum = sum * rescale + weight;
        half8 value = v[(long)j * 64 + tid()];
        for (int x = 0; x < 8; x++) acc[x] = acc[x] * rescale + weight * (float)value[x];
    }
    for (int x = 0; x < 8; x++) tile[x * 64 + tid()] = acc[x];
    barrier();
    float total = 0;
    for (int x = 0; x < 8; x++) total += tile[x * 64 + (tid() ^ 1)];
    o[group() * 64 + tid()] = (_Float16)(total / sum);
}

KERNEL idiv(const int *a, const int *b, int *c, const long *x, long *y, unsigned *w) {
    unsigned i = group() * 64 + tid();
    c[i] = a[i] / b[i] + a[i] % b[i];
    y[i] = x[i] * a[i] + x[i] / b[i];
    w[i] = (unsigned)a[i] / 7u + (unsigned)b[i] % 10u;
}

// An array in private memory.
KERNEL scr(const int *a, int *c, int n) {
    int array[32];
    for (int i = 0; i < 32; i++) array[i] = a[tid() + i] * i;
    int k = 0;
    for (int i = 0; i < n; i++) {
        k = array[(k + i * 7) & 31] ^ k;
        array[(k >> 3) & 31] += i;
    }
    c[tid()] = k;
}

KERNEL bytes(const unsigned char *a, const signed char *b, unsigned short *c, unsigned char *d, const _Float16 *h,
             _Float16 *g, double *x) {
    unsigned i = tid();
    c[i] = a[i] * b[i];
    d[i] = a[i] + 3;
    g[i] = h[i] * h[i + 1] + (_Float16)a[i];
    g[i + 64] = (_Float16)((float)h[i] * 0.3f);
    x[i] = (double)a[i] / 3.0 + __builtin_sqrt((double)b[i]);
}

// Sum by halving, with a barrier a step.
KERNEL red(const float *a, float *c, int n) {
    SHARED float tile[64];
    float sum = 0;
    for (int i = tid(); i < n; i += 64) sum += a[i];
    tile[tid()] = sum;
    barrier();
    for (int k = 32; k > 0; k >>= 1) {
        if (tid() < k) tile[tid()] += tile[tid() + k];
        barrier();
    }
    if (tid() == 0) c[group()] = tile[0];
}
