//! One attachment to one daemon.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hippihx_proto::v1::session_event::Event;
use hippihx_proto::v1::{self};
use hippihx_proto::{SECRET_BYTES, SECRET_KEY, SESSION_KEY};
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue};
use tonic::{Request, Streaming};

use super::Options;
use crate::connection::{Stub, connect};
use crate::error::{Error, Verdict};
use crate::handoff::HandOff;

/// Between two looks for a daemon: short at first, since a restart takes milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Link {
    stub: Stub,
    pub(crate) hand_off: HandOff,
    pub(crate) incarnation: u64,
    session: AsciiMetadataValue,
    secret: BinaryMetadataValue,
    state: Arc<State>,
    /// Reads the events; the lease ends with it.
    lease: tokio::task::JoinHandle<()>,
}

/// What the events say.
#[derive(Debug)]
struct State {
    alive: AtomicBool,
    generation: AtomicU64,
}

impl Link {
    /// Attaches, trying again while nobody listens or the daemon is going, for the session's patience.
    pub(super) async fn attach(socket: &Path, options: &Options, incarnation: u64) -> Result<Link, Error> {
        let deadline = tokio::time::Instant::now() + options.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match Link::try_attach(socket, options, incarnation).await {
                Ok(link) => return Ok(link),
                Err(Verdict::Final(error)) if !matches!(error, Error::Unavailable { .. }) => return Err(error),
                Err(Verdict::Final(error)) => error,
                Err(Verdict::AttachAgain | Verdict::BindAgain) => {
                    Error::Draining { socket: socket.display().to_string() }
                }
                Err(Verdict::Broken(detail)) => Error::Unavailable { socket: socket.display().to_string(), detail },
            };
            if tokio::time::Instant::now() + pause > deadline {
                return Err(error);
            }
            tracing::debug!(%error, "waiting for a daemon");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_attach(socket: &Path, options: &Options, incarnation: u64) -> Result<Link, Verdict> {
        let mut stub = connect(socket).await.map_err(Verdict::Final)?;
        let request = v1::AttachRequest {
            client_name: options.client_name.clone(),
            captures_graphs: options.captures_graphs,
            ..v1::AttachRequest::default()
        };
        let mut events = stub.attach(request).await?.into_inner();
        let first = events.message().await?.and_then(|event| event.event);
        let Some(Event::Attached(attached)) = first else {
            return Err(Verdict::Final(Error::Protocol("Attach did not begin with a session".to_owned())));
        };
        let malformed = |what: &str| Verdict::Final(Error::Protocol(format!("Attach gave a malformed {what}")));
        let secret: [u8; SECRET_BYTES] = attached.secret.as_ref().try_into().map_err(|_| malformed("secret"))?;
        // The path as this process sees it: the daemon may be in another mount namespace.
        let path = hippihx_proto::handoff_path(socket);
        let hand_off = HandOff::open(&path, attached.session, secret).map_err(|error| match error {
            Error::System { .. } => Verdict::Broken(error.to_string()),
            other => Verdict::Final(other),
        })?;
        let state = Arc::new(State { alive: AtomicBool::new(true), generation: AtomicU64::new(attached.generation) });
        let lease = tokio::spawn(listen(events, Arc::clone(&state)));
        Ok(Link {
            stub,
            hand_off,
            incarnation,
            session: AsciiMetadataValue::from(attached.session),
            secret: BinaryMetadataValue::from_bytes(&secret),
            state,
            lease,
        })
    }

    /// A handle for one call; channels are shared.
    pub(crate) fn stub(&self) -> Stub {
        self.stub.clone()
    }

    /// A request that carries the session.
    pub(crate) fn authorised<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(SESSION_KEY, self.session.clone());
        request.metadata_mut().insert_bin(SECRET_KEY, self.secret.clone());
        request
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state.alive.load(Ordering::Acquire)
    }

    /// The daemon's generation, as far as it was told.
    pub(crate) fn generation(&self) -> u64 {
        self.state.generation.load(Ordering::Acquire)
    }
}

impl Link {
    /// An answer may tell a new generation before its event does.
    pub(crate) fn observe(&self, generation: u64) {
        self.state.generation.fetch_max(generation, Ordering::AcqRel);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.lease.abort();
    }
}

/// Follows the events until the stream ends, which is the end of the lease.
async fn listen(mut events: Streaming<v1::SessionEvent>, state: Arc<State>) {
    while let Ok(Some(event)) = events.message().await {
        match event.event {
            Some(Event::GenerationChanged(changed)) => state.generation.store(changed.generation, Ordering::Release),
            // A daemon that drains answers what it accepted; new calls find the next one.
            Some(Event::Ended(_)) | None => break,
            Some(Event::Draining(_) | Event::Attached(_)) => {}
        }
    }
    state.alive.store(false, Ordering::Release);
}
