//! Computes one launch from its kernel arguments.

mod attention;
mod cache;
mod isa;
mod kernargs;
mod softmax;

use hippihx_kernels::launch::Launch;

use self::attention::{Combine, Partials, Problem, Table, Target};
use self::cache::Cache;
use self::kernargs::{Buffer, Kernargs};
use super::memory::AddressSpace;
use super::module::Kernels;
use crate::device::DeviceError;

/// Runs one launch to its end.
pub(super) fn launch(space: &AddressSpace, kernels: &Kernels, launch: &Launch) -> Result<(), DeviceError> {
    let args = Kernargs::new(launch, space);
    match kernels.program() {
        Some(program) => isa::run(program, &args, launch),
        None => reference(&args),
    }
}

/// The kernels that this module knows the arithmetic of, by their names in the code object.
fn reference(args: &Kernargs<'_>) -> Result<(), DeviceError> {
    let name = args.kernel();
    let known = name.strip_prefix("hippihx_fa_fdot2_").and_then(|rest| rest.split_once("_d"));
    let known = known.and_then(|(kind, dim)| Some((kind, dim.parse::<u64>().ok()?)));
    match known {
        Some(("decode" | "prefill", dim)) => attention(args, dim),
        Some(("combine", dim)) => combine(args, dim),
        _ => Err(args.failed("the fake device does not know what it computes")),
    }
}

fn attention(args: &Kernargs<'_>, dim: u64) -> Result<(), DeviceError> {
    let [q, k, v] = [args.buffer("q")?, args.buffer("k_cache")?, args.buffer("v_cache")?];
    let [table, lens, out] = [args.buffer("block_table")?, args.buffer("seq_lens")?, args.buffer("out")?];
    let cu = args.optional_buffer("cu_query_lens")?;
    let scratch = Scratch::of(args)?;
    let pack_shift = args.u32("pack_shift")?;
    let inner = 1_u64.checked_shl(pack_shift).filter(|inner| *inner <= dim);
    let inner = inner.ok_or_else(|| args.failed(&format!("pack_shift is {pack_shift} at head_dim {dim}")))?;
    let (blocks, block_size) = (args.count("blocks")?, args.count("block_size")?);
    let (q_heads, kv_heads) = (args.count("q_heads")?, args.count("kv_heads")?);
    if block_size == 0 || kv_heads == 0 || !q_heads.is_multiple_of(kv_heads) {
        return Err(args.failed(&format!("{q_heads} query heads, {kv_heads} KV heads, blocks of {block_size}")));
    }
    let cache = |of: &'_ str| -> Result<[u64; 5], DeviceError> {
        let mut stride = [0; 5];
        for (stride, axis) in stride.iter_mut().zip(["block", "head", "group", "token", "lane"]) {
            *stride = args.stride(&format!("{of}_stride_{axis}"))?;
        }
        Ok(stride)
    };
    let cache_of = |bytes, stride| Cache { bytes, blocks, block_size, chunks: dim / inner, inner, stride };
    let rows = args.count("rows")?;
    let problem = Problem {
        q: q.bytes(),
        rows,
        q_heads,
        kv_heads,
        dim,
        k: cache_of(k.bytes(), cache("k")?),
        v: cache_of(v.bytes(), cache("v")?),
        table: Table { bytes: table.bytes(), capacity: args.count("capacity")?, stride: args.stride("table_stride")? },
        lens: lens.bytes(),
        seqs: if cu.is_some() { args.count("sequences")? } else { rows },
        cu: cu.as_ref().map(Buffer::bytes),
        window: args.count("window")?,
        causal: args.u32("causal")? != 0,
        scale_log2e: args.f32("scale_log2e")?,
        target: match &scratch {
            Some(scratch) => Target::Partials(scratch.partials()),
            None => Target::Out(out.bytes()),
        },
    };
    let done = attention::attend(&problem);
    let buffers = [Some(&q), Some(&k), Some(&v), Some(&table), Some(&lens), Some(&out), cu.as_ref()];
    finish(args, done, buffers.into_iter().flatten().chain(scratch.iter().flat_map(Scratch::buffers)))
}

fn combine(args: &Kernargs<'_>, dim: u64) -> Result<(), DeviceError> {
    let scratch = Scratch::of(args)?.ok_or_else(|| args.failed("there is nothing to combine with 1 split"))?;
    let out = args.buffer("out")?;
    let cu = args.optional_buffer("cu_query_lens")?;
    let sequences = args.count("sequences")?;
    let job = Combine {
        partials: scratch.partials(),
        out: out.bytes(),
        rows: args.count("rows")?,
        q_heads: args.count("q_heads")?,
        dim,
        cu: cu.as_ref().map(|cu| (cu.bytes(), sequences)),
    };
    let done = attention::combine(&job);
    finish(args, done, [Some(&out), cu.as_ref()].into_iter().flatten().chain(scratch.buffers()))
}

/// The partials of work that is split.
struct Scratch {
    o: Buffer,
    m: Buffer,
    l: Buffer,
    splits: u64,
}

impl Scratch {
    /// None for work in one piece.
    fn of(args: &Kernargs<'_>) -> Result<Option<Self>, DeviceError> {
        let splits = args.count("splits")?;
        if splits <= 1 {
            return Ok(None);
        }
        let [o, m, l] = [args.buffer("o_partial")?, args.buffer("m_partial")?, args.buffer("l_partial")?];
        Ok(Some(Self { o, m, l, splits }))
    }

    fn partials(&self) -> Partials<'_> {
        Partials { o: self.o.bytes(), m: self.m.bytes(), l: self.l.bytes(), splits: self.splits }
    }

    fn buffers(&self) -> [&Buffer; 3] {
        [&self.o, &self.m, &self.l]
    }
}

/// What a GPU would report for the launch: a fault for an access outside memory or to a page that is gone.
fn finish<'a>(
    args: &Kernargs<'_>,
    done: Result<(), crate::memory::OutOfBounds>,
    mut touched: impl Iterator<Item = &'a Buffer>,
) -> Result<(), DeviceError> {
    done.map_err(|outside| args.failed(&format!("memory fault: {outside}")))?;
    if touched.any(Buffer::faulted) {
        return Err(args.failed("memory fault: a page of shared memory is gone"));
    }
    Ok(())
}
