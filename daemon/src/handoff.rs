//! The hand-off socket's server: descriptors in and out of sessions.
//!
//! One packet is one frame. A peer that sends anything else is told why and disconnected; descriptors are counted when they
//! arrive, and close with the connection or the session whatever happens.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use hippihx_proto::handoff::{MAX_FRAME_BYTES, Reply, Request};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, accept_with, recvmsg, sendmsg, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

use crate::daemon::Daemon;
use crate::errors::Failure;
use crate::listen::peer::Peer;
use crate::memory::seal_handed_over;
use crate::session::Session;

/// Hand-off connections at the same time; a client needs one.
const MAX_CONNECTIONS: usize = 1024;
/// Descriptors that one packet has room for; more than one is refused, but must be received to be closed.
const ROOM: usize = 8;

/// Accepts connections until the task is dropped.
pub async fn serve(daemon: Arc<Daemon>, listener: OwnedFd) -> std::io::Result<()> {
    let listener = watched(listener)?;
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let mut ready = listener.readable().await?;
        let accepted = ready.try_io(|listener| {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            Ok(accept_with(listener.get_ref(), flags)?)
        });
        let connection = match accepted {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                // Out of descriptors, most likely: the next connection may find some.
                tracing::warn!(%error, "hand-off accept failed");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
            Err(_would_block) => continue,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(limit = MAX_CONNECTIONS, "hand-off connection refused: too many");
            continue;
        };
        let daemon = Arc::clone(&daemon);
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = converse(&daemon, connection).await {
                tracing::debug!(%error, "hand-off connection ended");
            }
        });
    }
}

async fn converse(daemon: &Daemon, connection: OwnedFd) -> std::io::Result<()> {
    let cred = sockopt::socket_peercred(&connection)?;
    let peer = Peer {
        uid: cred.uid.as_raw(),
        gid: cred.gid.as_raw(),
        pid: rustix::process::Pid::as_raw(Some(cred.pid)).cast_unsigned(),
    };
    let connection = watched(connection)?;
    if let Err(failure) = daemon.admission().admit(&peer) {
        return send(&connection, &refused(&failure), None).await;
    }
    let mut session: Option<Arc<Session>> = None;
    loop {
        let Some((frame, descriptors)) = receive(&connection).await? else { return Ok(()) };
        let answer = match Request::decode(&frame) {
            Ok(request) => answer(daemon, &peer, &mut session, &request, descriptors),
            Err(error) => Err(Failure::invalid("frame", error.to_string())),
        };
        match answer {
            Ok((reply, descriptor)) => send(&connection, &reply, descriptor.as_ref().map(AsFd::as_fd)).await?,
            Err(failure) => {
                send(&connection, &refused(&failure), None).await?;
                // A malformed frame or a wrong secret ends the conversation; a wrong token does not.
                if session.is_none() || matches!(failure, Failure::Invalid { .. }) {
                    return Ok(());
                }
            }
        }
    }
}

fn answer(
    daemon: &Daemon,
    peer: &Peer,
    session: &mut Option<Arc<Session>>,
    request: &Request,
    mut descriptors: Vec<OwnedFd>,
) -> Result<(Reply, Option<OwnedFd>), Failure> {
    let wanted = usize::from(matches!(request, Request::Put));
    if descriptors.len() != wanted {
        return Err(Failure::invalid(
            "frame",
            format!("came with {} descriptors; {wanted} belong to it", descriptors.len()),
        ));
    }
    if let Request::Hello { session: id, secret } = request {
        *session = Some(daemon.sessions.authenticate(*id, secret, peer.uid)?);
        return Ok((Reply::Done, None));
    }
    let session = session.as_ref().filter(|session| !session.has_ended());
    let session = session.ok_or_else(|| Failure::Unauthenticated("say Hello with a live session first".to_owned()))?;
    match (request, descriptors.pop()) {
        (Request::Put, Some(descriptor)) => Ok((Reply::Token(session.keep_handed_over(descriptor)?), None)),
        (Request::Take { token }, _) => Ok((Reply::Done, Some(session.fetch(*token)?))),
        (Request::Mapped { token }, _) => {
            let (memfd, size) = session.fetched(*token)?;
            seal_handed_over(memfd.as_fd(), size)?;
            Ok((Reply::Done, None))
        }
        _ => Err(Failure::invalid("frame", "is no request of this state")),
    }
}

/// A socket that the runtime watches.
fn watched(socket: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open descriptor until it is dropped, and the AsyncFd owns it from here on.
    Ok(unsafe { AsyncFd::register(socket) }?)
}

fn refused(failure: &Failure) -> Reply {
    Reply::Refused { code: failure.code() as u32, message: failure.to_string() }
}

/// One packet; `None` at the end of the connection.
async fn receive(connection: &AsyncFd<OwnedFd>) -> std::io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    connection
        .async_io(Interest::READABLE, |socket| {
            // A byte more than any frame has, so that a longer one is seen to be too long.
            let mut bytes = [0_u8; MAX_FRAME_BYTES + 1];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            if got.bytes == 0 && descriptors.is_empty() {
                return Ok(None);
            }
            if got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "a packet was too long, or came with too many descriptors",
                ));
            }
            Ok(Some((bytes[..got.bytes].to_vec(), descriptors)))
        })
        .await
}

async fn send(connection: &AsyncFd<OwnedFd>, reply: &Reply, descriptor: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
    let frame = reply.encode();
    connection
        .async_io(Interest::WRITABLE, |socket| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let one = descriptor.map(|descriptor| [descriptor]);
            if let Some(one) = &one {
                control.push(SendAncillaryMessage::ScmRights(one));
            }
            sendmsg(socket, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
            Ok(())
        })
        .await
}
