//! Attention through a device's launches, judged by the float64 reference.

use std::sync::{Arc, Mutex};

use hippihx_kernels::launch::{self, BoundTensor, Launch};
use hippihx_kernels::{Caps, Plan, TensorDesc, check_tensors, plan};
use hippihxd::device::{Memory, Submission, Work};

use super::queue::Recorder;
use super::{Applied, Check, Failure, Outcome, Subject, ensure};
use crate::attention::{Case, Inputs, Placed, Random};

pub(super) const CHECKS: &[Check] = &[
    ("decode over shapes equals float64", decode),
    ("prefill over shapes equals float64", prefill),
    ("prefill with split keys equals float64", split_prefill),
    ("hostile lengths, blocks and offsets stay inside the bound tensors", hostile),
];

/// attention.fa_fdot2.
const ATTENTION: i32 = 0;

/// The float64 answer, a row each; None for rows left alone.
type Reference = Arc<Vec<Option<Vec<f64>>>>;

/// A case in device memory with its launches: what a binding is to the daemon.
#[derive(Debug)]
pub struct Bound {
    inputs: Inputs,
    memory: Arc<dyn Memory>,
    /// Guarded on both sides, as `inputs` are.
    scratch: Arc<dyn Memory>,
    scratch_nbytes: u64,
    launches: Vec<Launch>,
    /// The reference's answer, computed when first asked for.
    expected: Mutex<Option<Reference>>,
}

/// Bytes before and after the scratch block that no kernel may touch.
const GUARD: u64 = 4096;
const GUARD_BYTE: u8 = 0xa5;

impl Bound {
    pub fn new(subject: &Subject<'_>, case: &Case) -> Result<Self, Failure> {
        Self::with_inputs(subject, case.inputs())
    }

    /// With inputs that were changed after they were drawn.
    pub fn with_inputs(subject: &Subject<'_>, inputs: Inputs) -> Result<Self, Failure> {
        let plan = plan_of(subject.slot, &inputs.case)?;
        let memory = subject.device.allocate(inputs.bytes.len() as u64)?;
        let scratch_nbytes = plan.scratch_nbytes();
        let scratch = subject.device.allocate(scratch_nbytes + 2 * GUARD)?;
        let descs: Vec<TensorDesc> = inputs.tensors.iter().map(Placed::desc).collect();
        check_tensors(&plan, &descs).map_err(|refusal| refusal.to_string())?;
        let tensors: Vec<BoundTensor> = inputs.tensors.iter().map(|placed| placed.bound(memory.address())).collect();
        let launches =
            launch::launches(&plan, &tensors, scratch.address() + GUARD).map_err(|refusal| refusal.to_string())?;
        let bound = Self {
            inputs,
            memory,
            scratch,
            scratch_nbytes,
            launches: launches.iter().copied().collect(),
            expected: Mutex::new(None),
        };
        bound.reset(subject)?;
        Ok(bound)
    }

    /// Where the case's tensors are.
    pub fn memory(&self) -> &dyn Memory {
        self.memory.as_ref()
    }

    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// Puts everything back as it was before the first run.
    pub fn reset(&self, subject: &Subject<'_>) -> Result<(), Failure> {
        subject.reach.write(self.memory.as_ref(), 0, &self.inputs.bytes)?;
        subject.reach.write(self.scratch.as_ref(), 0, &self.fresh_scratch())?;
        Ok(())
    }

    fn fresh_scratch(&self) -> Vec<u8> {
        let mut bytes = vec![GUARD_BYTE; self.scratch.size() as usize];
        bytes[GUARD as usize..][..self.scratch_nbytes as usize].fill(0);
        bytes
    }

    /// Compares out with the reference, and everything but out and scratch with what it was. Only the latter where the
    /// subject does not compute.
    pub fn verify(&self, subject: &Subject<'_>) -> Result<(), Failure> {
        let after = self.verify_untouched(subject)?;
        if subject.computes {
            let case = &self.inputs.case;
            self.inputs.compare(&after, &self.expected()).map_err(|text| format!("{text}, in {case:?}"))?;
        }
        Ok(())
    }

    /// Everything outside out and scratch is as it was; gives the buffer's bytes.
    pub fn verify_untouched(&self, subject: &Subject<'_>) -> Result<Vec<u8>, Failure> {
        let mut after = vec![0; self.inputs.bytes.len()];
        subject.reach.read(self.memory.as_ref(), 0, &mut after)?;
        let out = &self.inputs.tensors[6];
        let (start, end) = (out.offset as usize, (out.offset + out.nbytes) as usize);
        let before = &self.inputs.bytes;
        let changed = (0..after.len()).find(|at| !(start..end).contains(at) && after[*at] != before[*at]);
        if let Some(at) = changed {
            return Err(format!("byte {at} outside out was changed, in {:?}", self.inputs.case).into());
        }
        let mut scratch = vec![0; self.scratch.size() as usize];
        subject.reach.read(self.scratch.as_ref(), 0, &mut scratch)?;
        let guards = [&scratch[..GUARD as usize], &scratch[(GUARD + self.scratch_nbytes) as usize..]];
        let whole = guards.iter().all(|guard| guard.iter().all(|byte| *byte == GUARD_BYTE));
        ensure!(whole, "bytes beside scratch were changed, in {:?}", self.inputs.case);
        Ok(after)
    }

    fn expected(&self) -> Reference {
        let mut expected = self.expected.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(expected.get_or_insert_with(|| Arc::new(self.inputs.reference())))
    }
}

/// Plans a case.
pub fn plan_of(slot: &str, case: &Case) -> Result<Plan, Failure> {
    let caps = Caps { arch: slot, ..Caps::default() };
    plan(ATTENTION, &caps, &case.params()).map_err(|refusal| Failure(refusal.to_string()))
}

/// Runs each case once, all on one queue.
fn run(subject: &Subject<'_>, cases: impl IntoIterator<Item = Case>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    for (ticket, case) in cases.into_iter().enumerate() {
        let bound = Arc::new(Bound::new(subject, &case)?);
        let work = Work::Launches(bound.launches());
        let holds = bound.clone();
        queue.submit(Submission { ticket: ticket as u64, module: &module, work, wait: None, record: None, holds })?;
        let completions = sink.wait_for(ticket + 1)?;
        completions[ticket].result.clone().map_err(|error| format!("{error} in {case:?}"))?;
        bound.verify(subject)?;
    }
    Ok(Applied::Yes)
}

/// A spread over every property, each value of each at least once.
fn spread(prefill: bool, kv_splits: &[usize]) -> Vec<Case> {
    const HEADS: [(usize, usize); 6] = [(8, 8), (16, 4), (16, 2), (28, 4), (12, 4), (3, 1)];
    const BLOCKS: [usize; 4] = [16, 1, 32, 17];
    const WINDOWS: [i64; 4] = [0, 1, 8, 100];
    (0..24_usize)
        .map(|n| {
            let head_dim = if n % 5 == 4 { 256 } else { 128 };
            let (q_heads, kv_heads) = HEADS[n % HEADS.len()];
            Case {
                prefill,
                head_dim,
                q_heads,
                kv_heads,
                block_size: BLOCKS[(n / 2) % BLOCKS.len()],
                kv_splits: kv_splits[n % kv_splits.len()],
                window: WINDOWS[(n / 3) % WINDOWS.len()],
                causal: n % 4 != 3,
                lens: vec![1, 15, 16, 17, if prefill { 30 } else { 0 }, 64 + 11 * (n as i32 % 7)],
                new: vec![1, 3, 16, 1, 0, 40],
                packing: [8, 1, 4, head_dim][(n / 4) % 4],
                v_swapped: n % 2 == 1,
                seed: n as u64,
            }
        })
        .collect()
}

fn decode(subject: &Subject<'_>) -> Outcome {
    run(subject, spread(false, &[1, 2, 7, 16]))
}

fn prefill(subject: &Subject<'_>) -> Outcome {
    run(subject, spread(true, &[1]))
}

fn split_prefill(subject: &Subject<'_>) -> Outcome {
    run(subject, spread(true, &[2, 7, 16]))
}

fn hostile(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    let mut random = Random(77);
    for ticket in 0..40_usize {
        let case = Case {
            prefill: ticket % 2 == 1,
            kv_splits: 1 + ticket / 2 % 3,
            window: (ticket as i64 % 3) * 9,
            causal: ticket % 5 != 0,
            seed: ticket as u64,
            ..Case::default()
        };
        let mut inputs = case.inputs();
        // One tensor after the other, then all of them.
        for slot in [3, 4, 5].into_iter().filter(|slot| ticket % 4 == 3 || ticket % 4 == slot - 3) {
            let values: Vec<i32> = (0..inputs.ints(slot).len()).map(|_| hostile_value(&mut random)).collect();
            inputs.put_ints(slot, &values);
        }
        let bound = Arc::new(Bound::with_inputs(subject, inputs)?);
        let work = Work::Launches(bound.launches());
        let holds = bound.clone();
        queue.submit(Submission { ticket: ticket as u64, module: &module, work, wait: None, record: None, holds })?;
        let completions = sink.wait_for(ticket + 1)?;
        completions[ticket].result.clone().map_err(|error| format!("{error} in {case:?}"))?;
        bound.verify_untouched(subject)?;
    }
    Ok(Applied::Yes)
}

fn hostile_value(random: &mut Random) -> i32 {
    match random.below(6) {
        0 => i32::MIN,
        1 => i32::MAX,
        2 => -1,
        3 => 0,
        4 => random.below(40) as i32,
        _ => random.bits() as i32,
    }
}
