//! Tiles of a paged K or V cache, read through its strides as 32-bit floats.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::memory::{Bytes, OutOfBounds};

/// Tokens that are worked on at once.
pub(super) const TILE: u64 = 64;

/// A cache as the kernel's arguments describe it: extents [blocks, heads, chunks, block_size, inner], fp16.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cache<'a> {
    /// From the tensor's first byte to the end of its memory.
    pub bytes: Bytes<'a>,
    pub blocks: u64,
    pub block_size: u64,
    pub chunks: u64,
    pub inner: u64,
    /// Elements.
    pub stride: [u64; 5],
}

/// One sequence's row of the block table.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockRow<'a> {
    /// From the row's first byte on.
    pub bytes: Bytes<'a>,
    pub columns: u64,
}

/// Up to [`TILE`] consecutive tokens of one sequence and one KV head.
#[derive(Debug, Default)]
pub(super) struct Tile {
    halves: Vec<u16>,
    /// [tokens, head_dim].
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    /// Tokens whose block number names a block of the cache; the others are masked.
    pub present: Vec<bool>,
}

impl Tile {
    /// Reads the tokens from `first` on, `count` of them.
    pub(super) fn load(
        &mut self,
        k: &Cache<'_>,
        v: &Cache<'_>,
        row: BlockRow<'_>,
        head: u64,
        first: u64,
        count: u64,
    ) -> Result<(), OutOfBounds> {
        self.present.clear();
        self.present.resize(count as usize, false);
        let mut runs = Vec::new();
        let mut token = first;
        while token < first + count {
            let column = token / k.block_size;
            let in_block = token % k.block_size;
            let len = (k.block_size - in_block).min(first + count - token);
            if column < row.columns {
                let block: i32 = row.bytes.get(column.saturating_mul(4))?;
                if let Some(block) = u64::try_from(block).ok().filter(|block| *block < k.blocks) {
                    runs.push((block, in_block, len, token - first));
                    self.present[(token - first) as usize..][..len as usize].fill(true);
                }
            }
            token += len;
        }
        read_runs(k, head, &runs, count, &mut self.halves, &mut self.k)?;
        read_runs(v, head, &runs, count, &mut self.halves, &mut self.v)
    }
}

/// Each run is (block, position in it, tokens, place in the tile).
fn read_runs(
    cache: &Cache<'_>,
    head: u64,
    runs: &[(u64, u64, u64, u64)],
    count: u64,
    halves: &mut Vec<u16>,
    out: &mut Vec<f32>,
) -> Result<(), OutOfBounds> {
    let dim = (cache.chunks * cache.inner) as usize;
    let elements = count as usize * dim;
    // Tokens without a block stay zero; nothing reads them.
    halves.clear();
    halves.resize(elements, 0);
    for &(block, position, len, place) in runs {
        let target = &mut halves[place as usize * dim..][..len as usize * dim];
        cache.read_run(block, head, position, len, target)?;
    }
    out.resize(elements, 0.0);
    halves.reinterpret_cast::<f16>().convert_to_f32_slice(out);
    Ok(())
}

impl Cache<'_> {
    /// Reads `len` tokens of one block as [len, head_dim].
    fn read_run(&self, block: u64, head: u64, position: u64, len: u64, out: &mut [u16]) -> Result<(), OutOfBounds> {
        let [per_block, per_head, per_chunk, per_token, per_inner] = self.stride;
        // Saturated, an offset is outside any memory, so nothing that wraps is ever read.
        let at = |parts: &[(u64, u64)]| {
            let elements =
                parts.iter().fold(0_u64, |sum, (index, stride)| sum.saturating_add(index.saturating_mul(*stride)));
            elements.saturating_mul(2)
        };
        let base = [(block, per_block), (head, per_head)];
        let (dim, inner) = (out.len() / len as usize, self.inner as usize);
        let unit = |stride, extent| stride == 1 || extent == 1;
        if unit(per_inner, self.inner) && (self.chunks == 1 || per_chunk == self.inner) {
            // A token's elements lie side by side.
            for (token, out) in out.chunks_exact_mut(dim).enumerate() {
                self.bytes.read(at(&[base[0], base[1], (position + token as u64, per_token)]), out)?;
            }
        } else if per_inner == 1 && self.inner > 1 {
            for (token, out) in out.chunks_exact_mut(dim).enumerate() {
                let token = (position + token as u64, per_token);
                for (chunk, out) in out.chunks_exact_mut(inner).enumerate() {
                    self.bytes.read(at(&[base[0], base[1], (chunk as u64, per_chunk), token]), out)?;
                }
            }
        } else if unit(per_token, len) {
            // An element's tokens lie side by side.
            let mut column = vec![0_u16; len as usize];
            for d in 0..dim {
                let (chunk, element) = ((d / inner) as u64, (d % inner) as u64);
                let start = [base[0], base[1], (chunk, per_chunk), (position, per_token), (element, per_inner)];
                self.bytes.read(at(&start), &mut column)?;
                for (token, half) in column.iter().enumerate() {
                    out[token * dim + d] = *half;
                }
            }
        } else {
            for (token, out) in out.chunks_exact_mut(dim).enumerate() {
                let token = (position + token as u64, per_token);
                for (d, out) in out.iter_mut().enumerate() {
                    let (chunk, element) = ((d / inner) as u64, (d % inner) as u64);
                    *out = self.bytes.get(at(&[base[0], base[1], (chunk, per_chunk), token, (element, per_inner)]))?;
                }
            }
        }
        Ok(())
    }
}
