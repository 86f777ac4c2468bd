//! Online softmax in base 2 over tiles of keys, in 32-bit floats that the compiler can put into vector registers.

use super::cache::Tile;

/// What is known after some tiles: for each row (a query and one of its heads) the largest score, the sum of the weights
/// relative to it, and the weighted sum of values.
#[derive(Debug)]
pub(super) struct Softmax {
    dim: usize,
    max: Vec<f32>,
    sum: Vec<f32>,
    acc: Vec<f32>,
    scores: Vec<f32>,
}

impl Softmax {
    pub(super) fn new(rows: usize, dim: usize) -> Self {
        Self {
            dim,
            max: vec![f32::NEG_INFINITY; rows],
            sum: vec![0.0; rows],
            acc: vec![0.0; rows * dim],
            scores: Vec::new(),
        }
    }

    /// Adds the keys `keys` of the tile (positions in it) to one row, whose query is `q`.
    pub(super) fn add(&mut self, row: usize, q: &[f32], scale_log2e: f32, tile: &Tile, keys: std::ops::Range<usize>) {
        let dim = self.dim;
        self.scores.clear();
        let mut max = self.max[row];
        for key in keys.clone() {
            // A missing key weighs nothing, as if it were not there.
            let score =
                if tile.present[key] { dot(q, &tile.k[key * dim..][..dim]) * scale_log2e } else { f32::NEG_INFINITY };
            max = max.max(score);
            self.scores.push(score);
        }
        if max == f32::NEG_INFINITY {
            // No key so far: relative to this maximum every weight would be NaN.
            return;
        }
        let acc = &mut self.acc[row * dim..][..dim];
        let old = (self.max[row] - max).exp2();
        if old != 1.0 {
            self.sum[row] *= old;
            acc.iter_mut().for_each(|a| *a *= old);
        }
        self.max[row] = max;
        for (key, score) in keys.zip(&self.scores) {
            if tile.present[key] {
                let weight = (score - max).exp2();
                self.sum[row] += weight;
                add_scaled(acc, weight, &tile.v[key * dim..][..dim]);
            }
        }
    }

    /// (largest score, sum of weights, weighted values) of one row; (-inf, 0, zeros) when it saw no key.
    pub(super) fn partial(&self, row: usize) -> (f32, f32, &[f32]) {
        (self.max[row], self.sum[row], &self.acc[row * self.dim..][..self.dim])
    }

    /// The attention of one row; zeros when it saw no key.
    pub(super) fn finish(&self, row: usize, out: &mut [f32]) {
        let (_, sum, acc) = self.partial(row);
        let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        out.iter_mut().zip(acc).for_each(|(out, acc)| *out = acc * scale);
    }
}

/// Sixteen sums side by side, so that no addition waits for the one before.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    // Head sizes are multiples of sixteen; nothing is left over.
    sums.iter().sum()
}

fn add_scaled(acc: &mut [f32], weight: f32, values: &[f32]) {
    acc.iter_mut().zip(values).for_each(|(acc, value)| *acc += weight * value);
}
