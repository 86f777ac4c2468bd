//! A queue is a thread that takes runs one after the other, and the place where the device's faults happen.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hippihx_kernels::launch::Launch;

use super::exec;
use super::memory::AddressSpace;
use super::module::{FakeModule, FakeSequence, Kernels};
use super::options::{Exec, Options};
use crate::device::{Completion, CompletionSink, DeviceError, Module, Queue, Sequence, Submission, Work};

/// What all queues of a device share.
#[derive(Debug)]
pub(super) struct State {
    options: Options,
    space: Arc<AddressSpace>,
    /// Runs submitted since the start, on all queues.
    runs: AtomicU64,
    end: Mutex<End>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct End {
    /// Why the device is lost.
    lost: Option<String>,
    /// Nobody holds the device any more.
    closed: bool,
}

/// What the options say about one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Refuse,
    Fail,
    Hang,
    Lose,
    Panic,
}

impl State {
    pub(super) fn new(options: Options, space: Arc<AddressSpace>) -> Self {
        Self { options, space, runs: AtomicU64::new(0), end: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn exec(&self) -> Exec {
        self.options.exec
    }

    pub(super) fn check_alive(&self) -> Result<(), DeviceError> {
        match &self.end.lock().unwrap_or_else(PoisonError::into_inner).lost {
            Some(why) => Err(DeviceError::Lost(why.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn close(&self) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    fn lose(&self, why: &str) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).lost.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Passes the time that a slow run takes; ends early when the device is lost.
    fn pass_time(&self, time: Duration) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(end, time, |end| end.lost.is_none());
        drop(waited);
    }

    /// Until the device is lost or nobody holds it any more.
    fn hang(&self) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.changed.wait_while(end, |end| end.lost.is_none() && !end.closed);
        drop(ended);
    }

    fn fault_of(&self, run: u64) -> Option<Fault> {
        let options = &self.options;
        let is = |nth: Option<u64>| nth == Some(run);
        match () {
            () if options.lose_nth.is_some_and(|nth| run >= nth) => Some(Fault::Lose),
            () if is(options.refuse_nth) => Some(Fault::Refuse),
            () if is(options.hang_nth) => Some(Fault::Hang),
            () if is(options.panic_nth) => Some(Fault::Panic),
            () if is(options.fail_nth) => Some(Fault::Fail),
            () => None,
        }
    }

    /// Computes one run, with the fault that it is told to have.
    fn run(&self, run: u64, launches: &[Launch], kernels: &Kernels) -> Result<(), DeviceError> {
        let fault = self.fault_of(run);
        if fault == Some(Fault::Lose) {
            self.lose(&format!("the fake device was told to be lost at run {run}"));
        }
        self.pass_time(self.options.slow);
        if fault == Some(Fault::Hang) {
            self.hang();
            self.check_alive()?;
            return Err(DeviceError::Lost(format!("run {run} was told to hang")));
        }
        self.check_alive()?;
        match fault {
            Some(Fault::Fail) => Err(DeviceError::LaunchFailed(format!("run {run} was told to fail"))),
            Some(Fault::Panic) => panic!("run {run} was told to panic"),
            _ if self.options.exec == Exec::Nothing => Ok(()),
            _ => launches.iter().try_for_each(|launch| exec::launch(&self.space, kernels, launch)),
        }
    }
}

/// One accepted run on its way to the queue's thread.
struct Job {
    ticket: u64,
    /// Its number on the device.
    run: u64,
    kernels: Arc<Kernels>,
    launches: Arc<[Launch]>,
    holds: Arc<dyn Any + Send + Sync>,
}

/// What a queue and its thread share.
struct Shared {
    state: Arc<State>,
    sink: Arc<dyn CompletionSink>,
    /// Runs that the thread has not completed yet.
    pending: AtomicU64,
}

/// The sending side of a queue. Dropping it returns at once; what it accepted still runs and completes.
pub(super) struct FakeQueue {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

impl FakeQueue {
    pub(super) fn start(state: Arc<State>, sink: Arc<dyn CompletionSink>) -> Result<Self, DeviceError> {
        let shared = Arc::new(Shared { state, sink, pending: AtomicU64::new(0) });
        let (jobs, accepted) = channel();
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("fake-queue".to_owned())
            .spawn(move || work(&of_thread, &accepted))
            .map_err(|error| DeviceError::Refused(format!("no thread for another queue: {error}")))?;
        Ok(Self { shared, jobs })
    }
}

impl Queue for FakeQueue {
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), DeviceError> {
        let Submission { ticket, module, work, wait, record, holds } = submission;
        self.shared.state.check_alive()?;
        if wait.is_some() || record.is_some() {
            return Err(DeviceError::Refused("a fake device has no events to wait on or to record".to_owned()));
        }
        let (kernels, launches) = match work {
            Work::Launches(launches) => {
                let module = FakeModule::of(module.as_ref())?;
                module.kernels().check(launches)?;
                (Arc::clone(module.kernels()), launches.into())
            }
            Work::Replay(sequence) => {
                let sequence = FakeSequence::of(sequence.as_ref())?;
                (Arc::clone(sequence.kernels()), Arc::clone(sequence.launches()))
            }
        };
        let state = &self.shared.state;
        let run = state.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = state.fault_of(run);
        if fault == Some(Fault::Refuse) {
            return Err(DeviceError::LaunchFailed(format!("run {run} was told to be refused")));
        }
        // Only this side adds to `pending`, so a queue found empty stays so.
        if state.options.exec == Exec::Nothing && fault.is_none() && self.shared.pending.load(Ordering::Acquire) == 0 {
            self.shared.sink.complete(Completion { ticket, device_ns: 0, result: Ok(()) });
            return Ok(());
        }
        self.shared.pending.fetch_add(1, Ordering::AcqRel);
        let job = Job { ticket, run, kernels, launches, holds };
        // The thread only ends after this sender is gone.
        self.jobs.send(job).map_err(|_| DeviceError::Lost("the queue's thread is gone".to_owned()))
    }

    fn record(&mut self, module: &Arc<dyn Module>, launches: &[Launch]) -> Result<Arc<dyn Sequence>, DeviceError> {
        self.shared.state.check_alive()?;
        let module = FakeModule::of(module.as_ref())?;
        module.kernels().check(launches)?;
        Ok(Arc::new(FakeSequence::new(module, launches)))
    }
}

/// The thread of a queue.
fn work(shared: &Shared, accepted: &Receiver<Job>) {
    while let Ok(Job { ticket, run, kernels, launches, holds }) = accepted.recv() {
        let started = Instant::now();
        // What the computation has is its own but for device memory, where a half-finished run leaves what any failed one may.
        let result = catch_unwind(AssertUnwindSafe(|| shared.state.run(run, &launches, &kernels)));
        let result = result.unwrap_or_else(|panic| {
            let why = format!("the computation of run {run} panicked: {}", text_of(panic.as_ref()));
            Err(DeviceError::LaunchFailed(why))
        });
        let device_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        shared.sink.complete(Completion { ticket, device_ns, result });
        // After the completion, so that a run completed inside `submit` never overtakes this one.
        shared.pending.fetch_sub(1, Ordering::AcqRel);
        drop(holds);
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("")
}
