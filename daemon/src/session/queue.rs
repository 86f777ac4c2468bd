//! A session's queue: one thread that owns the device queue, fed with jobs in their order.
//!
//! The thread enqueues and goes on; completions come from the device, in order, and answer whoever asked. So blocking
//! calls of a device never run on the gRPC runtime, and one session's work never waits in another's thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hippihx_kernels::launch::{Launch, Step};
use tokio::sync::oneshot;

use super::binding::{Binding, Recorded};
use crate::device::{
    Completion, CompletionSink, Device, DeviceError, Event, Module, Queue, Sequence, Submission, Work,
};
use crate::errors::Failure;
use crate::lifecycle::Lifecycle;
use crate::stats::Stats;

/// Launches of one job that fit the thread's own buffer without a heap.
const STACK_BYTES: usize = 256 * 1024;

/// What a completed run says.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub device: Duration,
    pub queued: Duration,
    pub generation: u64,
}

/// The answer to a run, once it is complete.
pub type Answer = oneshot::Receiver<Result<Done, Failure>>;

/// One run to be.
#[derive(Debug)]
pub enum Run {
    Binding(Arc<Binding>, Step),
    Sequence(Arc<Recorded>),
}

impl Run {
    fn op(&self) -> &'static str {
        match self {
            Run::Binding(binding, _) => binding.op(),
            Run::Sequence(recorded) => recorded.op,
        }
    }
}

#[derive(Debug)]
enum Job {
    Run {
        run: Run,
        wait: Option<Arc<dyn Event>>,
        record: Option<Arc<dyn Event>>,
        accepted: Instant,
        answer: oneshot::Sender<Result<Done, Failure>>,
    },
    Record {
        module: Arc<dyn Module>,
        launches: Vec<Launch>,
        answer: oneshot::Sender<Result<Arc<dyn Sequence>, Failure>>,
    },
}

/// Feeds the thread. Dropping the last handle ends it, after the jobs that it has.
#[derive(Debug)]
pub struct QueueHandle {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    allowed: u32,
}

/// What the thread, the device's completions and the watchdog share.
#[derive(Debug)]
struct Shared {
    in_flight: Mutex<InFlight>,
    /// Accepted and not answered.
    accepted: AtomicUsize,
    stats: Arc<Stats>,
    lifecycle: Arc<Lifecycle>,
}

#[derive(Debug)]
struct InFlight {
    runs: VecDeque<Submitted>,
    /// When the device last finished something, or got something to do while it had nothing.
    progress: Instant,
}

#[derive(Debug)]
struct Submitted {
    ticket: u64,
    op: &'static str,
    generation: u64,
    accepted: Instant,
    submitted: Instant,
    answer: oneshot::Sender<Result<Done, Failure>>,
}

impl QueueHandle {
    /// Makes the device queue and its thread.
    ///
    /// # Errors
    /// The device's, or RESOURCE_EXHAUSTED when no thread can be had.
    pub fn start(
        device: &dyn Device,
        name: String,
        allowed: u32,
        stats: &Arc<Stats>,
        lifecycle: &Arc<Lifecycle>,
    ) -> Result<QueueHandle, Failure> {
        let shared = Arc::new(Shared {
            in_flight: Mutex::new(InFlight { runs: VecDeque::new(), progress: Instant::now() }),
            accepted: AtomicUsize::new(0),
            stats: Arc::clone(stats),
            lifecycle: Arc::clone(lifecycle),
        });
        let queue = device.queue(Arc::new(Sink(Arc::clone(&shared))))?;
        let (jobs, taken) = channel();
        let worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn(move || work(queue, &taken, &worker))
            .map_err(|error| DeviceError::OutOfMemory {
                asked: STACK_BYTES as u64,
                detail: format!("no thread: {error}"),
            })?;
        Ok(QueueHandle { jobs, shared, allowed })
    }

    /// Accepts a run. It is complete when the answer comes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when as many as are allowed are on their way, DRAINING, or DEVICE_LOST.
    pub fn run(
        &self,
        run: Run,
        wait: Option<Arc<dyn Event>>,
        record: Option<Arc<dyn Event>>,
    ) -> Result<Answer, Failure> {
        self.shared.takes_work()?;
        let taken = self.shared.accepted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            (held < self.allowed as usize).then_some(held + 1)
        });
        if let Err(found) = taken {
            let allowed = u64::from(self.allowed);
            return Err(Failure::Limit {
                what: "requests in flight",
                key: "requests_in_flight",
                found: found as u64,
                allowed,
            });
        }
        let (answer, answered) = oneshot::channel();
        let job = Job::Run { run, wait, record, accepted: Instant::now(), answer };
        if self.jobs.send(job).is_err() {
            self.shared.accepted.fetch_sub(1, Ordering::AcqRel);
            return Err(DeviceError::Lost("the session's queue has ended".to_owned()).into());
        }
        // A loss in between has already answered everything that it saw; this one is answered by the thread.
        Ok(answered)
    }

    /// Records launches as one sequence, in the thread that owns the device queue.
    ///
    /// # Errors
    /// As [`QueueHandle::run`], or the device's.
    pub async fn record(&self, module: Arc<dyn Module>, launches: Vec<Launch>) -> Result<Arc<dyn Sequence>, Failure> {
        self.shared.takes_work()?;
        let gone = || Failure::Device(DeviceError::Lost("the session's queue has ended".to_owned()));
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Record { module, launches, answer }).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// What is on its way, to be looked at by those who must not keep the thread alive.
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.shared))
    }

    /// Runs that are accepted and not answered.
    pub fn in_flight(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }
}

/// A queue's runs in flight, seen from outside; holds no thread and no memory of a client.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Shared>);

impl Progress {
    /// Runs that are accepted and not answered.
    pub fn in_flight(&self) -> usize {
        self.0.accepted.load(Ordering::Acquire)
    }

    /// How long the device has made no progress on this queue; zero while it has nothing to do.
    pub fn stalled(&self) -> Duration {
        let in_flight = self.0.in_flight();
        if in_flight.runs.is_empty() { Duration::ZERO } else { in_flight.progress.elapsed() }
    }

    /// Answers everything in flight with DEVICE_LOST.
    pub fn abandon(&self, how: &str) {
        let runs = std::mem::take(&mut self.0.in_flight().runs);
        for run in runs {
            self.0.answer(run.answer, run.op, Err(DeviceError::Lost(how.to_owned()).into()));
        }
    }
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes_work(&self) -> Result<(), Failure> {
        match self.lifecycle.phase() {
            crate::lifecycle::Phase::Serving => Ok(()),
            crate::lifecycle::Phase::Draining => Err(Failure::Draining),
            crate::lifecycle::Phase::Lost(how) => Err(DeviceError::Lost(how).into()),
        }
    }

    fn answer(&self, answer: oneshot::Sender<Result<Done, Failure>>, op: &'static str, result: Result<Done, Failure>) {
        self.stats.ran(op, result.as_ref().map_or_else(Failure::reason, |_| "OK"));
        self.accepted.fetch_sub(1, Ordering::AcqRel);
        // A caller that went away does not want it.
        let _ = answer.send(result);
    }
}

/// Where the device reports; holds no reference to the session, which would keep it alive.
#[derive(Debug)]
struct Sink(Arc<Shared>);

impl CompletionSink for Sink {
    fn complete(&self, completion: Completion) {
        let run = {
            let mut in_flight = self.0.in_flight();
            in_flight.progress = Instant::now();
            // Abandoned runs were answered already.
            if in_flight.runs.front().is_none_or(|run| run.ticket != completion.ticket) {
                return;
            }
            in_flight.runs.pop_front()
        };
        let Some(run) = run else { return };
        let result = match completion.result {
            Ok(()) => {
                let (whole, queued) = (run.accepted.elapsed(), run.submitted - run.accepted);
                self.0.stats.run_latency.record(whole);
                self.0.stats.queue_latency.record(queued);
                Ok(Done { device: Duration::from_nanos(completion.device_ns), queued, generation: run.generation })
            }
            Err(error) => {
                if let DeviceError::Lost(how) = &error {
                    self.0.lifecycle.lose(how);
                }
                Err(error.into())
            }
        };
        self.0.answer(run.answer, run.op, result);
    }
}

fn work(mut queue: Box<dyn Queue>, jobs: &Receiver<Job>, shared: &Shared) {
    let mut ticket = 0;
    let mut launches: Vec<Launch> = Vec::new();
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Record { module, launches, answer } => {
                let _ = answer.send(queue.record(&module, &launches).map_err(Failure::from));
            }
            Job::Run { run, wait, record, accepted, answer } => {
                ticket += 1;
                let op = run.op();
                if let crate::lifecycle::Phase::Lost(how) = shared.lifecycle.phase() {
                    shared.answer(answer, op, Err(DeviceError::Lost(how).into()));
                    continue;
                }
                launches.clear();
                let (holds, loaded): (Arc<dyn std::any::Any + Send + Sync>, _) = match &run {
                    Run::Binding(binding, step) => {
                        launches.extend(binding.stepped(step));
                        (Arc::clone(binding) as _, &binding.loaded)
                    }
                    Run::Sequence(recorded) => (Arc::clone(recorded) as _, &recorded.loaded),
                };
                let submitted = Instant::now();
                {
                    // Before the submission: a device may complete from inside it.
                    let mut in_flight = shared.in_flight();
                    if in_flight.runs.is_empty() {
                        in_flight.progress = submitted;
                    }
                    in_flight.runs.push_back(Submitted {
                        ticket,
                        op,
                        generation: loaded.generation,
                        accepted,
                        submitted,
                        answer,
                    });
                }
                let work = match &run {
                    Run::Binding(..) => Work::Launches(&launches),
                    Run::Sequence(recorded) => Work::Replay(&recorded.sequence),
                };
                let submission = Submission {
                    ticket,
                    module: &loaded.module,
                    work,
                    wait: wait.as_ref(),
                    record: record.as_ref(),
                    holds,
                };
                if let Err(error) = queue.submit(submission) {
                    let refused = {
                        let mut in_flight = shared.in_flight();
                        in_flight
                            .runs
                            .iter()
                            .rposition(|run| run.ticket == ticket)
                            .and_then(|at| in_flight.runs.remove(at))
                    };
                    if let DeviceError::Lost(how) = &error {
                        shared.lifecycle.lose(how);
                    }
                    if let Some(refused) = refused {
                        shared.answer(refused.answer, op, Err(error.into()));
                    }
                }
            }
        }
    }
}
