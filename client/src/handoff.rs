//! The client's end of the hand-off socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use hippihx_proto::SECRET_BYTES;
use hippihx_proto::handoff::{MAX_FRAME_BYTES, Reply, Request};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use crate::error::Error;

/// A connection that has said Hello. Calls block, for as long as the daemon takes to answer one packet.
#[derive(Debug)]
pub(crate) struct HandOff {
    socket: OwnedFd,
}

impl HandOff {
    pub(crate) fn open(path: &Path, session: u64, secret: [u8; SECRET_BYTES]) -> Result<HandOff, Error> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(Error::system("hand-off socket"))?;
        let address = SocketAddrUnix::new(path).map_err(Error::system("hand-off path"))?;
        connect(&socket, &address).map_err(Error::system("hand-off connect"))?;
        let hand_off = HandOff { socket };
        match hand_off.ask(&Request::Hello { session, secret }, None)? {
            (Reply::Done, None) => Ok(hand_off),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Hands a memfd over, for a token that names it in Import.
    pub(crate) fn put(&self, memfd: BorrowedFd<'_>) -> Result<u64, Error> {
        match self.ask(&Request::Put, Some(memfd))? {
            (Reply::Token(token), None) => Ok(token),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Fetches what Allocate made.
    pub(crate) fn take(&self, token: u64) -> Result<OwnedFd, Error> {
        match self.ask(&Request::Take { token }, None)? {
            (Reply::Done, Some(memfd)) => Ok(memfd),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Says that what was fetched is mapped, so that the daemon seals it.
    pub(crate) fn mapped(&self, token: u64) -> Result<(), Error> {
        match self.ask(&Request::Mapped { token }, None)? {
            (Reply::Done, None) => Ok(()),
            other => Err(unexpected(&other.0)),
        }
    }

    fn ask(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<(Reply, Option<OwnedFd>), Error> {
        let broken = Error::system("hand-off");
        let frame = request.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let one = descriptor.map(|descriptor| [descriptor]);
        if let Some(one) = &one {
            control.push(SendAncillaryMessage::ScmRights(one));
        }
        sendmsg(&self.socket, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL).map_err(broken)?;

        let mut bytes = [0_u8; MAX_FRAME_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(Error::system("hand-off"))?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        if got.bytes == 0 {
            return Err(Error::Protocol("the daemon closed the hand-off socket".to_owned()));
        }
        match Reply::decode(&bytes[..got.bytes]) {
            Ok(Reply::Refused { message, .. }) => Err(Error::Protocol(format!("hand-off refused: {message}"))),
            Ok(reply) => Ok((reply, descriptor)),
            Err(error) => Err(Error::Protocol(error.to_string())),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Protocol(format!("hand-off answered {reply:?}"))
}
