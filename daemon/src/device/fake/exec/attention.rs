//! attention.fa_fdot2 as its kernels' arguments describe it: decode and prefill, whole or split, and the combine.
//!
//! Values that were read from tensors (lengths, block numbers, offsets) are hostile: each is clamped against extents that
//! came with the arguments, as the contract says, and every access is checked against the memory on top of that.

use std::ops::Range;

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::cache::{BlockRow, Cache, TILE, Tile};
use super::softmax::Softmax;
use crate::memory::{Bytes, OutOfBounds};

/// Query rows that share the tiles of one pass over the keys.
const QUERIES: usize = 16;

/// Everything that the attention kernels are told. Tensors are bytes from their first element to the end of their memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    pub q: Bytes<'a>,
    /// Query rows of q and out.
    pub rows: u64,
    pub q_heads: u64,
    pub kv_heads: u64,
    pub dim: u64,
    pub k: Cache<'a>,
    pub v: Cache<'a>,
    pub table: Table<'a>,
    /// One length a sequence.
    pub lens: Bytes<'a>,
    /// Sequences; for decode, query rows.
    pub seqs: u64,
    /// One offset a sequence and one more: present for prefill, where a sequence has many query rows.
    pub cu: Option<Bytes<'a>>,
    pub window: u64,
    pub causal: bool,
    /// Softmax scale times log2(e): weights are powers of two.
    pub scale_log2e: f32,
    pub target: Target<'a>,
}

/// i32 [sequences, columns].
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    pub bytes: Bytes<'a>,
    /// Tokens that a row's columns can address.
    pub capacity: u64,
    /// Elements from one row to the next.
    pub stride: u64,
}

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// fp16 [rows, q_heads, dim].
    Out(Bytes<'a>),
    /// One a key split, to be combined.
    Partials(Partials<'a>),
}

/// Scratch of split work: fp32 o [rows, q_heads, splits, dim], m and l [rows, q_heads, splits].
#[derive(Debug, Clone, Copy)]
pub(super) struct Partials<'a> {
    pub o: Bytes<'a>,
    pub m: Bytes<'a>,
    pub l: Bytes<'a>,
    pub splits: u64,
}

/// The part of the combine's arguments that the attention kernels do not have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Combine<'a> {
    pub partials: Partials<'a>,
    pub out: Bytes<'a>,
    pub rows: u64,
    pub q_heads: u64,
    pub dim: u64,
    /// For prefill: offsets and how many sequences; rows of no sequence are left alone.
    pub cu: Option<(Bytes<'a>, u64)>,
}

/// One query row and the key positions that it sees.
#[derive(Debug, Clone)]
struct Query {
    row: u64,
    keys: Range<u64>,
}

/// Computes every query row of every sequence.
pub(super) fn attend(problem: &Problem<'_>) -> Result<(), OutOfBounds> {
    let mut work = Work::default();
    for seq in 0..problem.seqs {
        let row = problem.table.row(seq, problem.k.block_size)?;
        let len = clamp(problem.lens.get(seq * 4)?, problem.table.capacity);
        let queries = match problem.cu {
            None => vec![Query { row: seq, keys: from_window(len, problem.window)..len }],
            Some(cu) => problem.queries_of(sequence_rows(cu, seq, problem.rows)?, len),
        };
        for queries in queries.chunks(QUERIES) {
            for head in 0..problem.kv_heads {
                work.pass(problem, row, head, queries)?;
            }
        }
    }
    Ok(())
}

/// Adds up the splits of every query row.
pub(super) fn combine(job: &Combine<'_>) -> Result<(), OutOfBounds> {
    let Combine { partials, out, rows, q_heads, dim, cu } = *job;
    let mut covered = vec![cu.is_none(); rows as usize];
    if let Some((cu, seqs)) = cu {
        for seq in 0..seqs {
            let rows = sequence_rows(cu, seq, rows)?;
            covered[rows.start as usize..rows.end as usize].fill(true);
        }
    }
    let splits = partials.splits as usize;
    let (mut m, mut l) = (vec![0.0_f32; splits], vec![0.0_f32; splits]);
    let mut part = vec![0.0_f32; dim as usize];
    let mut halves = Vec::new();
    for row in (0..rows).filter(|row| covered[*row as usize]) {
        for head in 0..q_heads {
            let at = row.saturating_mul(q_heads).saturating_add(head).saturating_mul(partials.splits);
            partials.m.read(at.saturating_mul(4), &mut m)?;
            partials.l.read(at.saturating_mul(4), &mut l)?;
            let max = m.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            let mut acc = vec![0.0_f32; dim as usize];
            // An empty split has no weight, and its m would make the weight of an all-empty row NaN.
            for split in (0..splits).filter(|split| l[*split] != 0.0) {
                let weight = (m[split] - max).exp2();
                total += weight * l[split];
                partials.o.read((at + split as u64).saturating_mul(dim * 4), &mut part)?;
                acc.iter_mut().zip(&part).for_each(|(acc, part)| *acc += weight * part);
            }
            if total != 0.0 {
                acc.iter_mut().for_each(|acc| *acc /= total);
            }
            write_row(out, row, q_heads, head, &acc, &mut halves)?;
        }
    }
    Ok(())
}

impl<'a> Table<'a> {
    fn row(&self, seq: u64, block_size: u64) -> Result<BlockRow<'a>, OutOfBounds> {
        let start = seq.saturating_mul(self.stride).saturating_mul(4);
        let columns = self.capacity.div_ceil(block_size);
        Ok(BlockRow { bytes: self.bytes.slice(start, columns.saturating_mul(4))?, columns })
    }
}

impl Problem<'_> {
    /// The queries of a sequence of `len` tokens whose new ones stand in `rows`.
    fn queries_of(&self, rows: Range<u64>, len: u64) -> Vec<Query> {
        let new = rows.end - rows.start;
        let query = |row: u64| {
            // May be before the first key: more new tokens than tokens.
            let end = (len + (row - rows.start) + 1).saturating_sub(new);
            let keys = match (self.causal, self.window) {
                (false, 0) => 0..len,
                (false, window) => from_window(end, window)..len,
                (true, window) => from_window(end, window)..end,
            };
            Query { row, keys }
        };
        rows.clone().map(query).collect()
    }
}

/// The first of the `window` positions before `end`; 0 when the window is off.
fn from_window(end: u64, window: u64) -> u64 {
    if window == 0 { 0 } else { end.saturating_sub(window) }
}

fn clamp(value: i32, most: u64) -> u64 {
    u64::try_from(value).unwrap_or(0).min(most)
}

/// The query rows of one sequence, within q; none when the offsets run backwards.
fn sequence_rows(cu: Bytes<'_>, seq: u64, rows: u64) -> Result<Range<u64>, OutOfBounds> {
    let start = clamp(cu.get(seq * 4)?, rows);
    let end = clamp(cu.get((seq + 1) * 4)?, rows);
    Ok(start..end.max(start))
}

/// Buffers that are used again and again.
#[derive(Default)]
struct Work {
    tile: Tile,
    halves: Vec<u16>,
    /// [queries, heads of the group, dim].
    q: Vec<f32>,
}

impl Work {
    /// One pass over the keys for some queries of a sequence and the query heads of one KV head.
    fn pass(
        &mut self,
        problem: &Problem<'_>,
        row: BlockRow<'_>,
        head: u64,
        queries: &[Query],
    ) -> Result<(), OutOfBounds> {
        let group = problem.q_heads / problem.kv_heads.max(1);
        let dim = problem.dim as usize;
        self.read_queries(problem, head * group, group, queries)?;
        let first = queries.iter().map(|query| query.keys.start).min().unwrap_or(0);
        let end = queries.iter().map(|query| query.keys.end).max().unwrap_or(0).max(first);
        let splits = match &problem.target {
            Target::Out(_) => 1,
            Target::Partials(partials) => partials.splits,
        };
        let tiles_a_split = (end - first).div_ceil(TILE).div_ceil(splits.max(1));
        let mut out = vec![0.0; dim];
        for split in 0..splits {
            let begin = (first + split * tiles_a_split * TILE).min(end);
            let stop = (begin + tiles_a_split * TILE).min(end);
            let softmax = self.keys(problem, row, head, queries, group as usize, begin..stop)?;
            for (i, query) in queries.iter().enumerate() {
                for g in 0..group {
                    let (at, q_head) = (i * group as usize + g as usize, head * group + g);
                    match &problem.target {
                        Target::Out(bytes) => {
                            softmax.finish(at, &mut out);
                            write_row(*bytes, query.row, problem.q_heads, q_head, &out, &mut self.halves)?;
                        }
                        Target::Partials(partials) => {
                            let (m, l, o) = softmax.partial(at);
                            let slot = ((query.row * problem.q_heads + q_head) * splits) + split;
                            partials.m.write(slot.saturating_mul(4), &[m])?;
                            partials.l.write(slot.saturating_mul(4), &[l])?;
                            partials.o.write(slot.saturating_mul(problem.dim * 4), o)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn read_queries(
        &mut self,
        problem: &Problem<'_>,
        first_head: u64,
        group: u64,
        queries: &[Query],
    ) -> Result<(), OutOfBounds> {
        let width = (group * problem.dim) as usize;
        self.halves.resize(width, 0);
        self.q.resize(queries.len() * width, 0.0);
        for (query, q) in queries.iter().zip(self.q.chunks_exact_mut(width)) {
            let element =
                query.row.saturating_mul(problem.q_heads).saturating_add(first_head).saturating_mul(problem.dim);
            problem.q.read(element.saturating_mul(2), &mut self.halves)?;
            self.halves.reinterpret_cast::<f16>().convert_to_f32_slice(q);
        }
        Ok(())
    }

    /// Online softmax of the queries over the keys in a range.
    fn keys(
        &mut self,
        problem: &Problem<'_>,
        row: BlockRow<'_>,
        head: u64,
        queries: &[Query],
        group: usize,
        keys: Range<u64>,
    ) -> Result<Softmax, OutOfBounds> {
        let dim = problem.dim as usize;
        let mut softmax = Softmax::new(queries.len() * group, dim);
        let mut at = keys.start;
        while at < keys.end {
            let count = TILE.min(keys.end - at);
            self.tile.load(&problem.k, &problem.v, row, head, at, count)?;
            for (i, query) in queries.iter().enumerate() {
                let seen = query.keys.start.clamp(at, at + count) - at..query.keys.end.clamp(at, at + count) - at;
                if seen.start < seen.end {
                    for at in i * group..(i + 1) * group {
                        let seen = seen.start as usize..seen.end as usize;
                        softmax.add(at, &self.q[at * dim..][..dim], problem.scale_log2e, &self.tile, seen);
                    }
                }
            }
            at += count;
        }
        Ok(softmax)
    }
}

fn write_row(
    out: Bytes<'_>,
    row: u64,
    q_heads: u64,
    head: u64,
    values: &[f32],
    halves: &mut Vec<u16>,
) -> Result<(), OutOfBounds> {
    halves.resize(values.len(), 0);
    halves.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
    let element = row.saturating_mul(q_heads).saturating_add(head).saturating_mul(values.len() as u64);
    out.write(element.saturating_mul(2), halves)
}
