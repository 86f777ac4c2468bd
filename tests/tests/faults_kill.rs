//! Clients that are killed in the middle of runs leave nothing behind.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hippihx_proto::v1;
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::{Daemon, Figures};
use hippihx_tests::wire::{Session, eventually};

const SOCKET_OF_A_VICTIM: &str = "HIPPIHX_VICTIM_SOCKET";
const WARM_UPS: usize = 10;
const KILLS: usize = 200;

/// A client that runs for ever, in a process of its own; it says so once several runs are under way.
async fn victim(socket: &Path) {
    let mut session = Session::attach(socket).await.unwrap();
    let mut bindings = Vec::new();
    for seed in 0..3 {
        bindings.push(session.bind_case(&Case { seed, ..Case::default() }).await.unwrap().binding);
    }
    session.allocate(1 << 20).await.unwrap();
    // Handed over and never named.
    session.put(std::os::fd::AsFd::as_fd(&hippihx_tests::wire::sealed_memfd(1 << 20))).unwrap();
    let request = session.request(v1::RecordRequest { bindings: bindings.clone() });
    session.client.record(request).await.unwrap();
    session.run(bindings[0]).await.unwrap();
    // Several at a time, so that there is always a run under way when the end comes.
    let mut runs: tokio::task::JoinSet<Result<(), tonic::Status>> = tokio::task::JoinSet::new();
    for n in 0.. {
        if n >= 4 {
            runs.join_next().await.unwrap().unwrap().unwrap();
        }
        if n == 8 {
            println!("\nrunning");
        }
        let (mut client, request) = (session.client.clone(), session.run_request(bindings[n % bindings.len()]));
        runs.spawn(async move { client.run(request).await.map(|_| ()) });
    }
}

fn start_victim(daemon: &Daemon) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "two_hundred_kills_leave_nothing", "--nocapture"])
        .env(SOCKET_OF_A_VICTIM, daemon.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "running"), "the victim never ran");
    child
}

/// What the daemon holds once every session but the watching one is gone.
async fn settled(daemon: &Daemon, watching: &mut Session) -> Figures {
    let held = async || {
        let stats = watching.stats().await.unwrap();
        (stats.sessions.len(), stats.buffers, stats.buffer_bytes, stats.bindings, stats.sequences, stats.runs_in_flight)
    };
    eventually("what is held", held, |held| *held == (1, 0, 0, 0, 0, 0)).await;
    let figures = async || daemon.figures();
    eventually("mappings", figures, |figures| figures.shared_bytes == 0).await
}

#[tokio::test]
async fn two_hundred_kills_leave_nothing() {
    if let Some(socket) = std::env::var_os(SOCKET_OF_A_VICTIM) {
        victim(Path::new(&socket)).await;
        return;
    }
    let daemon = Daemon::start("gfx1030,slow=2000");
    let mut watching = Session::attach(&daemon.socket()).await.unwrap();
    let mut baseline = None;
    let mut in_flight = 0;
    for kill in 0..WARM_UPS + KILLS {
        if kill == WARM_UPS {
            baseline = Some(settled(&daemon, &mut watching).await);
        }
        let mut child = start_victim(&daemon);
        in_flight += u64::from(watching.stats().await.unwrap().runs_in_flight > 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(in_flight > KILLS as u64 / 2, "only {in_flight} were killed with runs under way");
    let baseline = baseline.unwrap();
    settled(&daemon, &mut watching).await;
    // Threads and descriptors may be a moment behind the figures of Stats, now and when the baseline was taken.
    let back = |figures: &Figures| figures.open_files <= baseline.open_files && figures.threads <= baseline.threads;
    eventually("figures", async || daemon.figures(), back).await;
    // And it still computes.
    let bound = watching.bind_case(&Case::default()).await.unwrap();
    watching.run(bound.binding).await.unwrap();
    bound.verify().unwrap();
}
