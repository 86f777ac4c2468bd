//! Import, Allocate and Release.

use std::os::fd::AsFd;
use std::sync::Arc;

use hippihx_proto::v1;

use crate::daemon::Daemon;
use crate::device::{Export, Memory};
use crate::errors::Failure;
use crate::memory::check_received;
use crate::session::buffer::{Buffer, Share};
use crate::session::{Session, check_limit};

/// Longest label of a buffer that is kept, in bytes.
const MAX_LABEL: usize = 128;

pub(super) fn import(
    daemon: &Daemon,
    session: &Session,
    request: v1::ImportRequest,
) -> Result<v1::ImportResponse, Failure> {
    use v1::import_request::Source;
    match request.source {
        Some(Source::HandoffToken(token)) => {
            let memfd = session.take_handed_over(token)?;
            check_limit("buffers", "buffers", session.owned().buffers.len(), session.limits.buffers)?;
            let device = daemon.device.describe();
            if device.kind != "fake"
                && !daemon.config().register_client_memory
                && !daemon.admission().is_admin(&session.peer)
            {
                return Err(Failure::Denied(
                    "registering a client's memory with the GPU pins it and is for admins; use Allocate, or set register_client_memory = true".to_owned(),
                ));
            }
            let size = check_received(memfd.as_fd(), session.limits.buffer_bytes)?;
            let share = session.quota.take(size, session.limits.buffer_bytes)?;
            let memory = daemon.device.import_shared(memfd, size)?;
            named(session, memory, request.label, share)
        }
        Some(Source::HipIpcHandle(handle)) => {
            check_limit("buffers", "buffers", session.owned().buffers.len(), session.limits.buffers)?;
            let memory = daemon.device.import_ipc(handle_bytes("hip_ipc_handle", &handle)?)?;
            let share = session.quota.take(memory.size(), session.limits.buffer_bytes)?;
            named(session, memory, request.label, share)
        }
        Some(Source::HipIpcEventHandle(handle)) => {
            check_limit("events", "events", session.owned().events.len(), session.limits.events)?;
            let event = daemon.device.import_event(handle_bytes("hip_ipc_event_handle", &handle)?)?;
            let id = session.owned().events.insert(event).ok_or_else(|| out_of_ids("events"))?;
            Ok(v1::ImportResponse { event: id, ..v1::ImportResponse::default() })
        }
        None => Err(Failure::invalid("source", "a hand-off token or a HIP IPC handle is needed")),
    }
}

pub(super) fn allocate(
    daemon: &Daemon,
    session: &Session,
    request: v1::AllocateRequest,
) -> Result<v1::AllocateResponse, Failure> {
    use v1::allocate_response::Handle;
    if request.size_bytes == 0 {
        return Err(Failure::invalid("size_bytes", "is 0; at least 1 is needed"));
    }
    check_limit("buffers", "buffers", session.owned().buffers.len(), session.limits.buffers)?;
    let share = session.quota.take(request.size_bytes, session.limits.buffer_bytes)?;
    let memory = daemon.device.allocate(request.size_bytes)?;
    let handle = match memory.export()? {
        Export::Memfd(memfd) => {
            let copy = memfd
                .try_clone_to_owned()
                .map_err(|error| Failure::invalid("size_bytes", format!("no descriptor: {error}")))?;
            Handle::HandoffToken(session.lay_out(copy, memory.size())?)
        }
        Export::HipIpc(handle) => Handle::HipIpcHandle(handle.to_vec().into()),
    };
    let made = named(session, memory, request.label, share)?;
    Ok(v1::AllocateResponse { buffer: made.buffer, size_bytes: made.size_bytes, handle: Some(handle) })
}

/// Scratch of the daemon's own for one binding: it counts for the session and has no id.
pub(super) fn scratch(daemon: &Daemon, session: &Session, nbytes: u64) -> Result<Arc<Buffer>, Failure> {
    let share = session.quota.take(nbytes, session.limits.buffer_bytes)?;
    let memory = daemon.device.allocate(nbytes)?;
    Ok(Arc::new(Buffer { memory, label: "scratch".to_owned(), share }))
}

pub(super) fn release(
    daemon: &Daemon,
    session: &Session,
    request: &v1::ReleaseRequest,
) -> Result<v1::ReleaseResponse, Failure> {
    // All or nothing: an id that does not exist must not leave half of them released.
    let mut owned = session.owned();
    for id in &request.buffers {
        owned.buffers.get(*id).ok_or(Failure::NotFound { what: "buffer", id: *id })?;
    }
    for id in &request.bindings {
        owned.bindings.get(*id).ok_or(Failure::NotFound { what: "binding", id: *id })?;
    }
    for id in &request.sequences {
        owned.sequences.get(*id).ok_or(Failure::NotFound { what: "sequence", id: *id })?;
    }
    for id in &request.plans {
        owned.plans.get(id).ok_or(Failure::NotFound { what: "plan", id: *id })?;
    }
    for id in &request.events {
        owned.events.get(*id).ok_or(Failure::NotFound { what: "event", id: *id })?;
    }
    // Sequences hold bindings and bindings hold buffers, so they go in this order.
    let sequences: Vec<_> = request.sequences.iter().filter_map(|id| owned.sequences.remove(*id)).collect();
    let bindings: Vec<_> = request.bindings.iter().filter_map(|id| owned.bindings.remove(*id)).collect();
    let buffers: Vec<_> = request.buffers.iter().filter_map(|id| owned.buffers.remove(*id)).collect();
    let events: Vec<_> = request.events.iter().filter_map(|id| owned.events.remove(*id)).collect();
    let plans: Vec<_> = request.plans.iter().filter_map(|id| owned.plans.remove(id)).collect();
    // Freeing may take long; nobody waits for it under the session's lock.
    drop(owned);
    let mut answer = v1::ReleaseResponse { released: (plans.len() + events.len()) as u32, deferred: 0 };
    let mut count = |unused: bool| if unused { answer.released += 1 } else { answer.deferred += 1 };
    for sequence in sequences {
        count(Arc::into_inner(sequence).is_some());
    }
    for binding in bindings {
        count(Arc::into_inner(binding).is_some());
    }
    for buffer in buffers {
        count(Arc::into_inner(buffer).is_some());
    }
    for plan in plans {
        daemon.plans.release(plan);
    }
    Ok(answer)
}

fn named(
    session: &Session,
    memory: Arc<dyn Memory>,
    label: String,
    share: Share,
) -> Result<v1::ImportResponse, Failure> {
    let mut label = label;
    if let Some(end) = (0..=MAX_LABEL).rev().find(|end| label.is_char_boundary(*end)) {
        label.truncate(end);
    }
    let size_bytes = memory.size();
    let mut owned = session.owned();
    if session.has_ended() {
        return Err(Failure::SessionEnded("its lease is over".to_owned()));
    }
    check_limit("buffers", "buffers", owned.buffers.len(), session.limits.buffers)?;
    let buffer =
        owned.buffers.insert(Arc::new(Buffer { memory, label, share })).ok_or_else(|| out_of_ids("buffers"))?;
    Ok(v1::ImportResponse { buffer, size_bytes, event: 0 })
}

fn handle_bytes<'a>(field: &'static str, handle: &'a [u8]) -> Result<&'a [u8; 64], Failure> {
    handle
        .try_into()
        .map_err(|_| Failure::invalid(field, format!("has {} bytes; a HIP IPC handle has 64", handle.len())))
}

pub(super) fn out_of_ids(what: &'static str) -> Failure {
    Failure::Limit { what, key: what, found: u64::from(u32::MAX), allowed: u64::from(u32::MAX) }
}
