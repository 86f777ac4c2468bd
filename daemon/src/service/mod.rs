//! The gRPC service: who asks, then the one function that answers.

mod describe;
mod lease;
mod memory;
mod runs;

use std::pin::Pin;
use std::sync::Arc;

use hippihx_proto::v1;
use hippihx_proto::v1::kernel_service_server::KernelService;
use hippihx_proto::{SECRET_KEY, SESSION_KEY};
use tokio_stream::Stream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use crate::daemon::Daemon;
use crate::errors::Failure;
use crate::listen::peer::Peer;
use crate::session::Session;

/// Answers of a streaming call.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Debug, Clone)]
pub struct Service {
    daemon: Arc<Daemon>,
}

impl Service {
    pub fn new(daemon: Arc<Daemon>) -> Service {
        Service { daemon }
    }

    /// The peer of a request, when it is admitted.
    fn peer<T>(&self, request: &Request<T>) -> Result<Peer, Failure> {
        let peer = Peer::of(request.extensions().get::<UdsConnectInfo>()).ok_or_else(|| {
            Failure::Denied("the kernel does not say who is at the other end of this socket".to_owned())
        })?;
        self.daemon.admission().admit(&peer)?;
        Ok(peer)
    }

    /// The session that a request carries.
    fn session<T>(&self, request: &Request<T>) -> Result<Arc<Session>, Failure> {
        let peer = self.peer(request)?;
        let missing = |what: &str| {
            Failure::Unauthenticated(format!(
                "the metadata {what} is missing or malformed; attach, and send what it gave"
            ))
        };
        let metadata = request.metadata();
        let id = metadata
            .get(SESSION_KEY)
            .and_then(|id| id.to_str().ok()?.parse().ok())
            .ok_or_else(|| missing(SESSION_KEY))?;
        let secret = metadata
            .get_bin(SECRET_KEY)
            .and_then(|secret| secret.to_bytes().ok())
            .ok_or_else(|| missing(SECRET_KEY))?;
        self.daemon.sessions.authenticate(id, &secret, peer.uid)
    }
}

#[tonic::async_trait]
impl KernelService for Service {
    type AttachStream = Answers<v1::SessionEvent>;
    type RunStreamStream = Answers<v1::RunStreamResponse>;

    async fn describe(&self, request: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        self.peer(&request)?;
        Ok(Response::new(describe::describe(&self.daemon)))
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Result<Response<Self::AttachStream>, Status> {
        let peer = self.peer(&request)?;
        Ok(Response::new(Box::pin(lease::attach(&self.daemon, peer, request.into_inner())?)))
    }

    async fn load(&self, request: Request<v1::LoadRequest>) -> Result<Response<v1::LoadResponse>, Status> {
        let peer = self.peer(&request)?;
        self.daemon.admission().admit_admin(&peer, "loading code objects")?;
        let daemon = Arc::clone(&self.daemon);
        let request = request.into_inner();
        Ok(Response::new(to_its_end(move || describe::load(&daemon, request)).await?))
    }

    async fn plan(&self, request: Request<v1::PlanRequest>) -> Result<Response<v1::PlanResponse>, Status> {
        let session = self.session(&request)?;
        Ok(Response::new(runs::plan(&self.daemon, &session, request.get_ref())?))
    }

    async fn import(&self, request: Request<v1::ImportRequest>) -> Result<Response<v1::ImportResponse>, Status> {
        let session = self.session(&request)?;
        let daemon = Arc::clone(&self.daemon);
        let request = request.into_inner();
        Ok(Response::new(to_its_end(move || memory::import(&daemon, &session, request)).await?))
    }

    async fn allocate(&self, request: Request<v1::AllocateRequest>) -> Result<Response<v1::AllocateResponse>, Status> {
        let session = self.session(&request)?;
        let daemon = Arc::clone(&self.daemon);
        let request = request.into_inner();
        Ok(Response::new(to_its_end(move || memory::allocate(&daemon, &session, request)).await?))
    }

    async fn bind(&self, request: Request<v1::BindRequest>) -> Result<Response<v1::BindResponse>, Status> {
        let session = self.session(&request)?;
        let daemon = Arc::clone(&self.daemon);
        let request = request.into_inner();
        Ok(Response::new(to_its_end(move || runs::bind(&daemon, &session, &request)).await?))
    }

    async fn run(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::RunResponse>, Status> {
        let session = self.session(&request)?;
        let span = runs::span(&session, request.get_ref().user_data);
        let run = async {
            let (user_data, answer) = runs::start(&self.daemon, &session, request.into_inner()).await?;
            runs::finish(user_data, answer).await
        };
        Ok(Response::new(run.instrument(span).await?))
    }

    async fn run_stream(
        &self,
        request: Request<Streaming<v1::RunRequest>>,
    ) -> Result<Response<Self::RunStreamStream>, Status> {
        let session = self.session(&request)?;
        Ok(Response::new(Box::pin(runs::stream(Arc::clone(&self.daemon), session, request.into_inner()))))
    }

    async fn record(&self, request: Request<v1::RecordRequest>) -> Result<Response<v1::RecordResponse>, Status> {
        let session = self.session(&request)?;
        Ok(Response::new(runs::record(&self.daemon, &session, request.into_inner()).await?))
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseResponse>, Status> {
        let session = self.session(&request)?;
        let daemon = Arc::clone(&self.daemon);
        let request = request.into_inner();
        Ok(Response::new(to_its_end(move || memory::release(&daemon, &session, &request)).await?))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        self.peer(&request)?;
        Ok(Response::new(describe::stats(&self.daemon)))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainResponse>, Status> {
        let peer = self.peer(&request)?;
        self.daemon.admission().admit_admin(&peer, "draining")?;
        let sessions = &self.daemon.sessions;
        let answer = v1::DrainResponse { runs_in_flight: sessions.in_flight() as u64, sessions: sessions.len() as u64 };
        self.daemon.lifecycle.drain();
        Ok(Response::new(answer))
    }
}

/// Runs what changes state, and may block in a device, off the runtime: to its end also when the call is cancelled.
async fn to_its_end<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Status::from),
        Err(error) => {
            tracing::error!(%error, "a call panicked");
            Err(Status::internal("the daemon failed at this call and logged why; other calls go on"))
        }
    }
}
