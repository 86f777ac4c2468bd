//! A daemon's run: both sockets served, health told, signals heard, the queues watched, until it drains or dies.

mod connection;

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hippihx_proto::v1::kernel_service_server::KernelServiceServer;
use hippihx_proto::v1::{self, session_event};
use hippihx_proto::{FILE_DESCRIPTOR_SET, MAX_MESSAGE_BYTES};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;

use crate::daemon::Daemon;
use crate::handoff;
use crate::lifecycle::Phase;
use crate::memory::sigbus;
use crate::notify::Notifier;
use crate::service::Service;
use connection::Counted;

/// How often queues are looked at, and drains are.
const TICK: Duration = Duration::from_millis(20);
/// How long answers may take to reach clients after the last run ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The exit code after the device was lost; `Restart=on-failure` starts the unit again.
const LOST: u8 = 3;

/// Serves until the daemon has drained or lost its device.
///
/// # Errors
/// The sockets or signals cannot be used.
pub async fn serve(daemon: Arc<Daemon>, grpc: OwnedFd, handoff_socket: OwnedFd) -> Result<ExitCode> {
    let notifier = Arc::new(Notifier::from_environment());
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .context("the service's descriptors")?;
    let service = KernelServiceServer::new(Service::new(Arc::clone(&daemon)))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let listener = std::os::unix::net::UnixListener::from(grpc);
    listener.set_nonblocking(true)?;
    let stats = Arc::clone(&daemon.stats);
    let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?)
        .map(move |stream| stream.map(|stream| Counted::new(stream, Arc::clone(&stats))));

    let hand_offs = tokio::spawn(handoff::serve(Arc::clone(&daemon), handoff_socket));
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let mut server = tokio::spawn(
        Server::builder()
            .add_service(service)
            .add_service(health)
            .add_service(reflection)
            .serve_with_incoming_shutdown(incoming, async move { stopped.notified().await }),
    );
    reporter.set_serving::<KernelServiceServer<Service>>().await;
    let signals = tokio::spawn(hear_signals(Arc::clone(&daemon), Arc::clone(&notifier)));
    let generations = tokio::spawn(tell_generations(Arc::clone(&daemon)));

    notifier.ready(&status(&daemon));
    tracing::info!(slot = daemon.slot.name, device = daemon.config().device, socket = %daemon.config().socket.display(), "READY");

    let code = watch(&daemon, &notifier, &reporter).await;
    hand_offs.abort();
    signals.abort();
    generations.abort();
    // Our own long streams first: the server's shutdown waits for them.
    for session in daemon.sessions.all() {
        daemon.sessions.end(session.id, 0, "the daemon ended; attach to the next one");
    }
    stop.notify_one();
    // Connections that say nothing would hold the shutdown up for ever.
    if tokio::time::timeout(LAST_WORDS, &mut server).await.is_err() {
        server.abort();
    }
    Ok(code)
}

/// One line for `systemctl status`.
fn status(daemon: &Daemon) -> String {
    let loaded = daemon.objects.current();
    format!("serving {} with {} (generation {})", daemon.slot.name, loaded.source, loaded.generation)
}

/// Looks at the queues until the daemon may end, and tells what it sees.
async fn watch(daemon: &Daemon, notifier: &Notifier, health: &HealthReporter) -> ExitCode {
    let mut phases = daemon.lifecycle.watch();
    let mut tick = tokio::time::interval(TICK);
    let mut fed = tokio::time::Instant::now();
    let mut draining: Option<tokio::time::Instant> = None;
    let mut faults = sigbus::faults();
    loop {
        // An idle daemon sleeps: without a run in flight there is nothing to watch but the service manager's own clock.
        let idle = daemon.sessions.in_flight() == 0 && draining.is_none();
        let pause = notifier.watchdog().map_or(Duration::from_secs(1), |limit| limit / 3);
        tokio::select! {
            _ = tick.tick(), if !idle => {}
            () = tokio::time::sleep(pause), if idle => {}
            _ = phases.changed() => {}
        }
        match daemon.lifecycle.phase() {
            Phase::Serving => {}
            Phase::Draining => {
                let deadline = *draining.get_or_insert_with(|| {
                    let deadline = tokio::time::Instant::now() + daemon.config().drain();
                    tracing::info!(runs = daemon.sessions.in_flight(), "draining");
                    tell_draining(daemon);
                    deadline
                });
                health.set_not_serving::<KernelServiceServer<Service>>().await;
                notifier.stopping("draining");
                let left = daemon.sessions.in_flight();
                if left == 0 {
                    tracing::info!("drained");
                    return ExitCode::SUCCESS;
                }
                if tokio::time::Instant::now() >= deadline {
                    tracing::warn!(runs = left, "the drain time is over; runs are given up");
                    abandon(daemon, "the daemon's drain time was over");
                    return ExitCode::SUCCESS;
                }
            }
            Phase::Lost(how) => {
                tracing::error!(how, "device lost; the process ends for the service manager to start it again");
                health.set_not_serving::<KernelServiceServer<Service>>().await;
                notifier.status("device lost");
                abandon(daemon, &how);
                return ExitCode::from(LOST);
            }
        }
        end_faulted(daemon, &mut faults);
        let longest = daemon.config().longest_run();
        if let Some((hung, _)) = daemon.sessions.working().iter().find(|(_, progress)| progress.stalled() > longest) {
            let how =
                format!("a run of session {} made no progress for {} ms (longest_run_ms)", hung, longest.as_millis());
            daemon.lifecycle.lose(&how);
        } else if notifier.watchdog().is_some_and(|limit| fed.elapsed() > limit / 4) {
            // Only here: with a hung queue the service manager hears nothing.
            notifier.alive();
            fed = tokio::time::Instant::now();
        }
    }
}

/// Ends the sessions whose shared memory lost a page since `seen` faults.
fn end_faulted(daemon: &Daemon, seen: &mut u64) {
    let faults = sigbus::faults();
    if faults == *seen {
        return;
    }
    *seen = faults;
    for session in daemon.sessions.all().iter().filter(|session| session.has_lost_memory()) {
        let reason = "a page of its shared memory could not be made present again";
        tracing::warn!(session = session.id, client = session.client_name, reason, "session ends");
        daemon.sessions.end(session.id, 0, reason);
    }
}

fn abandon(daemon: &Daemon, how: &str) {
    for (_, progress) in daemon.sessions.working() {
        progress.abandon(how);
    }
}

fn tell_draining(daemon: &Daemon) {
    let deadline_us = u64::try_from(daemon.config().drain().as_micros()).unwrap_or(u64::MAX);
    for session in daemon.sessions.all() {
        session.tell(session_event::Event::Draining(v1::Draining { deadline_us }));
    }
}

async fn tell_generations(daemon: Arc<Daemon>) {
    let mut generations = daemon.objects.watch();
    while generations.changed().await.is_ok() {
        let generation = *generations.borrow();
        for session in daemon.sessions.all() {
            session.tell(session_event::Event::GenerationChanged(v1::GenerationChanged { generation }));
        }
    }
}

/// SIGTERM and SIGINT drain, SIGHUP reloads.
async fn hear_signals(daemon: Arc<Daemon>, notifier: Arc<Notifier>) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => drop(daemon.lifecycle.drain()),
            _ = interrupt.recv() => drop(daemon.lifecycle.drain()),
            _ = hang_up.recv() => {
                let reloading = Arc::clone(&daemon);
                match tokio::task::spawn_blocking(move || reloading.reload()).await {
                    Ok(Ok(_)) => notifier.status(&status(&daemon)),
                    Ok(Err(error)) => tracing::error!(%error, "the reload is refused; everything stays as it was"),
                    Err(error) => tracing::error!(%error, "the reload failed"),
                }
            }
        }
    }
}
