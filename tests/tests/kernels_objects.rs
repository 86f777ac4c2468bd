//! The twelve code objects: what they hold, what they refuse, and that the same source gives the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use hippihx_kernels::code_object::{check_header, inspect};
use hippihx_kernels::launch::{FA_FDOT2_KERNELS, kernel_by_name};
use hippihx_kernels::{SLOTS, Status};
use hippihx_tests::objects;

#[test]
fn each_object_passes_on_its_slot_and_on_no_other() {
    for own in &SLOTS {
        let image = objects::read(own.name);
        let object = inspect(&image).unwrap();
        for other in &SLOTS {
            let level_one = check_header(&image, other).map_err(|error| error.status());
            let level_two = object.admit(other).map_err(|error| error.status());
            let expected = if own == other { Ok(()) } else { Err(Status::ForeignIsa) };
            assert_eq!((level_one, level_two), (expected, expected), "{} on {}", own.name, other.name);
        }
    }
}

#[test]
fn dot_slots_hold_every_kernel_without_spills_and_gfx900_none() {
    for slot in &SLOTS {
        let object = inspect(&objects::read(slot.name)).unwrap();
        let names: Vec<_> = object.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        if slot.dot {
            assert!(FA_FDOT2_KERNELS.iter().all(|spec| names.contains(&spec.name)), "{}: {names:?}", slot.name);
        } else {
            assert!(
                names.iter().all(|name| kernel_by_name(name).is_none_or(|spec| !spec.dot)),
                "{}: {names:?}",
                slot.name
            );
        }
        for kernel in &object.kernels {
            let spilled =
                (kernel.vgpr_spills, kernel.sgpr_spills, kernel.private_bytes, kernel.descriptor.private_bytes);
            assert_eq!(spilled, (0, 0, 0, 0), "{} of {}", kernel.name, slot.name);
        }
    }
}

#[test]
fn the_manifest_says_what_the_objects_are() {
    let text = std::fs::read_to_string(objects::folder().join("manifest.json")).expect("cargo xtask kernels wrote it");
    for slot in &SLOTS {
        let bytes = objects::read(slot.name).len();
        assert!(
            text.contains(&format!("\"bytes\": {bytes}")) && text.contains(&format!("hippihx_{}.hsaco", slot.name)),
            "{}",
            slot.name
        );
    }
    assert!(text.contains("-fuse-cuid=none") && text.contains("source_sha256") && text.contains("clang version"));
}

#[test]
fn the_gfx1030_object_multiplies_with_dot2_and_never_touches_scratch() {
    let path = objects::folder().join("hippihx_gfx1030.hsaco");
    // llvm-objdump 19 fails on the kernel descriptors of gfx1030, so it is given the code alone.
    let out = Command::new("llvm-objdump-19").args(["-d", "--no-show-raw-insn", "--section=.text"]).arg(&path).output();
    let out = out.expect("llvm-objdump-19 is needed (Debian: llvm-19)");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let of = |kernel: &str| -> Vec<String> {
        let start = text.find(&format!("<{kernel}>:")).unwrap_or_else(|| panic!("{kernel} is not in the disassembly"));
        let body = &text[start..];
        let end = body[1..].find("\n\n").map_or(body.len(), |end| end + 1);
        body[..end].lines().map(|line| line.trim().to_owned()).collect()
    };
    for kernel in FA_FDOT2_KERNELS.iter().map(|spec| spec.name) {
        let lines = of(kernel);
        let scratch = lines.iter().filter(|line| line.starts_with("buffer_") || line.starts_with("scratch_")).count();
        assert_eq!(scratch, 0, "{kernel} touches scratch");
        let dots = lines.iter().filter(|line| line.starts_with("v_dot2")).count();
        if kernel.contains("combine") {
            assert_eq!(dots, 0, "{kernel}");
        } else {
            assert!(dots >= 64, "{kernel} has {dots} dot products");
        }
        let wide = lines.iter().filter(|line| line.starts_with("global_load_dwordx4")).count();
        assert!(kernel.contains("combine") || wide >= 2, "{kernel} has {wide} 16-byte loads");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the sources") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target)
        } else {
            {
                std::fs::copy(&path, &target).expect("a copy");
            }
        }
    }
}

#[test]
fn the_same_source_gives_the_same_bytes_from_any_folder() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kernels/hip");
    let elsewhere = tempfile::tempdir().unwrap();
    let far = elsewhere.path().join("a/quite/different/and/longer/path");
    copy(&root, &far);
    // gfx900 has no kernels and compiles at once; its object holds every name that a path could get into.
    let build = |folder: &Path, out: &Path, arch: &str, dot: i32| {
        let status = Command::new("clang-19")
            .current_dir(folder)
            .args([
                "-x",
                "hip",
                "--cuda-device-only",
                "--no-gpu-bundle-output",
                "-O1",
                "-std=c++17",
                "-nogpuinc",
                "-nogpulib",
            ])
            .args(["-fuse-cuid=none", "-mcode-object-version=5"])
            .args([format!("-DHIPPIHX_DOT={dot}"), format!("--offload-arch={arch}")])
            .args(["hippihx.hip", "-o"])
            .arg(out)
            .status()
            .expect("clang-19 is needed (Debian: clang-19 and lld-19)");
        assert!(status.success());
        std::fs::read(out).expect("an object")
    };
    for (arch, dot) in [("gfx900", 0), ("gfx1030", 1)] {
        let (here, there) = (elsewhere.path().join("here.hsaco"), far.join("there-with-another-name.hsaco"));
        assert!(build(&root, &here, arch, dot) == build(&far, &there, arch, dot), "{arch} differs");
    }
}
