//! Cases of paged attention: shapes, inputs that look like a serving engine's, and where everything lies in one buffer.

use half::f16;
use hippihx_kernels::launch::BoundTensor;
use hippihx_kernels::reference::fa_fdot2::{Attention, Cache, MAX_ABSOLUTE_ERROR, MAX_FROBENIUS_ERROR, errors};
use hippihx_kernels::{ParamValue, TensorDesc};

/// Decode or prefill, and every property of the op that a test varies.
#[derive(Debug, Clone)]
pub struct Case {
    pub prefill: bool,
    pub head_dim: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub block_size: usize,
    pub kv_splits: usize,
    pub window: i64,
    pub causal: bool,
    /// Context lengths, one a sequence; the new tokens of a prefill are in them.
    pub lens: Vec<i32>,
    /// New tokens, one a sequence; prefill only.
    pub new: Vec<i32>,
    /// Elements of the innermost axis of K and V: they are [blocks, heads, head_dim / packing, block_size, packing].
    pub packing: usize,
    /// V's innermost two axes are swapped in memory.
    pub v_swapped: bool,
    pub seed: u64,
}

impl Default for Case {
    /// Eight query heads on two KV heads, D 128, blocks of 16, two sequences of a few tokens.
    fn default() -> Self {
        Self {
            prefill: false,
            head_dim: 128,
            q_heads: 8,
            kv_heads: 2,
            block_size: 16,
            kv_splits: 2,
            window: 0,
            causal: true,
            lens: vec![33, 16],
            new: vec![5, 16],
            packing: 8,
            v_swapped: false,
            seed: 1,
        }
    }
}

/// One tensor inside the case's buffer.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Bytes from the start of the buffer; a multiple of 256.
    pub offset: u64,
    /// The contract's dtype number.
    pub dtype: i32,
    pub shape: Vec<i64>,
    /// Elements.
    pub stride: Vec<i64>,
    /// Bytes from `offset` to the end of the last element.
    pub nbytes: u64,
    /// A NULL tensor (cu_query_lens of a decode).
    pub absent: bool,
}

/// A case with its inputs.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub case: Case,
    /// In the catalogue's order: q, k_cache, v_cache, block_table, seq_lens, cu_query_lens, out.
    pub tensors: Vec<Placed>,
    /// The whole buffer as it is before the run: out poisoned, unused cache slots NaN.
    pub bytes: Vec<u8>,
    /// Query rows that the run writes.
    pub rows: usize,
}

/// What the poisoned bytes of `out` look like: a NaN that no kernel computes.
pub const POISON: u16 = 0x7e5a;

const FP16: i32 = 1;
const I32: i32 = 4;

impl Case {
    /// The op's params in the catalogue's order.
    pub fn params(&self) -> [ParamValue; 10] {
        let ints = [
            i64::from(self.prefill),
            self.head_dim as i64,
            self.q_heads as i64,
            self.kv_heads as i64,
            self.block_size as i64,
            self.kv_splits as i64,
            self.window,
            i64::from(self.causal),
            self.rows().max(1) as i64,
        ];
        std::array::from_fn(|at| match ints.get(at) {
            Some(int) => ParamValue::from_i64(*int),
            None => ParamValue::from_f64(self.scale()),
        })
    }

    pub fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// Query rows.
    pub fn rows(&self) -> usize {
        if self.prefill { self.new.iter().map(|n| *n as usize).sum() } else { self.lens.len() }
    }

    /// Draws the inputs: N(0, 1) everywhere that counts, blocks in a permuted order, NaN in every slot past a sequence's end.
    pub fn inputs(&self) -> Inputs {
        let mut random = Random(self.seed);
        let (seqs, rows) = (self.lens.len(), self.rows());
        let blocks_of = |len: i32| (len.max(0) as usize).div_ceil(self.block_size);
        let columns = self.lens.iter().map(|len| blocks_of(*len)).max().unwrap_or(0).max(1);
        let blocks = self.lens.iter().map(|len| blocks_of(*len)).sum::<usize>().max(1) + 1;
        let mut order: Vec<i32> = (0..blocks as i32).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let mut table = vec![-1_i32; seqs * columns];
        let mut free = order.iter();
        for (seq, len) in self.lens.iter().enumerate() {
            for column in 0..blocks_of(*len) {
                table[seq * columns + column] = *free.next().unwrap_or(&-1);
            }
        }
        let chunks = self.head_dim / self.packing;
        let (h, d, bs, x) = (self.kv_heads, self.head_dim, self.block_size, self.packing);
        let cache_shape = [blocks, h, chunks, bs, x].map(|n| n as i64).to_vec();
        let k_stride = [h * d * bs, d * bs, bs * x, x, 1].map(|n| n as i64).to_vec();
        let mut v_stride = k_stride.clone();
        if self.v_swapped {
            (v_stride[3], v_stride[4]) = (1, bs as i64);
        }
        let q_shape = vec![rows as i64, self.q_heads as i64, d as i64];
        let q_stride = vec![(self.q_heads * d) as i64, d as i64, 1];
        let mut cu = vec![0_i32];
        for new in &self.new {
            cu.push(cu.last().copied().unwrap_or(0) + new);
        }

        let mut layout = Layout::default();
        let tensors = vec![
            layout.place(FP16, q_shape.clone(), q_stride.clone()),
            layout.place(FP16, cache_shape.clone(), k_stride.clone()),
            layout.place(FP16, cache_shape, v_stride.clone()),
            layout.place(I32, vec![seqs as i64, columns as i64], vec![columns as i64, 1]),
            layout.place(I32, vec![seqs as i64], vec![1]),
            if self.prefill { layout.place(I32, vec![cu.len() as i64], vec![1]) } else { Placed::absent() },
            layout.place(FP16, q_shape, q_stride),
        ];
        let mut inputs = Inputs { case: self.clone(), bytes: vec![0; layout.end as usize], tensors, rows };
        for i in 0..rows * self.q_heads * d {
            inputs.put_half(0, i, random.normal());
        }
        let cache_elements = blocks * h * d * bs;
        for slot in [1, 2] {
            for i in 0..cache_elements {
                inputs.put_half(slot, i, f32::NAN);
            }
        }
        for (seq, len) in self.lens.iter().enumerate() {
            for token in 0..(*len).max(0) as usize {
                let block = table[seq * columns + token / bs] as i64;
                for head in 0..h as i64 {
                    for e in 0..d {
                        let index = [block, head, (e / x) as i64, (token % bs) as i64, (e % x) as i64];
                        let at = |stride: &[i64]| index.iter().zip(stride).map(|(i, s)| i * s).sum::<i64>() as usize;
                        inputs.put_half(1, at(&k_stride), random.normal());
                        inputs.put_half(2, at(&v_stride), random.normal());
                    }
                }
            }
        }
        inputs.put_ints(3, &table);
        inputs.put_ints(4, &self.lens);
        if self.prefill {
            inputs.put_ints(5, &cu);
        }
        for i in 0..rows * self.q_heads * d {
            inputs.put_bits(6, i, POISON);
        }
        inputs
    }
}

impl Placed {
    /// As the contract's checks want it.
    pub fn desc(&self) -> TensorDesc {
        let mut desc = TensorDesc { data_null: self.absent, dtype: self.dtype, ..TensorDesc::ABSENT };
        desc.rank = self.shape.len() as i32;
        desc.shape[..self.shape.len()].copy_from_slice(&self.shape);
        desc.stride[..self.stride.len()].copy_from_slice(&self.stride);
        desc
    }

    /// As a kernel sees it, in a buffer at this device address.
    pub fn bound(&self, buffer: u64) -> BoundTensor {
        let TensorDesc { shape, stride, data_null, .. } = self.desc();
        BoundTensor { address: if data_null { 0 } else { buffer + self.offset }, shape, stride }
    }

    fn absent() -> Self {
        Self { offset: 0, dtype: I32, shape: Vec::new(), stride: Vec::new(), nbytes: 0, absent: true }
    }
}

impl Inputs {
    fn put_bits(&mut self, slot: usize, element: usize, bits: u16) {
        let at = self.tensors[slot].offset as usize + element * 2;
        self.bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }

    fn put_half(&mut self, slot: usize, element: usize, value: f32) {
        self.put_bits(slot, element, f16::from_f32(value).to_bits());
    }

    /// Overwrites an i32 tensor; for hostile values too.
    pub fn put_ints(&mut self, slot: usize, values: &[i32]) {
        let start = self.tensors[slot].offset as usize;
        for (i, value) in values.iter().enumerate() {
            self.bytes[start + i * 4..][..4].copy_from_slice(&value.to_le_bytes());
        }
    }

    /// An fp16 tensor's elements in memory order, read from `bytes` (a whole buffer after or before a run).
    pub fn halves(&self, slot: usize, bytes: &[u8]) -> Vec<f16> {
        let placed = &self.tensors[slot];
        let range = placed.offset as usize..(placed.offset + placed.nbytes) as usize;
        bytes[range].as_chunks::<2>().0.iter().map(|pair| f16::from_le_bytes(*pair)).collect()
    }

    /// What a run has to make of each row of out, in float64; None for a row that it leaves alone.
    pub fn reference(&self) -> Vec<Option<Vec<f64>>> {
        let case = &self.case;
        let (q, k, v) = (self.halves(0, &self.bytes), self.halves(1, &self.bytes), self.halves(2, &self.bytes));
        let (table, lens) = (self.ints(3), self.ints(4));
        let cu = case.prefill.then(|| self.ints(5));
        let axes = |of: &[i64]| std::array::from_fn(|axis| of[axis] as usize);
        let cache = |data, slot: usize| {
            let placed: &Placed = &self.tensors[slot];
            Cache { data, shape: axes(&placed.shape), stride: axes(&placed.stride) }
        };
        let attention = Attention {
            head_dim: case.head_dim,
            q_heads: case.q_heads,
            kv_heads: case.kv_heads,
            block_size: case.block_size,
            window: case.window,
            causal: case.causal,
            scale: case.scale(),
            q: &q,
            k: cache(&k, 1),
            v: cache(&v, 2),
            block_table: &table,
            table_stride: self.tensors[3].stride[0] as usize,
            pages: self.tensors[3].shape[1] as usize,
            seq_lens: &lens,
            cu_query_lens: cu.as_deref(),
        };
        attention.run()
    }

    /// Compares out in `after`, the whole buffer after a run, with the reference's rows, by the contract's two bounds.
    pub fn compare(&self, after: &[u8], expected: &[Option<Vec<f64>>]) -> Result<(), String> {
        let found = self.halves(6, after);
        let width = self.case.q_heads * self.case.head_dim;
        let (mut computed, mut wanted) = (Vec::new(), Vec::new());
        for (row, (found, expected)) in found.chunks_exact(width).zip(expected).enumerate() {
            match expected {
                Some(expected) => {
                    computed.extend(found.iter().map(|half| half.to_f64()));
                    wanted.extend_from_slice(expected);
                }
                None if found.iter().any(|half| half.to_bits() != POISON) => {
                    return Err(format!("row {row} of no sequence was written"));
                }
                None => {}
            }
        }
        let (worst, relative) = errors(computed, wanted);
        if worst > MAX_ABSOLUTE_ERROR || relative > MAX_FROBENIUS_ERROR {
            return Err(format!(
                "worst error {worst:e} (at most {MAX_ABSOLUTE_ERROR:e}), relative {relative:e} (at most \
                 {MAX_FROBENIUS_ERROR:e})"
            ));
        }
        Ok(())
    }

    /// An i32 tensor's elements.
    pub fn ints(&self, slot: usize) -> Vec<i32> {
        let placed = &self.tensors[slot];
        let range = placed.offset as usize..(placed.offset + placed.nbytes) as usize;
        self.bytes[range].as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
    }
}

#[derive(Default)]
struct Layout {
    end: u64,
}

impl Layout {
    fn place(&mut self, dtype: i32, shape: Vec<i64>, stride: Vec<i64>) -> Placed {
        let width = if dtype == FP16 { 2 } else { 4 };
        let last: i64 = shape.iter().zip(&stride).map(|(n, s)| (n - 1).max(0) * s).sum();
        let nbytes = (last as u64 + 1) * width;
        let offset = self.end;
        // A gap after each tensor, so that a write past its end is seen.
        self.end = (offset + nbytes + 256).next_multiple_of(256);
        Placed { offset, dtype, shape, stride, nbytes, absent: false }
    }
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// N(0, 1), by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let (a, b) = (unit(self.bits()), unit(self.bits()));
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    }
}
