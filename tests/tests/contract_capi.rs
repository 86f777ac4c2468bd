//! The C library through a C program that is built here with the system's compiler, and what the library exports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds the library and gives the folder that it lies in.
fn library() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "hippihx-capi"])
        .current_dir(root())
        .status()
        .expect("cargo starts");
    assert!(built.success());
    let test = std::env::current_exe().expect("this test has a path");
    test.ancestors().nth(2).expect("target/debug/deps above it").to_owned()
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

#[test]
fn a_c_and_a_cpp_program_find_every_function_as_the_contract_says() {
    let (library, scratch) = (library(), tempfile::tempdir().unwrap());
    for (compiler, standard, language) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "c++")] {
        let program = scratch.path().join(language);
        run(Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", language])
            .arg(root().join("tests/capi/consumer.c"))
            .arg("-I")
            .arg(root().join("client/capi/include"))
            .arg("-L")
            .arg(&library)
            .args(["-x", "none", "-lhippihx_v1", "-o"])
            .arg(&program));
        let said = run(Command::new(&program).env("LD_LIBRARY_PATH", &library).env_remove("HSA_OVERRIDE_GFX_VERSION"));
        assert!(said.contains("as the contract says"), "{said}");
    }
}

#[test]
fn it_exports_the_contract_and_one_more_and_needs_libc_and_friends() {
    let library = library().join("libhippihx_v1.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library));
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    let names = [
        "abi_revision",
        "last_error",
        "load",
        "load_image",
        "loaded",
        "op_count",
        "op_fp16_act",
        "op_is_dot",
        "op_name",
        "op_nparams",
        "op_ntensors",
        "op_param_name",
        "op_tensor_name",
        "plan",
        "run",
    ];
    let wanted: Vec<String> = names.iter().map(|name| format!("hippihx_v1_{name}")).collect();
    assert_eq!(exported, wanted.iter().map(String::as_str).collect());

    let dynamic = run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&library));
    assert!(dynamic.contains("[libhippihx_v1.so]"), "the soname: {dynamic}");
    for needed in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libm.so.6"];
        assert!(known.iter().any(|name| needed.contains(name)), "{needed}");
    }
}
