//! attention.fa_fdot2's machine code for gfx1030, executed, against float64 over the shape matrix; and that the emulator
//! finds faults that are planted in copies of the sources.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::path::{Path, PathBuf};
use std::process::Command;

use hippihx_emulator::{
    Access, Buffer, Contents, Dispatch, Fault, FaultKind, FindingKind, Memory, Options, Program, Report, RunError,
};
use hippihx_kernels::launch::{BoundTensor, launches};
use hippihx_kernels::{Caps, op_by_name, plan};
use hippihx_tests::attention::{Case, Inputs};
use hippihx_tests::objects;

const SLOTS: [&str; 7] = ["q", "k_cache", "v_cache", "block_table", "seq_lens", "cu_query_lens", "out"];
const OUT: usize = 6;
/// Each tensor lies alone, so that a step past its end meets nothing.
const APART: u64 = 1 << 34;

fn gfx1030() -> Program {
    Program::load(&objects::read("gfx1030")).unwrap()
}

/// Executes all launches of a case. The whole buffer afterwards, and a report a launch.
fn execute(program: &Program, inputs: &Inputs) -> Result<(Vec<u8>, Vec<Report>), Box<Fault>> {
    let op = op_by_name("attention.fa_fdot2").unwrap();
    let caps = Caps { arch: "gfx1030", wave: 0, dtype: 1, fabric: None };
    let plan = plan(op.id, &caps, &inputs.case.params()).unwrap();
    let buffers: Vec<Option<Buffer>> = inputs
        .tensors
        .iter()
        .map(|placed| {
            let range = placed.offset as usize..(placed.offset + placed.nbytes) as usize;
            (!placed.absent).then(|| Buffer::from_bytes(&inputs.bytes[range]))
        })
        .collect();
    let address = |slot: usize| APART * (slot as u64 + 1);
    let tensors: Vec<BoundTensor> = inputs
        .tensors
        .iter()
        .enumerate()
        .map(|(slot, placed)| {
            let address = if placed.absent { 0 } else { address(slot) };
            BoundTensor { address, ..placed.bound(0) }
        })
        .collect();
    let scratch_address = address(SLOTS.len());
    let scratch: Vec<Buffer> = plan.scratch().iter().map(|spec| Buffer::zeroed(spec.nbytes)).collect();

    let mut memory = Memory::new();
    for (slot, buffer) in buffers.iter().enumerate() {
        if let Some(buffer) = buffer {
            let access = if slot == OUT { Access::ReadWrite } else { Access::Read };
            memory.bind(SLOTS[slot], address(slot), buffer, access, Contents::Initialised).unwrap();
        }
    }
    for (spec, buffer) in plan.scratch().iter().zip(&scratch) {
        let at = scratch_address + spec.offset;
        memory.bind(spec.name, at, buffer, Access::ReadWrite, Contents::Unwritten).unwrap();
    }
    let mut reports = Vec::new();
    for launch in launches(&plan, &tensors, scratch_address).unwrap().iter() {
        let kernel = launch.kernel.name;
        let dispatch = Dispatch {
            kernel,
            grid: launch.grid,
            block: launch.block,
            lds_bytes: program.kernel(kernel).unwrap().static_lds_bytes() + launch.lds_bytes,
            kernarg: launch.kernarg.as_bytes(),
        };
        match program.run(&dispatch, &memory, &Options::default()) {
            Ok(report) => reports.push(report),
            Err(RunError::Fault(fault)) => return Err(fault),
            Err(error) => panic!("{error}"),
        }
    }
    let mut after = inputs.bytes.clone();
    let placed = &inputs.tensors[OUT];
    if let Some(out) = &buffers[OUT] {
        after[placed.offset as usize..(placed.offset + placed.nbytes) as usize].copy_from_slice(&out.to_bytes());
    }
    Ok((after, reports))
}

/// Right by the contract's bounds, without a fault and without a finding.
fn check(program: &Program, inputs: &Inputs) -> Vec<Report> {
    let case = &inputs.case;
    let (after, reports) = execute(program, inputs).unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    for report in &reports {
        assert_eq!(report.findings, [], "{case:?}: {report}");
        assert_eq!(report.scratch_bytes, 0, "{case:?}");
    }
    inputs.compare(&after, &inputs.reference()).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    reports
}

/// Every value of every axis with both modes and both head sizes; the axes' periods have no common factor, so they mix.
fn matrix() -> Vec<Case> {
    let heads = [(1, 1), (8, 2), (8, 1), (14, 2), (10, 2), (12, 4)];
    let blocks = [16, 1, 32, 17];
    let windows = [0, 1, 8, 100];
    let splits = [1, 2, 7, 16];
    let lens: [&[i32]; 7] = [&[0, 3], &[1], &[15, 16], &[17], &[64, 0, 33], &[130, 5], &[300]];
    let mut cases = Vec::new();
    for prefill in [false, true] {
        for head_dim in [128, 256] {
            for n in 0..28 {
                let (q_heads, kv_heads) = heads[n % heads.len()];
                let lens = lens[n % lens.len()].to_vec();
                let new = lens.iter().enumerate().map(|(i, &len)| [len, len.min(5), len.min(1)][(n + i) % 3]).collect();
                cases.push(Case {
                    prefill,
                    head_dim,
                    q_heads,
                    kv_heads,
                    block_size: blocks[(n / 2) % 4],
                    kv_splits: splits[(n / 4 + n) % 4],
                    window: windows[(n / 8 + n / 2) % 4],
                    causal: n % 5 != 1,
                    packing: if n % 3 == 2 { 1 } else { 8 },
                    v_swapped: n % 4 >= 2,
                    lens,
                    new,
                    seed: n as u64 + 1,
                });
            }
        }
    }
    cases
}

#[test]
fn the_matrix_is_within_the_contracts_bounds() {
    let program = gfx1030();
    let cases = matrix();
    for (axis, of) in [
        ("block size", (|case: &Case| case.block_size) as fn(&Case) -> usize),
        ("splits", |case| case.kv_splits),
        ("window", |case| case.window as usize),
        ("packing and order", |case| case.packing * 2 + usize::from(case.v_swapped)),
    ] {
        for prefill in [false, true] {
            let mut seen: Vec<usize> = cases.iter().filter(|case| case.prefill == prefill).map(of).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 4, "{axis}: {seen:?}");
        }
    }
    for case in cases {
        check(&program, &case.inputs());
    }
}

#[test]
fn longer_contexts() {
    let program = gfx1030();
    check(&program, &Case { lens: vec![1000, 999], kv_splits: 7, ..Case::default() }.inputs());
    let wide = Case { q_heads: 28, kv_heads: 4, lens: vec![1000], kv_splits: 16, window: 100, ..Case::default() };
    check(&program, &wide.inputs());
    let prefill =
        Case { prefill: true, q_heads: 2, kv_heads: 1, lens: vec![1000, 64], new: vec![20, 64], ..Case::default() };
    check(&program, &prefill.inputs());
}

/// Lengths, block numbers and offsets that no engine would write: nothing leaves bound memory, and what the contract says of
/// them holds.
#[test]
fn hostile_values_in_device_memory() {
    let program = gfx1030();
    for prefill in [false, true] {
        for kv_splits in [1, 2] {
            let case = Case { prefill, kv_splits, lens: vec![33, 20, 48], new: vec![5, 3, 8], ..Case::default() };
            let inputs = case.inputs();
            let columns = inputs.ints(3).len() / 3;
            let mut table = inputs.clone();
            let mut blocks = table.ints(3);
            for (n, hostile) in [-1, i32::MIN, i32::MAX, 1 << 20].into_iter().enumerate() {
                blocks[n * (columns - 1) % (3 * columns)] = hostile;
            }
            table.put_ints(3, &blocks);
            check(&program, &table);
            let mut lens = inputs.clone();
            // The longest sequence's row addresses 48 tokens; more is clamped to that.
            lens.put_ints(4, &[-5, i32::MIN, i32::MAX]);
            check(&program, &lens);
            if prefill {
                let mut offsets = inputs.clone();
                offsets.put_ints(5, &[-7, 2, 9, i32::MAX]);
                check(&program, &offsets);
            }
        }
    }
}

/// Decode at 32 query heads on 8 KV heads reads each visible byte of K and of V once a KV head.
#[test]
fn decode_reads_keys_and_values_once() {
    let program = gfx1030();
    let lens = vec![500, 256];
    let tokens: u64 = lens.iter().map(|&len| len as u64).sum();
    let case = Case { q_heads: 32, kv_heads: 8, kv_splits: 2, lens, ..Case::default() };
    let reports = check(&program, &case.inputs());
    let once = tokens * 8 * 128 * 2;
    for name in ["k_cache", "v_cache"] {
        let range = reports[0].range(name).unwrap();
        assert_eq!(range.unique_loaded, Some(once), "{name}");
        assert!(range.loaded >= once && range.loaded * 100 <= once * 105, "{name}: {} of {once} bytes", range.loaded);
    }
}

/// A copy of the device sources with one text replaced, compiled.
fn mutated(file: &str, from: &str, to: &str) -> Program {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/hip");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("hip");
    copy(&sources, &root);
    let path = root.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "'{from}' stands once in {file}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
    let object = folder.path().join("mutated.hsaco");
    let out = Command::new(compiler())
        .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-O3", "-std=c++17", "-nogpuinc"])
        .args(["-nogpulib", "-fuse-cuid=none", "-DHIPPIHX_DOT=1", "--offload-arch=gfx1030", "hippihx.hip", "-o"])
        .arg(&object)
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Program::load(&std::fs::read(object).unwrap()).unwrap()
}

fn compiler() -> PathBuf {
    std::env::var_os("HIPPIHX_CLANG").map_or("clang-19".into(), PathBuf::from)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

const DECODE: &str = "attention/fa_fdot2/decode.h";

#[test]
fn a_store_past_the_end_is_a_fault_with_its_place() {
    let program = mutated(
        DECODE,
        "a.out[((i64)row * a.q_heads + head) * D + d] =",
        "a.out[((i64)row * a.q_heads + head + (head + 1 == a.q_heads)) * D + d] =",
    );
    let inputs = Case { kv_splits: 1, ..Case::default() }.inputs();
    let fault = *execute(&program, &inputs).unwrap_err();
    let end = APART * (OUT as u64 + 1) + inputs.tensors[OUT].nbytes;
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { access: Access::ReadWrite, .. }), "{fault}");
    assert!(fault.address().is_some_and(|address| (end..end + 256).contains(&address)), "{fault}");
    assert!(fault.text.starts_with("global_store_short") && fault.lane.is_some(), "{fault}");
    assert_eq!(fault.kernel, "hippihx_fa_fdot2_decode_d128");
    assert_eq!(fault.workgroup[0], 1, "the last row's workgroup: {fault}");
}

#[test]
fn a_missing_barrier_is_a_race() {
    let program =
        mutated(DECODE, "a.scale_log2e : HX_MASKED;\n        hx_barrier();\n", "a.scale_log2e : HX_MASKED;\n");
    let (_, reports) = execute(&program, &Case::default().inputs()).unwrap();
    let race = |kind: FindingKind| matches!(kind, FindingKind::LdsRace { .. });
    assert!(reports[0].findings.iter().any(|finding| race(finding.kind)), "{}", reports[0]);
}

#[test]
fn a_partial_left_unwritten_is_reported() {
    let program = mutated(DECODE, "a.l_partial[at] = sum;", "if (split != 1) a.l_partial[at] = sum;");
    let (_, reports) = execute(&program, &Case::default().inputs()).unwrap();
    assert_eq!(reports[0].findings, [], "decode itself loads no partial");
    let named = reports[1].findings.iter().find_map(|finding| match finding.kind {
        FindingKind::UnwrittenMemory { range, .. } => Some(reports[1].ranges[range].name.as_str()),
        _ => None,
    });
    assert_eq!(named, Some("l_partial"), "{}", reports[1]);
}

#[test]
fn a_wrong_lane_mask_gives_a_wrong_result() {
    // Only the first row of 16 lanes takes part in one step of the wave's sum.
    let program = mutated("common/device.h", "0x168, 0xf, 0xf, true", "0x168, 0x1, 0xf, true");
    let inputs = Case { lens: vec![64, 100], ..Case::default() }.inputs();
    let (after, _) = execute(&program, &inputs).unwrap();
    let error = inputs.compare(&after, &inputs.reference()).unwrap_err();
    assert!(error.starts_with("worst error"), "{error}");
}
