//! A device that fails, as a client sees it: each failure has its code and reason, and hurts nobody else.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::time::Duration;

use hippihx_proto::errors::reason as reasons;
use hippihx_proto::v1;
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::Daemon;
use hippihx_tests::wire::{Session, eventually, reason};
use tonic::Code;

/// Code and reason of an error.
fn why<T: std::fmt::Debug>(result: Result<T, tonic::Status>) -> (Code, String) {
    let status = result.unwrap_err();
    (status.code(), reason(&status))
}

#[tokio::test]
async fn a_run_that_fails_is_internal_and_the_next_one_computes() {
    for option in ["fail_nth=2", "refuse_nth=2", "panic_nth=2"] {
        let daemon = Daemon::start(&format!("gfx1030,{option}"));
        let mut session = Session::attach(&daemon.socket()).await.unwrap();
        let bound = session.bind_case(&Case::default()).await.unwrap();
        session.run(bound.binding).await.unwrap();
        assert_eq!(
            why(session.run(bound.binding).await),
            (Code::Internal, reasons::LAUNCH_FAILED.to_owned()),
            "{option}"
        );
        session.run(bound.binding).await.unwrap();
        bound.verify().unwrap();
        assert!(session.stats().await.unwrap().healthy);
    }
}

/// The daemon is gone for good, with an exit code that a service manager restarts on.
async fn ends_as_failed(daemon: &mut Daemon) {
    let ended = eventually("the daemon's end", async || daemon.ended(), Option::is_some).await;
    assert!(ended.is_some_and(|status| status.code().is_some_and(|code| code != 0)), "{ended:?}");
}

#[tokio::test]
async fn a_lost_device_answers_who_runs_and_ends_the_daemon_as_failed() {
    let mut daemon = Daemon::start("gfx1030,lose_nth=2");
    let mut first = Session::attach(&daemon.socket()).await.unwrap();
    let mut second = Session::attach(&daemon.socket()).await.unwrap();
    let bound = first.bind_case(&Case::default()).await.unwrap();
    let other = second.bind_case(&Case::default()).await.unwrap();
    first.run(bound.binding).await.unwrap();
    assert_eq!(why(first.run(bound.binding).await), (Code::Unavailable, reasons::DEVICE_LOST.to_owned()));
    // Whatever moment of the end this meets, it is an answer.
    second.run(other.binding).await.unwrap_err();
    ends_as_failed(&mut daemon).await;
}

#[tokio::test]
async fn a_run_that_hangs_ends_as_a_lost_device() {
    let mut daemon = Daemon::configured("gfx1030,hang_nth=2", "longest_run_ms = 200");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    session.run(bound.binding).await.unwrap();
    assert_eq!(why(session.run(bound.binding).await), (Code::Unavailable, reasons::DEVICE_LOST.to_owned()));
    ends_as_failed(&mut daemon).await;
}

#[tokio::test]
async fn a_hung_run_is_noticed_after_its_session_too() {
    let mut daemon = Daemon::configured("gfx1030,hang_nth=1", "longest_run_ms = 200");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (mut client, request) = (session.client.clone(), session.run_request(bound.binding));
    let run = tokio::spawn(async move { client.run(request).await.map(|_| ()) });
    eventually("the run starts", async || session.stats().await.unwrap().runs_in_flight, |count| *count == 1).await;
    run.abort();
    drop(session);
    ends_as_failed(&mut daemon).await;
}

#[tokio::test]
async fn a_full_device_is_resource_exhausted_until_something_is_released() {
    let daemon = Daemon::start("gfx1030,oom_bytes=1048576");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let held = session.allocate(1 << 20).await.unwrap();
    let full = (Code::ResourceExhausted, reasons::RESOURCE_EXHAUSTED.to_owned());
    assert_eq!(why(session.allocate(1).await), full);
    assert_eq!(why(session.share(4096).await), full);
    session.release(v1::ReleaseRequest { buffers: vec![held.id], ..Default::default() }).await.unwrap();
    session.allocate(1 << 20).await.unwrap();
}

#[tokio::test]
async fn a_slow_session_does_not_hold_up_another() {
    let daemon = Daemon::start("gfx1030,slow=100000");
    let mut slow = Session::attach(&daemon.socket()).await.unwrap();
    let mut other = Session::attach(&daemon.socket()).await.unwrap();
    let bound = slow.bind_case(&Case::default()).await.unwrap();
    let others = other.bind_case(&Case { seed: 9, ..Case::default() }).await.unwrap();
    // Twenty runs of 100 ms stand in one queue; the other session's run does not stand behind them.
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (mut client, request) = (slow.client.clone(), slow.run_request(bound.binding));
        waiting.spawn(async move { client.run(request).await.map(|_| ()) });
    }
    let in_flight = async || slow.stats().await.map(|stats| stats.runs_in_flight).unwrap_or(0);
    eventually("runs in flight", in_flight, |count| *count >= 20).await;
    other.run(others.binding).await.unwrap();
    others.verify().unwrap();
    assert!(waiting.len() > 1 && slow.stats().await.unwrap().runs_in_flight > 1, "the slow queue still has work");
    while let Some(done) = waiting.join_next().await {
        done.unwrap().unwrap();
    }
    bound.verify().unwrap();
}

#[tokio::test]
async fn a_run_takes_as_long_as_the_device_takes() {
    let daemon = Daemon::start("gfx1030,slow=50000");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let done = session.run(bound.binding).await.unwrap();
    assert!(Duration::from_micros(done.device_time_us) >= Duration::from_millis(50), "{done:?}");
}
