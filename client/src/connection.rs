//! A gRPC channel over a Unix socket.

use std::path::{Path, PathBuf};

use hippihx_proto::MAX_MESSAGE_BYTES;
use hippihx_proto::v1::kernel_service_client::KernelServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::error::Error;

/// The rendered client of the service, for calls that need no session.
pub type Stub = KernelServiceClient<Channel>;

/// Connects to a daemon's socket, once: the answer says at once whether somebody listens.
///
/// # Errors
/// [`Error::Unavailable`].
pub async fn connect(socket: impl AsRef<Path>) -> Result<Stub, Error> {
    Ok(KernelServiceClient::new(channel(socket).await?)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES))
}

/// The channel alone, for the daemon's other services (health, reflection).
///
/// # Errors
/// [`Error::Unavailable`].
pub async fn channel(socket: impl AsRef<Path>) -> Result<Channel, Error> {
    let path: PathBuf = socket.as_ref().to_owned();
    let unavailable = |detail: String| Error::Unavailable { socket: path.display().to_string(), detail };
    // The address is never looked at: the connector knows the path.
    let endpoint = Endpoint::from_static("http://hippihxd");
    let to = path.clone();
    let connector = tower::service_fn(move |_| {
        let to = to.clone();
        async move { UnixStream::connect(to).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| {
        use std::error::Error as _;
        let mut detail = error.to_string();
        let mut source = error.source();
        while let Some(deeper) = source {
            detail = deeper.to_string();
            source = deeper.source();
        }
        unavailable(detail)
    })
}
