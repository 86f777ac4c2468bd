//! Every refusal that gRPC can reach: its V1 name and number, its gRPC code, and what its sentence names.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use hippihx_proto::v1::{self, load_request, param_value, plan_request, run_request};
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::Daemon;
use hippihx_tests::objects;
use hippihx_tests::wire::{Session, client, tensor};
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// What is asked, reason, V1 number, gRPC code, a word of the sentence.
type Row<T> = (&'static str, fn(&mut T), &'static str, i32, Code, &'static str);

use Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, Unauthenticated};

fn expect(what: &str, error: &Status, reason: &str, number: i32, code: Code, word: &str) {
    let info = error.get_details_error_info().unwrap_or_else(|| panic!("{what}: no ErrorInfo in {error:?}"));
    let found = (info.domain.as_str(), info.reason.as_str(), info.metadata["status"].as_str(), error.code());
    assert_eq!(found, ("hippihx.v1", reason, number.to_string().as_str(), code), "{what}: {error}");
    assert!(error.message().contains(word), "{what}: {:?} has no {word:?}", error.message());
}

fn caps(plan: &mut v1::PlanRequest) -> &mut v1::Caps {
    plan.caps.as_mut().unwrap()
}

fn op(plan: &mut v1::PlanRequest, id: i32, params: &[i64]) {
    plan.op = Some(plan_request::Op::OpId(id));
    plan.params = params.iter().map(|value| int(*value)).collect();
}

fn int(value: i64) -> v1::ParamValue {
    v1::ParamValue { value: Some(param_value::Value::I(value)) }
}

fn float(value: f64) -> v1::ParamValue {
    v1::ParamValue { value: Some(param_value::Value::F(value)) }
}

/// comm.pcie over a fabric: hop, switch, width, acs_clear, large_bar.
fn pcie(plan: &mut v1::PlanRequest, [hop, pcie_switch, width, acs_clear, large_bar]: [i32; 5]) {
    op(plan, 11, &[4096]);
    caps(plan).fabric = Some(v1::Fabric { hop, pcie_switch, width, acs_clear, large_bar });
}

const PLANS: &[Row<v1::PlanRequest>] = &[
    ("an id past the last", |p| op(p, 12, &[]), "ERR_UNKNOWN_OP", 1, NotFound, "id 12"),
    ("a negative id", |p| op(p, -1, &[]), "ERR_UNKNOWN_OP", 1, NotFound, "-1"),
    (
        "a name that is none",
        |p| p.op = Some(plan_request::Op::OpName("attention.fa".to_owned())),
        "ERR_UNKNOWN_OP",
        1,
        NotFound,
        "attention.fa",
    ),
    ("no caps", |p| p.caps = None, "ERR_BAD_ARG", 3, InvalidArgument, "caps"),
    ("no slot", |p| caps(p).arch = "gfx942".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "no slot"),
    ("Vega20", |p| caps(p).arch = "gfx906".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "later slot"),
    ("BC-250", |p| caps(p).arch = "gfx1013".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "BC-250"),
    ("two slots", |p| caps(p).arch = "gfx1030,gfx1100".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "comma"),
    ("an empty arch", |p| caps(p).arch.clear(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "empty"),
    ("a DOT op on Vega", |p| caps(p).arch = "gfx900".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "gfx900"),
    ("wave 64 of a DOT op", |p| caps(p).wave = 64, "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "caps.wave is 64"),
    (
        "wave 16",
        |p| {
            op(p, 2, &[]);
            caps(p).wave = 16;
        },
        "ERR_UNSUPPORTED_ARCH",
        2,
        FailedPrecondition,
        "32 or 64",
    ),
    ("bf16 for fp16 alone", |p| caps(p).dtype = 2, "ERR_UNSUPPORTED_DTYPE", 6, FailedPrecondition, "bf16"),
    ("no dtype", |p| caps(p).dtype = 8, "ERR_UNSUPPORTED_DTYPE", 6, FailedPrecondition, "8 (no dtype)"),
    ("a param too few", |p| p.params.truncate(9), "ERR_PARAM", 8, InvalidArgument, "9 params"),
    ("a param too many", |p| p.params.push(int(1)), "ERR_PARAM", 8, InvalidArgument, "11 params"),
    ("an enum value that is none", |p| p.params[1] = int(96), "ERR_PARAM", 8, InvalidArgument, "head_dim is 96"),
    ("below the range", |p| p.params[5] = int(0), "ERR_PARAM", 8, InvalidArgument, "1 to 16"),
    ("above the range", |p| p.params[5] = int(17), "ERR_PARAM", 8, InvalidArgument, "kv_splits is 17"),
    ("a bool of 2", |p| p.params[7] = int(2), "ERR_PARAM", 8, InvalidArgument, "0 and 1"),
    ("a scale of zero", |p| p.params[9] = float(0.0), "ERR_PARAM", 8, InvalidArgument, "scale"),
    ("a scale of NaN", |p| p.params[9] = float(f64::NAN), "ERR_PARAM", 8, InvalidArgument, "scale is NaN"),
    (
        "heads that do not divide",
        |p| p.params[2] = int(7),
        "ERR_PARAM",
        8,
        InvalidArgument,
        "no multiple of num_kv_heads",
    ),
    ("partials past 2^31", |p| p.params[8] = int(1 << 40), "ERR_PARAM", 8, InvalidArgument, "o_partial"),
    ("partials past 2^63", |p| p.params[8] = int(i64::MAX), "ERR_PARAM", 8, InvalidArgument, "o_partial"),
    ("pcie beyond its domain", |p| op(p, 11, &[524_289]), "ERR_PARAM", 8, InvalidArgument, "524288"),
    ("no fabric", |p| op(p, 11, &[4096]), "ERR_UNSUPPORTED_FABRIC", 10, FailedPrecondition, "RCCL"),
    ("a width of 3", |p| pcie(p, [1, 1, 3, 1, 1]), "ERR_BAD_ARG", 3, InvalidArgument, "fabric.width is 3"),
    ("a hop that is none", |p| pcie(p, [4, 1, 16, 1, 1]), "ERR_BAD_ARG", 3, InvalidArgument, "fabric.hop is 4"),
    ("PIX behind ACS", |p| pcie(p, [1, 1, 16, 0, 1]), "ERR_BAD_ARG", 3, InvalidArgument, "acs_clear 0"),
    ("PHB", |p| pcie(p, [3, 1, 16, 1, 1]), "ERR_UNSUPPORTED_FABRIC", 10, FailedPrecondition, "hop PHB"),
    ("a Gen3 switch", |p| pcie(p, [1, 2, 16, 1, 1]), "ERR_UNSUPPORTED_FABRIC", 10, FailedPrecondition, "PEX8749"),
    ("a small BAR", |p| pcie(p, [1, 1, 16, 1, 0]), "ERR_UNSUPPORTED_FABRIC", 10, FailedPrecondition, "large_bar 0"),
];

const BINDS: &[Row<v1::BindRequest>] = &[
    ("a tensor too few", |b| drop(b.tensors.pop()), "ERR_TENSOR", 9, InvalidArgument, "6 tensors"),
    ("a NULL tensor", |b| b.tensors[0].absent = true, "ERR_TENSOR", 9, InvalidArgument, "tensor q is NULL"),
    ("fp32 for fp16", |b| b.tensors[0].dtype = 3, "ERR_TENSOR", 9, InvalidArgument, "tensor q has dtype 3 (fp32)"),
    ("no dtype", |b| b.tensors[4].dtype = 99, "ERR_TENSOR", 9, InvalidArgument, "seq_lens has dtype 99"),
    (
        "rank 2 for 3",
        |b| {
            b.tensors[6].shape.pop();
            b.tensors[6].stride.pop();
        },
        "ERR_TENSOR",
        9,
        InvalidArgument,
        "tensor out has rank 2",
    ),
    ("more rows than planned", |b| b.tensors[0].shape[0] = 3, "ERR_TENSOR", 9, InvalidArgument, "max_tokens (2)"),
    ("other heads than planned", |b| b.tensors[0].shape[1] = 4, "ERR_TENSOR", 9, InvalidArgument, "num_q_heads is 8"),
    ("an extent of 0", |b| b.tensors[3].shape[1] = 0, "ERR_TENSOR", 9, InvalidArgument, "at least 1"),
    ("a negative stride", |b| b.tensors[1].stride[0] = -1, "ERR_TENSOR", 9, InvalidArgument, "k_cache has stride -1"),
    ("padded where dense", |b| b.tensors[0].stride[1] += 1, "ERR_TENSOR", 9, InvalidArgument, "contiguous"),
    ("columns that are not dense", |b| b.tensors[3].stride[1] = 2, "ERR_TENSOR", 9, InvalidArgument, "rows"),
    ("beyond its buffer", |b| b.tensors[0].offset = 1 << 40, "ERR_TENSOR", 9, InvalidArgument, "reaches"),
    ("half an element off", |b| b.tensors[0].offset += 1, "ERR_TENSOR", 9, InvalidArgument, "multiple"),
    ("V unlike K", |b| b.tensors[2].shape[0] -= 1, "ERR_TENSOR", 9, InvalidArgument, "k_cache has"),
    ("lengths for one row of two", |b| b.tensors[4].shape[0] = 1, "ERR_TENSOR", 9, InvalidArgument, "seq_lens"),
    ("out over q", |b| b.tensors[6].offset = b.tensors[0].offset, "ERR_TENSOR", 9, InvalidArgument, "overlaps q"),
    ("a buffer that is none", |b| b.tensors[0].buffer = 999_999, "NOT_FOUND", 0, NotFound, "buffer 999999"),
    ("a plan that is none", |b| b.plan = 999_999, "NOT_FOUND", 0, NotFound, "plan 999999"),
    ("scratch too small", |b| scratch(b).nbytes -= 256, "ERR_SCRATCH", 4, InvalidArgument, "the plan needs"),
    ("scratch half aligned", |b| scratch(b).offset = 128, "ERR_SCRATCH", 4, InvalidArgument, "256"),
    ("scratch beyond its buffer", |b| scratch(b).offset = 256, "ERR_SCRATCH", 4, InvalidArgument, "leaves its buffer"),
];

fn scratch(bind: &mut v1::BindRequest) -> &mut v1::Scratch {
    bind.scratch.as_mut().unwrap()
}

fn image(bytes: Vec<u8>) -> Option<load_request::Source> {
    Some(load_request::Source::Image(bytes.into()))
}

fn bundle() -> Vec<u8> {
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bytes.resize(4096, 0);
    bytes
}

/// An object of this slot's whose last third is missing.
fn truncated() -> Vec<u8> {
    let whole = objects::read("gfx1030");
    whole[..whole.len() / 3 * 2].to_vec()
}

const LOADS: &[Row<v1::LoadRequest>] = &[
    (
        "another slot",
        |l| l.arch = "gfx1100".into(),
        "ERR_UNSUPPORTED_ARCH",
        2,
        FailedPrecondition,
        "serves slot gfx1030",
    ),
    ("no slot", |l| l.arch = "gfx9".into(), "ERR_UNSUPPORTED_ARCH", 2, FailedPrecondition, "no slot"),
    ("a bundle", |l| l.source = image(bundle()), "ERR_CODE_OBJECT", 11, FailedPrecondition, "--no-gpu-bundle-output"),
    ("a cut", |l| l.source = image(truncated()), "ERR_CODE_OBJECT", 11, FailedPrecondition, "ELF"),
    ("nothing", |l| l.source = image(Vec::new()), "ERR_CODE_OBJECT", 11, FailedPrecondition, "0 bytes"),
    (
        "a path outside the folders",
        |l| l.source = Some(load_request::Source::Path("/etc/passwd".into())),
        "ERR_CODE_OBJECT",
        11,
        FailedPrecondition,
        "configured folders",
    ),
    (
        "another slot's object",
        |l| l.source = image(objects::read("gfx1100").to_vec()),
        "ERR_FOREIGN_ISA",
        12,
        FailedPrecondition,
        "gfx1100",
    ),
    ("no source", |l| l.source = None, "INVALID_ARGUMENT", 0, InvalidArgument, "an image or reload"),
];

fn decode() -> v1::PlanRequest {
    let values = Case::default().params();
    let mut params: Vec<_> = values.iter().map(|value| int(value.as_i64())).collect();
    params[9] = float(values[9].as_f64());
    v1::PlanRequest {
        op: Some(plan_request::Op::OpId(0)),
        caps: Some(v1::Caps { arch: "gfx1030".to_owned(), ..Default::default() }),
        params,
    }
}

async fn plan(session: &mut Session, request: v1::PlanRequest) -> Result<v1::PlanResponse, Status> {
    let request = session.request(request);
    session.client.plan(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn each_refusal_has_its_status_and_says_what_is_wrong() {
    let mut daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    plan(&mut session, decode()).await.unwrap();
    for (what, change, reason, number, code, word) in PLANS {
        let mut request = decode();
        change(&mut request);
        expect(what, &plan(&mut session, request).await.expect_err(what), reason, *number, *code, word);
    }

    let bound = session.bind_case(&Case::default()).await.unwrap();
    let nbytes = bound.plan.scratch_nbytes;
    let memory = session.share(nbytes).await.unwrap();
    let good = v1::BindRequest {
        plan: bound.plan.plan,
        tensors: bound.inputs.tensors.iter().map(|placed| tensor(placed, bound.buffer.id)).collect(),
        scratch: Some(v1::Scratch { buffer: memory.id, offset: 0, nbytes }),
    };
    session.bind(good.clone()).await.unwrap();
    for (what, change, reason, number, code, word) in BINDS {
        let mut request = good.clone();
        change(&mut request);
        expect(what, &session.bind(request).await.expect_err(what), reason, *number, *code, word);
    }

    for (what, change, reason, number, code, word) in LOADS {
        let mut request =
            v1::LoadRequest { arch: "gfx1030".to_owned(), source: image(objects::read("gfx1030").to_vec()) };
        change(&mut request);
        let error = session.client.load(request).await.expect_err(what);
        expect(what, &error, reason, *number, *code, word);
    }

    // None of it left a mark.
    session.run(bound.binding).await.unwrap();
    bound.verify().unwrap();
    assert_eq!(session.stats().await.unwrap().generation, bound.plan.generation);
    assert_eq!(daemon.ended(), None);
}

#[tokio::test]
async fn a_plan_without_a_body_or_for_another_slot_binds_not_ready() {
    let daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();

    let mut bodiless = decode();
    op(&mut bodiless, 5, &[]);
    let planned = plan(&mut session, bodiless).await.unwrap();
    assert!(!planned.ready && planned.not_ready_reason.contains("body"), "{planned:?}");
    let bind = v1::BindRequest { plan: planned.plan, tensors: Vec::new(), scratch: None };
    let error = session.bind(bind).await.unwrap_err();
    expect("no body", &error, "ERR_NOT_READY", 5, FailedPrecondition, "body");

    let mut elsewhere = decode();
    caps(&mut elsewhere).arch = "gfx1100".to_owned();
    let planned = plan(&mut session, elsewhere).await.unwrap();
    assert!(!planned.ready && planned.scratch_nbytes == bound.plan.scratch_nbytes, "{planned:?}");
    let tensors: Vec<_> = bound.inputs.tensors.iter().map(|placed| tensor(placed, bound.buffer.id)).collect();
    let bind = v1::BindRequest { plan: planned.plan, tensors, scratch: None };
    let error = session.bind(bind.clone()).await.unwrap_err();
    expect("another slot", &error, "ERR_NOT_READY", 5, FailedPrecondition, "another slot");
    // The contract's order: a tensor that is wrong is told first.
    let mut wrong = bind;
    wrong.tensors[0].absent = true;
    let error = session.bind(wrong).await.unwrap_err();
    expect("tensors first", &error, "ERR_TENSOR", 9, InvalidArgument, "tensor q");
}

#[tokio::test]
async fn ids_generations_limits_and_secrets() {
    let daemon = Daemon::configured("gfx1030", "[limits]\nbuffers = 2\n");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();

    let error = session.run(bound.binding ^ 1 << 40).await.unwrap_err();
    expect("a binding that is none", &error, "NOT_FOUND", 0, NotFound, "binding");
    let what = Some(run_request::What::Sequence(77));
    let request = session.request(v1::RunRequest { what, ..Default::default() });
    let error = session.client.run(request).await.unwrap_err();
    expect("a sequence that is none", &error, "NOT_FOUND", 0, NotFound, "sequence 77");
    let error = session.import_token(77).await.unwrap_err();
    expect("a token that is none", &error, "NOT_FOUND", 0, NotFound, "77");

    session.share(4096).await.unwrap();
    let error = session.share(4096).await.unwrap_err();
    expect("a buffer too many", &error, "RESOURCE_EXHAUSTED", 0, ResourceExhausted, "limits.buffers");

    // Another client's ids are nobody else's.
    let mut other = Session::attach(&daemon.socket()).await.unwrap();
    let error = other.run(bound.binding).await.unwrap_err();
    expect("another session's binding", &error, "NOT_FOUND", 0, NotFound, "in this session");

    let what = Some(run_request::What::Binding(bound.binding));
    let run = v1::RunRequest { what, ..Default::default() };
    let mut bare = client(&daemon.socket()).await.unwrap();
    let error = bare.run(run.clone()).await.unwrap_err();
    expect("no session", &error, "UNAUTHENTICATED", 0, Unauthenticated, "hippihx-session");
    other.id = session.id;
    let request = other.request(run);
    let error = bare.run(request).await.unwrap_err();
    expect("another's secret", &error, "UNAUTHENTICATED", 0, Unauthenticated, "secret");

    let mut changed = objects::read("gfx1030").to_vec();
    changed.push(0);
    let request = v1::LoadRequest { arch: "gfx1030".to_owned(), source: image(changed) };
    assert!(session.client.load(request).await.unwrap().into_inner().changed);
    let error = session.run(bound.binding).await.unwrap_err();
    expect("an old binding", &error, "STALE_GENERATION", 0, Aborted, "bind again");
}

#[test]
fn the_documented_table_is_the_daemons() {
    use hippihx_kernels::Status as V1;
    use hippihx_proto::errors::reason;
    use hippihxd::device::DeviceError;
    use hippihxd::errors::Failure;
    let text = include_str!("../../docs/protocol.md");
    let mut failures: Vec<Failure> = V1::ALL
        .iter()
        .filter(|status| **status != V1::Ok)
        .map(|status| Failure::V1 { status: *status, field: "", sentence: String::new() })
        .collect();
    failures.extend([
        Failure::NotFound { what: "buffer", id: 1 },
        Failure::invalid("", ""),
        Failure::Limit { what: "", key: "", found: 1, allowed: 1 },
        Failure::StaleGeneration { bound: 1, now: 2 },
        Failure::SessionEnded(String::new()),
        Failure::Draining,
        Failure::Device(DeviceError::Lost(String::new())),
        Failure::Device(DeviceError::LaunchFailed(String::new())),
        Failure::Unauthenticated(String::new()),
        Failure::Denied(String::new()),
        Failure::Incompatible(String::new()),
    ]);
    for failure in &failures {
        // UNAUTHENTICATED of Unauthenticated: the names of gRPC's own specification.
        let code: String = format!("{:?}", failure.code())
            .chars()
            .enumerate()
            .flat_map(|(at, letter)| {
                let gap = (at > 0 && letter.is_uppercase()).then_some('_');
                gap.into_iter().chain(letter.to_uppercase())
            })
            .collect();
        let row = format!("| {} | {} | {code} |", failure.reason(), failure.v1().map_or(0, V1::code));
        assert!(text.contains(&row), "docs/protocol.md has no row {row}");
    }
    assert!(text.contains(reason::UNSUPPORTED));
}
