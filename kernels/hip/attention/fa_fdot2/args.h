// The kernel arguments of attention.fa_fdot2, one list for decode and prefill. The order, offsets and sizes are the
// catalogue's launch recipe (kernels/src/launch/fa_fdot2.rs); a code object that differs is refused at load.
#pragma once

#include "../../common/device.h"

// Strides are elements. Everything that a tensor holds is hostile: lengths, blocks and offsets are clamped or masked against
// the extents given here.
#define FA_PARAMETERS                                                                                                   \
    const u16 *q, const u16 *k_cache, const u16 *v_cache, const i32 *block_table, const i32 *seq_lens,                  \
        const i32 *cu_query_lens, u16 *out, float *o_partial, float *m_partial, float *l_partial, i64 k_stride_block,   \
        i64 k_stride_head, i64 k_stride_group, i64 k_stride_token, i64 k_stride_lane, i64 v_stride_block,               \
        i64 v_stride_head, i64 v_stride_group, i64 v_stride_token, i64 v_stride_lane, i64 table_stride, u32 blocks,     \
        u32 rows, u32 sequences, u32 capacity, u32 block_size, u32 q_heads, u32 kv_heads, u32 pack_shift, u32 splits,   \
        u32 window, u32 causal, float scale_log2e, u32 k_path, u32 v_path

// The same, gathered.
struct FaArgs {
    const u16 *q, *k_cache, *v_cache;
    const i32 *block_table, *seq_lens, *cu_query_lens;
    u16 *out;
    float *o_partial, *m_partial, *l_partial;
    i64 k_stride_block, k_stride_head, k_stride_group, k_stride_token, k_stride_lane;
    i64 v_stride_block, v_stride_head, v_stride_group, v_stride_token, v_stride_lane;
    i64 table_stride;
    u32 blocks, rows, sequences, capacity, block_size, q_heads, kv_heads, pack_shift, splits, window, causal;
    float scale_log2e;
    u32 k_path, v_path;
};

#define FA_GATHER                                                                                                       \
    {                                                                                                                   \
        q, k_cache, v_cache, block_table, seq_lens, cu_query_lens, out, o_partial, m_partial, l_partial,                \
            k_stride_block, k_stride_head, k_stride_group, k_stride_token, k_stride_lane, v_stride_block,               \
            v_stride_head, v_stride_group, v_stride_token, v_stride_lane, table_stride, blocks, rows, sequences,        \
            capacity, block_size, q_heads, kv_heads, pack_shift, splits, window, causal, scale_log2e, k_path, v_path    \
    }

// How eight neighbouring elements can be loaded.
enum {
    FA_PATH_SCALAR = 0,  // one by one: any strides
    FA_PATH_DEPTH = 1,   // 16 bytes along head_dim
    FA_PATH_TOKENS = 2,  // 16 bytes along the tokens of a page (V only)
};

enum { FA_THREADS = 128, FA_WAVES = 4, FA_LANES = 32 };

// Tokens of one KV tile, so that a tile has 8192 elements at both head sizes.
template <int D>
struct FaTile {
    enum { TOKENS = 8192 / D, PARTS = FA_THREADS / TOKENS, CHUNKS = D / 8 };
};

// Where a token's K and V start, in elements from the cache's base for head 0; negative: not visible, do not read.
struct FaPlace {
    i64 k, v;
};

// Page of token `j` in row `row` of the block table; a block number outside the cache hides the token.
HX_DEVICE FaPlace fa_place(const FaArgs &a, u32 row, i32 j) {
    const u32 page = (u32)j / a.block_size;
    const u32 inside = (u32)j - page * a.block_size;
    const i32 block = a.block_table[(i64)row * a.table_stride + page];
    FaPlace place = {-1, -1};
    if (block >= 0 && (u32)block < a.blocks) {
        place.k = (i64)block * a.k_stride_block + (i64)inside * a.k_stride_token;
        place.v = (i64)block * a.v_stride_block + (i64)inside * a.v_stride_token;
    }
    return place;
}

// Eight elements along head_dim from element 8 * chunk on, for any strides. A loop that stays one: unrolled, its eight
// addresses would be kept for every chunk and the registers would not do.
HX_DEVICE Chunk fa_load_scalar(const u16 *from, u32 pack_shift, i64 stride_group, i64 stride_lane, int chunk) {
    const u32 lanes = (1u << pack_shift) - 1u;
    Chunk loaded = {{0, 0, 0, 0}};
#pragma unroll 1
    for (u32 i = 8; i > 0; i--) {
        const u32 d = 8u * (u32)chunk + i - 1u;
        const u32 bits = from[(i64)(d >> pack_shift) * stride_group + (i64)(d & lanes) * stride_lane];
        loaded.pair[3] = loaded.pair[3] << 16 | loaded.pair[2] >> 16;
        loaded.pair[2] = loaded.pair[2] << 16 | loaded.pair[1] >> 16;
        loaded.pair[1] = loaded.pair[1] << 16 | loaded.pair[0] >> 16;
        loaded.pair[0] = loaded.pair[0] << 16 | bits;
    }
    return loaded;
}

// The same as one access: the eight are neighbours, and 16-byte aligned.
HX_DEVICE Chunk fa_load_wide(const u16 *from, u32 pack_shift, i64 stride_group, int chunk) {
    const u32 d = 8u * (u32)chunk;
    return *(const Chunk *)(from + (i64)(d >> pack_shift) * stride_group + (d & ((1u << pack_shift) - 1u)));
}

HX_DEVICE Chunk fa_load_k(const FaArgs &a, i64 place, i64 head, int chunk) {
    const u16 *from = a.k_cache + place + head;
    return a.k_path == FA_PATH_DEPTH ? fa_load_wide(from, a.pack_shift, a.k_stride_group, chunk)
                                     : fa_load_scalar(from, a.pack_shift, a.k_stride_group, a.k_stride_lane, chunk);
}

HX_DEVICE Chunk fa_load_v(const FaArgs &a, i64 place, i64 head, int chunk) {
    const u16 *from = a.v_cache + place + head;
    return a.v_path == FA_PATH_DEPTH ? fa_load_wide(from, a.pack_shift, a.v_stride_group, chunk)
                                     : fa_load_scalar(from, a.pack_shift, a.v_stride_group, a.v_stride_lane, chunk);
}

// Eight tokens of V at one element of head_dim: those of the page from `place` on (its path makes sure that they share it).
HX_DEVICE Chunk fa_load_v_tokens(const FaArgs &a, i64 place, i64 head, int d) {
    const u32 lanes = (1u << a.pack_shift) - 1u;
    return *(const Chunk *)(a.v_cache + place + head + (i64)((u32)d >> a.pack_shift) * a.v_stride_group +
                            (i64)((u32)d & lanes) * a.v_stride_lane);
}

HX_DEVICE u16 fa_half(const Chunk &chunk, int i) { return (u16)(chunk.pair[i >> 1] >> (16 * (i & 1))); }

// Tokens that a sequence's length and its row of the block table admit.
HX_DEVICE i32 fa_length(const FaArgs &a, i32 length) { return hx_max(0, hx_min(length, (i32)a.capacity)); }

// One split's share of the tiles [first, last): equal, contiguous, the last ones may be empty.
HX_DEVICE void fa_share(const FaArgs &a, u32 split, i32 &first, i32 &last) {
    const i32 tiles = hx_max(0, last - first);
    const i32 each = (i32)(((u32)tiles + a.splits - 1u) / a.splits);
    const i64 begin = (i64)first + (i64)each * split;
    const i64 end = begin + each;
    last = end < last ? (i32)end : last;
    first = begin < last ? (i32)begin : last;
}

// Index of a (row, head, split) in the partials.
HX_DEVICE i64 fa_partial(const FaArgs &a, u32 row, u32 head, u32 split) {
    return ((i64)row * a.q_heads + head) * a.splits + split;
}
