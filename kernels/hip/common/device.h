// What the kernels need of a device, under one set of names for the amdgcn and NVIDIA compilers and for none of their
// headers. The kernels themselves are written on packed bits: a half is a uint16, two halves a uint32, eight a Chunk.
//
// On amdgcn this is freestanding: no ROCm header is needed. On NVIDIA a wave of 32 lanes is a warp; that build exists to run
// the same source against a reference, not to be shipped.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
#if defined(__NVCC__)
typedef unsigned long long u64;
typedef long long i64;
#else
typedef unsigned long u64;
typedef long i64;
#endif

// Sixteen bytes: eight halves, loaded and stored as one access.
struct alignas(16) Chunk {
    u32 pair[4];
};

#if defined(__NVCC__)

#include <cuda_fp16.h>

#define HX_KERNEL extern "C" __global__ void __launch_bounds__(128, 3)
#define HX_DEVICE static __device__ __forceinline__
#define HX_SHARED __shared__

HX_DEVICE u32 hx_thread() { return threadIdx.x; }
HX_DEVICE u32 hx_group_x() { return blockIdx.x; }
HX_DEVICE u32 hx_group_y() { return blockIdx.y; }
HX_DEVICE u32 hx_group_z() { return blockIdx.z; }
HX_DEVICE void hx_barrier() { __syncthreads(); }
HX_DEVICE void hx_wave_sync() { __syncwarp(); }
HX_DEVICE void hx_keep_order() {}
HX_DEVICE u32 hx_opaque(u32 value) { return value; }

HX_DEVICE float hx_half_to_float(u16 bits) { return __half2float(__ushort_as_half(bits)); }
HX_DEVICE u16 hx_float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
HX_DEVICE float hx_dot2(u32 a, u32 b, float sum) {
    const float2 x = __half22float2(*reinterpret_cast<const __half2*>(&a));
    const float2 y = __half22float2(*reinterpret_cast<const __half2*>(&b));
    return fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
}
HX_DEVICE float hx_exp2(float value) { return exp2f(value); }
HX_DEVICE float hx_lane_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

#else

#define HX_KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(128, 128))) void
#define HX_DEVICE static __attribute__((device, always_inline)) inline
#define HX_SHARED __attribute__((shared))

typedef _Float16 hx_half2 __attribute__((ext_vector_type(2)));

HX_DEVICE u32 hx_thread() { return __builtin_amdgcn_workitem_id_x(); }
HX_DEVICE u32 hx_group_x() { return __builtin_amdgcn_workgroup_id_x(); }
HX_DEVICE u32 hx_group_y() { return __builtin_amdgcn_workgroup_id_y(); }
HX_DEVICE u32 hx_group_z() { return __builtin_amdgcn_workgroup_id_z(); }
// Only LDS is handed from one wave to another here: a fence for global memory too would empty the L0 cache at each barrier.
HX_DEVICE void hx_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// Orders LDS accesses within a wave, whose lanes run in step here: the compiler alone has to keep them apart.
HX_DEVICE void hx_wave_sync() { __builtin_amdgcn_wave_barrier(); }
// Nothing is scheduled across it: keeps the loads of later steps, and their registers, out of earlier ones.
HX_DEVICE void hx_keep_order() { __builtin_amdgcn_sched_barrier(0); }
// The same value, of which the compiler knows nothing: what is computed from it in a loop stays in the loop, instead of
// holding registers through it.
HX_DEVICE u32 hx_opaque(u32 value) {
    asm volatile("" : "+v"(value));
    return value;
}

HX_DEVICE float hx_half_to_float(u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }
HX_DEVICE u16 hx_float_to_half(float value) { return __builtin_bit_cast(u16, (_Float16)value); }
HX_DEVICE float hx_dot2(u32 a, u32 b, float sum) {
    return __builtin_amdgcn_fdot2(__builtin_bit_cast(hx_half2, a), __builtin_bit_cast(hx_half2, b), sum, false);
}
HX_DEVICE float hx_exp2(float value) { return __builtin_amdgcn_exp2f(value); }
// The value of the lane whose number differs by `mask`, a power of two below 32: within a row of 16 lanes by DPP, across
// the two rows of a wave32 by permlanex16.
HX_DEVICE float hx_lane_xor(float value, int mask) {
    const int bits = __builtin_bit_cast(int, value);
    int other = bits;
    switch (mask) {
        case 1: other = __builtin_amdgcn_update_dpp(bits, bits, 0x161, 0xf, 0xf, true); break;
        case 2: other = __builtin_amdgcn_update_dpp(bits, bits, 0x162, 0xf, 0xf, true); break;
        case 4: other = __builtin_amdgcn_update_dpp(bits, bits, 0x164, 0xf, 0xf, true); break;
        case 8: other = __builtin_amdgcn_update_dpp(bits, bits, 0x168, 0xf, 0xf, true); break;
        default: other = __builtin_amdgcn_permlanex16(bits, bits, 0x76543210, 0xfedcba98, false, false); break;
    }
    return __builtin_bit_cast(float, other);
}

#endif

// Minus infinity: the logit of what is not visible.
#if defined(__NVCC__)
#define HX_MASKED __int_as_float(0xff800000)
#else
#define HX_MASKED (-__builtin_huge_valf())
#endif

HX_DEVICE i32 hx_min(i32 a, i32 b) { return a < b ? a : b; }
HX_DEVICE i32 hx_max(i32 a, i32 b) { return a > b ? a : b; }

// Over all 32 lanes of a wave; every lane gets the result.
HX_DEVICE float hx_wave_max(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        const float other = hx_lane_xor(value, mask);
        value = other > value ? other : value;
    }
    return value;
}
HX_DEVICE float hx_wave_sum(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) value += hx_lane_xor(value, mask);
    return value;
}
