//! Plan, Bind, Run and Record.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hippihx_kernels::launch::Launch;
use hippihx_kernels::refusal::ShortText;
use hippihx_kernels::{Caps, Fabric, Op, ParamValue, Reason, Refusal, op_by_id, op_by_name};
use hippihx_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};
use tracing::Instrument;

use super::memory;
use crate::daemon::Daemon;
use crate::errors::Failure;
use crate::objects::Loaded;
use crate::plans::CachedPlan;
use crate::session::binding::{Bind, Binding, Recorded, not_ready};
use crate::session::queue::{Answer, Run};
use crate::session::{Session, check_limit};

/// Answers of a stream that may wait for its reader.
const STREAM_ANSWERS: usize = 256;
/// Bindings of one sequence at most.
const MAX_SEQUENCE: usize = 4096;

/// What a client that captures graphs is told where the device cannot run from inside one.
const NO_CAPTURE: &str = "this client captures graphs, and the device cannot take a run from inside one";

pub(super) fn plan(daemon: &Daemon, session: &Session, request: &v1::PlanRequest) -> Result<v1::PlanResponse, Failure> {
    let op = op_of(request)?;
    let wanted = request.caps.as_ref().ok_or_else(|| Refusal::for_op(op, Reason::Null { what: "caps" }))?;
    let fabric = wanted.fabric.as_ref().map(|fabric| Fabric {
        hop: fabric.hop,
        pcie_switch: fabric.pcie_switch,
        width: fabric.width,
        acs_clear: fabric.acs_clear,
        large_bar: fabric.large_bar,
    });
    let caps = Caps { arch: &wanted.arch, wave: wanted.wave, dtype: wanted.dtype, fabric };
    let params: Vec<ParamValue> = request
        .params
        .iter()
        .map(|param| match param.value {
            Some(v1::param_value::Value::I(value)) => ParamValue::from_i64(value),
            Some(v1::param_value::Value::F(value)) => ParamValue::from_f64(value),
            None => ParamValue::default(),
        })
        .collect();
    let (found, cached) = daemon.plans.plan(op, &caps, &params)?;
    let loaded = daemon.objects.current();
    let why = not_ready_reason(daemon, session, &loaded, &found);
    {
        let mut owned = session.owned();
        if !owned.plans.contains_key(&found.id) {
            check_limit("plans", "plans", owned.plans.len(), session.limits.plans)?;
            owned.plans.insert(found.id, Arc::clone(&found));
        }
    }
    let plan = &found.plan;
    Ok(v1::PlanResponse {
        plan: found.id,
        op_id: plan.op.id,
        ready: why.is_none(),
        not_ready_reason: why.unwrap_or_default().to_owned(),
        variant: plan.variant,
        wave: plan.wave,
        scratch: plan
            .scratch()
            .iter()
            .map(|block| v1::ScratchSpec { name: block.name.to_owned(), nbytes: block.nbytes, offset: block.offset })
            .collect(),
        scratch_nbytes: plan.scratch_nbytes(),
        generation: loaded.generation,
        cached,
    })
}

fn op_of(request: &v1::PlanRequest) -> Result<&'static Op, Failure> {
    use v1::plan_request::Op as Named;
    match &request.op {
        Some(Named::OpId(id)) => op_by_id(*id).ok_or_else(|| Refusal::of(Reason::UnknownOp { found: *id }).into()),
        Some(Named::OpName(name)) => op_by_name(name)
            .ok_or_else(|| Refusal::of(Reason::UnknownOpName { found: ShortText::new(name.as_bytes()) }).into()),
        None => Err(Failure::invalid("op", "an op id or an op name is needed")),
    }
}

/// Why a plan cannot run here and now: it is for another slot, the object lacks it, or the client captures graphs.
fn not_ready_reason(daemon: &Daemon, session: &Session, loaded: &Loaded, plan: &CachedPlan) -> Option<&'static str> {
    if plan.plan.slot != daemon.slot {
        return Some("the plan is for another slot than the one that this daemon serves");
    }
    let why = loaded.not_ready(plan.plan.op, daemon.slot);
    why.or_else(|| (session.captures_graphs && !daemon.device.describe().capture_supported).then_some(NO_CAPTURE))
}

pub(super) fn bind(daemon: &Daemon, session: &Session, request: &v1::BindRequest) -> Result<v1::BindResponse, Failure> {
    let binding = Arc::new(check(daemon, session, request)?);
    let (generation, launches) = (binding.loaded.generation, binding.launches.len() as u32);
    let mut owned = session.owned();
    if session.has_ended() {
        return Err(Failure::SessionEnded("its lease is over".to_owned()));
    }
    check_limit("bindings", "bindings", owned.bindings.len(), session.limits.bindings)?;
    let binding = owned.bindings.insert(binding).ok_or_else(|| memory::out_of_ids("bindings"))?;
    Ok(v1::BindResponse { binding, generation, launches })
}

/// Everything of a bind but the id.
fn check(daemon: &Daemon, session: &Session, request: &v1::BindRequest) -> Result<Binding, Failure> {
    let plan = session.plan(request.plan)?;
    let loaded = daemon.objects.current();
    let op = plan.plan.op;
    let why = not_ready_reason(daemon, session, &loaded, &plan);
    let mut bind =
        Bind { plan, loaded, tensors: &request.tensors, scratch: request.scratch.as_ref(), own_scratch: None };
    // The contract's order: tensors, then scratch, then readiness. Scratch of our own is made only for a plan that can run.
    if why.is_none() && bind.needs_scratch() {
        bind.own_scratch = Some(memory::scratch(daemon, session, bind.plan.plan.scratch_nbytes())?);
    } else if let Some(why) = why
        && bind.needs_scratch()
    {
        bind.check_tensors()?;
        return Err(not_ready(op, why).into());
    }
    let binding = bind.check(&session.owned())?;
    match why {
        Some(why) => Err(not_ready(op, why).into()),
        None => Ok(binding),
    }
}

/// The span of one run, in its session's: at debug, since an engine makes thousands a second.
pub(super) fn span(session: &Session, user_data: u64) -> tracing::Span {
    tracing::debug_span!(parent: &session.span, "run", user_data)
}

/// Accepts a run, and gives its user data and the answer to come.
pub(super) async fn start(
    daemon: &Arc<Daemon>,
    session: &Arc<Session>,
    request: v1::RunRequest,
) -> Result<(u64, Answer), Failure> {
    use v1::run_request::What;
    let step = request.step.unwrap_or_default();
    let run = match request.what {
        Some(What::Binding(id)) => {
            let binding = session.binding(id)?;
            let step = binding.step(&step)?;
            Run::Binding(binding, step)
        }
        Some(What::Sequence(id)) => {
            if step != v1::StepChange::default() {
                return Err(Failure::invalid(
                    "step",
                    "a sequence runs as it was recorded; run its bindings to change a step",
                ));
            }
            Run::Sequence(session.sequence(id)?)
        }
        Some(What::Inline(bind)) => {
            let (daemon, session) = (Arc::clone(daemon), Arc::clone(session));
            let checked = tokio::task::spawn_blocking(move || check(&daemon, &session, &bind)).await;
            let binding =
                checked.map_err(|error| Failure::invalid("inline", format!("the bind failed: {error}")))??;
            let step = binding.step(&step)?;
            Run::Binding(Arc::new(binding), step)
        }
        None => return Err(Failure::invalid("what", "a binding, a sequence or an inline bind is needed")),
    };
    fresh(
        daemon,
        match &run {
            Run::Binding(binding, _) => &binding.loaded,
            Run::Sequence(recorded) => &recorded.loaded,
        },
    )?;
    let (wait, record) = (session.event(request.wait_event)?, session.event(request.record_event)?);
    let answer = session.queue.run(run, wait, record)?;
    tracing::debug!("accepted");
    session.runs.fetch_add(1, Ordering::Relaxed);
    Ok((request.user_data, answer))
}

/// Refuses what was bound under an older generation.
fn fresh(daemon: &Daemon, loaded: &Loaded) -> Result<(), Failure> {
    let now = daemon.objects.current().generation;
    if loaded.generation == now { Ok(()) } else { Err(Failure::StaleGeneration { bound: loaded.generation, now }) }
}

/// Waits for the answer. A caller that goes away does not stop the run.
pub(super) async fn finish(user_data: u64, answer: Answer) -> Result<v1::RunResponse, Failure> {
    let done = answer.await.unwrap_or_else(|_| Err(Failure::SessionEnded("its queue is gone".to_owned())))?;
    Ok(v1::RunResponse {
        user_data,
        device_time_us: u64::try_from(done.device.as_micros()).unwrap_or(u64::MAX),
        queue_time_us: u64::try_from(done.queued.as_micros()).unwrap_or(u64::MAX),
        generation: done.generation,
    })
}

/// Accepts runs as they come and answers in their order: the next is accepted while the last is still running.
pub(super) fn stream(
    daemon: Arc<Daemon>,
    session: Arc<Session>,
    mut requests: Streaming<v1::RunRequest>,
) -> impl Stream<Item = Result<v1::RunStreamResponse, Status>> {
    let (accepted, mut waiting) = mpsc::channel(STREAM_ANSWERS);
    let (answers, out) = mpsc::channel(STREAM_ANSWERS);
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let Ok(request) = request else { break };
            let user_data = request.user_data;
            let span = span(&session, user_data);
            let started = start(&daemon, &session, request).instrument(span).await.map(|(_, answer)| answer);
            if accepted.send((user_data, started)).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((user_data, started)) = waiting.recv().await {
            let outcome = match started {
                Ok(answer) => finish(user_data, answer).await,
                Err(failure) => Err(failure),
            };
            let outcome = match outcome {
                Ok(done) => v1::run_stream_response::Outcome::Done(done),
                Err(failure) => v1::run_stream_response::Outcome::Failure(run_failure(&failure)),
            };
            if answers.send(Ok(v1::RunStreamResponse { user_data, outcome: Some(outcome) })).await.is_err() {
                break;
            }
        }
    });
    ReceiverStream::new(out)
}

fn run_failure(failure: &Failure) -> v1::RunFailure {
    v1::RunFailure {
        code: failure.code() as i32,
        status: failure.v1().map_or(0, hippihx_kernels::Status::code),
        reason: failure.reason().to_owned(),
        message: failure.to_string(),
    }
}

pub(super) async fn record(
    daemon: &Daemon,
    session: &Session,
    request: v1::RecordRequest,
) -> Result<v1::RecordResponse, Failure> {
    if request.bindings.is_empty() || request.bindings.len() > MAX_SEQUENCE {
        return Err(Failure::invalid(
            "bindings",
            format!("has {} ids; 1 to {MAX_SEQUENCE} make a sequence", request.bindings.len()),
        ));
    }
    check_limit("sequences", "sequences", session.owned().sequences.len(), session.limits.sequences)?;
    let bindings = request.bindings.iter().map(|id| session.binding(*id)).collect::<Result<Vec<_>, _>>()?;
    let loaded = daemon.objects.current();
    for binding in &bindings {
        fresh(daemon, &binding.loaded)?;
        if binding.loaded.generation != loaded.generation {
            return Err(Failure::StaleGeneration { bound: binding.loaded.generation, now: loaded.generation });
        }
    }
    let launches: Vec<Launch> = bindings.iter().flat_map(|binding| binding.launches.iter().copied()).collect();
    let count = launches.len();
    let sequence = session.queue.record(Arc::clone(&loaded.module), launches).await?;
    let generation = loaded.generation;
    let op = bindings.first().map_or("", |binding| binding.op());
    let recorded = Arc::new(Recorded { sequence, loaded, op, launches: count, bindings });
    let mut owned = session.owned();
    if session.has_ended() {
        return Err(Failure::SessionEnded("its lease is over".to_owned()));
    }
    check_limit("sequences", "sequences", owned.sequences.len(), session.limits.sequences)?;
    let sequence = owned.sequences.insert(recorded).ok_or_else(|| memory::out_of_ids("sequences"))?;
    Ok(v1::RecordResponse { sequence, generation, launches: count as u32 })
}
