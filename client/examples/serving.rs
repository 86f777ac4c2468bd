//! A small serving process: prefill, then decode steps over growing KV caches, each step checked against float64.
//!
//! It does what an engine does, with random numbers for a model: one K and V cache for all sequences, a block table, plans
//! and bindings made once, one run a step. Every line it prints is JSON; the last one is the summary.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use half::f16;
use hippihx_client::{Binding, Buffer, Error, Options, PlanSpec, RunReport, Session, Step, TensorRef};
use hippihx_kernels::catalogue::fa_fdot2::{MODE_DECODE, MODE_PREFILL};
use hippihx_kernels::reference::fa_fdot2::{Attention, Cache, MAX_ABSOLUTE_ERROR, MAX_FROBENIUS_ERROR, errors};
use hippihx_kernels::{Dtype, ParamValue};
use serde_json::json;

const HEAD_DIM: usize = 128;
const Q_HEADS: usize = 32;
const KV_HEADS: usize = 8;
const BLOCK: usize = 16;
/// Elements of the innermost axis of K and V.
const PACK: usize = 8;
/// Prompt lengths of the sequences: short, odd, block-aligned and longer ones.
const PROMPTS: [usize; 4] = [17, 40, 64, 1];

#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long, default_value_t = 64)]
    steps: usize,
    /// Seed of everything random; two processes with two seeds compute different things
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tokens that a sequence may reach before it starts again from its prompt
    #[arg(long, default_value_t = 192)]
    context: usize,
}

/// Normal deviates from a seeded generator; no quality beyond "all values differ" is needed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f16 {
        let (u, v) = (self.next().max(1e-12), self.next());
        f16::from_f64((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos())
    }
}

/// The model's side of the memory: what is written to the shared buffer is kept here too, for the reference.
struct Engine {
    session: Session,
    memory: Buffer,
    pages: usize,
    context: usize,
    random: Random,
    k: Vec<f16>,
    v: Vec<f16>,
    table: Vec<i32>,
    lengths: Vec<i32>,
    at: Places,
}

/// Byte offsets in the one shared buffer.
struct Places {
    q: usize,
    k: usize,
    v: usize,
    table: usize,
    lengths: usize,
    cu: usize,
    out: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut engine = Engine::start(&args).await?;
    let mut tally = Tally::default();

    let prefill = engine.prefill().await?;
    tally.add(&prefill);
    println!("{}", json!({"phase": "prefill", "error": prefill.worst, "us": prefill.took.as_micros() as u64}));
    let decode = engine.bind_decode().await?;
    for step in 1..=args.steps {
        let outcome = engine.decode(&decode).await?;
        tally.add(&outcome);
        println!(
            "{}",
            json!({"phase": "decode", "step": step, "error": outcome.worst, "us": outcome.took.as_micros() as u64})
        );
    }

    let stats = engine.session.stats().await?;
    let cache = stats.plan_cache.unwrap_or_default();
    let (p50, p99) = tally.quantiles();
    println!(
        "{}",
        json!({
            "phase": "done", "steps": args.steps, "worst": tally.worst, "frobenius": tally.frobenius, "p50_us": p50, "p99_us": p99,
            "plan_hits": cache.hits, "plan_misses": cache.misses, "retried": tally.retried,
            "pause_ms": tally.pause.as_millis() as u64, "attachments": engine.session.attachments(),
        })
    );
    ensure!(
        tally.worst <= MAX_ABSOLUTE_ERROR && tally.frobenius <= MAX_FROBENIUS_ERROR,
        "a result is off by more than the contract allows"
    );
    Ok(())
}

/// One run and how far it was off.
struct Outcome {
    worst: f64,
    frobenius: f64,
    took: Duration,
    retried: u64,
}

#[derive(Default)]
struct Tally {
    worst: f64,
    frobenius: f64,
    took: Vec<Duration>,
    retried: u64,
    pause: Duration,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.worst = self.worst.max(outcome.worst);
        self.frobenius = self.frobenius.max(outcome.frobenius);
        self.took.push(outcome.took);
        self.retried += outcome.retried;
        self.pause = self.pause.max(outcome.took);
    }

    fn quantiles(&self) -> (u64, u64) {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = |quantile: f64| {
            took.get(((took.len() - 1) as f64 * quantile).round() as usize).map_or(0, |took| took.as_micros() as u64)
        };
        if took.is_empty() { (0, 0) } else { (at(0.5), at(0.99)) }
    }
}

impl Engine {
    async fn start(args: &Args) -> Result<Engine> {
        let session = Session::attach(&args.socket, Options::named(&format!("serving example {}", args.seed))).await?;
        let mut random = Random(args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let sequences = PROMPTS.len();
        let pages = args.context.div_ceil(BLOCK);
        // The pages of all sequences, shuffled: a block table that is not the identity.
        let mut table: Vec<i32> = (0..(sequences * pages) as i32).collect();
        for at in (1..table.len()).rev() {
            table.swap(at, (random.next() * (at + 1) as f64) as usize);
        }
        let cache = sequences * pages * KV_HEADS * BLOCK * HEAD_DIM;
        let rows = PROMPTS.iter().sum::<usize>() * Q_HEADS * HEAD_DIM;
        let mut end = 0;
        let mut place = |bytes: usize| {
            let at = end;
            end += bytes.next_multiple_of(256);
            at
        };
        let at = Places {
            q: place(2 * rows),
            k: place(2 * cache),
            v: place(2 * cache),
            table: place(4 * table.len()),
            lengths: place(4 * sequences),
            cu: place(4 * (sequences + 1)),
            out: place(2 * rows),
        };
        let memory = session.share("serving example", end).await?;
        memory.view::<i32>(at.table, table.len())?.write(&table);
        // Slots past a sequence's end may hold anything, also no numbers.
        let (k, v) = (vec![f16::NAN; cache], vec![f16::NAN; cache]);
        memory.view::<f16>(at.k, cache)?.write(&k);
        memory.view::<f16>(at.v, cache)?.write(&v);
        Ok(Engine {
            session,
            memory,
            pages,
            context: args.context,
            random,
            k,
            v,
            table,
            lengths: vec![0; sequences],
            at,
        })
    }

    /// Appends one token's K and V to a sequence, in the shared memory and in ours.
    fn append(&mut self, sequence: usize) -> Result<()> {
        let token = self.lengths[sequence] as usize;
        let block = self.table[sequence * self.pages + token / BLOCK] as usize;
        let (shared_k, shared_v) =
            (self.memory.view::<f16>(self.at.k, self.k.len())?, self.memory.view::<f16>(self.at.v, self.v.len())?);
        for head in 0..KV_HEADS {
            for d in 0..HEAD_DIM {
                let at = (((block * KV_HEADS + head) * (HEAD_DIM / PACK) + d / PACK) * BLOCK + token % BLOCK) * PACK
                    + d % PACK;
                (self.k[at], self.v[at]) = (self.random.normal(), self.random.normal());
                shared_k.set(at, self.k[at]);
                shared_v.set(at, self.v[at]);
            }
        }
        self.lengths[sequence] += 1;
        Ok(())
    }

    async fn prefill(&mut self) -> Result<Outcome> {
        let mut cu = vec![0_i32];
        for (sequence, prompt) in PROMPTS.into_iter().enumerate() {
            for _ in 0..prompt {
                self.append(sequence)?;
            }
            cu.push(cu[sequence] + prompt as i32);
        }
        let rows = PROMPTS.iter().sum();
        let binding = self.bind(MODE_PREFILL, 1, rows).await?;
        self.run(&binding, rows, Some(&cu)).await
    }

    async fn bind_decode(&self) -> Result<Binding> {
        self.bind(MODE_DECODE, 4, PROMPTS.len()).await
    }

    async fn decode(&mut self, binding: &Binding) -> Result<Outcome> {
        for (sequence, prompt) in PROMPTS.into_iter().enumerate() {
            if self.lengths[sequence] as usize == self.context {
                self.lengths[sequence] = prompt as i32;
            }
            self.append(sequence)?;
        }
        self.run(binding, PROMPTS.len(), None).await
    }

    async fn bind(&self, mode: i64, splits: i64, rows: usize) -> Result<Binding> {
        let slot = self.session.describe().await?.slot;
        let mut spec = PlanSpec::new("attention.fa_fdot2", &slot);
        let ints = [mode, HEAD_DIM as i64, Q_HEADS as i64, KV_HEADS as i64, BLOCK as i64, splits, 0, 1, rows as i64];
        spec.params = ints.map(ParamValue::from_i64).to_vec();
        spec.params.push(ParamValue::from_f64(scale()));
        let plan = self.session.plan(&spec).await?;
        ensure!(plan.answer().ready, "not ready: {}", plan.answer().not_ready_reason);
        let sequences = PROMPTS.len();
        let dense = |at: usize, dtype, shape: &[usize]| {
            TensorRef::dense(
                &self.memory,
                at as u64,
                dtype,
                &shape.iter().map(|extent| *extent as i64).collect::<Vec<_>>(),
            )
        };
        let cache = [sequences * self.pages, KV_HEADS, HEAD_DIM / PACK, BLOCK, PACK];
        let cu =
            if mode == MODE_PREFILL { dense(self.at.cu, Dtype::I32, &[sequences + 1]) } else { TensorRef::absent() };
        let tensors = [
            dense(self.at.q, Dtype::Fp16, &[rows, Q_HEADS, HEAD_DIM]),
            dense(self.at.k, Dtype::Fp16, &cache),
            dense(self.at.v, Dtype::Fp16, &cache),
            dense(self.at.table, Dtype::I32, &[sequences, self.pages]),
            dense(self.at.lengths, Dtype::I32, &[sequences]),
            cu,
            dense(self.at.out, Dtype::Fp16, &[rows, Q_HEADS, HEAD_DIM]),
        ];
        Ok(self.session.bind(&plan, &tensors, None).await?)
    }

    /// Writes this step's inputs, runs, and compares what came out.
    async fn run(&mut self, binding: &Binding, rows: usize, cu: Option<&[i32]>) -> Result<Outcome> {
        let elements = rows * Q_HEADS * HEAD_DIM;
        let q: Vec<f16> = (0..elements).map(|_| self.random.normal()).collect();
        self.memory.view::<f16>(self.at.q, elements)?.write(&q);
        self.memory.view::<i32>(self.at.lengths, self.lengths.len())?.write(&self.lengths);
        if let Some(cu) = cu {
            self.memory.view::<i32>(self.at.cu, cu.len())?.write(cu);
        }
        let out = self.memory.view::<f16>(self.at.out, elements)?;
        // Poison: what is not written shows.
        out.write(&vec![f16::NAN; elements]);

        let started = Instant::now();
        let (mut retried, mut report): (u64, Option<RunReport>) = (0, None);
        while report.is_none() {
            match self.session.run(binding, Step::default()).await {
                Ok(done) => report = Some(done),
                // Whether it ran is not known. This op only writes `out` from inputs that we still hold, so asking again is
                // right here; the library leaves that to us.
                Err(Error::RunLost { .. }) => retried += 1,
                Err(error) => return Err(error).context("run"),
            }
        }
        let took = started.elapsed();

        let shape = [self.table.len(), KV_HEADS, HEAD_DIM / PACK, BLOCK, PACK];
        let stride = [KV_HEADS * BLOCK * HEAD_DIM, BLOCK * HEAD_DIM, BLOCK * PACK, PACK, 1];
        let expected = Attention {
            head_dim: HEAD_DIM,
            q_heads: Q_HEADS,
            kv_heads: KV_HEADS,
            block_size: BLOCK,
            window: 0,
            causal: true,
            scale: scale(),
            q: &q,
            k: Cache { data: &self.k, shape, stride },
            v: Cache { data: &self.v, shape, stride },
            block_table: &self.table,
            table_stride: self.pages,
            pages: self.pages,
            seq_lens: &self.lengths,
            cu_query_lens: cu,
        }
        .run();
        let expected = expected.into_iter().flat_map(|row| row.unwrap_or_else(|| vec![f64::NAN; Q_HEADS * HEAD_DIM]));
        let (worst, frobenius) = errors(out.to_vec().into_iter().map(f16::to_f64), expected);
        Ok(Outcome { worst, frobenius, took, retried })
    }
}

fn scale() -> f64 {
    1.0 / (HEAD_DIM as f64).sqrt()
}
