//! Kernels that clang compiled, against the same computation on the host.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::Args;
use hippihx_emulator::{Access, Buffer, Contents, Dispatch, Memory, Options, Program, Report};

/// Runs `kernel` with buffers at 0x10000, 0x20000, …; the last `outputs` of them may be written.
fn run(
    program: &Program,
    kernel: &str,
    groups: u32,
    block: u32,
    buffers: &[&Buffer],
    outputs: usize,
    args: &Args,
) -> Report {
    let mut memory = Memory::new();
    for (n, buffer) in buffers.iter().enumerate() {
        let out = n >= buffers.len() - outputs;
        let (access, contents) =
            if out { (Access::ReadWrite, Contents::Unwritten) } else { (Access::Read, Contents::Initialised) };
        memory.bind(format!("b{n}"), address(n), *buffer, access, contents).unwrap();
    }
    let dispatch = Dispatch { kernel, grid: [groups, 1, 1], block: [block, 1, 1], lds_bytes: 0, kernarg: &args.0 };
    let report = program.run(&dispatch, &memory, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.findings, [], "{report}");
    report
}

fn address(n: usize) -> u64 {
    0x10_0000 * (n as u64 + 1)
}

#[test]
fn family() {
    let program = Program::load(&common::build("family.hip")).unwrap();
    assert_eq!(program.unsupported(), Vec::<&str>::new());

    // vadd
    let n = 150;
    let (a, b) = (Buffer::from_f32s((0..n).map(|i| i as f32)), Buffer::from_f32s((0..n).map(|i| 1.0 / i as f32)));
    let c = Buffer::zeroed(n * 4);
    run(
        &program,
        "vadd",
        3,
        64,
        &[&a, &b, &c],
        1,
        &Args::new().ptr(address(0)).ptr(address(1)).ptr(address(2)).i32(n as i32),
    );
    let want: Vec<f32> = (0..n).map(|i| (i as f32).mul_add(2.0, 1.0 / i as f32)).collect();
    assert_eq!(c.to_f32s(), want);

    // idiv
    let x: Vec<i32> = (0..64).map(|i| (i - 30) * 12345 + 7).collect();
    let y: Vec<i32> = (0..64).map(|i| if i % 2 == 0 { i * 3 + 1 } else { -i * 5 - 2 }).collect();
    let l: Vec<i64> = (0..64).map(|i| (i - 20) * 0x1_2345_6789 + 5).collect();
    let (bx, by) = (Buffer::from_u32s(x.iter().map(|&v| v as u32)), Buffer::from_u32s(y.iter().map(|&v| v as u32)));
    let bl = Buffer::from_bytes(&l.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    let (c, ly, w) = (Buffer::zeroed(256), Buffer::zeroed(512), Buffer::zeroed(256));
    let args =
        Args::new().ptr(address(0)).ptr(address(1)).ptr(address(3)).ptr(address(2)).ptr(address(4)).ptr(address(5));
    run(&program, "idiv", 1, 64, &[&bx, &by, &bl, &c, &ly, &w], 3, &args);
    let got: Vec<i32> = c.to_u32s().iter().map(|&v| v as i32).collect();
    assert_eq!(got, x.iter().zip(&y).map(|(a, b)| a / b + a % b).collect::<Vec<_>>());
    let got: Vec<i64> = ly.to_bytes().chunks(8).map(|c| i64::from_le_bytes(c.try_into().unwrap())).collect();
    let want: Vec<i64> =
        (0..64).map(|k| l[k].wrapping_mul(i64::from(x[k])).wrapping_add(l[k] / i64::from(y[k]))).collect();
    assert_eq!(got, want);
    assert_eq!(w.to_u32s(), (0..64).map(|k| x[k] as u32 / 7 + y[k] as u32 % 10).collect::<Vec<_>>());

    // scr: an array in private memory, indexed by data.
    let a: Vec<i32> = (0..96).map(|i| i * 77 % 101).collect();
    let ba = Buffer::from_u32s(a.iter().map(|&v| v as u32));
    let c = Buffer::zeroed(256);
    let report = run(&program, "scr", 1, 64, &[&ba, &c], 1, &Args::new().ptr(address(0)).ptr(address(1)).i32(40));
    let want: Vec<u32> = (0..64_usize)
        .map(|tid| {
            let mut arr: Vec<i32> = (0..32).map(|i| a[tid + i] * i as i32).collect();
            let mut k = 0_i32;
            for i in 0..40 {
                k ^= arr[((k + i * 7) & 31) as usize];
                arr[((k >> 3) & 31) as usize] += i;
            }
            k as u32
        })
        .collect();
    assert_eq!(c.to_u32s(), want);
    assert!(report.scratch_bytes > 0);

    // red: tree reduction over LDS with barriers.
    let a: Vec<f32> = (0..1000).map(|i| (i % 17) as f32).collect();
    let (ba, c) = (Buffer::from_f32s(a.iter().copied()), Buffer::zeroed(8));
    run(&program, "red", 2, 64, &[&ba, &c], 1, &Args::new().ptr(address(0)).ptr(address(1)).i32(1000));
    let sum: f32 = a.iter().sum();
    assert_eq!(c.to_f32s(), [sum, sum]);
}
