//! Sessions: what one attached client owns, and for how long.
//!
//! A session is leased by its Attach stream. Ids in it are its own; nothing of it can be named by another. When the lease
//! ends, accepted runs finish, and with the last of them everything that the session owned is freed.

pub mod binding;
pub mod buffer;
pub mod queue;
pub mod registry;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hippihx_proto::v1::{SessionEvent, session_event};
use tokio::sync::mpsc;

use crate::config::Limits;
use crate::device::Event;
use crate::errors::Failure;
use crate::ids::Table;
use crate::listen::peer::Peer;
use crate::plans::CachedPlan;
use binding::{Binding, Recorded};
use buffer::{Buffer, Quota};
use queue::QueueHandle;

/// Hand-offs that may wait to be named, and buffers that may wait to be fetched, at the same time.
const MAX_TOKENS: usize = 256;

/// One attached client.
#[derive(Debug)]
pub struct Session {
    pub id: u64,
    secret: [u8; hippihx_proto::SECRET_BYTES],
    pub peer: Peer,
    pub client_name: String,
    pub captures_graphs: bool,
    pub uses_hip_ipc: bool,
    pub attached: Instant,
    pub limits: Limits,
    /// Bytes of buffers that are not freed yet, released ones in use included.
    pub quota: Arc<Quota>,
    pub queue: QueueHandle,
    pub runs: AtomicU64,
    /// What is logged about the session, and the parent of its runs' spans.
    pub span: tracing::Span,
    ended: AtomicBool,
    events: mpsc::Sender<SessionEvent>,
    owned: Mutex<Owned>,
}

/// Everything that ids of the session name.
#[derive(Debug, Default)]
pub struct Owned {
    pub buffers: Table<Arc<Buffer>>,
    pub bindings: Table<Arc<Binding>>,
    pub sequences: Table<Arc<Recorded>>,
    pub events: Table<Arc<dyn Event>>,
    pub plans: HashMap<u64, Arc<CachedPlan>>,
    /// Descriptors that came over the hand-off socket and were not named yet.
    handed_over: HashMap<u64, OwnedFd>,
    /// Descriptors that the client may fetch, once each, with their sizes in bytes.
    to_fetch: HashMap<u64, (OwnedFd, u64)>,
    /// What was fetched and is sealed once the client has mapped it.
    to_seal: HashMap<u64, (OwnedFd, u64)>,
}

impl Session {
    /// A page of one of its buffers could not come back, so what it holds is worth nothing any more.
    pub fn has_lost_memory(&self) -> bool {
        self.owned().buffers.values().any(|buffer| buffer.memory.faulted())
    }

    /// What the session owns. Held for look-ups and changes only, never while the device works.
    pub fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True for the secret of this session, in a time that does not depend on where it differs.
    pub fn knows(&self, secret: &[u8]) -> bool {
        secret.len() == self.secret.len()
            && self.secret.iter().zip(secret).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    pub fn secret(&self) -> [u8; hippihx_proto::SECRET_BYTES] {
        self.secret
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Tells the client; a client that does not read its events misses them.
    pub fn tell(&self, event: session_event::Event) {
        let _ = self.events.try_send(SessionEvent { event: Some(event) });
    }

    /// Keeps a descriptor that was handed over, under a single-use token.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED while too many wait to be named.
    pub fn keep_handed_over(&self, descriptor: OwnedFd) -> Result<u64, Failure> {
        let mut owned = self.owned();
        keep(&mut owned.handed_over, descriptor)
    }

    pub fn take_handed_over(&self, token: u64) -> Result<OwnedFd, Failure> {
        self.owned().handed_over.remove(&token).ok_or(Failure::NotFound { what: "hand-off token", id: token })
    }

    /// Lays the descriptor of memory that the daemon made out for the client to fetch, under a single-use token.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED while too many wait to be fetched.
    pub fn lay_out(&self, memfd: OwnedFd, size: u64) -> Result<u64, Failure> {
        let mut owned = self.owned();
        keep(&mut owned.to_fetch, (memfd, size))
    }

    /// Gives what was laid out, and remembers to seal it once the client says that it is mapped.
    ///
    /// # Errors
    /// NOT_FOUND for a token of nothing, or one that was used.
    pub fn fetch(&self, token: u64) -> Result<OwnedFd, Failure> {
        let mut owned = self.owned();
        let (memfd, size) =
            owned.to_fetch.remove(&token).ok_or(Failure::NotFound { what: "hand-off token", id: token })?;
        if owned.to_seal.len() < MAX_TOKENS
            && let Ok(copy) = memfd.try_clone()
        {
            owned.to_seal.insert(token, (copy, size));
        }
        Ok(memfd)
    }

    /// What was fetched with a token, with its size in bytes; once.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn fetched(&self, token: u64) -> Result<(OwnedFd, u64), Failure> {
        self.owned().to_seal.remove(&token).ok_or(Failure::NotFound { what: "hand-off token", id: token })
    }

    pub fn plan(&self, id: u64) -> Result<Arc<CachedPlan>, Failure> {
        self.owned().plans.get(&id).cloned().ok_or(Failure::NotFound { what: "plan", id })
    }

    pub fn buffer(&self, id: u64) -> Result<Arc<Buffer>, Failure> {
        self.owned().buffers.get(id).cloned().ok_or(Failure::NotFound { what: "buffer", id })
    }

    pub fn binding(&self, id: u64) -> Result<Arc<Binding>, Failure> {
        self.owned().bindings.get(id).cloned().ok_or(Failure::NotFound { what: "binding", id })
    }

    pub fn sequence(&self, id: u64) -> Result<Arc<Recorded>, Failure> {
        self.owned().sequences.get(id).cloned().ok_or(Failure::NotFound { what: "sequence", id })
    }

    pub fn event(&self, id: u64) -> Result<Option<Arc<dyn Event>>, Failure> {
        if id == 0 {
            return Ok(None);
        }
        self.owned().events.get(id).cloned().map(Some).ok_or(Failure::NotFound { what: "event", id })
    }
}

fn keep<T>(waiting: &mut HashMap<u64, T>, one: T) -> Result<u64, Failure> {
    if waiting.len() >= MAX_TOKENS {
        let found = waiting.len() as u64;
        return Err(Failure::Limit {
            what: "hand-off tokens",
            key: "hand-off tokens",
            found,
            allowed: MAX_TOKENS as u64,
        });
    }
    let token = registry::random_u64();
    waiting.insert(token, one);
    Ok(token)
}

/// Refuses what would be one more than a limit allows.
///
/// # Errors
/// RESOURCE_EXHAUSTED.
pub fn check_limit(what: &'static str, key: &'static str, found: usize, allowed: u32) -> Result<(), Failure> {
    if found < allowed as usize {
        Ok(())
    } else {
        Err(Failure::Limit { what, key, found: found as u64, allowed: u64::from(allowed) })
    }
}
