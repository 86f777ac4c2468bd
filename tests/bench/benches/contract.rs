//! Nanoseconds of plan and of the seven tensor checks, through Rust and through the C symbols.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

use hippihx_bench::{busy, quartiles};
use hippihx_kernels::{Caps, ParamValue, TensorDesc, check_tensors, plan};
use hippihx_v1::{Caps as CCaps, Plan, Tensor, hippihx_v1_plan, hippihx_v1_run};

const ROUNDS: usize = 101;
const CALLS: u32 = 10_000;

fn time(mut call: impl FnMut()) -> f64 {
    let started = busy();
    for _ in 0..CALLS {
        call();
    }
    (busy() - started) / f64::from(CALLS)
}

fn dense(dtype: i32, extents: &[i64]) -> TensorDesc {
    let mut desc = TensorDesc { data_null: false, dtype, rank: extents.len() as i32, ..TensorDesc::ABSENT };
    let mut span = 1;
    for axis in (0..extents.len()).rev() {
        (desc.shape[axis], desc.stride[axis]) = (extents[axis], span);
        span *= extents[axis];
    }
    desc
}

fn main() {
    let mut params: Vec<_> = [1, 128, 32, 8, 16, 4, 0, 0, 8].map(ParamValue::from_i64).to_vec();
    params.push(ParamValue::from_f64(0.088));
    let mut decode = params.clone();
    decode[0] = ParamValue::from_i64(0);
    let caps = Caps { arch: "gfx1030", ..Caps::default() };
    let c_caps = CCaps { arch: c"gfx1030".as_ptr(), wave: 0, dtype: 1, fabric: ptr::null() };
    // A prefill needs all seven slots.
    let planned = plan(0, &caps, &params).expect("a good plan");
    let cache = dense(1, &[64, 8, 16, 16, 8]);
    let rows = dense(1, &[8, 32, 128]);
    let tensors = [rows, cache, cache, dense(4, &[8, 4]), dense(4, &[8]), dense(4, &[9]), rows];
    let c_tensors: Vec<Tensor> = tensors
        .iter()
        .map(|desc| Tensor {
            data: ptr::dangling_mut::<c_void>(),
            dtype: desc.dtype,
            rank: desc.rank,
            shape: desc.shape,
            stride: desc.stride,
        })
        .collect();
    let fresh = || Plan {
        struct_size: size_of::<Plan>(),
        // SAFETY: every other field is a number or a pointer that is only compared; zero is a value of each.
        ..unsafe { std::mem::zeroed() }
    };
    let mut c_plan = fresh();
    // SAFETY: caps, params and plan live here and are as large as they say.
    let status = unsafe { hippihx_v1_plan(0, &raw const c_caps, params.as_ptr(), 10, &raw mut c_plan) };
    assert_eq!(status, 0);

    let mut out = fresh();
    let mut results: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        results[0].push(time(|| {
            let _ = black_box(plan(0, black_box(&caps), black_box(&decode)));
        }));
        results[1].push(time(|| {
            out.struct_size = size_of::<Plan>();
            // SAFETY: as above.
            black_box(unsafe {
                hippihx_v1_plan(black_box(0), &raw const c_caps, black_box(decode.as_ptr()), 10, &raw mut out)
            });
        }));
        results[2].push(time(|| {
            let _ = black_box(check_tensors(black_box(&planned), black_box(&tensors)));
        }));
        results[3].push(time(|| {
            // The plan wants scratch and gets none, so the call ends right behind the seven tensors.
            // SAFETY: plan and tensors live here; nothing else is dereferenced.
            black_box(unsafe {
                hippihx_v1_run(&raw const c_plan, black_box(c_tensors.as_ptr()), 7, ptr::null_mut(), 0, ptr::null_mut())
            });
        }));
    }
    let names = [
        "plan, decode, Rust",
        "plan, decode, C symbol",
        "seven tensor checks, Rust",
        "seven tensor checks, C symbol (with its refusal of scratch)",
    ];
    let beat = [57.0, 57.0, 33.0, 33.0];
    println!("{:60} {:>8} {:>17} {:>14}", "", "median", "quartiles", "of the mark");
    for ((name, rounds), mark) in names.iter().zip(results).zip(beat) {
        let (low, median, high) = quartiles(rounds);
        println!("{name:60} {median:>5.1} ns {low:>6.1} to {high:>5.1} {:>9.2} of {mark}", median / mark);
    }
}
