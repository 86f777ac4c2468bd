//! Plan and run through the C symbols against the oracle, over boundary-heavy random calls.
//!
//! `HIPPIHX_ORACLE_CASES` sets the number of cases; the long form is 1,000,000 and more.

use std::ffi::{CString, c_void};
use std::ptr;

use hippihx_tests::oracle::{self, PlanCall, Tensor};
use hippihx_v1::{Caps, Fabric, Param, Plan, hippihx_v1_plan, hippihx_v1_run};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn cases() -> u32 {
    std::env::var("HIPPIHX_ORACLE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

/// Strategies this wide need more stack than a test thread has in an unoptimised build.
fn with_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, test).expect("a thread");
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn check<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config =
        Config { cases: cases(), failure_persistence: None, max_global_rejects: 1_000_000, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(strategy, test) {
        panic!("{failure}");
    }
}

/// Integers where rules turn.
fn edge() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => prop::sample::select(vec![
            i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 64, 127, 128, 129, 255, 256, 257, 4096, 524_287, 524_288, 524_289,
            i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::from(u32::MAX), 1 << 40, 1 << 54, 1 << 61, 1 << 62, i64::MAX - 256, i64::MAX - 255,
            i64::MAX - 1, i64::MAX,
        ]),
        1 => any::<i64>(),
        2 => 1_i64..64,
    ]
}

fn scale() -> impl Strategy<Value = i64> {
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.125, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    prop_oneof![4 => Just(0.088_f64.to_bits()), 3 => prop::sample::select(special.map(f64::to_bits).to_vec()), 1 => any::<u64>()]
        .prop_map(|bits| bits as i64)
}

/// Mostly right params of fa_fdot2, each with a chance to be anything.
fn attention_params() -> impl Strategy<Value = Vec<i64>> {
    let mostly = |good: Vec<i64>| prop_oneof![7 => prop::sample::select(good), 1 => edge()];
    (
        (
            mostly(vec![0, 1]),
            mostly(vec![128, 256]),
            mostly(vec![8, 28, 32, 40]),
            mostly(vec![1, 2, 4, 8]),
            mostly(vec![1, 16, 17]),
        ),
        (
            mostly(vec![1, 4, 16]),
            mostly(vec![0, 8]),
            mostly(vec![0, 1]),
            mostly(vec![1, 8, 100, 1 << 20, 1 << 45]),
            scale(),
        ),
    )
        .prop_map(|((a, b, c, d, e), (f, g, h, i, j))| vec![a, b, c, d, e, f, g, h, i, j])
}

fn arch() -> impl Strategy<Value = Option<String>> {
    let names = [
        "gfx1030",
        "gfx1100",
        "gfx1101",
        "gfx1102",
        "gfx1200",
        "gfx1151",
        "gfx1031",
        "gfx1032",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx900",
        "gfx906",
        "gfx1013",
        "",
        "gfx1030,gfx1100",
        "gfx1030 ",
        "gfx10300",
        "gfx103",
        "GFX1030",
    ];
    prop_oneof![
        6 => prop::sample::select(names[..12].to_vec()).prop_map(|name| Some(name.to_owned())),
        2 => prop::sample::select(names.to_vec()).prop_map(|name| Some(name.to_owned())),
        1 => Just(None),
        1 => "[a-z0-9, ]{0,12}".prop_map(Some),
    ]
}

fn plan_call() -> impl Strategy<Value = PlanCall> {
    let op = prop_oneof![5 => Just(0), 3 => Just(11), 4 => 0..12_i32, 1 => prop::sample::select(vec![-1, 12, 13, i32::MIN, i32::MAX])];
    let wave = prop_oneof![4 => Just(0), 3 => Just(32), 2 => Just(64), 1 => any::<i32>()];
    let dtype = prop_oneof![5 => 0..2_i32, 2 => 0..8_i32, 1 => any::<i32>()];
    let field = || prop_oneof![9 => 0..4_i32, 1 => any::<i32>()];
    let width = prop_oneof![8 => prop::sample::select(vec![1, 2, 4, 8, 16]), 1 => -1..18_i32];
    let bit = || prop_oneof![6 => Just(1), 3 => 0..2_i32, 1 => any::<i32>()];
    let fabric = prop_oneof![
        3 => (prop_oneof![Just(1), field()], prop_oneof![Just(1), field()], width, bit(), bit()).prop_map(|(a, b, c, d, e)| Some([a, b, c, d, e])),
        1 => Just(None),
    ];
    (op, arch(), wave, dtype, fabric, attention_params(), edge(), any::<prop::sample::Index>(), 0..10_u8).prop_map(
        |(op, arch, wave, dtype, fabric, attention, one, other, chance)| {
            let params = match op {
                0 => attention,
                11 => vec![one],
                _ => Vec::new(),
            };
            let right = params.len() as i32;
            // One in ten has a count of its own, one in ten no pointer.
            let nparams = if chance == 0 { other.index(20) as i32 - 2 } else { right };
            // A count above what is there would have the library read on: C callers promise that much, so what is read is there.
            let mut padded = params;
            padded.resize(20, 0);
            PlanCall { op, arch, wave, dtype, fabric, params: (chance != 1).then_some(padded), nparams }
        },
    )
}

/// Calls the C symbol; gives the status and the plan as it was left.
fn call_plan(call: &PlanCall) -> (i32, Plan) {
    let arch = call.arch.as_ref().map(|arch| CString::new(arch.as_str()).expect("no NUL in it"));
    let fabric = call.fabric.map(|[hop, pcie_switch, width, acs_clear, large_bar]| Fabric {
        hop,
        pcie_switch,
        width,
        acs_clear,
        large_bar,
    });
    let caps = Caps {
        arch: arch.as_ref().map_or(ptr::null(), |arch| arch.as_ptr()),
        wave: call.wave,
        dtype: call.dtype,
        fabric: fabric.as_ref().map_or(ptr::null(), ptr::from_ref),
    };
    let params: Option<Vec<Param>> =
        call.params.as_ref().map(|params| params.iter().map(|value| Param::from_i64(*value)).collect());
    let pointer = params.as_ref().map_or(ptr::null(), |params| params.as_ptr());
    // SAFETY: all of a plan's bytes are plain numbers and pointers that are only compared; 0xaa stands for garbage.
    let mut out: Plan = unsafe {
        let mut bytes = std::mem::MaybeUninit::<Plan>::uninit();
        bytes.as_mut_ptr().cast::<u8>().write_bytes(0xaa, size_of::<Plan>());
        bytes.assume_init()
    };
    out.struct_size = size_of::<Plan>();
    // SAFETY: everything that is pointed to lives until the call returns, and is as large as it says.
    let status = unsafe { hippihx_v1_plan(call.op, &raw const caps, pointer, call.nparams, &raw mut out) };
    (status, out)
}

#[test]
fn plan_answers_as_the_written_rules_say() {
    with_stack(plan_answers);
}

fn plan_answers() {
    check(&plan_call(), |call| {
        let (expected, blocks, total) = oracle::plan(&call);
        let (status, plan) = call_plan(&call);
        prop_assert_eq!(status, expected, "{:?}", call);
        if status == 0 {
            prop_assert_eq!((plan.abi_revision, plan.op, plan.ready), (4, call.op, 0));
            prop_assert_eq!(plan.scratch_nbytes as u64, total);
            let found: Vec<_> = plan.scratch[..plan.nscratch as usize]
                .iter()
                .map(|block| (block.nbytes as u64, block.offset as u64))
                .collect();
            prop_assert_eq!(found, blocks);
            prop_assert_eq!(
                plan.wave,
                if call.wave != 0 {
                    call.wave
                } else if plan.arch == 11 {
                    64
                } else {
                    32
                }
            );
        } else if expected != 1 {
            // A failed plan is zero but for its size, so run refuses it.
            prop_assert_eq!(
                (plan.struct_size, plan.abi_revision, plan.scratch_nbytes, plan.params[0].bits()),
                (312, 0, 0, 0)
            );
        }
        Ok(())
    });
}

fn tensor(good: Tensor) -> impl Strategy<Value = Tensor> {
    let other = (any::<bool>(), -1..9_i32, -2..8_i32, prop::array::uniform6(edge()), prop::array::uniform6(edge()))
        .prop_map(|(null, dtype, rank, shape, stride)| Tensor { null, dtype, rank, shape, stride });
    let changed =
        (Just(good.clone()), 0..6_usize, edge(), any::<bool>()).prop_map(|(mut tensor, axis, value, stride)| {
            if stride {
                tensor.stride[axis] = value
            } else {
                tensor.shape[axis] = value
            }
            tensor
        });
    prop_oneof![12 => Just(good), 3 => changed, 1 => other]
}

fn dense(dtype: i32, extents: &[i64]) -> Tensor {
    let (mut shape, mut stride, mut span) = ([0; 6], [0; 6], 1_i64);
    for axis in (0..extents.len()).rev() {
        (shape[axis], stride[axis]) = (extents[axis], span);
        span = span.wrapping_mul(extents[axis]);
    }
    Tensor { null: false, dtype, rank: extents.len() as i32, shape, stride }
}

#[test]
fn run_answers_as_the_written_rules_say() {
    with_stack(run_answers);
}

fn run_answers() {
    let strategy =
        (0..2_i64, prop::sample::select(vec![128_i64, 256]), 1..5_i64, prop::sample::select(vec![1_i64, 8]), 1..17_i64)
            .prop_flat_map(|(mode, head_dim, splits, rows, block)| {
                let params = vec![mode, head_dim, 8, 2, block, splits, 0, 1, rows, 0.1_f64.to_bits() as i64];
                let (query, cache) = (dense(1, &[rows, 8, head_dim]), dense(1, &[5, 2, head_dim / 8, block, 8]));
                let tensors = (
                    tensor(query.clone()),
                    tensor(cache.clone()),
                    tensor(cache),
                    tensor(dense(4, &[rows, 4])),
                    tensor(dense(4, &[rows])),
                    tensor(dense(4, &[rows + 1])),
                    tensor(query),
                );
                let scratch = prop::sample::select(vec![
                    None,
                    Some(0x1000_u64),
                    Some(0x1000),
                    Some(0x1000),
                    Some(0x1001),
                    Some(0x1080),
                ]);
                (Just(params), tensors, scratch, -1..2_i64, 0..20_i32)
            });
    check(&strategy, |(params, (a, b, c, d, e, f, g), scratch, more, count)| {
        let call = PlanCall {
            op: 0,
            arch: Some("gfx1030".to_owned()),
            wave: 0,
            dtype: 0,
            fabric: None,
            params: Some(params.clone()),
            nparams: 10,
        };
        let (status, plan) = call_plan(&call);
        prop_assert_eq!(status, 0);
        let mut tensors = vec![a, b, c, d, e, f, g];
        if count == 0 {
            tensors.pop();
        }
        let wire: Vec<hippihx_v1::Tensor> = tensors
            .iter()
            .map(|tensor| hippihx_v1::Tensor {
                data: if tensor.null { ptr::null_mut() } else { ptr::without_provenance_mut(0x1000) },
                dtype: tensor.dtype,
                rank: tensor.rank,
                shape: tensor.shape,
                stride: tensor.stride,
            })
            .collect();
        let needed = plan.scratch_nbytes as u64;
        let nbytes = needed.saturating_add_signed(more);
        let address =
            scratch.map_or(ptr::null_mut(), |address| ptr::without_provenance_mut::<c_void>(address as usize));
        // SAFETY: plan and tensors live until the call returns; data and scratch are never dereferenced.
        let status = unsafe {
            hippihx_v1_run(&raw const plan, wire.as_ptr(), wire.len() as i32, address, nbytes as usize, ptr::null_mut())
        };
        prop_assert_eq!(
            status,
            oracle::run(&params, &tensors, scratch, nbytes, needed),
            "{:?} {:?} {:?} {}",
            params,
            tensors,
            scratch,
            nbytes
        );
        Ok(())
    });
}
