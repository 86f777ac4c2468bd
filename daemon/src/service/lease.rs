//! Attach: a session for as long as its stream lives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hippihx_proto::v1::{self, session_event};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use super::describe;
use crate::daemon::Daemon;
use crate::errors::Failure;
use crate::listen::peer::Peer;
use crate::session::registry::Newcomer;

/// Longest name of a client that is kept, in bytes.
const MAX_NAME: usize = 128;

/// The events of a session. Dropping it, which is what the end of the connection does, ends the session.
#[derive(Debug)]
pub(super) struct Lease {
    daemon: Arc<Daemon>,
    session: u64,
    first: Option<v1::SessionEvent>,
    events: mpsc::Receiver<v1::SessionEvent>,
}

pub(super) fn attach(daemon: &Arc<Daemon>, peer: Peer, request: v1::AttachRequest) -> Result<Lease, Failure> {
    if !daemon.lifecycle.is_serving() {
        return Err(Failure::Draining);
    }
    check_gpu(daemon, &request.pci_address)?;
    if request.uses_hip_ipc {
        check_namespaces(request.namespaces.as_ref(), &describe::namespaces())?;
    }
    if request.ring.is_some() {
        return Err(Failure::invalid("ring", "this daemon has no ring; run over gRPC"));
    }
    let mut client_name = request.client_name;
    if let Some(end) = (0..=MAX_NAME).rev().find(|end| client_name.is_char_boundary(*end)) {
        client_name.truncate(end);
    }
    let config = daemon.config();
    let newcomer = Newcomer {
        peer,
        client_name,
        captures_graphs: request.captures_graphs,
        uses_hip_ipc: request.uses_hip_ipc,
        limits: config.limits.clone(),
    };
    let (session, events) = daemon.sessions.open(daemon.device.as_ref(), newcomer, config.max_sessions)?;
    tracing::info!(
        session = session.id,
        client = session.client_name,
        uid = peer.uid,
        pid = peer.pid,
        "session attached"
    );
    let attached = v1::Attached {
        session: session.id,
        secret: session.secret().to_vec().into(),
        epoch: daemon.epoch,
        generation: daemon.objects.current().generation,
        limits: Some(describe::limits(&session.limits)),
        ring: None,
        handoff_path: daemon.handoff_path.display().to_string(),
    };
    let first = v1::SessionEvent { event: Some(session_event::Event::Attached(attached)) };
    Ok(Lease { daemon: Arc::clone(daemon), session: session.id, first: Some(first), events })
}

impl Stream for Lease {
    type Item = Result<v1::SessionEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        self.events.poll_recv(context).map(|event| event.map(Ok))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (daemon, session) = (Arc::clone(&self.daemon), self.session);
        // Freeing device memory may block; a runtime that is shutting down has no thread for it, and then this one does.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || daemon.sessions.close(session))),
            Err(_) => daemon.sessions.close(session),
        }
    }
}

/// GPUs are compared by PCI address: indices differ between processes.
fn check_gpu(daemon: &Daemon, wanted: &str) -> Result<(), Failure> {
    let found = &daemon.device.describe().pci_address;
    if wanted.is_empty() || wanted.eq_ignore_ascii_case(found) {
        return Ok(());
    }
    let found = if found.is_empty() { "none" } else { found };
    Err(Failure::Incompatible(format!(
        "this daemon's GPU has PCI address {found}, the client means {wanted}; use the socket of that GPU's daemon"
    )))
}

fn check_namespaces(client: Option<&v1::Namespaces>, own: &v1::Namespaces) -> Result<(), Failure> {
    let client = client.ok_or_else(|| Failure::invalid("namespaces", "needed of a client that uses HIP IPC"))?;
    let pairs = [("IPC", client.ipc, own.ipc), ("PID", client.pid, own.pid), ("network", client.net, own.net)];
    for (name, theirs, ours) in pairs {
        if theirs != ours {
            return Err(Failure::Incompatible(format!(
                "HIP IPC needs both sides in one {name} namespace; the client is in {theirs}, the daemon in {ours} (share the host's)"
            )));
        }
    }
    if client.hip_ipc_mode != own.hip_ipc_mode {
        return Err(Failure::Incompatible(format!(
            "HIP IPC needs the same HSA_ENABLE_IPC_MODE_LEGACY on both sides; the client has {:?}, the daemon {:?}",
            client.hip_ipc_mode, own.hip_ipc_mode
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_or_a_mode_that_differs_is_named() {
        let own = v1::Namespaces { ipc: 1, pid: 2, net: 3, hip_ipc_mode: String::new() };
        assert!(check_namespaces(Some(&own), &own).is_ok());
        for (client, word) in [
            (v1::Namespaces { ipc: 9, ..own.clone() }, "IPC namespace"),
            (v1::Namespaces { pid: 9, ..own.clone() }, "PID namespace"),
            (v1::Namespaces { net: 9, ..own.clone() }, "network namespace"),
            (v1::Namespaces { hip_ipc_mode: "1".to_owned(), ..own.clone() }, "HSA_ENABLE_IPC_MODE_LEGACY"),
        ] {
            let text = check_namespaces(Some(&client), &own).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
