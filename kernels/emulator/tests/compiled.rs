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

/// The probe's attention over 64 lanes: dot products, DPP, ds_bpermute, exp2, LDS.
#[test]
fn attention_like() {
    let program = Program::load(&common::build("family.hip")).unwrap();
    let (n, scale) = (9_usize, 0.25_f32);
    let half = |seed: usize| ((seed * 37 % 64) as f32 - 32.0) / 64.0;
    let halves = |count: usize, from: usize| (0..count).map(move |i| half(i + from));
    let bits = |x: f32| {
        // Multiples of 1/64 below one: exact in fp16.
        let magnitude = if x == 0.0 { 0 } else { (x.abs().to_bits() - (112 << 23)) >> 13 };
        (magnitude as u16 | if x < 0.0 { 0x8000 } else { 0 }).to_le_bytes()
    };
    let buffer =
        |count: usize, from: usize| Buffer::from_bytes(&halves(count, from).flat_map(bits).collect::<Vec<u8>>());
    let (q, k, v, out) = (buffer(512, 1), buffer(512 * n, 5), buffer(512 * n, 11), Buffer::zeroed(128));
    let args = Args::new().ptr(address(0)).ptr(address(1)).ptr(address(2)).ptr(address(3)).i32(n as i32).f32(scale);
    run(&program, "attn", 1, 64, &[&q, &k, &v, &out], 1, &args);
    let at = |from: usize, index: usize| f64::from(half(index + from));
    let partial = |j: usize, t: usize| (0..8).map(|x| at(1, t * 8 + x) * at(5, (j * 64 + t) * 8 + x)).sum::<f64>();
    // Lane sums: xor 1, xor 2, the mirror of eight, then lane xor 16 of the wave.
    let sum = |j: usize, t: usize| -> f64 {
        let step = |f: &dyn Fn(usize) -> f64, g: &dyn Fn(usize) -> usize, t: usize| f(t) + f(g(t));
        let a = |t: usize| step(&|t| partial(j, t), &|t| t ^ 1, t);
        let b = |t: usize| step(&a, &|t| t ^ 2, t);
        let c = |t: usize| step(&b, &|t| t & !7 | (7 - (t & 7)), t);
        // The index counts from the workgroup's start; lanes wrap at 32.
        step(&c, &|t| t & 32 | (t ^ 16) & 31, t)
    };
    let result = |t: usize| -> (f64, [f64; 8]) {
        let logits: Vec<f64> = (0..n).map(|j| sum(j, t) * f64::from(scale)).collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|s| (s - most).exp2()).collect();
        let acc = std::array::from_fn(|x| (0..n).map(|j| weights[j] * at(11, (j * 64 + t) * 8 + x)).sum());
        (weights.iter().sum(), acc)
    };
    for (t, bytes) in out.to_bytes().chunks(2).enumerate() {
        let found = u16::from_le_bytes([bytes[0], bytes[1]]);
        let magnitude = f64::from(f32::from_bits((u32::from(found & 0x7fff) << 13) + (112 << 23)));
        let found = if found & 0x8000 == 0 { magnitude } else { -magnitude };
        let want = result(t ^ 1).1.iter().sum::<f64>() / result(t).0;
        assert!((found - want).abs() <= 2e-3 * want.abs().max(1.0), "lane {t}: {found}, not {want}");
    }
}

/// Bytes, halves and fp64: sign extension, mixed conversions, division and square root by their long expansions.
#[test]
fn bytes_and_doubles() {
    let program = Program::load(&common::build("family.hip")).unwrap();
    let a: Vec<u8> = (0..64).map(|i| (i * 7 + 3) as u8).collect();
    let b: Vec<i8> = (0..64).map(|i| (i * 5 % 128) as i8).collect();
    let h: Vec<u16> = (0..65).map(|i| 0x3c00 + i * 16).collect();
    let buffers = [
        Buffer::from_bytes(&a),
        Buffer::from_bytes(&b.iter().map(|&x| x as u8).collect::<Vec<u8>>()),
        Buffer::from_bytes(&h.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()),
        Buffer::zeroed(128),
        Buffer::zeroed(64),
        Buffer::zeroed(256),
        Buffer::zeroed(512),
    ];
    let args = [0, 1, 3, 4, 2, 5, 6].iter().fold(Args::new(), |args, &n| args.ptr(address(n)));
    run(&program, "bytes", 1, 64, &buffers.each_ref(), 4, &args);
    let products: Vec<u16> = buffers[3].to_bytes().chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
    assert_eq!(products, a.iter().zip(&b).map(|(&a, &b)| (i32::from(a) * i32::from(b)) as u16).collect::<Vec<_>>());
    assert_eq!(buffers[4].to_bytes(), a.iter().map(|&a| a.wrapping_add(3)).collect::<Vec<_>>());
    for (i, bytes) in buffers[6].to_bytes().chunks(8).enumerate() {
        let found = f64::from_le_bytes(bytes.try_into().unwrap());
        let want = f64::from(a[i]) / 3.0 + f64::from(b[i]).sqrt();
        assert!((found - want).abs() <= want * 4.0 * f64::EPSILON, "{i}: {found}, not {want}");
    }
}
