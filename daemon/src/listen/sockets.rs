//! The daemon's own sockets: the right mode from creation, a stale one replaced, anything else left alone.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use thiserror::Error;

use super::activation;
use super::lock::{Lock, LockError};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

/// Both listening sockets, and the lock that makes them ours.
#[derive(Debug)]
pub struct Sockets {
    pub grpc: OwnedFd,
    pub handoff: OwnedFd,
    /// The paths that are removed at the end; none when a service manager owns them.
    own: Vec<PathBuf>,
    _lock: Option<Lock>,
}

#[derive(Debug, Error)]
pub enum SocketError {
    #[error("{0}")]
    Lock(#[from] LockError),
    #[error("{0}")]
    Activation(#[from] activation::ActivationError),
    #[error("{} is there and is no socket; it is left alone: choose another path, or move it away", .0.display())]
    NoSocket(PathBuf),
    #[error("cannot make the socket {}: {source}", path.display())]
    Os { path: PathBuf, source: std::io::Error },
}

impl Sockets {
    /// The service manager's sockets where it passed some, else new ones at `socket` and beside it.
    ///
    /// # Errors
    /// Another daemon has the socket, something else is at the path, or the system refuses.
    pub fn open(socket: &Path, mode: u32) -> Result<Sockets, SocketError> {
        let handoff = hippihx_proto::handoff_path(socket);
        if let Some((grpc, handoff)) = activation::sockets(socket, &handoff)? {
            return Ok(Sockets { grpc, handoff, own: Vec::new(), _lock: None });
        }
        let mut lock = socket.as_os_str().to_owned();
        lock.push(".lock");
        let lock = Lock::take(Path::new(&lock), &socket.display().to_string())?;
        let grpc = make(socket, SocketType::STREAM, mode)?;
        let handed = make(&handoff, SocketType::SEQPACKET, mode)?;
        Ok(Sockets { grpc, handoff: handed, own: vec![socket.to_owned(), handoff], _lock: Some(lock) })
    }

    /// Takes the listening descriptors out; what is left removes the paths when it is dropped.
    ///
    /// # Errors
    /// The descriptors cannot be duplicated.
    pub fn descriptors(&self) -> std::io::Result<(OwnedFd, OwnedFd)> {
        Ok((self.grpc.try_clone()?, self.handoff.try_clone()?))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // Still under the lock, so these are ours.
        for path in &self.own {
            let _ = fs::remove_file(path);
        }
    }
}

fn make(path: &Path, kind: SocketType, mode: u32) -> Result<OwnedFd, SocketError> {
    let os = |source: std::io::Error| SocketError::Os { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        // Nobody holds the lock but us, so a socket here is what a crash left.
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(os)?,
        Ok(_) => return Err(SocketError::NoSocket(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(os(error)),
    }
    let errno = |errno: rustix::io::Errno| os(errno.into());
    let socket =
        socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).map_err(errno)?;
    let address = SocketAddrUnix::new(path).map_err(errno)?;
    // A socket's inode gets its mode when it is bound: nobody may ever find it with a wider one. The daemon is alone in
    // this part of its start, so the process-wide mask hurts no other thread.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o777 & !mode));
    let bound = bind(&socket, &address);
    rustix::process::umask(mask);
    bound.map_err(errno)?;
    listen(&socket, BACKLOG).map_err(errno)?;
    Ok(socket)
}
