//! A client made of the protocol alone: rendered stubs and hand-off frames, none of the client library. It does what a client
//! may do, also what a well-behaved one would not.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use hippihx_proto::handoff::{self, Reply};
use hippihx_proto::v1::kernel_service_client::KernelServiceClient;
use hippihx_proto::v1::{
    self, allocate_response, import_request, param_value, plan_request, run_request, session_event,
};
use hippihx_proto::{SECRET_BYTES, SECRET_KEY, SESSION_KEY};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::attention::{Case, Inputs, Placed};

pub type Client = KernelServiceClient<Channel>;

/// One attached session.
#[derive(Debug)]
pub struct Session {
    pub client: Client,
    pub id: u64,
    pub attached: v1::Attached,
    pub events: Streaming<v1::SessionEvent>,
    handoff: OwnedFd,
}

/// Memory that both sides have: the id in gRPC, and the memfd.
#[derive(Debug)]
pub struct Buffer {
    pub id: u64,
    pub size: u64,
    pub file: File,
    /// What it was fetched with, when the daemon made it; 0 when we did.
    pub token: u64,
}

/// A case that is bound in a session.
#[derive(Debug)]
pub struct Bound {
    pub inputs: Inputs,
    pub buffer: Buffer,
    pub plan: v1::PlanResponse,
    pub binding: u64,
}

/// Connects to the gRPC socket of a daemon.
pub async fn client(socket: &Path) -> Result<Client, tonic::transport::Error> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
    });
    // The address is never looked at: the connector knows the path.
    let channel = Endpoint::from_static("http://hippihx").connect_with_connector(connector).await?;
    Ok(KernelServiceClient::new(channel))
}

impl Session {
    pub async fn attach(socket: &Path) -> Result<Self, Status> {
        Self::attach_with(socket, v1::AttachRequest { client_name: "test".to_owned(), ..Default::default() }).await
    }

    pub async fn attach_with(socket: &Path, request: v1::AttachRequest) -> Result<Self, Status> {
        let mut client = client(socket).await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut events = client.attach(request).await?.into_inner();
        let first = events.message().await?.and_then(|event| event.event);
        let Some(session_event::Event::Attached(attached)) = first else {
            return Err(Status::internal(format!("the first event is {first:?}")));
        };
        let handoff = open_handoff(Path::new(&attached.handoff_path))?;
        let session = Self { client, id: attached.session, attached, events, handoff };
        session.exchange(&handoff::Request::Hello { session: session.id, secret: session.secret()? }, None)?;
        Ok(session)
    }

    fn secret(&self) -> Result<[u8; SECRET_BYTES], Status> {
        let secret = &self.attached.secret;
        secret.as_ref().try_into().map_err(|_| Status::internal(format!("a secret of {} bytes", secret.len())))
    }

    /// A request with this session's credentials.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(SESSION_KEY, MetadataValue::from(self.id));
        metadata.insert_bin(SECRET_KEY, MetadataValue::from_bytes(&self.attached.secret));
        request
    }

    /// Hands a descriptor over and names it as a buffer.
    pub async fn import(&mut self, fd: BorrowedFd<'_>) -> Result<v1::ImportResponse, Status> {
        let token = self.put(fd)?;
        self.import_token(token).await
    }

    pub async fn import_token(&mut self, token: u64) -> Result<v1::ImportResponse, Status> {
        let source = Some(import_request::Source::HandoffToken(token));
        let request = self.request(v1::ImportRequest { source, label: "test".to_owned() });
        Ok(self.client.import(request).await?.into_inner())
    }

    /// A new sealed memfd of `size` bytes as a buffer.
    pub async fn share(&mut self, size: u64) -> Result<Buffer, Status> {
        let file = File::from(sealed_memfd(size));
        let v1::ImportResponse { buffer, size_bytes, .. } = self.import(file.as_fd()).await?;
        Ok(Buffer { id: buffer, size: size_bytes, file, token: 0 })
    }

    /// Memory made by the daemon.
    pub async fn allocate(&mut self, size: u64) -> Result<Buffer, Status> {
        let request = self.request(v1::AllocateRequest { size_bytes: size, label: "test".to_owned() });
        let answer = self.client.allocate(request).await?.into_inner();
        let Some(allocate_response::Handle::HandoffToken(token)) = answer.handle else {
            return Err(Status::internal(format!("{answer:?}")));
        };
        let file = File::from(self.take(token)?);
        Ok(Buffer { id: answer.buffer, size: answer.size_bytes, file, token })
    }

    pub async fn plan(&mut self, case: &Case) -> Result<v1::PlanResponse, Status> {
        let params = case.params();
        let last = params.len() - 1;
        let value = |(at, param): (usize, &hippihx_kernels::ParamValue)| v1::ParamValue {
            value: Some(if at == last {
                param_value::Value::F(param.as_f64())
            } else {
                param_value::Value::I(param.as_i64())
            }),
        };
        let request = self.request(v1::PlanRequest {
            op: Some(plan_request::Op::OpName("attention.fa_fdot2".to_owned())),
            caps: Some(v1::Caps { arch: "gfx1030".to_owned(), ..Default::default() }),
            params: params.iter().enumerate().map(value).collect(),
        });
        Ok(self.client.plan(request).await?.into_inner())
    }

    pub async fn bind(&mut self, request: v1::BindRequest) -> Result<v1::BindResponse, Status> {
        let request = self.request(request);
        Ok(self.client.bind(request).await?.into_inner())
    }

    /// Plans, shares and binds a case, with scratch of the daemon's.
    pub async fn bind_case(&mut self, case: &Case) -> Result<Bound, Status> {
        let inputs = case.inputs();
        let plan = self.plan(case).await?;
        let buffer = self.share(inputs.bytes.len() as u64).await?;
        let io = |error: std::io::Error| Status::internal(error.to_string());
        buffer.file.write_all_at(&inputs.bytes, 0).map_err(io)?;
        let tensors = inputs.tensors.iter().map(|placed| tensor(placed, buffer.id)).collect();
        let binding = self.bind(v1::BindRequest { plan: plan.plan, tensors, scratch: None }).await?.binding;
        Ok(Bound { inputs, buffer, plan, binding })
    }

    pub async fn run(&mut self, binding: u64) -> Result<v1::RunResponse, Status> {
        let request = self.run_request(binding);
        Ok(self.client.run(request).await?.into_inner())
    }

    pub fn run_request(&self, binding: u64) -> Request<v1::RunRequest> {
        self.request(v1::RunRequest { what: Some(run_request::What::Binding(binding)), ..Default::default() })
    }

    pub async fn release(&mut self, what: v1::ReleaseRequest) -> Result<v1::ReleaseResponse, Status> {
        let request = self.request(what);
        Ok(self.client.release(request).await?.into_inner())
    }

    pub async fn stats(&mut self) -> Result<v1::StatsResponse, Status> {
        Ok(self.client.stats(v1::StatsRequest {}).await?.into_inner())
    }

    /// Hands a descriptor over; gives its token.
    pub fn put(&self, fd: BorrowedFd<'_>) -> Result<u64, Status> {
        match self.exchange(&handoff::Request::Put, Some(fd))? {
            (Reply::Token(token), _) => Ok(token),
            other => Err(Status::internal(format!("{other:?}"))),
        }
    }

    /// Fetches the descriptor behind a token.
    pub fn take(&self, token: u64) -> Result<OwnedFd, Status> {
        match self.exchange(&handoff::Request::Take { token }, None)? {
            (Reply::Done, Some(fd)) => Ok(fd),
            other => Err(Status::internal(format!("{other:?}"))),
        }
    }

    /// One frame there and one back; a refusal becomes its status.
    pub fn exchange(
        &self,
        request: &handoff::Request,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), Status> {
        let os = |errno: rustix::io::Errno| Status::unavailable(format!("hand-off: {errno}"));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.handoff, &[IoSlice::new(&request.encode())], &mut control, SendFlags::NOSIGNAL).map_err(os)?;
        let mut frame = [0; handoff::MAX_FRAME_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let answer = recvmsg(&self.handoff, &mut [IoSliceMut::new(&mut frame)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(os)?;
        let mut fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.by_ref().flatten().next();
        match Reply::decode(&frame[..answer.bytes]).map_err(|error| Status::internal(error.to_string()))? {
            Reply::Refused { code, message } => Err(Status::new(tonic::Code::from(code.cast_signed()), message)),
            reply => Ok((reply, fd)),
        }
    }
}

impl Bound {
    /// Compares out with the float64 reference.
    pub fn verify(&self) -> Result<(), String> {
        let mut after = vec![0; self.inputs.bytes.len()];
        self.buffer.file.read_exact_at(&mut after, 0).map_err(|error| error.to_string())?;
        self.inputs.compare(&after, &self.inputs.reference())
    }
}

/// A tensor of a case in a buffer.
pub fn tensor(placed: &Placed, buffer: u64) -> v1::Tensor {
    v1::Tensor {
        buffer,
        offset: placed.offset,
        dtype: placed.dtype,
        shape: placed.shape.clone(),
        stride: placed.stride.clone(),
        absent: placed.absent,
    }
}

/// A memfd as the daemon wants it.
///
/// # Panics
/// When the machine has no room for it.
pub fn sealed_memfd(size: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&fd, size).expect("its size");
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
    fd
}

fn open_handoff(path: &Path) -> Result<OwnedFd, Status> {
    let os = |errno: rustix::io::Errno| Status::unavailable(format!("hand-off socket: {errno}"));
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(os)?;
    connect(&socket, &SocketAddrUnix::new(path).map_err(os)?).map_err(os)?;
    Ok(socket)
}

/// `ErrorInfo.reason` of an error; empty when it has none.
pub fn reason(status: &Status) -> String {
    use tonic_types::StatusExt;
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Waits until `look` gives what is wanted, and panics with what it gave last when it never does.
pub async fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let deadline = tokio::time::Instant::now() + crate::daemon::PATIENCE;
    loop {
        let found = look().await;
        if wanted(&found) {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {found:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
