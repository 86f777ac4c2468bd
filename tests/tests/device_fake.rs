//! The fake device: against the suite that every device has to pass, and against what only it can be asked.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hippihx_tests::attention::Case;
use hippihx_tests::conformance::{self, Bound, Recorder, Subject, ThroughMemfd};
use hippihx_tests::objects;
use hippihxd::device::fake::{FakeDevice, Options};
use hippihxd::device::{Device, DeviceError, Export, Module, Queue, Submission, Work};
use rustix::fs::{FallocateFlags, fallocate};

fn device() -> FakeDevice {
    FakeDevice::new(Options::new("gfx1030")).unwrap()
}

fn subject(device: &FakeDevice) -> Subject<'_> {
    Subject {
        device,
        slot: "gfx1030",
        image: objects::read("gfx1030"),
        reach: &ThroughMemfd,
        takes_memfds: true,
        computes: true,
    }
}

fn submit(queue: &mut dyn Queue, module: &Arc<dyn Module>, ticket: u64, bound: &Bound) -> Result<(), DeviceError> {
    let work = Work::Launches(bound.launches());
    queue.submit(Submission { ticket, module, work, wait: None, record: None, holds: Arc::new(()) })
}

#[test]
fn the_fake_device_conforms() {
    let device = device();
    let passed = conformance::assert_passed(&conformance::run_all(&subject(&device)));
    assert_eq!(passed, conformance::checks().len(), "every check applies to the fake");
}

/// The same with the kernels' own instructions in place of the arithmetic.
#[test]
fn the_emulated_device_conforms() {
    let device = FakeDevice::new(Options::parse("gfx1030,exec=isa").unwrap()).unwrap();
    let passed = conformance::assert_passed(&conformance::run_all(&subject(&device)));
    assert_eq!(passed, conformance::checks().len(), "every check applies to the fake");
}

#[test]
fn a_launch_outside_live_memory_fails_alone() {
    let device = device();
    let subject = subject(&device);
    let module = device.load(subject.image.clone()).unwrap();
    let sink = Recorder::new();
    let mut queue = device.queue(sink.clone()).unwrap();
    let good = Bound::new(&subject, &Case::default()).unwrap();
    let freed = Bound::new(&subject, &Case::default()).unwrap();
    let launches = freed.launches().to_vec();
    drop(freed);
    let work = Work::Launches(&launches);
    queue
        .submit(Submission { ticket: 1, module: &module, work, wait: None, record: None, holds: Arc::new(()) })
        .unwrap();
    submit(queue.as_mut(), &module, 2, &good).unwrap();
    let completions = sink.wait_for(2).unwrap();
    match &completions[0].result {
        Err(DeviceError::LaunchFailed(why)) => assert!(why.contains("no memory is at device address"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(completions[1].result.is_ok());
    good.verify(&subject).unwrap();
}

#[test]
fn a_kernel_that_the_object_lacks_is_refused() {
    let device = device();
    let subject = subject(&device);
    // Without packed dot products there are no kernels of the op.
    let without = device.load(objects::read("gfx900")).unwrap();
    let mut queue = device.queue(Recorder::new()).unwrap();
    let bound = Bound::new(&subject, &Case::default()).unwrap();
    match submit(queue.as_mut(), &without, 1, &bound) {
        Err(DeviceError::LaunchFailed(why)) => assert!(why.contains("none of that name"), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn descriptor(bound: &Bound) -> OwnedFd {
    match bound.memory().export().unwrap() {
        Export::Memfd(fd) => fd.try_clone_to_owned().unwrap(),
        Export::HipIpc(_) => panic!("the fake exports memfds"),
    }
}

/// Runs a decode again and again while `peer` does something to its memory.
fn run_against(peer: impl Fn(&OwnedFd) + Sync) {
    const RUNS: u64 = 30;
    let device = device();
    let subject = subject(&device);
    let module = device.load(subject.image.clone()).unwrap();
    let sink = Recorder::new();
    let mut queue = device.queue(sink.clone()).unwrap();
    let bound = Bound::new(&subject, &Case { lens: vec![200, 100], ..Case::default() }).unwrap();
    let fd = descriptor(&bound);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peer(&fd);
            }
        });
        for ticket in 0..RUNS {
            submit(queue.as_mut(), &module, ticket, &bound).unwrap();
        }
        let completions = sink.wait_for(RUNS as usize);
        stop.store(true, Ordering::Relaxed);
        assert!(completions.unwrap().iter().all(|completion| completion.result.is_ok()));
    });
    assert!(!bound.memory().faulted());
    // Nothing of it outlives the peer's interference.
    bound.reset(&subject).unwrap();
    submit(queue.as_mut(), &module, RUNS, &bound).unwrap();
    sink.wait_for(RUNS as usize + 1).unwrap();
    bound.verify(&subject).unwrap();
}

#[test]
fn a_peer_may_overwrite_everything_during_a_run() {
    use std::os::unix::fs::FileExt;
    run_against(|fd| {
        let file = std::fs::File::from(fd.try_clone().unwrap());
        let size = file.metadata().unwrap().len();
        let noise: Vec<u8> = (0..size).map(|at| (at * 31 % 255) as u8).collect();
        file.write_all_at(&noise, 0).unwrap();
    });
}

#[test]
fn a_peer_may_punch_holes_during_a_run() {
    run_against(|fd| {
        let size = rustix::fs::fstat(fd).unwrap().st_size as u64;
        fallocate(fd.as_fd(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, size).unwrap();
    });
}
