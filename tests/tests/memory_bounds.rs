//! A bind reaches nothing outside its buffers, however offsets, shapes and strides are chosen.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::os::unix::fs::FileExt;

use hippihx_proto::v1;
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::Daemon;
use hippihx_tests::wire::{Bound, Session, reason, tensor};

type Change = (&'static str, fn(&mut v1::BindRequest));

/// Slots of the op.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const TABLE: usize = 3;
const LENS: usize = 4;
const OUT: usize = 6;

const TENSOR_CHANGES: &[Change] = &[
    ("an offset that wraps with the tensor's size", |bind| bind.tensors[Q].offset = u64::MAX - 7),
    ("an offset of 2^63", |bind| bind.tensors[K].offset = 1 << 63),
    ("an offset at the buffer's end", |bind| bind.tensors[LENS].offset = 1 << 40),
    ("an offset that is no whole element", |bind| bind.tensors[Q].offset += 1),
    ("a block stride that wraps", |bind| bind.tensors[K].stride[0] = i64::MAX),
    ("a block stride that wraps to a small number in bytes", |bind| bind.tensors[K].stride[0] = 1 << 63 >> 1),
    ("strides whose sum wraps", |bind| bind.tensors[V].stride = vec![i64::MAX / 2; 5]),
    ("one block too many", |bind| {
        for slot in [K, V] {
            bind.tensors[slot].shape[0] += 1 << 20;
        }
    }),
    ("2^62 blocks at stride 4", |bind| {
        for slot in [K, V] {
            bind.tensors[slot].shape[0] = 1 << 62;
            bind.tensors[slot].stride[0] = 4;
        }
    }),
    ("a table row stride that wraps", |bind| bind.tensors[TABLE].stride[0] = i64::MAX),
    ("a table with more columns than bytes", |bind| {
        bind.tensors[TABLE].shape[1] = 1 << 40;
        bind.tensors[TABLE].stride[0] = 1 << 40;
    }),
    ("fewer lengths than rows", |bind| bind.tensors[LENS].shape[0] -= 1),
    ("other extents of V than of K", |bind| bind.tensors[V].shape[0] -= 1),
    ("packing that is not head_dim", |bind| bind.tensors[K].shape[4] = 4),
    ("fewer rows of out than of q", |bind| bind.tensors[OUT].shape[0] -= 1),
    ("out over q", |bind| bind.tensors[OUT].offset = bind.tensors[Q].offset),
    ("out over the lengths", |bind| bind.tensors[OUT].offset = bind.tensors[LENS].offset),
    ("a negative stride", |bind| bind.tensors[V].stride[1] = -1),
    ("a NULL tensor", |bind| bind.tensors[OUT].absent = true),
];

const SCRATCH_CHANGES: &[Change] = &[
    ("too few bytes", |bind| scratch(bind).nbytes -= 256),
    ("an offset that is not a multiple of 256", |bind| scratch(bind).offset += 128),
    ("an offset that wraps", |bind| scratch(bind).offset = u64::MAX - 255),
    ("bytes that wrap", |bind| scratch(bind).nbytes = u64::MAX),
    ("an end behind the buffer", |bind| scratch(bind).offset += 256),
];

fn scratch(bind: &mut v1::BindRequest) -> &mut v1::Scratch {
    bind.scratch.as_mut().unwrap()
}

async fn session_with_scratch(daemon: &Daemon) -> (Session, Bound, v1::BindRequest) {
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let nbytes = bound.plan.scratch_nbytes;
    let memory = session.share(nbytes).await.unwrap();
    let bind = v1::BindRequest {
        plan: bound.plan.plan,
        tensors: bound.inputs.tensors.iter().map(|placed| tensor(placed, bound.buffer.id)).collect(),
        scratch: Some(v1::Scratch { buffer: memory.id, offset: 0, nbytes }),
    };
    (session, bound, bind)
}

#[tokio::test]
async fn whatever_reaches_outside_is_refused_by_name() {
    let mut daemon = Daemon::start("gfx1030");
    let (mut session, bound, good) = session_with_scratch(&daemon).await;
    let binding = session.bind(good.clone()).await.unwrap().binding;
    for (changes, status) in [(TENSOR_CHANGES, "ERR_TENSOR"), (SCRATCH_CHANGES, "ERR_SCRATCH")] {
        for (what, change) in changes {
            let mut bind = good.clone();
            change(&mut bind);
            let error = session.bind(bind).await.expect_err(what);
            assert_eq!(reason(&error), status, "{what}: {error}");
            assert!(error.message().starts_with("attention.fa_fdot2"), "{what}: {error}");
        }
    }
    session.run(binding).await.unwrap();
    bound.verify().unwrap();
    assert_eq!(daemon.ended(), None);
}

#[tokio::test]
async fn a_step_stays_inside_what_was_bound() {
    let daemon = Daemon::start("gfx1030");
    let (mut session, bound, _) = session_with_scratch(&daemon).await;
    let row = bound.inputs.tensors[Q].stride[0] as u64 * 2;
    for step in [
        v1::StepChange { q_offset: u64::MAX - 1, ..Default::default() },
        v1::StepChange { out_offset: 1 << 63, ..Default::default() },
        v1::StepChange { out_offset: bound.buffer.size, ..Default::default() },
        v1::StepChange { q_offset: 1, ..Default::default() },
        v1::StepChange { rows: u32::MAX, ..Default::default() },
        v1::StepChange { rows: bound.inputs.rows as u32 + 1, ..Default::default() },
    ] {
        let what = Some(v1::run_request::What::Binding(bound.binding));
        let request = session.request(v1::RunRequest { what, step: Some(step), ..Default::default() });
        let error = session.client.run(request).await.unwrap_err();
        assert_eq!(reason(&error), "ERR_TENSOR", "{step:?}: {error}");
    }
    // One row: q's second, in the place of the first.
    let step = Some(v1::StepChange { rows: 1, q_offset: row, out_offset: 0 });
    let what = Some(v1::run_request::What::Binding(bound.binding));
    let request = session.request(v1::RunRequest { what, step, ..Default::default() });
    session.client.run(request).await.unwrap();
    let mut moved = bound.inputs.clone();
    let q = moved.tensors[Q].offset as usize;
    moved.bytes.copy_within(q + row as usize..q + 2 * row as usize, q);
    let first = moved.reference().swap_remove(0);
    let mut after = vec![0; bound.inputs.bytes.len()];
    bound.buffer.file.read_exact_at(&mut after, 0).unwrap();
    bound.inputs.compare(&after, &[first, None]).unwrap();
}
