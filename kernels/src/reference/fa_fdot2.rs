//! `attention.fa_fdot2` in float64, one line of mathematics a line of code.
//!
//! For query token t with query head h and g = h / (H_q / H_kv), over the set A of visible key positions:
//! s_j = scale * sum_d q[t,h,d] * K[j,g,d]; p_j = exp(s_j - max s); out = sum p_j V[j,g,:] / sum p_j. An empty A gives zeros.

use half::f16;

/// Elements of a tensor of halves, by five strides.
#[derive(Debug, Clone, Copy)]
pub struct Cache<'a> {
    pub data: &'a [f16],
    /// [blocks, kv_heads, head_dim / x, block_size, x]
    pub shape: [usize; 5],
    /// Elements.
    pub stride: [usize; 5],
}

impl Cache<'_> {
    fn at(&self, block: usize, head: usize, token: usize, d: usize) -> f64 {
        let x = self.shape[4];
        let index = [block, head, d / x, token, d % x];
        self.data[index.iter().zip(self.stride).map(|(at, stride)| at * stride).sum::<usize>()].to_f64()
    }
}

/// One call of the op.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    pub head_dim: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub block_size: usize,
    /// 0 is off.
    pub window: i64,
    pub causal: bool,
    pub scale: f64,
    /// [rows, q_heads, head_dim], dense.
    pub q: &'a [f16],
    pub k: Cache<'a>,
    pub v: Cache<'a>,
    /// [sequences, pages] with a row stride in elements.
    pub block_table: &'a [i32],
    pub table_stride: usize,
    pub pages: usize,
    pub seq_lens: &'a [i32],
    /// Prefill when present, decode when not.
    pub cu_query_lens: Option<&'a [i32]>,
}

impl Attention<'_> {
    /// The result a row: `None` for rows that the op leaves untouched, else q_heads * head_dim values.
    pub fn run(&self) -> Vec<Option<Vec<f64>>> {
        let rows = self.q.len() / (self.q_heads * self.head_dim);
        let mut out = vec![None; rows];
        let Some(cu) = self.cu_query_lens else {
            for (row, slot) in out.iter_mut().enumerate() {
                let length = self.length(row);
                *slot = Some(self.row(row, row, |j| j < length && (self.window == 0 || j >= length - self.window)));
            }
            return out;
        };
        let offset = |entry: usize| i64::from(cu[entry]).clamp(0, rows as i64);
        for sequence in 0..self.seq_lens.len() {
            let (start, end) = (offset(sequence), offset(sequence + 1));
            let length = self.length(sequence);
            for row in start..end {
                let position = length - (end - start) + (row - start);
                let visible = |j| {
                    j < length && (!self.causal || j <= position) && (self.window == 0 || j > position - self.window)
                };
                out[row as usize] = Some(self.row(row as usize, sequence, visible));
            }
        }
        out
    }

    /// A length is clamped to what the sequence's row of the block table can address.
    fn length(&self, sequence: usize) -> i64 {
        i64::from(self.seq_lens[sequence]).clamp(0, (self.pages * self.block_size) as i64)
    }

    fn row(&self, row: usize, sequence: usize, visible: impl Fn(i64) -> bool) -> Vec<f64> {
        (0..self.q_heads).flat_map(|head| self.head(row, sequence, head, &visible)).collect()
    }

    fn head(&self, row: usize, sequence: usize, head: usize, visible: &impl Fn(i64) -> bool) -> Vec<f64> {
        let g = head / (self.q_heads / self.kv_heads);
        let q = &self.q[(row * self.q_heads + head) * self.head_dim..][..self.head_dim];
        // A block number outside the cache hides its tokens.
        let keys: Vec<(usize, usize)> = (0..self.length(sequence))
            .filter(|j| visible(*j))
            .map(|j| {
                (
                    self.block_table[sequence * self.table_stride + j as usize / self.block_size],
                    j as usize % self.block_size,
                )
            })
            .filter_map(|(block, token)| Some((usize::try_from(block).ok()?, token)))
            .filter(|(block, _)| *block < self.k.shape[0])
            .collect();
        let logits: Vec<f64> = keys
            .iter()
            .map(|(block, token)| {
                self.scale
                    * q.iter().enumerate().map(|(d, q)| q.to_f64() * self.k.at(*block, g, *token, d)).sum::<f64>()
            })
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        (0..self.head_dim)
            .map(|d| {
                let sum: f64 =
                    keys.iter().zip(&weights).map(|((block, token), p)| p * self.v.at(*block, g, *token, d)).sum();
                if keys.is_empty() { 0.0 } else { sum / total }
            })
            .collect()
    }
}

/// How far a result is from the reference: the largest absolute error and the relative Frobenius error. A NaN anywhere
/// makes both infinite. The contract allows 2e-3 and 1e-3 on inputs of N(0, 1).
pub fn errors(found: impl IntoIterator<Item = f64>, expected: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (mut worst, mut off, mut norm) = (0.0_f64, 0.0, 0.0);
    for (found, expected) in found.into_iter().zip(expected) {
        let error = (found - expected).abs();
        if error.is_nan() {
            return (f64::INFINITY, f64::INFINITY);
        }
        worst = worst.max(error);
        off += error * error;
        norm += expected * expected;
    }
    (worst, if norm > 0.0 { (off / norm).sqrt() } else { off.sqrt() })
}

/// The contract's bound on the largest absolute error.
pub const MAX_ABSOLUTE_ERROR: f64 = 2e-3;
/// The contract's bound on the relative Frobenius error.
pub const MAX_FROBENIUS_ERROR: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two KV heads of one dense page a block; values are small whole numbers, so sums are exact.
    fn call<'a>(q: &'a [f16], k: &'a [f16], v: &'a [f16], table: &'a [i32], lens: &'a [i32]) -> Attention<'a> {
        let cache = |data| Cache { data, shape: [2, 1, 1, 2, 2], stride: [4, 4, 4, 2, 1] };
        Attention {
            head_dim: 2,
            q_heads: 1,
            kv_heads: 1,
            block_size: 2,
            window: 0,
            causal: true,
            scale: 1.0,
            q,
            k: cache(k),
            v: cache(v),
            block_table: table,
            table_stride: 2,
            pages: 2,
            seq_lens: lens,
            cu_query_lens: None,
        }
    }

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|value| f16::from_f32(*value)).collect()
    }

    #[test]
    fn equal_logits_average_the_visible_values() {
        let (q, k) = (halves(&[0.0, 0.0]), halves(&[1.0; 8]));
        // Blocks are swapped: positions 0 and 1 lie in block 1.
        let v = halves(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let one = |lens: &[i32], window| {
            let attention = Attention { window, ..call(&q, &k, &v, &[1, 0], lens) };
            attention.run()[0].clone().unwrap()
        };
        assert_eq!(one(&[3], 0), [(5.0 + 7.0 + 1.0) / 3.0, (6.0 + 8.0 + 2.0) / 3.0]);
        assert_eq!(one(&[3], 1), [1.0, 2.0]);
        assert_eq!(one(&[0], 0), [0.0, 0.0]);
        assert_eq!(one(&[-7], 0), [0.0, 0.0]);
        assert_eq!(one(&[1 << 30], 0), one(&[4], 0));
    }

    #[test]
    fn two_logits_weigh_as_their_exponentials() {
        let (q, k) = (halves(&[1.0, 0.0]), halves(&[0.0, 9.0, 1.0, 9.0, 0.0, 0.0, 0.0, 0.0]));
        let v = halves(&[0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let out = call(&q, &k, &v, &[0, 1], &[2]).run()[0].clone().unwrap();
        let e = 1.0_f64.exp();
        assert!((out[0] - e / (1.0 + e)).abs() < 1e-12 && (out[1] - 1.0 / (1.0 + e)).abs() < 1e-12);
    }

    #[test]
    fn a_block_outside_the_cache_hides_its_tokens() {
        let (q, k, v) = (halves(&[0.0, 0.0]), halves(&[1.0; 8]), halves(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        for hostile in [2, -1, i32::MAX, i32::MIN] {
            assert_eq!(call(&q, &k, &v, &[0, hostile], &[4]).run()[0].as_deref(), Some([2.0, 3.0].as_slice()));
            assert_eq!(call(&q, &k, &v, &[hostile, hostile], &[4]).run()[0].as_deref(), Some([0.0, 0.0].as_slice()));
        }
    }

    #[test]
    fn prefill_masks_by_position_and_leaves_other_rows_alone() {
        let (q, k, v) = (halves(&[0.0; 6]), halves(&[1.0; 8]), halves(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        let attention = Attention { cu_query_lens: Some(&[0, 2]), ..call(&q, &k, &v, &[0, 1], &[3]) };
        let out = attention.run();
        // Rows 0 and 1 stand at positions 1 and 2 of three.
        assert_eq!(out[0].as_deref(), Some([2.0, 3.0].as_slice()));
        assert_eq!(out[1].as_deref(), Some([3.0, 4.0].as_slice()));
        assert_eq!(out[2], None);
    }

    #[test]
    fn a_nan_is_no_small_error() {
        assert_eq!(errors([f64::NAN], [0.0]), (f64::INFINITY, f64::INFINITY));
        let (worst, relative) = errors([1.0, 2.5], [1.0, 2.0]);
        assert_eq!((worst, relative), (0.5, (0.25_f64 / 5.0).sqrt()));
    }
}
