//! Each fault that the options can ask for, seen from outside.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::module::FakeModule;
use super::{FakeDevice, Options};
use crate::device::{Completion, CompletionSink, Device, DeviceError, Module, Queue, Submission, Work};

/// Ended a run: its ticket, how, and in which thread.
type Seen = (u64, Result<(), DeviceError>, ThreadId);

#[derive(Default)]
struct Sink {
    seen: Mutex<Vec<Seen>>,
    changed: Condvar,
}

impl CompletionSink for Sink {
    fn complete(&self, completion: Completion) {
        self.seen.lock().unwrap().push((completion.ticket, completion.result, std::thread::current().id()));
        self.changed.notify_all();
    }
}

impl Sink {
    /// Waits for as many completions.
    fn wait_for(&self, count: usize) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        let patience = Duration::from_secs(60);
        let (seen, timeout) = self.changed.wait_timeout_while(seen, patience, |seen| seen.len() < count).unwrap();
        assert!(!timeout.timed_out(), "only {seen:?} of {count} completed");
        seen.clone()
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn device(options: &str) -> FakeDevice {
    FakeDevice::new(Options::parse(&format!("gfx1030{options}")).unwrap()).unwrap()
}

fn queue(device: &FakeDevice) -> (Box<dyn Queue>, Arc<Sink>) {
    let sink = Arc::new(Sink::default());
    (device.queue(sink.clone()).unwrap(), sink)
}

/// Submits work without launches: the faults are the device's, not a kernel's.
fn submit(queue: &mut dyn Queue, ticket: u64) -> Result<(), DeviceError> {
    let module: Arc<dyn Module> = Arc::new(FakeModule::without_kernels());
    let work = Work::Launches(&[]);
    queue.submit(Submission { ticket, module: &module, work, wait: None, record: None, holds: Arc::new(()) })
}

#[test]
fn a_failing_run_fails_alone() {
    let device = device(",fail_nth=2");
    let (mut queue, sink) = queue(&device);
    (1..=3).for_each(|ticket| submit(queue.as_mut(), ticket).unwrap());
    let seen = sink.wait_for(3);
    assert!(matches!(seen.as_slice(), [(1, Ok(()), _), (2, Err(DeviceError::LaunchFailed(_)), _), (3, Ok(()), _)]));
}

#[test]
fn a_refused_run_gets_no_completion() {
    let device = device(",refuse_nth=2");
    let (mut queue, sink) = queue(&device);
    submit(queue.as_mut(), 1).unwrap();
    assert!(matches!(submit(queue.as_mut(), 2), Err(DeviceError::LaunchFailed(_))));
    submit(queue.as_mut(), 3).unwrap();
    drop(queue);
    let tickets: Vec<u64> = sink.wait_for(2).iter().map(|seen| seen.0).collect();
    assert_eq!(tickets, [1, 3]);
}

#[test]
fn a_hanging_run_blocks_its_queue_alone_until_the_device_goes() {
    let device = device(",hang_nth=1");
    let (mut hung, hung_sink) = queue(&device);
    let (mut other, other_sink) = queue(&device);
    submit(hung.as_mut(), 1).unwrap();
    submit(hung.as_mut(), 2).unwrap();
    (1..=5).for_each(|ticket| submit(other.as_mut(), ticket).unwrap());
    assert!(other_sink.wait_for(5).iter().all(|seen| seen.1.is_ok()));
    assert_eq!(hung_sink.count(), 0);
    drop(device);
    let seen = hung_sink.wait_for(2);
    assert!(matches!(seen.as_slice(), [(1, Err(DeviceError::Lost(_)), _), (2, Ok(()), _)]), "{seen:?}");
}

#[test]
fn a_lost_device_stays_lost_and_ends_what_is_under_way() {
    let device = device(",lose_nth=3,hang_nth=1");
    let (mut hung, hung_sink) = queue(&device);
    let (mut losing, losing_sink) = queue(&device);
    submit(hung.as_mut(), 1).unwrap();
    submit(losing.as_mut(), 1).unwrap();
    losing_sink.wait_for(1);
    submit(losing.as_mut(), 2).unwrap();
    assert!(matches!(losing_sink.wait_for(2)[1], (2, Err(DeviceError::Lost(_)), _)));
    assert!(matches!(hung_sink.wait_for(1)[0], (1, Err(DeviceError::Lost(_)), _)));
    for queue in [&mut hung, &mut losing] {
        assert!(matches!(submit(queue.as_mut(), 9), Err(DeviceError::Lost(_))));
    }
    assert!(matches!(device.allocate(4096), Err(DeviceError::Lost(_))));
    assert!(matches!(device.memory_info(), Err(DeviceError::Lost(_))));
    assert!(matches!(device.queue(Arc::new(Sink::default())), Err(DeviceError::Lost(_))));
}

#[test]
fn a_panic_fails_its_run_and_nothing_else() {
    let device = device(",panic_nth=2");
    let (mut queue, sink) = queue(&device);
    (1..=3).for_each(|ticket| submit(queue.as_mut(), ticket).unwrap());
    let seen = sink.wait_for(3);
    assert!(
        matches!(&seen[1], (2, Err(DeviceError::LaunchFailed(why)), _) if why.contains("told to panic")),
        "{seen:?}"
    );
    assert!(seen[0].1.is_ok() && seen[2].1.is_ok());
}

#[test]
fn a_slow_run_takes_its_time() {
    let device = device(",slow=50000");
    let (mut queue, sink) = queue(&device);
    let started = Instant::now();
    submit(queue.as_mut(), 1).unwrap();
    submit(queue.as_mut(), 2).unwrap();
    assert!(sink.wait_for(2).iter().all(|seen| seen.1.is_ok()));
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[test]
fn an_instant_run_completes_in_its_submission_but_never_overtakes() {
    let device = device(",instant=1,hang_nth=2");
    let (mut queue, sink) = queue(&device);
    submit(queue.as_mut(), 1).unwrap();
    let here = std::thread::current().id();
    assert!(matches!(sink.seen.lock().unwrap().as_slice(), [(1, Ok(()), thread)] if *thread == here));
    submit(queue.as_mut(), 2).unwrap();
    submit(queue.as_mut(), 3).unwrap();
    assert_eq!(sink.count(), 1);
    drop(device);
    let tickets: Vec<u64> = sink.wait_for(3).iter().map(|seen| seen.0).collect();
    assert_eq!(tickets, [1, 2, 3]);
}

#[test]
fn memory_runs_out_where_it_is_told_to() {
    let device = device(",oom_bytes=8192");
    assert_eq!(device.memory_info().unwrap().total, 8192);
    let held = device.allocate(8192).unwrap();
    let error = device.allocate(1).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { asked: 1, .. }), "{error}");
    drop(held);
    device.allocate(1).unwrap();
}

#[test]
fn an_absent_device_says_so() {
    let error = FakeDevice::new(Options::parse("gfx1030,absent=1").unwrap()).unwrap_err();
    assert!(matches!(error, DeviceError::Absent(_)), "{error}");
}

#[test]
fn the_description_says_when_nothing_is_computed() {
    assert!(device(",instant=1").describe().name.contains("instant"));
    assert!(!device("").describe().name.contains("instant"));
}

#[test]
fn what_it_has_not_is_refused_by_name() {
    let device = device("");
    assert!(matches!(device.import_ipc(&[0; 64]), Err(DeviceError::Refused(why)) if why.contains("IPC")));
    assert!(matches!(device.import_event(&[0; 64]), Err(DeviceError::Refused(why)) if why.contains("events")));
}
