//! All sessions of the daemon.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dashmap::DashMap;
use hippihx_proto::v1::{self, SessionEvent, session_event};
use tokio::sync::mpsc;

use super::buffer::Quota;
use super::queue::{Progress, QueueHandle};
use super::{Owned, Session};
use crate::config::Limits;
use crate::device::Device;
use crate::errors::Failure;
use crate::lifecycle::Lifecycle;
use crate::listen::peer::Peer;
use crate::stats::Stats;

/// Events that a client may leave unread before it misses some.
const EVENTS: usize = 16;

/// What Attach says of the client.
#[derive(Debug, Clone)]
pub struct Newcomer {
    pub peer: Peer,
    pub client_name: String,
    pub captures_graphs: bool,
    pub uses_hip_ipc: bool,
    pub limits: Limits,
}

#[derive(Debug)]
pub struct Registry {
    sessions: DashMap<u64, Arc<Session>>,
    /// Of closed ones whose accepted runs are not complete: the watchdog and a drain look at them too.
    leaving: Mutex<Vec<(u64, Progress)>>,
    next: AtomicU64,
    stats: Arc<Stats>,
    lifecycle: Arc<Lifecycle>,
}

impl Registry {
    pub fn new(stats: Arc<Stats>, lifecycle: Arc<Lifecycle>) -> Registry {
        // Sessions of another start of the daemon have other ids, so a stale one is NOT_FOUND and not somebody else's.
        let next = AtomicU64::new(random_u64() >> 16);
        Registry { sessions: DashMap::new(), leaving: Mutex::default(), next, stats, lifecycle }
    }

    /// Opens a session, and gives the receiving end of its events.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED at `max_sessions`, or the device's refusal to make a queue.
    pub fn open(
        &self,
        device: &dyn Device,
        newcomer: Newcomer,
        max_sessions: u32,
    ) -> Result<(Arc<Session>, mpsc::Receiver<SessionEvent>), Failure> {
        super::check_limit("sessions", "max_sessions", self.sessions.len(), max_sessions)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let allowed = newcomer.limits.requests_in_flight;
        let queue = QueueHandle::start(device, format!("hx-queue-{id}"), allowed, &self.stats, &self.lifecycle)?;
        let (events, receiver) = mpsc::channel(EVENTS);
        let span =
            tracing::info_span!(parent: None, "session", id, client = newcomer.client_name, uid = newcomer.peer.uid);
        let session = Arc::new(Session {
            id,
            secret: random(),
            peer: newcomer.peer,
            client_name: newcomer.client_name,
            captures_graphs: newcomer.captures_graphs,
            uses_hip_ipc: newcomer.uses_hip_ipc,
            attached: Instant::now(),
            limits: newcomer.limits,
            quota: Arc::new(Quota::default()),
            queue,
            runs: AtomicU64::new(0),
            span,
            ended: AtomicBool::new(false),
            events,
            owned: Mutex::new(Owned::default()),
        });
        self.sessions.insert(id, Arc::clone(&session));
        Ok((session, receiver))
    }

    /// The session of this id, when the secret and the peer are its own.
    ///
    /// # Errors
    /// UNAUTHENTICATED; it does not say which of the three was wrong.
    pub fn authenticate(&self, id: u64, secret: &[u8], uid: u32) -> Result<Arc<Session>, Failure> {
        let session = self.sessions.get(&id).map(|entry| Arc::clone(entry.value()));
        session.filter(|session| session.knows(secret) && session.peer.uid == uid && !session.has_ended()).ok_or_else(|| {
            Failure::Unauthenticated(format!("there is no session {id} with this secret for uid {uid}; attach first (sessions do not outlive a daemon)"))
        })
    }

    /// Ends a session: nothing of it can be named any more. What accepted runs use is freed when they are complete.
    pub fn close(&self, id: u64) {
        let Some((_, session)) = self.sessions.remove(&id) else { return };
        session.ended.store(true, Ordering::Release);
        // Out of the lock before it is dropped: freeing device memory can take long.
        let owned = std::mem::take(&mut *session.owned());
        drop(owned);
        tracing::info!(session = id, client = session.client_name, "session closed");
        if session.queue.in_flight() > 0 {
            let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            leaving.retain(|(_, progress)| progress.in_flight() > 0);
            leaving.push((id, session.queue.progress()));
        }
    }

    /// Ends a session for a reason of the daemon's, and tells the client.
    pub fn end(&self, id: u64, status: i32, reason: &str) {
        if let Some(session) = self.sessions.get(&id) {
            session.tell(session_event::Event::Ended(v1::Ended { status, reason: reason.to_owned() }));
        }
        self.close(id);
    }

    pub fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.iter().map(|entry| Arc::clone(entry.value())).collect()
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions that can have runs in flight: the open ones, and closed ones until their last run is complete.
    pub fn working(&self) -> Vec<(u64, Progress)> {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|(_, progress)| progress.in_flight() > 0);
        let open = self.sessions.iter().map(|session| (session.id, session.queue.progress()));
        open.chain(leaving.iter().cloned()).collect()
    }

    /// Accepted runs that are not complete.
    pub fn in_flight(&self) -> usize {
        self.working().iter().map(|(_, progress)| progress.in_flight()).sum()
    }
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel's generator is there from boot on; without it there are no secrets, and no service.
    getrandom::fill(&mut bytes).unwrap_or_else(|error| panic!("the kernel gives no random bytes: {error}"));
    bytes
}

pub fn random_u64() -> u64 {
    u64::from_le_bytes(random())
}
