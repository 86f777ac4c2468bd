//! Queues: order, completions, what a submission holds, and several queues side by side.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hippihxd::device::{Completion, CompletionSink, Module, Queue, Submission, Work};

use super::{Applied, Bound, Check, Failure, Outcome, Subject, ensure};
use crate::attention::Case;

pub(super) const CHECKS: &[Check] = &[
    ("completions come once a ticket, in order", order),
    ("work without launches completes", nothing),
    ("what a submission holds is dropped after its completion", holds),
    ("a submission needs nothing but its holds", only_holds),
    ("a dropped queue still completes what it accepted", drop_queue),
    ("queues run side by side", side_by_side),
    ("a sequence outlives its queue's other work and replays in order", sequences),
];

/// Far longer than any check takes; only a completion that never comes waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sink that keeps what it is told.
#[derive(Debug, Default)]
pub struct Recorder {
    seen: Mutex<Vec<Completion>>,
    changed: Condvar,
}

impl Recorder {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until `count` completions are there and gives all that are.
    pub fn wait_for(&self, count: usize) -> Result<Vec<Completion>, String> {
        let seen = self.seen.lock().map_err(|_| "a sink panicked")?;
        let (seen, timeout) = self
            .changed
            .wait_timeout_while(seen, PATIENCE, |seen| seen.len() < count)
            .map_err(|_| "a sink panicked")?;
        if timeout.timed_out() {
            return Err(format!("only {} of {count} completions came", seen.len()));
        }
        Ok(seen.clone())
    }

    /// Tickets that have completed so far.
    pub fn tickets(&self) -> Vec<u64> {
        self.seen.lock().map(|seen| seen.iter().map(|completion| completion.ticket).collect()).unwrap_or_default()
    }
}

impl CompletionSink for Recorder {
    fn complete(&self, completion: Completion) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.push(completion);
        }
        self.changed.notify_all();
    }
}

/// Completions that all succeeded, in the order of their tickets from `first` on.
fn expect_tickets(completions: &[Completion], first: u64, count: u64) -> Result<(), Failure> {
    let tickets: Vec<u64> = completions.iter().map(|completion| completion.ticket).collect();
    let expected: Vec<u64> = (first..first + count).collect();
    ensure!(tickets == expected, "tickets {tickets:?}, expected {expected:?}");
    for completion in completions {
        if let Err(error) = &completion.result {
            return Err(format!("run {} failed: {error}", completion.ticket).into());
        }
    }
    Ok(())
}

fn submit(queue: &mut dyn Queue, module: &Arc<dyn Module>, ticket: u64, bound: &Arc<Bound>) -> Result<(), Failure> {
    let holds: Arc<dyn Any + Send + Sync> = bound.clone();
    submit_work(queue, module, ticket, Work::Launches(bound.launches()), holds)
}

fn submit_work(
    queue: &mut dyn Queue,
    module: &Arc<dyn Module>,
    ticket: u64,
    work: Work<'_>,
    holds: Arc<dyn Any + Send + Sync>,
) -> Result<(), Failure> {
    Ok(queue.submit(Submission { ticket, module, work, wait: None, record: None, holds })?)
}

fn order(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    let bound = Arc::new(Bound::new(subject, &Case::default())?);
    for ticket in 7..27 {
        submit(queue.as_mut(), &module, ticket, &bound)?;
    }
    expect_tickets(&sink.wait_for(20)?, 7, 20)?;
    bound.verify(subject)?;
    Ok(Applied::Yes)
}

fn nothing(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    submit_work(queue.as_mut(), &module, 1, Work::Launches(&[]), Arc::new(()))?;
    expect_tickets(&sink.wait_for(1)?, 1, 1)?;
    Ok(Applied::Yes)
}

/// (ticket, whether its run had completed) of each drop.
type Drops = (Mutex<Vec<(u64, bool)>>, Condvar);

/// Says, when dropped, whether its run had completed by then.
#[derive(Debug)]
struct Held {
    ticket: u64,
    sink: Arc<Recorder>,
    drops: Arc<Drops>,
    _bound: Arc<Bound>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let completed = self.sink.tickets().contains(&self.ticket);
        if let Ok(mut drops) = self.drops.0.lock() {
            drops.push((self.ticket, completed));
        }
        self.drops.1.notify_all();
    }
}

fn holds(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    let bound = Arc::new(Bound::new(subject, &Case::default())?);
    let drops = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    for ticket in 1..=5 {
        let held = Held { ticket, sink: sink.clone(), drops: drops.clone(), _bound: bound.clone() };
        submit_work(queue.as_mut(), &module, ticket, Work::Launches(bound.launches()), Arc::new(held))?;
    }
    expect_tickets(&sink.wait_for(5)?, 1, 5)?;
    let seen = drops.0.lock().map_err(|_| "a drop panicked")?;
    let (seen, timeout) =
        drops.1.wait_timeout_while(seen, PATIENCE, |seen| seen.len() < 5).map_err(|_| "a drop panicked")?;
    ensure!(!timeout.timed_out(), "only {} of 5 were dropped, with the queue idle", seen.len());
    let mut seen = seen.clone();
    seen.sort_unstable();
    ensure!(seen == (1..=5).map(|ticket| (ticket, true)).collect::<Vec<_>>(), "(ticket, after completion): {seen:?}");
    Ok(Applied::Yes)
}

fn only_holds(subject: &Subject<'_>) -> Outcome {
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    let bound = Arc::new(Bound::new(subject, &Case::default())?);
    let module = subject.device.load(Arc::clone(&subject.image))?;
    for ticket in 1..=3 {
        submit(queue.as_mut(), &module, ticket, &bound)?;
    }
    // Neither the module nor the launches' memory is held by anything but the submissions now.
    drop(module);
    let memory = Arc::downgrade(&bound);
    drop(bound);
    expect_tickets(&sink.wait_for(3)?, 1, 3)?;
    drop(queue);
    drop(memory);
    Ok(Applied::Yes)
}

fn drop_queue(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    let bound = Arc::new(Bound::new(subject, &Case::default())?);
    for ticket in 1..=5 {
        submit(queue.as_mut(), &module, ticket, &bound)?;
    }
    drop(queue);
    expect_tickets(&sink.wait_for(5)?, 1, 5)?;
    bound.verify(subject)?;
    Ok(Applied::Yes)
}

fn side_by_side(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|n| {
                let module = &module;
                scope.spawn(move || -> Result<(), Failure> {
                    let sink = Recorder::new();
                    let mut queue = subject.device.queue(sink.clone())?;
                    let case = Case { seed: 100 + n, lens: vec![17 + n as i32; 2], ..Case::default() };
                    let bound = Arc::new(Bound::new(subject, &case)?);
                    for ticket in 0..10 {
                        submit(queue.as_mut(), module, ticket, &bound)?;
                    }
                    expect_tickets(&sink.wait_for(10)?, 0, 10)?;
                    bound.verify(subject)
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(Applied::Yes)
    })
}

fn sequences(subject: &Subject<'_>) -> Outcome {
    let module = subject.device.load(Arc::clone(&subject.image))?;
    let sink = Recorder::new();
    let mut queue = subject.device.queue(sink.clone())?;
    // Decode writes what the combine reads, so a wrong order shows in the result.
    let bounds = [3, 4].map(|seed| Bound::new(subject, &Case { seed, ..Case::default() }).map(Arc::new));
    let [first, second] = bounds;
    let (first, second) = (first?, second?);
    let launches = [first.launches(), second.launches()].concat();
    let sequence = queue.record(&module, &launches)?;
    drop(launches);
    let holds = || Arc::new((first.clone(), second.clone()));
    submit_work(queue.as_mut(), &module, 1, Work::Replay(&sequence), holds())?;
    expect_tickets(&sink.wait_for(1)?, 1, 1)?;
    first.verify(subject)?;
    second.verify(subject)?;
    // Again, from poisoned outputs and scratch, among other work, with the sequence dropped at once.
    first.reset(subject)?;
    second.reset(subject)?;
    submit(queue.as_mut(), &module, 2, &first)?;
    submit_work(queue.as_mut(), &module, 3, Work::Replay(&sequence), holds())?;
    submit(queue.as_mut(), &module, 4, &second)?;
    drop(sequence);
    expect_tickets(&sink.wait_for(4)?, 1, 4)?;
    first.verify(subject)?;
    second.verify(subject)?;
    Ok(Applied::Yes)
}
