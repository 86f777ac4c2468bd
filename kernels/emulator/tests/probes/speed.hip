// Loops for the speed example: fp32 fma, packed fp16 dot products, integers, LDS and exp2.
#define KERNEL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))
typedef _Float16 half2 __attribute__((ext_vector_type(2)));

static __attribute__((device)) unsigned thread() { return __builtin_amdgcn_workitem_id_x(); }

KERNEL void fma(const float *in, float *out, int n) {
    float a = in[thread()], b = in[thread() + 1], c = 0.0f, d = 1.0f;
    for (int i = 0; i < n; i++) {
        c = __builtin_fmaf(a, b, c);
        d = __builtin_fmaf(c, a, d);
        a = __builtin_fmaf(d, 0.25f, b);
        b = __builtin_fmaf(a, -0.125f, b);
    }
    out[thread()] = c + d;
}

KERNEL void dot2(const half2 *in, float *out, int n) {
    half2 a = in[thread()], b = in[thread() + 1];
    float c = 0.0f, d = 0.0f;
    for (int i = 0; i < n; i++) {
        c = __builtin_amdgcn_fdot2(a, b, c, false);
        d = __builtin_amdgcn_fdot2(b, b, d, false);
        c = __builtin_amdgcn_fdot2(a, a, c, false);
        d = __builtin_amdgcn_fdot2(a, b, d, false);
    }
    out[thread()] = c + d;
}

KERNEL void integer(const unsigned *in, unsigned *out, int n) {
    unsigned a = in[thread()], b = in[thread() + 1];
    for (int i = 0; i < n; i++) {
        a = (a << 5) + b;
        b ^= a >> 3;
        a = a * 9 + (b & 0xff00ff);
        b += a;
    }
    out[thread()] = a ^ b;
}

KERNEL void lds(const float *in, float *out, int n) {
    SHARED float tile[256];
    tile[thread()] = in[thread()];
    tile[thread() + 128] = in[thread() + 128];
    __builtin_amdgcn_s_barrier();
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += tile[(thread() + i) & 255];
    out[thread()] = sum;
}

KERNEL void exponent(const float *in, float *out, int n) {
    float a = in[thread()], sum = 0.0f;
    for (int i = 0; i < n; i++) {
        a = __builtin_amdgcn_exp2f(-a);
        sum += a;
    }
    out[thread()] = sum;
}
