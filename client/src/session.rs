//! A session that outlives daemons.
//!
//! What a caller holds are descriptions: a plan's question, a buffer's memory, a binding's tensors. Each remembers the id that
//! the present daemon gave it; with another daemon, or another code object, the description is asked for again.

mod handles;
mod link;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hippihx_proto::v1::{self, run_request};
use tokio::sync::RwLock;
use tonic::Response;

pub use handles::{Binding, Buffer, Plan, PlanSpec, Sequence, TensorRef};

use crate::error::{Error, Verdict};
use crate::memory::SharedMemory;
use handles::{BindingInner, BufferInner, Known, PlanInner, SequenceInner};
use link::Link;

/// Times that one call is asked again after a daemon or a code object changed under it.
const TRIES: usize = 8;

/// How a session attaches.
#[derive(Debug, Clone)]
pub struct Options {
    /// Shown to people who look at sessions.
    pub client_name: String,
    /// The client captures graphs: a plan is then ready only where the device can take a run from inside one.
    pub captures_graphs: bool,
    /// How long a call waits for a daemon, or for the next one.
    pub patience: Duration,
}

impl Options {
    pub fn named(client_name: &str) -> Options {
        Options { client_name: client_name.to_owned(), captures_graphs: false, patience: Duration::from_secs(30) }
    }
}

/// What one run changes: rows (0 keeps the bound count), and bytes added to the bound offsets of q and out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    pub rows: u32,
    pub q_offset: u64,
    pub out_offset: u64,
}

/// A completed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunReport {
    pub device_time: Duration,
    pub queue_time: Duration,
    pub generation: u64,
}

/// An attached client. Calls may be made from several tasks at once.
#[derive(Debug)]
pub struct Session {
    socket: PathBuf,
    options: Options,
    link: RwLock<Option<Arc<Link>>>,
    /// Plans by their question, for callers that plan again; asked again with the next generation.
    plans: Mutex<HashMap<PlanSpec, Plan>>,
    /// Counts daemons that this session was attached to.
    incarnations: std::sync::atomic::AtomicU64,
}

impl Session {
    /// Attaches to the daemon at a socket, waiting for it for `options.patience` at most.
    ///
    /// # Errors
    /// [`Error::Unavailable`], or the daemon's refusal.
    pub async fn attach(socket: impl AsRef<Path>, options: Options) -> Result<Session, Error> {
        let session = Session {
            socket: socket.as_ref().to_owned(),
            options,
            link: RwLock::new(None),
            plans: Mutex::new(HashMap::new()),
            incarnations: std::sync::atomic::AtomicU64::new(0),
        };
        session.link().await?;
        Ok(session)
    }

    /// How often this session attached; 1 while the first daemon lives.
    pub fn attachments(&self) -> u64 {
        self.incarnations.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What the daemon is.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn describe(&self) -> Result<v1::DescribeResponse, Error> {
        self.call(async |link| link.stub().describe(v1::DescribeRequest {}).await.map(Response::into_inner)).await
    }

    /// # Errors
    /// As every call: see [`Error`].
    pub async fn stats(&self) -> Result<v1::StatsResponse, Error> {
        self.call(async |link| link.stub().stats(v1::StatsRequest {}).await.map(Response::into_inner)).await
    }

    /// Plans an op. The same question again costs no call, until the code object changes.
    ///
    /// # Errors
    /// The contract's refusals as [`Error::Refused`].
    pub async fn plan(&self, spec: &PlanSpec) -> Result<Plan, Error> {
        let known = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(spec).cloned();
        let plan = known.unwrap_or_else(|| Plan(Arc::new(PlanInner { spec: spec.clone(), known: Known::default() })));
        for _ in 0..TRIES {
            let link = self.link().await?;
            match self.plan_id(&link, &plan).await {
                Ok(_) => {
                    self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.clone(), plan.clone());
                    return Ok(plan);
                }
                Err(verdict) => self.settle(&link, verdict, false).await?,
            }
        }
        Err(self.draining())
    }

    /// Makes memory that this process owns and shares with the daemon; it outlives daemons, contents and all.
    ///
    /// # Errors
    /// [`Error::System`] without room, [`Error::Exhausted`] at the session's limit.
    pub async fn share(&self, label: &str, size: usize) -> Result<Buffer, Error> {
        let memory = SharedMemory::create(label, size)?;
        let buffer = Buffer(Arc::new(BufferInner {
            label: label.to_owned(),
            memory: Arc::new(memory),
            owned_by: None,
            known: Known::default(),
        }));
        self.with_buffer(buffer).await
    }

    /// Has the daemon make zeroed memory, mapped here as well. It ends with the daemon: [`Error::ContentsLost`] says so.
    ///
    /// # Errors
    /// [`Error::Exhausted`] without room or at the session's limit.
    pub async fn allocate(&self, label: &str, size: u64) -> Result<Buffer, Error> {
        let request = v1::AllocateRequest { size_bytes: size, label: label.to_owned() };
        for _ in 0..TRIES {
            let link = self.link().await?;
            match link.stub().allocate(link.authorised(request.clone())).await {
                Ok(made) => {
                    let made = made.into_inner();
                    let Some(v1::allocate_response::Handle::HandoffToken(token)) = made.handle else {
                        return Err(Error::Protocol("Allocate gave memory that this client cannot map".to_owned()));
                    };
                    let size = usize::try_from(made.size_bytes)
                        .map_err(|_| Error::Protocol("a size beyond this machine".to_owned()))?;
                    let memory = SharedMemory::map(link.hand_off.take(token)?, size)?;
                    link.hand_off.mapped(token)?;
                    let known = Known::default();
                    known.set(link.incarnation, 0, made.buffer);
                    let inner = BufferInner {
                        label: label.to_owned(),
                        memory: Arc::new(memory),
                        owned_by: Some(link.incarnation),
                        known,
                    };
                    return Ok(Buffer(Arc::new(inner)));
                }
                Err(status) => self.settle(&link, status.into(), false).await?,
            }
        }
        Err(self.draining())
    }

    /// Ties a plan to tensors, in the catalogue's order. Without `scratch` the daemon gives its own where the plan needs some.
    ///
    /// # Errors
    /// ERR_TENSOR, ERR_SCRATCH or ERR_NOT_READY as [`Error::Refused`].
    pub async fn bind(
        &self,
        plan: &Plan,
        tensors: &[TensorRef],
        scratch: Option<(&Buffer, u64, u64)>,
    ) -> Result<Binding, Error> {
        let scratch = scratch.map(|(buffer, offset, nbytes)| (buffer.clone(), offset, nbytes));
        let inner = BindingInner { plan: plan.clone(), tensors: tensors.to_vec(), scratch, known: Known::default() };
        let binding = Binding(Arc::new(inner));
        for _ in 0..TRIES {
            let link = self.link().await?;
            match self.binding_id(&link, &binding).await {
                Ok(_) => return Ok(binding),
                Err(verdict) => self.settle(&link, verdict, false).await?,
            }
        }
        Err(self.draining())
    }

    /// Runs a binding and waits until it is complete.
    ///
    /// # Errors
    /// [`Error::RunLost`] when the connection broke while it was on its way; [`Error::Device`] when the device failed it.
    pub async fn run(&self, binding: &Binding, step: Step) -> Result<RunReport, Error> {
        let change = v1::StepChange { rows: step.rows, q_offset: step.q_offset, out_offset: step.out_offset };
        for _ in 0..TRIES {
            let link = self.link().await?;
            let id = match self.binding_id(&link, binding).await {
                Ok(id) => id,
                Err(verdict) => {
                    self.settle(&link, verdict, false).await?;
                    continue;
                }
            };
            match self.run_once(&link, run_request::What::Binding(id), Some(change)).await {
                Ok(report) => return Ok(report),
                Err(verdict) => {
                    if matches!(verdict, Verdict::BindAgain) {
                        binding.0.known.forget();
                    }
                    self.settle(&link, verdict, true).await?;
                }
            }
        }
        Err(self.draining())
    }

    /// Turns an ordered list of bindings into one sequence.
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub async fn record(&self, bindings: &[Binding]) -> Result<Sequence, Error> {
        let sequence = Sequence(Arc::new(SequenceInner { bindings: bindings.to_vec(), known: Known::default() }));
        for _ in 0..TRIES {
            let link = self.link().await?;
            match self.sequence_id(&link, &sequence).await {
                Ok(_) => return Ok(sequence),
                Err(verdict) => {
                    if matches!(verdict, Verdict::BindAgain) {
                        sequence.0.forget();
                    }
                    self.settle(&link, verdict, false).await?;
                }
            }
        }
        Err(self.draining())
    }

    /// Runs a sequence and waits until all of it is complete.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn replay(&self, sequence: &Sequence) -> Result<RunReport, Error> {
        for _ in 0..TRIES {
            let link = self.link().await?;
            let id = match self.sequence_id(&link, sequence).await {
                Ok(id) => id,
                Err(verdict) => {
                    self.settle(&link, verdict, false).await?;
                    continue;
                }
            };
            match self.run_once(&link, run_request::What::Sequence(id), None).await {
                Ok(report) => return Ok(report),
                Err(verdict) => {
                    if matches!(verdict, Verdict::BindAgain) {
                        sequence.0.forget();
                    }
                    self.settle(&link, verdict, true).await?;
                }
            }
        }
        Err(self.draining())
    }

    /// Releases a binding now rather than with the session. A binding that is used again is bound again.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn release(&self, binding: &Binding) -> Result<(), Error> {
        let link = self.link().await?;
        let Some(id) = binding.0.known.get(link.incarnation, link.generation()) else { return Ok(()) };
        binding.0.known.forget();
        let request = v1::ReleaseRequest { bindings: vec![id], ..v1::ReleaseRequest::default() };
        match link.stub().release(link.authorised(request)).await {
            Ok(_) => Ok(()),
            Err(status) => self.settle(&link, status.into(), false).await,
        }
    }

    async fn run_once(
        &self,
        link: &Link,
        what: run_request::What,
        step: Option<v1::StepChange>,
    ) -> Result<RunReport, Verdict> {
        let request = v1::RunRequest { what: Some(what), step, ..v1::RunRequest::default() };
        let done = link.stub().run(link.authorised(request)).await?.into_inner();
        Ok(RunReport {
            device_time: Duration::from_micros(done.device_time_us),
            queue_time: Duration::from_micros(done.queue_time_us),
            generation: done.generation,
        })
    }

    /// A call that changes nothing: asked again whatever broke.
    async fn call<T>(&self, ask: impl AsyncFn(&Link) -> Result<T, tonic::Status>) -> Result<T, Error> {
        for _ in 0..TRIES {
            let link = self.link().await?;
            match ask(&link).await {
                Ok(answer) => return Ok(answer),
                Err(status) => self.settle(&link, status.into(), false).await?,
            }
        }
        Err(self.draining())
    }

    async fn with_buffer(&self, buffer: Buffer) -> Result<Buffer, Error> {
        for _ in 0..TRIES {
            let link = self.link().await?;
            match self.buffer_id(&link, &buffer).await {
                Ok(_) => return Ok(buffer),
                Err(verdict) => self.settle(&link, verdict, false).await?,
            }
        }
        Err(self.draining())
    }

    /// Decides what a failed call comes to: an error for the caller, or another try (`Ok`). A run that may have been accepted
    /// is never tried again.
    async fn settle(&self, link: &Arc<Link>, verdict: Verdict, is_run: bool) -> Result<(), Error> {
        match verdict {
            Verdict::Final(error) => Err(error),
            // The ids that were refused are forgotten already.
            Verdict::BindAgain => Ok(()),
            Verdict::AttachAgain => {
                self.drop_link(link).await;
                Ok(())
            }
            Verdict::Broken(detail) => {
                self.drop_link(link).await;
                if is_run { Err(Error::RunLost { detail }) } else { Ok(()) }
            }
        }
    }

    fn draining(&self) -> Error {
        Error::Draining { socket: self.socket.display().to_string() }
    }

    /// The present link, or a new one.
    async fn link(&self) -> Result<Arc<Link>, Error> {
        if let Some(link) = self.link.read().await.as_ref().filter(|link| link.is_alive()) {
            return Ok(Arc::clone(link));
        }
        let mut slot = self.link.write().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_alive()) {
            return Ok(Arc::clone(link));
        }
        *slot = None;
        let incarnation = self.incarnations.load(std::sync::atomic::Ordering::Relaxed) + 1;
        let link = Arc::new(Link::attach(&self.socket, &self.options, incarnation).await?);
        self.incarnations.store(incarnation, std::sync::atomic::Ordering::Relaxed);
        *slot = Some(Arc::clone(&link));
        Ok(link)
    }

    async fn drop_link(&self, broken: &Arc<Link>) {
        let mut slot = self.link.write().await;
        if slot.as_ref().is_some_and(|link| Arc::ptr_eq(link, broken)) {
            *slot = None;
        }
    }

    async fn plan_id(&self, link: &Link, plan: &Plan) -> Result<u64, Verdict> {
        if let Some(id) = plan.0.known.get(link.incarnation, link.generation()) {
            return Ok(id);
        }
        let answer = link.stub().plan(link.authorised(plan.0.spec.request())).await?.into_inner();
        let id = answer.plan;
        link.observe(answer.generation);
        plan.0.known.set_answer(link.incarnation, answer);
        Ok(id)
    }

    async fn buffer_id(&self, link: &Link, buffer: &Buffer) -> Result<u64, Verdict> {
        if let Some(id) = buffer.0.known.get(link.incarnation, 0) {
            return Ok(id);
        }
        if buffer.0.owned_by.is_some() {
            return Err(Verdict::Final(Error::ContentsLost { label: buffer.0.label.clone() }));
        }
        use std::os::fd::AsFd;
        let token = link.hand_off.put(buffer.0.memory.as_fd()).map_err(|error| match error {
            // The socket went with its daemon; the next one has another.
            Error::System { .. } => Verdict::Broken(error.to_string()),
            other => Verdict::Final(other),
        })?;
        let source = Some(v1::import_request::Source::HandoffToken(token));
        let request = v1::ImportRequest { source, label: buffer.0.label.clone() };
        let id = link.stub().import(link.authorised(request)).await?.into_inner().buffer;
        buffer.0.known.set(link.incarnation, 0, id);
        Ok(id)
    }

    async fn binding_id(&self, link: &Link, binding: &Binding) -> Result<u64, Verdict> {
        if let Some(id) = binding.0.known.get(link.incarnation, link.generation()) {
            return Ok(id);
        }
        let mut tensors = Vec::with_capacity(binding.0.tensors.len());
        for tensor in &binding.0.tensors {
            let id = match &tensor.buffer {
                Some(buffer) => self.buffer_id(link, buffer).await?,
                None => 0,
            };
            tensors.push(tensor.wire(id));
        }
        let scratch = match &binding.0.scratch {
            Some((buffer, offset, nbytes)) => {
                Some(v1::Scratch { buffer: self.buffer_id(link, buffer).await?, offset: *offset, nbytes: *nbytes })
            }
            None => None,
        };
        let plan = self.plan_id(link, &binding.0.plan).await?;
        let request = v1::BindRequest { plan, tensors, scratch };
        let bound = link.stub().bind(link.authorised(request)).await?.into_inner();
        link.observe(bound.generation);
        binding.0.known.set(link.incarnation, bound.generation, bound.binding);
        Ok(bound.binding)
    }

    async fn sequence_id(&self, link: &Link, sequence: &Sequence) -> Result<u64, Verdict> {
        if let Some(id) = sequence.0.known.get(link.incarnation, link.generation()) {
            return Ok(id);
        }
        let mut bindings = Vec::with_capacity(sequence.0.bindings.len());
        for binding in &sequence.0.bindings {
            bindings.push(self.binding_id(link, binding).await?);
        }
        let recorded = link.stub().record(link.authorised(v1::RecordRequest { bindings })).await?.into_inner();
        sequence.0.known.set(link.incarnation, recorded.generation, recorded.sequence);
        Ok(recorded.sequence)
    }
}
