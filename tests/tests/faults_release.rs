//! Releasing what a run uses: deferred, never a crash, and nothing is left at the end, however the run ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::os::unix::fs::FileExt;
use std::time::Duration;

use hippihx_proto::v1;
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::Daemon;
use hippihx_tests::wire::{Bound, Session, eventually};
use tonic::Code;

/// A slow run under way, and everything that it uses released at once.
async fn release_during_a_run(
    session: &mut Session,
    bound: &Bound,
) -> (tokio::task::JoinHandle<Result<(), tonic::Status>>, v1::ReleaseResponse) {
    let (mut client, request) = (session.client.clone(), session.run_request(bound.binding));
    let run = tokio::spawn(async move { client.run(request).await.map(|_| ()) });
    let in_flight = async || session.stats().await.map(|stats| stats.runs_in_flight).unwrap_or(0);
    eventually("the run starts", in_flight, |count| *count == 1).await;
    let release = v1::ReleaseRequest {
        buffers: vec![bound.buffer.id],
        bindings: vec![bound.binding],
        plans: vec![bound.plan.plan],
        ..Default::default()
    };
    let answer = session.release(release).await.unwrap();
    (run, answer)
}

/// Until nothing is bound, held or running any more.
async fn nothing_left(session: &mut Session) {
    let left = async || {
        let stats = session.stats().await.unwrap();
        (stats.buffers, stats.buffer_bytes, stats.bindings, stats.runs_in_flight)
    };
    eventually("what is left", left, |left| *left == (0, 0, 0, 0)).await;
}

#[tokio::test]
async fn a_release_during_a_run_waits_for_it() {
    let daemon = Daemon::start("gfx1030,slow=500000");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (run, answer) = release_during_a_run(&mut session, &bound).await;
    assert!(answer.deferred >= 1, "{answer:?}");
    let held = session.stats().await.unwrap();
    assert!(held.buffer_bytes >= bound.buffer.size, "the memory is held while the run lasts: {held:?}");
    // The ids are gone at once.
    assert_eq!(session.run(bound.binding).await.unwrap_err().code(), Code::NotFound);
    run.await.unwrap().unwrap();
    // The fake computes at the end of its 500 ms, so the result shows that the memory was still there.
    bound.verify().unwrap();
    nothing_left(&mut session).await;
    eventually("mappings", async || daemon.figures().shared_bytes, |bytes| *bytes == 0).await;
}

#[tokio::test]
async fn references_reach_zero_after_an_error_too() {
    let daemon = Daemon::start("gfx1030,slow=200000,fail_nth=1");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (run, _) = release_during_a_run(&mut session, &bound).await;
    assert_eq!(run.await.unwrap().unwrap_err().code(), Code::Internal);
    nothing_left(&mut session).await;
    eventually("mappings", async || daemon.figures().shared_bytes, |bytes| *bytes == 0).await;
}

#[tokio::test]
async fn references_reach_zero_after_a_cancelled_call_too() {
    let daemon = Daemon::start("gfx1030,slow=200000");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (run, _) = release_during_a_run(&mut session, &bound).await;
    run.abort();
    nothing_left(&mut session).await;
    // The work was accepted, so it ran to its end all the same.
    bound.verify().unwrap();
    eventually("mappings", async || daemon.figures().shared_bytes, |bytes| *bytes == 0).await;
}

#[tokio::test]
async fn references_reach_zero_after_a_sequence_too() {
    let daemon = Daemon::start("gfx1030,slow=200000");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let request = session.request(v1::RecordRequest { bindings: vec![bound.binding, bound.binding] });
    let sequence = session.client.record(request).await.unwrap().into_inner().sequence;
    let what = Some(v1::run_request::What::Sequence(sequence));
    let (mut client, request) =
        (session.client.clone(), session.request(v1::RunRequest { what, ..Default::default() }));
    let run = tokio::spawn(async move { client.run(request).await.map(|_| ()) });
    eventually("the run starts", async || session.stats().await.unwrap().runs_in_flight, |count| *count == 1).await;
    let release = v1::ReleaseRequest {
        buffers: vec![bound.buffer.id],
        bindings: vec![bound.binding],
        sequences: vec![sequence],
        ..Default::default()
    };
    session.release(release).await.unwrap();
    run.await.unwrap().unwrap();
    bound.verify().unwrap();
    nothing_left(&mut session).await;
}

#[tokio::test]
async fn a_session_that_ends_during_a_run_lets_it_finish_and_leaves_nothing() {
    let daemon = Daemon::start("gfx1030,slow=300000");
    let idle = daemon.figures();
    let mut watching = Session::attach(&daemon.socket()).await.unwrap();
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (mut client, request) = (session.client.clone(), session.run_request(bound.binding));
    let run = tokio::spawn(async move { client.run(request).await.map(|_| ()) });
    eventually("the run starts", async || session.stats().await.unwrap().runs_in_flight, |count| *count == 1).await;
    run.abort();
    drop(session);
    nothing_left(&mut watching).await;
    // The fake computes at the end of its time, so this shows that the run went on and had its memory.
    eventually("the result", async || bound.verify(), Result::is_ok).await.unwrap();
    let left = async || (watching.stats().await.unwrap().sessions.len(), daemon.figures().shared_bytes);
    eventually("sessions and mappings", left, |left| *left == (1, idle.shared_bytes)).await;
}

#[tokio::test]
async fn a_released_buffer_stays_bound() {
    let daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let release = v1::ReleaseRequest { buffers: vec![bound.buffer.id], ..Default::default() };
    let answer = session.release(release.clone()).await.unwrap();
    assert_eq!((answer.released, answer.deferred), (0, 1));
    session.run(bound.binding).await.unwrap();
    bound.verify().unwrap();
    // A second release of the same id names nothing.
    assert_eq!(session.release(release).await.unwrap_err().code(), Code::NotFound);
    let release = v1::ReleaseRequest { bindings: vec![bound.binding], ..Default::default() };
    session.release(release).await.unwrap();
    nothing_left(&mut session).await;
    // Our own mapping of it was never the daemon's to take.
    bound.buffer.file.write_all_at(&[1], 0).unwrap();
    tokio::time::timeout(Duration::from_secs(60), session.stats()).await.unwrap().unwrap();
}
