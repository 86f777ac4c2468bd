//! Dispatches: workgroups over threads, waves of a workgroup one after the other between barriers.

mod setup;
mod wave;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thiserror::Error;

use crate::exec::lds::Lds;
use crate::exec::machine::{Env, LANES, Machine, Wave};
use crate::exec::trap::{Flow, Trap};
use crate::fault::{Fault, kind_of};
use crate::memory::{Memory, Touched};
use crate::options::Options;
use crate::program::{Kernel, Program};
use crate::report::{Report, Tally};
pub(crate) use setup::SCRATCH_KIND;

/// LDS of a workgroup, bytes.
pub const MAX_LDS: u32 = 64 << 10;

/// One kernel launch.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch<'a> {
    pub kernel: &'a str,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub block: [u32; 3],
    /// LDS bytes of a workgroup; less than what the kernel declares means just that.
    pub lds_bytes: u32,
    /// Explicit arguments as packed bytes. Hidden ones are added where the kernel has them.
    pub kernarg: &'a [u8],
}

/// A dispatch that cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DispatchError {
    #[error("no kernel '{name}' in this code object; it has: {known}")]
    NoKernel { name: String, known: String },
    #[error("kernel '{kernel}' takes {wanted} bytes of arguments, {hidden} of them hidden; {found} were given")]
    Arguments { kernel: String, wanted: u64, hidden: u64, found: u64 },
    #[error("a workgroup of {block:?} work-items; kernel '{kernel}' allows 1 to {allowed} in all")]
    Workgroup { kernel: String, block: [u32; 3], allowed: u64 },
    #[error("{found} bytes of LDS for kernel '{kernel}'; a workgroup has {MAX_LDS}")]
    Lds { kernel: String, found: u32 },
    #[error("kernel '{kernel}' starts its waves in a way that is not modelled: {what}")]
    Unmodelled { kernel: String, what: String },
}

/// Why a run has no report.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

impl RunError {
    /// The fault, if the kernel had begun.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Dispatch(_) => None,
        }
    }
}

impl Program {
    /// Runs a dispatch to its end. What the kernel stored stays stored when it faults.
    ///
    /// # Errors
    /// [`RunError::Dispatch`] before anything ran; [`RunError::Fault`] for the first access outside bound memory, unknown
    /// instruction or other end that a kernel must not come to. Findings of the checks are no error: they are in the report.
    pub fn run(&self, dispatch: &Dispatch<'_>, memory: &Memory<'_>, options: &Options) -> Result<Report, RunError> {
        let kernel = self.kernel(dispatch.kernel).ok_or_else(|| DispatchError::NoKernel {
            name: dispatch.kernel.to_owned(),
            known: self.kernels().iter().map(Kernel::name).collect::<Vec<_>>().join(", "),
        })?;
        let lds_bytes = setup::check(kernel, dispatch)?;
        let never = AtomicBool::new(false);
        let env = Env {
            program: self,
            memory,
            internal: Vec::new(),
            touched: options.checks.unique_bytes.then(|| Touched::new(memory)),
            checks: options.checks,
            stop: options.cancel.as_deref().unwrap_or(&never),
            image_address: 0,
            scratch_bytes: kernel.scratch_bytes().next_multiple_of(4),
        };
        let launch = setup::prepare(self, kernel, dispatch, env)?;
        Run { program: self, kernel, dispatch, options, launch, lds_bytes }.go()
    }
}

struct Run<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    dispatch: &'a Dispatch<'a>,
    options: &'a Options,
    launch: setup::Launch<'a>,
    lds_bytes: u32,
}

impl Run<'_> {
    fn go(&self) -> Result<Report, RunError> {
        let grid = self.dispatch.grid.map(u64::from);
        let groups = grid[0].saturating_mul(grid[1]).saturating_mul(grid[2]);
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.options.threads == 0 { cores() } else { self.options.threads };
        let threads = threads.min(usize::try_from(groups).unwrap_or(usize::MAX)).max(1);
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        // The fault of the lowest workgroup, so that the answer depends less on timing.
        let first: Mutex<Option<(u64, Box<Fault>)>> = Mutex::new(None);
        let total = Mutex::new(Tally::new(self.launch.env.memory.ranges().len()));
        let work = || {
            let mut worker = Worker::new(self);
            while !failed.load(Ordering::Relaxed) {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= groups {
                    break;
                }
                if let Err(fault) = worker.workgroup(group) {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = first.lock().unwrap_or_else(|e| e.into_inner());
                    if first.as_ref().is_none_or(|(known, _)| group < *known) {
                        *first = Some((group, fault));
                    }
                }
            }
            total.lock().unwrap_or_else(|e| e.into_inner()).merge(worker.tally);
        };
        if threads == 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(work);
                }
            });
        }
        if let Some((_, fault)) = first.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(fault.into());
        }
        let tally = total.into_inner().unwrap_or_else(|e| e.into_inner());
        let counts = (groups, groups * u64::from(self.launch.waves));
        let env = &self.launch.env;
        Ok(tally.report(self.kernel.name(), counts, self.program, env.memory, env.touched.as_ref()))
    }
}

/// One thread's registers and local memory, used for one workgroup after the other.
struct Worker<'a> {
    run: &'a Run<'a>,
    waves: Vec<Wave>,
    lds: Lds,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn new(run: &'a Run<'a>) -> Self {
        let checks = run.options.checks;
        let races = checks.lds_races && run.launch.waves > 1;
        Self {
            run,
            waves: (0..run.launch.waves).map(|n| run.launch.blank_wave(n)).collect(),
            lds: Lds::new(run.lds_bytes as usize, races, checks.unwritten_memory),
            tally: Tally::new(run.launch.env.memory.ranges().len()),
        }
    }

    fn workgroup(&mut self, group: u64) -> Result<(), Box<Fault>> {
        let grid = self.run.dispatch.grid.map(u64::from);
        let id = [group % grid[0], group / grid[0] % grid[1], group / grid[0] / grid[1]].map(|n| n as u32);
        self.lds.reset();
        for wave in &mut self.waves {
            self.run.launch.start(wave, id);
        }
        self.tally.workgroup = id;
        let mut hint = 0;
        while self.waves.iter().any(|wave| !wave.done) {
            for wave in self.waves.iter_mut().filter(|wave| !wave.done) {
                self.tally.wave = wave.index;
                let (lds, env, tally) = (&mut self.lds, &self.run.launch.env, &mut self.tally);
                let mut machine = Machine { w: wave, lds, env, tally, hint };
                let outcome = wave::run(&mut machine, self.run.options);
                hint = machine.hint;
                match outcome {
                    // A wave at a barrier waits for the others; one that ended no longer counts.
                    Ok(flow) => wave.done = flow == Flow::End,
                    Err(trap) => return Err(self.fault(&trap, id)),
                }
            }
            self.lds.barrier();
        }
        Ok(())
    }

    fn fault(&self, trap: &Trap, workgroup: [u32; 3]) -> Box<Fault> {
        let (run, at) = (self.run, self.tally.at);
        let limit = run.options.instruction_limit;
        let env = &run.launch.env;
        let (kind, lane) = kind_of(trap, env.memory, self.lds.size() as u32, env.scratch_bytes, limit);
        Box::new(Fault {
            kernel: run.kernel.name().to_owned(),
            pc: run.program.address_of(at),
            text: run.program.text_of(at),
            bytes: run.program.bytes_of(at),
            workgroup,
            wave: self.tally.wave,
            lane,
            kind,
        })
    }
}

/// Waves of a workgroup with this many work-items.
fn waves_of(items: u64) -> u32 {
    items.div_ceil(LANES as u64) as u32
}
