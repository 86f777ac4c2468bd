//! Sockets from a service manager (LISTEN_FDS), told apart by their addresses: one socket unit names them alike.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{SocketAddrUnix, SocketType, getsockname, sockopt};
use thiserror::Error;

/// The first descriptor that a service manager passes.
const FIRST: i32 = 3;
const MAX: i32 = 16;

#[derive(Debug, Error)]
pub enum ActivationError {
    #[error("LISTEN_FDS is {0:?}; a number from 1 to {MAX} is needed")]
    Count(String),
    #[error("descriptor {descriptor} from the service manager is no socket: {source}")]
    NoSocket { descriptor: i32, source: std::io::Error },
    #[error(
        "the service manager passed sockets at {}; {} (stream) and {} (sequential packet) are needed: compare ListenStream and \
         ListenSequentialPacket with --socket",
        .found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "), .grpc.display(), .handoff.display()
    )]
    Missing { found: Vec<PathBuf>, grpc: PathBuf, handoff: PathBuf },
}

/// The gRPC and the hand-off socket, when this process was socket-activated.
///
/// # Errors
/// What was passed is not the two sockets that the configuration names.
pub fn sockets(grpc: &Path, handoff: &Path) -> Result<Option<(OwnedFd, OwnedFd)>, ActivationError> {
    let ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let Some(count) = std::env::var("LISTEN_FDS").ok().filter(|_| ours) else { return Ok(None) };
    let number = count.parse::<i32>().ok().filter(|number| (1..=MAX).contains(number));
    let number = number.ok_or(ActivationError::Count(count))?;
    choose(FIRST..FIRST + number, grpc, handoff).map(Some)
}

fn choose(passed: std::ops::Range<i32>, grpc: &Path, handoff: &Path) -> Result<(OwnedFd, OwnedFd), ActivationError> {
    let (mut stream, mut packets, mut found) = (None, None, Vec::new());
    for descriptor in passed {
        let no_socket = |errno: rustix::io::Errno| ActivationError::NoSocket { descriptor, source: errno.into() };
        let socket = duplicate(descriptor).map_err(|source| ActivationError::NoSocket { descriptor, source })?;
        let kind = sockopt::socket_type(&socket).map_err(no_socket)?;
        let address = getsockname(&socket).map_err(no_socket)?;
        let path = SocketAddrUnix::try_from(address)
            .ok()
            .and_then(|address| address.path().map(|path| PathBuf::from(path.to_string_lossy().into_owned())));
        let path = path.unwrap_or_default();
        rustix::io::ioctl_fionbio(&socket, true).map_err(no_socket)?;
        if path == grpc && kind == SocketType::STREAM {
            stream = Some(socket);
        } else if path == handoff && kind == SocketType::SEQPACKET {
            packets = Some(socket);
        }
        found.push(path);
    }
    match (stream, packets) {
        (Some(stream), Some(packets)) => Ok((stream, packets)),
        _ => Err(ActivationError::Missing { found, grpc: grpc.to_owned(), handoff: handoff.to_owned() }),
    }
}

/// Our own descriptor of what was passed; closes on exec, unlike the one it was made from.
fn duplicate(descriptor: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: the service manager's protocol says that these numbers are open in this process and nobody closes them; the
    // borrow ends with this call.
    let passed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    passed.try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::sockets::Sockets;
    use super::*;

    #[test]
    fn two_sockets_are_told_apart_by_address_in_either_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let handoff = hippihx_proto::handoff_path(&path);
        let made = Sockets::open(&path, 0o600).unwrap();
        let (a, b) = (made.grpc.as_raw_fd(), made.handoff.as_raw_fd());
        // Descriptors of one range, whichever comes first; others between them are passed over or refused.
        let range = a.min(b)..a.max(b) + 1;
        if range.len() == 2 {
            let (grpc, packets) = choose(range.clone(), &path, &handoff).unwrap();
            assert_eq!(sockopt::socket_type(&grpc).unwrap(), SocketType::STREAM);
            assert_eq!(sockopt::socket_type(&packets).unwrap(), SocketType::SEQPACKET);
            let text = choose(range, Path::new("/elsewhere"), &handoff).unwrap_err().to_string();
            assert!(text.contains("/elsewhere") && text.contains("s.sock"), "{text}");
        }
    }
}
