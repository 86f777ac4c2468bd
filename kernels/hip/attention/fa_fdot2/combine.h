// Combine: one (row, query head) a workgroup; joins the splits' partials, each weighted by its own maximum. A split without a
// visible token has sum 0 and is not read further.
#pragma once

#include "args.h"

template <int D>
HX_DEVICE void fa_combine(const FaArgs &a) {
    const u32 row = hx_group_x(), head = hx_group_y(), t = hx_thread();
    if (row >= a.rows || head >= a.q_heads) return;
    if (a.cu_query_lens != nullptr) {
        // Prefill: rows outside every sequence keep what they hold.
        if ((i64)row < (i64)a.cu_query_lens[0] || (i64)row >= (i64)a.cu_query_lens[a.sequences]) return;
    }
    const i64 first = fa_partial(a, row, head, 0);
    float peak = HX_MASKED;
    for (u32 s = 0; s < a.splits; s++) {
        const float m = a.m_partial[first + s];
        peak = m > peak ? m : peak;
    }
    const float base = peak == HX_MASKED ? 0.0f : peak;
    float sum = 0.0f;
    float out[D / FA_THREADS];
#pragma unroll
    for (int i = 0; i < D / FA_THREADS; i++) out[i] = 0.0f;
    for (u32 s = 0; s < a.splits; s++) {
        const float l = a.l_partial[first + s];
        if (!(l > 0.0f)) continue;
        const float weight = hx_exp2(a.m_partial[first + s] - base);
        sum += l * weight;
#pragma unroll
        for (int i = 0; i < D / FA_THREADS; i++) out[i] += weight * a.o_partial[(first + s) * D + i * FA_THREADS + t];
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int i = 0; i < D / FA_THREADS; i++)
        a.out[((i64)row * a.q_heads + head) * D + i * FA_THREADS + t] = hx_float_to_half(out[i] * inverse);
}
