// Decode: one query row and one KV head a workgroup, for up to eight query heads of the group at once, so that each
// element of K and V is read once a KV head. No element is shared between threads, so K and V go from memory to registers;
// LDS holds the queries, the scores and where the tokens lie.
#pragma once

#include "args.h"

template <int D>
struct FaDecodeShared {
    enum { TOKENS = FaTile<D>::TOKENS, PARTS = FaTile<D>::PARTS };
    alignas(16) u16 q[8][D];
    // Partial dot products of each part of head_dim, then the weights in part 0.
    float score[PARTS][8][TOKENS];
    FaPlace place[2][TOKENS];
    float rescale[8];
    float sum[8];
    float peak[8];
    // Sums over the token groups, a row of D a head; overlays nothing, since the loop's data may still be read.
    float gather[8][D];
};

// Where the tokens of a tile lie: one thread a token. Tokens that are not visible get no place.
template <int D>
HX_DEVICE void fa_decode_places(const FaArgs &a, FaDecodeShared<D> &s, int buffer, u32 row, i32 tile, i32 lo, i32 hi) {
    const u32 t = hx_thread();
    if (t >= FaTile<D>::TOKENS) return;
    const i32 j = tile * FaTile<D>::TOKENS + (i32)t;
    FaPlace place = {-1, -1};
    if (j >= lo && j < hi) place = fa_place(a, row, j);
    s.place[buffer][t] = place;
}

// Softmax of one tile: a wave a head, a lane a token (or two). Leaves the weights in part 0 of the scores.
template <int D, int GROUP>
HX_DEVICE void fa_decode_softmax(FaDecodeShared<D> &s) {
    enum { TOKENS = FaTile<D>::TOKENS, PARTS = FaTile<D>::PARTS };
    const u32 wave = hx_thread() / FA_LANES, lane = hx_thread() % FA_LANES;
#pragma unroll
    for (u32 h = wave; h < GROUP; h += FA_WAVES) {
        float logit[TOKENS / FA_LANES];
        float peak = s.peak[h];
#pragma unroll
        for (int i = 0; i < TOKENS / FA_LANES; i++) {
            logit[i] = s.score[0][h][lane + i * FA_LANES];
#pragma unroll
            for (int p = 1; p < PARTS; p++) logit[i] += s.score[p][h][lane + i * FA_LANES];
            peak = logit[i] > peak ? logit[i] : peak;
        }
        peak = hx_wave_max(peak);
        // Nothing visible yet: minus infinity less itself would be no number.
        const float base = peak == HX_MASKED ? 0.0f : peak;
        const float rescale = hx_exp2(s.peak[h] - base);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < TOKENS / FA_LANES; i++) {
            const float weight = hx_exp2(logit[i] - base);
            s.score[0][h][lane + i * FA_LANES] = weight;
            sum += weight;
        }
        sum = hx_wave_sum(sum);
        // Every lane has read the old peak.
        hx_wave_sync();
        if (lane == 0) {
            s.rescale[h] = rescale;
            s.sum[h] = s.sum[h] * rescale + sum;
            s.peak[h] = peak;
        }
    }
}

// Adds eight elements' products of one token to each head's dot product.
template <int D, int GROUP>
HX_DEVICE void fa_decode_dot(const FaDecodeShared<D> &s, float (&dot)[GROUP], const Chunk &k, u32 from) {
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        const Chunk q = *(const Chunk *)&s.q[h][from];
#pragma unroll
        for (int i = 0; i < 4; i++) dot[h] = hx_dot2(q.pair[i], k.pair[i], dot[h]);
    }
}

// Adds one token's eight values, weighted for each head.
template <int D, int GROUP>
HX_DEVICE void fa_decode_add(const FaDecodeShared<D> &s, float (&acc)[GROUP][8], const float (&value)[8], u32 token) {
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        const float weight = s.score[0][h][token];
#pragma unroll
        for (int d = 0; d < 8; d++) acc[h][d] += weight * value[d];
    }
}

// Heads [first_head, first_head + heads) of one row against one split; GROUP is at least `heads`. V_PATH is V's; K's is along
// head_dim, and both are scalar where either must be.
template <int D, int GROUP, int V_PATH>
HX_DEVICE void fa_decode_heads(const FaArgs &a, FaDecodeShared<D> &s, u32 row, u32 kv_head, u32 first_head, u32 heads,
                               u32 split) {
    enum { TOKENS = FaTile<D>::TOKENS, PARTS = FaTile<D>::PARTS, CHUNKS = FaTile<D>::CHUNKS };
    const u32 t = hx_thread();
    // Q.K: a token and a part of head_dim; the lanes of a wave share the part, so queries are broadcast.
    const u32 token = t % TOKENS, part = t / TOKENS;
    // P.V: eight tokens and eight elements of head_dim.
    const u32 depth = t % CHUNKS, octet = t / CHUNKS;

    for (u32 i = t; i < GROUP * D; i += FA_THREADS) {
        const u32 h = i / D, d = i % D;
        s.q[h][d] = h < heads ? a.q[((i64)row * a.q_heads + first_head + h) * D + d] : (u16)0;
    }
    if (t < 8) {
        s.peak[t] = HX_MASKED;
        s.sum[t] = 0.0f;
        s.rescale[t] = 1.0f;
    }

    const i32 hi = fa_length(a, a.seq_lens[row]);
    const i32 lo = a.window > 0 ? hx_max(0, hi - (i32)a.window) : 0;
    i32 first = lo / TOKENS, last = hi / TOKENS + (hi % TOKENS != 0);
    fa_share(a, split, first, last);

    const i64 k_head = (i64)kv_head * a.k_stride_head, v_head = (i64)kv_head * a.v_stride_head;
    float acc[GROUP][8];
#pragma unroll
    for (int h = 0; h < GROUP; h++)
#pragma unroll
        for (int i = 0; i < 8; i++) acc[h][i] = 0.0f;

    if (first < last) fa_decode_places<D>(a, s, 0, row, first, lo, hi);
    hx_barrier();

    for (i32 tile = first; tile < last; tile++) {
        const int buffer = (tile - first) & 1;
        const i64 k_place = s.place[buffer][token].k;
        const u32 part_here = hx_opaque(part), depth_here = hx_opaque(depth);

        Chunk k[8], v[8];
        if constexpr (V_PATH != FA_PATH_SCALAR) {
#pragma unroll
            for (int c = 0; c < 8; c++) {
                k[c] = Chunk{{0, 0, 0, 0}};
                if (k_place >= 0) k[c] = fa_load_wide(a.k_cache + k_place + k_head, a.pack_shift, a.k_stride_group, c * PARTS + (int)part_here);
            }
            // V is asked for before K is used, so that both are in flight together.
            if constexpr (V_PATH == FA_PATH_TOKENS) {
                // The eight tokens share a page; where some are not visible their values may be anything, and are dropped below.
                i64 start = -1;
#pragma unroll
                for (int i = 7; i >= 0; i--) {
                    const i64 place = s.place[buffer][octet * 8 + i].v;
                    if (place >= 0) start = place - i;
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    v[i] = Chunk{{0, 0, 0, 0}};
                    if (start >= 0) v[i] = fa_load_v_tokens(a, start, v_head, (int)depth_here * 8 + i);
                }
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const i64 place = s.place[buffer][octet * 8 + i].v;
                    v[i] = Chunk{{0, 0, 0, 0}};
                    if (place >= 0) v[i] = fa_load_wide(a.v_cache + place + v_head, a.pack_shift, a.v_stride_group, (int)depth_here);
                }
            }
        }
        if (tile + 1 < last) fa_decode_places<D>(a, s, buffer ^ 1, row, tile + 1, lo, hi);

        float dot[GROUP];
#pragma unroll
        for (int h = 0; h < GROUP; h++) dot[h] = 0.0f;
        if constexpr (V_PATH != FA_PATH_SCALAR) {
#pragma unroll
            for (int c = 0; c < 8; c++) {
                fa_decode_dot<D, GROUP>(s, dot, k[c], ((u32)c * PARTS + part) * 8);
                hx_keep_order();
            }
        } else if (k_place >= 0) {
#pragma unroll 1
            for (int c = 0; c < 8; c++) {
                const int chunk = c * PARTS + (int)part;
                fa_decode_dot<D, GROUP>(s, dot, fa_load_k(a, k_place, k_head, chunk), (u32)chunk * 8);
            }
        }
#pragma unroll
        for (int h = 0; h < GROUP; h++) s.score[part][h][token] = k_place >= 0 ? dot[h] * a.scale_log2e : HX_MASKED;
        hx_barrier();

        fa_decode_softmax<D, GROUP>(s);
        hx_barrier();

#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            const float rescale = s.rescale[h];
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] *= rescale;
        }
        if constexpr (V_PATH != FA_PATH_SCALAR) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float value[8];
                if constexpr (V_PATH == FA_PATH_TOKENS) {
                    const bool visible = s.place[buffer][octet * 8 + i].v >= 0;
#pragma unroll
                    for (int d = 0; d < 8; d++) value[d] = visible ? hx_half_to_float(fa_half(v[d], i)) : 0.0f;
                } else {
#pragma unroll
                    for (int d = 0; d < 8; d++) value[d] = hx_half_to_float(fa_half(v[i], d));
                }
                fa_decode_add<D, GROUP>(s, acc, value, octet * 8 + i);
                hx_keep_order();
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < 8; i++) {
                const i64 place = s.place[buffer][octet * 8 + i].v;
                if (place < 0) continue;
                const Chunk loaded = fa_load_v(a, place, v_head, (int)depth);
                float value[8];
#pragma unroll
                for (int d = 0; d < 8; d++) value[d] = hx_half_to_float(fa_half(loaded, d));
                fa_decode_add<D, GROUP>(s, acc, value, octet * 8 + i);
            }
        }
        // The weights and the places are read above and written by the next tile.
        hx_barrier();
    }

    // Sum over the token groups, one group after the other: bounded, and the same order every time.
#pragma unroll 1
    for (u32 turn = 0; turn < FA_THREADS / CHUNKS; turn++) {
        if (octet == turn) {
#pragma unroll
            for (int h = 0; h < GROUP; h++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float *at = &s.gather[h][depth * 8 + i];
                    *at = turn == 0 ? acc[h][i] : *at + acc[h][i];
                }
        }
        hx_barrier();
    }

    for (u32 i = t; i < heads * D; i += FA_THREADS) {
        const u32 h = i / D, d = i % D, head = first_head + h;
        const float sum = s.sum[h];
        if (a.splits == 1) {
            const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
            a.out[((i64)row * a.q_heads + head) * D + d] = hx_float_to_half(s.gather[h][d] * inverse);
        } else {
            const i64 at = fa_partial(a, row, head, split);
            a.o_partial[at * D + d] = s.gather[h][d];
            if (d == 0) {
                a.m_partial[at] = s.peak[h];
                a.l_partial[at] = sum;
            }
        }
    }
}

// Rounds the number of heads up to one that there is code for.
template <int D, int V_PATH>
HX_DEVICE void fa_decode_group(const FaArgs &a, FaDecodeShared<D> &s, u32 row, u32 kv_head, u32 first_head, u32 heads,
                               u32 split) {
    if (heads == 1)
        fa_decode_heads<D, 1, V_PATH>(a, s, row, kv_head, first_head, heads, split);
    else if (heads == 2)
        fa_decode_heads<D, 2, V_PATH>(a, s, row, kv_head, first_head, heads, split);
    else if (heads <= 4)
        fa_decode_heads<D, 4, V_PATH>(a, s, row, kv_head, first_head, heads, split);
    else
        fa_decode_heads<D, 8, V_PATH>(a, s, row, kv_head, first_head, heads, split);
}

// Grid: rows, kv_heads times passes of eight query heads, splits.
template <int D>
HX_DEVICE void fa_decode(const FaArgs &a) {
    HX_SHARED static FaDecodeShared<D> s;
    const u32 group = a.q_heads / a.kv_heads;
    const u32 passes = (group + 7) / 8;
    const u32 row = hx_group_x(), kv_head = hx_group_y() / passes, pass = hx_group_y() % passes, split = hx_group_z();
    if (row >= a.rows || kv_head >= a.kv_heads || split >= a.splits) return;
    const u32 first = kv_head * group + pass * 8;
    const u32 heads = (u32)hx_min(8, (i32)(group - pass * 8));
    if (a.k_path != FA_PATH_DEPTH || a.v_path == FA_PATH_SCALAR)
        fa_decode_heads<D, 8, FA_PATH_SCALAR>(a, s, row, kv_head, first, heads, split);
    else if (a.v_path == FA_PATH_TOKENS)
        fa_decode_group<D, FA_PATH_TOKENS>(a, s, row, kv_head, first, heads, split);
    else
        fa_decode_group<D, FA_PATH_DEPTH>(a, s, row, kv_head, first, heads, split);
}
