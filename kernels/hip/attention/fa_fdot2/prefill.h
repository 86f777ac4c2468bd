// Prefill: sixteen query rows of one query head a workgroup against tiles of K and V in LDS. A tile of rows may hold the ends
// and beginnings of several sequences; they are worked one after the other, and only by this workgroup, so whatever the
// offsets hold, no two workgroups write one row.
#pragma once

#include "args.h"

enum { FA_ROWS = 16 };

template <int D>
struct FaPrefillShared {
    enum { TOKENS = FaTile<D>::TOKENS };
    alignas(16) u16 q[FA_ROWS][D];
    // K, then V. Eight halves more a row move each row on by four banks.
    alignas(16) u16 kv[TOKENS][D + 8];
    float score[FA_ROWS][TOKENS];
    FaPlace place[TOKENS];
    float rescale[FA_ROWS];
    float sum[FA_ROWS];
    float peak[FA_ROWS];
};

// First row of sequence `s`, inside the rows that there are.
HX_DEVICE i32 fa_offset(const FaArgs &a, u32 s) { return hx_max(0, hx_min(a.cu_query_lens[s], (i32)a.rows)); }

// The first sequence that may end after `row`: a search that ends after 32 steps whatever the offsets hold.
HX_DEVICE u32 fa_first_sequence(const FaArgs &a, i32 row) {
    u32 low = 0, high = a.sequences;
    for (int step = 0; step < 32 && low < high; step++) {
        const u32 middle = low + (high - low) / 2;
        if (fa_offset(a, middle + 1) > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

template <int D>
HX_DEVICE void fa_stage_v(const FaArgs &a, FaPrefillShared<D> &s, i64 v_head) {
    enum { TOKENS = FaTile<D>::TOKENS, CHUNKS = FaTile<D>::CHUNKS };
#pragma unroll 2
    for (u32 task = hx_thread(); task < TOKENS * CHUNKS; task += FA_THREADS) {
        if (a.v_path == FA_PATH_TOKENS) {
            const u32 d = task % D, octet = task / D;
            i64 start = -1;
            for (int i = 7; i >= 0; i--) {
                const i64 place = s.place[octet * 8 + i].v;
                if (place >= 0) start = place - i;
            }
            Chunk loaded = {{0, 0, 0, 0}};
            if (start >= 0) loaded = fa_load_v_tokens(a, start, v_head, (int)d);
#pragma unroll
            for (int i = 0; i < 8; i++)
                s.kv[octet * 8 + i][d] = s.place[octet * 8 + i].v >= 0 ? fa_half(loaded, i) : (u16)0;
        } else {
            const u32 chunk = task % CHUNKS, token = task / CHUNKS;
            Chunk loaded = {{0, 0, 0, 0}};
            if (s.place[token].v >= 0) loaded = fa_load_v(a, s.place[token].v, v_head, (int)chunk);
            *(Chunk *)&s.kv[token][chunk * 8] = loaded;
        }
    }
}

// Rows [from, to) of the tile that starts at row `base`, all of sequence `sequence`, against one split.
template <int D>
HX_DEVICE void fa_prefill_rows(const FaArgs &a, FaPrefillShared<D> &s, i32 base, i32 from, i32 to, u32 sequence, i32 start,
                               i32 count, u32 head, u32 split) {
    enum { TOKENS = FaTile<D>::TOKENS, PARTS = FaTile<D>::PARTS, CHUNKS = FaTile<D>::CHUNKS };
    enum { QK_ROWS = FA_ROWS / PARTS, PV_ROWS = CHUNKS / 8 };
    const u32 t = hx_thread(), wave = t / FA_LANES, lane = t % FA_LANES;
    const u32 token = t % TOKENS, part = t / TOKENS;
    const u32 depth = t % CHUNKS, band = t / CHUNKS;
    const u32 kv_head = head / (a.q_heads / a.kv_heads);
    const i64 k_head = (i64)kv_head * a.k_stride_head, v_head = (i64)kv_head * a.v_stride_head;

    const i32 length = fa_length(a, a.seq_lens[sequence]);
    // Position of tile row 0; rows before `from` are not this sequence's and are not written.
    const i64 position = (i64)length - count + (base - start);
    i32 lo = 0, hi = length;
    if (a.causal) {
        const i64 end = position + (to - base);
        hi = end < 0 ? 0 : end < hi ? (i32)end : hi;
    }
    if (a.window > 0) {
        const i64 begin = position + (from - base) - (i64)a.window + 1;
        lo = begin > hi ? hi : begin > 0 ? (i32)begin : 0;
    }
    i32 first = lo / TOKENS, last = hi / TOKENS + (hi % TOKENS != 0);
    fa_share(a, split, first, last);

    hx_barrier();
    for (u32 i = t; i < FA_ROWS * D; i += FA_THREADS) {
        const i32 row = base + (i32)(i / D);
        s.q[i / D][i % D] = row >= from && row < to ? a.q[((i64)row * a.q_heads + head) * D + i % D] : (u16)0;
    }
    if (t < FA_ROWS) {
        s.peak[t] = HX_MASKED;
        s.sum[t] = 0.0f;
    }
    float acc[PV_ROWS][8];
#pragma unroll
    for (int r = 0; r < PV_ROWS; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) acc[r][i] = 0.0f;

    for (i32 tile = first; tile < last; tile++) {
        hx_barrier();
        if (t < TOKENS) {
            const i32 j = tile * TOKENS + (i32)t;
            FaPlace place = {-1, -1};
            if (j >= lo && j < hi) place = fa_place(a, sequence, j);
            s.place[t] = place;
        }
        hx_barrier();
#pragma unroll 4
        for (u32 task = t; task < TOKENS * CHUNKS; task += FA_THREADS) {
            // Neighbouring lanes take neighbouring tokens: that is how K packed by eight lies in memory.
            const u32 at = task % TOKENS, chunk = task / TOKENS;
            Chunk loaded = {{0, 0, 0, 0}};
            if (s.place[at].k >= 0) loaded = fa_load_k(a, s.place[at].k, k_head, (int)chunk);
            *(Chunk *)&s.kv[at][chunk * 8] = loaded;
        }
        hx_barrier();

        float dot[QK_ROWS];
#pragma unroll
        for (int r = 0; r < QK_ROWS; r++) dot[r] = 0.0f;
#pragma unroll 4
        for (int c = 0; c < CHUNKS; c++) {
            const Chunk k = *(const Chunk *)&s.kv[token][c * 8];
#pragma unroll
            for (int r = 0; r < QK_ROWS; r++) {
                const Chunk q = *(const Chunk *)&s.q[part * QK_ROWS + r][c * 8];
#pragma unroll
                for (int i = 0; i < 4; i++) dot[r] = hx_dot2(q.pair[i], k.pair[i], dot[r]);
            }
        }
        const i64 j = (i64)tile * TOKENS + token;
        const bool placed = s.place[token].k >= 0;
#pragma unroll
        for (int r = 0; r < QK_ROWS; r++) {
            const i64 at = position + part * QK_ROWS + r;
            const bool visible = placed && (!a.causal || j <= at) && (a.window == 0 || j > at - (i64)a.window);
            s.score[part * QK_ROWS + r][token] = visible ? dot[r] * a.scale_log2e : HX_MASKED;
        }
        hx_barrier();

        fa_stage_v<D>(a, s, v_head);
#pragma unroll
        for (u32 r = wave; r < FA_ROWS; r += FA_WAVES) {
            float logit[TOKENS / FA_LANES];
            float peak = s.peak[r];
#pragma unroll
            for (int i = 0; i < TOKENS / FA_LANES; i++) {
                logit[i] = s.score[r][lane + i * FA_LANES];
                peak = logit[i] > peak ? logit[i] : peak;
            }
            peak = hx_wave_max(peak);
            const float floor = peak == HX_MASKED ? 0.0f : peak;
            const float rescale = hx_exp2(s.peak[r] - floor);
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < TOKENS / FA_LANES; i++) {
                const float weight = hx_exp2(logit[i] - floor);
                s.score[r][lane + i * FA_LANES] = weight;
                sum += weight;
            }
            sum = hx_wave_sum(sum);
            // Every lane has read the old peak.
            hx_wave_sync();
            if (lane == 0) {
                s.rescale[r] = rescale;
                s.sum[r] = s.sum[r] * rescale + sum;
                s.peak[r] = peak;
            }
        }
        hx_barrier();

#pragma unroll
        for (int r = 0; r < PV_ROWS; r++) {
            const float rescale = s.rescale[band * PV_ROWS + r];
#pragma unroll
            for (int i = 0; i < 8; i++) acc[r][i] *= rescale;
        }
#pragma unroll 4
        for (int k = 0; k < TOKENS; k++) {
            const Chunk v = *(const Chunk *)&s.kv[k][depth * 8];
#pragma unroll
            for (int r = 0; r < PV_ROWS; r++) {
                const float weight = s.score[band * PV_ROWS + r][k];
                // A token that this row does not see may hold anything, also no number: skipped, not multiplied by zero.
                if (weight != 0.0f) {
#pragma unroll
                    for (int i = 0; i < 8; i++) acc[r][i] += weight * hx_half_to_float(fa_half(v, i));
                }
            }
        }
    }
    hx_barrier();

#pragma unroll
    for (int r = 0; r < PV_ROWS; r++) {
        const u32 at = band * PV_ROWS + r;
        const i32 row = base + (i32)at;
        if (row < from || row >= to) continue;
        const float sum = s.sum[at];
        if (a.splits == 1) {
            const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
            u16 *to_row = a.out + ((i64)row * a.q_heads + head) * D + depth * 8;
#pragma unroll
            for (int i = 0; i < 8; i++) to_row[i] = hx_float_to_half(acc[r][i] * inverse);
        } else {
            const i64 partial = fa_partial(a, (u32)row, head, split);
#pragma unroll
            for (int i = 0; i < 8; i++) a.o_partial[partial * D + depth * 8 + i] = acc[r][i];
            if (depth == 0) {
                a.m_partial[partial] = s.peak[at];
                a.l_partial[partial] = sum;
            }
        }
    }
}

// Grid: tiles of sixteen rows, query heads, splits.
template <int D>
HX_DEVICE void fa_prefill(const FaArgs &a) {
    HX_SHARED static FaPrefillShared<D> s;
    const u32 head = hx_group_y(), split = hx_group_z();
    const i64 wide = (i64)hx_group_x() * FA_ROWS;
    if (wide >= a.rows || head >= a.q_heads || split >= a.splits) return;
    const i32 base = (i32)wide;
    const i32 end = hx_min((i32)a.rows - base, FA_ROWS) + base;
    // A sequence without new tokens takes a step and no row; the walk ends with the sequences.
    for (u32 sequence = fa_first_sequence(a, base); sequence < a.sequences; sequence++) {
        const i32 start = fa_offset(a, sequence), stop = fa_offset(a, sequence + 1);
        if (start >= end) break;
        const i32 from = hx_max(start, base), to = hx_min(stop, end);
        if (from < to) fa_prefill_rows<D>(a, s, base, from, to, sequence, start, stop - start, head, split);
    }
}
