//! Every message and frame that crosses a process boundary.
//!
//! [`v1`] is the gRPC service, rendered from `hippihx/v1/kernel_service.proto` by `cargo xtask codegen`; [`handoff`] are the
//! frames of the socket on which descriptors change hands; [`errors`] is how a refusal travels. The ring's layout is the
//! crate `hippihx-ring` in `ring/`.

#![forbid(unsafe_code)]

pub mod errors;
pub mod handoff;

use std::path::{Path, PathBuf};

/// Package `hippihx.v1`.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_debug_implementations, reason = "rendered code")]
pub mod v1 {
    include!("generated/hippihx.v1.rs");
}

/// All descriptors of the service, as gRPC reflection wants them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

/// gRPC metadata key of the session id, in decimal.
pub const SESSION_KEY: &str = "hippihx-session";
/// gRPC metadata key of the session's secret, 16 bytes.
pub const SECRET_KEY: &str = "hippihx-secret-bin";
/// Bytes of a session's secret.
pub const SECRET_BYTES: usize = 16;
/// Largest message in either direction, in bytes: a code object must fit.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Where a client looks when nothing else is said.
pub const DEFAULT_SOCKET: &str = "/run/hippihx/0/hippihx.sock";
/// Environment variable by which a client is told the socket.
pub const SOCKET_VARIABLE: &str = "HIPPIHX_SOCKET";

/// The hand-off socket beside a gRPC socket.
pub fn handoff_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".handoff");
    PathBuf::from(path)
}
