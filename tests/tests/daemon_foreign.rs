//! A Python client made from the .proto file alone: what the daemon speaks is gRPC, not our own two ends of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hippihx_tests::daemon::Daemon;
use rustix::fs::{FlockOperation, flock};

const PACKAGES: [&str; 5] = ["grpcio", "grpcio-tools", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"];
const NEEDS: &str = "this test needs python3 with venv and pip, and once a package index to install grpcio from";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn must(command: &mut Command, needs: &str) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {needs}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}; {needs}\n{out}{err}", output.status);
    output
}

/// A Python with the packages and the rendered stubs, made once under the target folder.
fn python() -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign");
    std::fs::create_dir_all(&folder).unwrap();
    // Tests of several profiles may come here at the same time.
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let venv = folder.join("venv");
    let python = venv.join("bin/python");
    let whole = folder.join("complete");
    if !whole.exists() {
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv), NEEDS);
        must(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(PACKAGES),
            NEEDS,
        );
        std::fs::write(&whole, PACKAGES.join("\n")).unwrap();
    }
    let (proto, stubs) = (root().join("proto/hippihx/v1"), folder.join("stubs"));
    std::fs::create_dir_all(&stubs).unwrap();
    must(
        Command::new(&python)
            .args(["-m", "grpc_tools.protoc"])
            .arg(format!("-I{}", proto.display()))
            .arg(format!("--python_out={}", stubs.display()))
            .arg(format!("--grpc_python_out={}", stubs.display()))
            .arg("kernel_service.proto"),
        "the .proto file must compile with protoc",
    );
    (python, stubs)
}

#[test]
fn a_client_of_another_language_is_served() {
    let (python, stubs) = python();
    let daemon = Daemon::start("gfx1030");
    let script = root().join("tests/foreign/client.py");
    let output = must(
        Command::new(python).arg(script).arg(daemon.socket()).env("PYTHONPATH", stubs),
        "see what the client says",
    );
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    assert_eq!(said["slot"], "gfx1030");
    assert_eq!(said["abi_revision"], 4);
    assert_eq!(said["ready"], serde_json::json!(["attention.fa_fdot2"]));
    assert_eq!(said["health"], "SERVING");
    for service in ["hippihx.v1.KernelService", "grpc.health.v1.Health"] {
        assert!(said["services"].as_array().unwrap().iter().any(|found| found == service), "{said}");
    }
    assert_eq!(said["secret_bytes"], 16);
    // The contract's worked figures.
    let scratch =
        serde_json::json!([["o_partial", 524_288, 0], ["m_partial", 4096, 524_288], ["l_partial", 4096, 528_384]]);
    assert_eq!(
        said["plan"],
        serde_json::json!({ "ready": true, "wave": 32, "scratch": scratch, "scratch_nbytes": 532_480 })
    );
    assert_eq!(said["same_plan"], true);
    assert_eq!(said["allocated"], 4096);
    assert_eq!(said["sessions"], serde_json::json!(["a client of another language"]));

    let refused = &said["param"];
    assert_eq!(refused["code"], "INVALID_ARGUMENT", "{said}");
    assert_eq!(
        refused["details"],
        serde_json::json!([{
            "reason": "ERR_PARAM", "domain": "hippihx.v1", "metadata": { "status": "8", "field": "head_dim" },
        }])
    );
    assert!(refused["message"].as_str().unwrap().contains("head_dim is 96"), "{said}");
    assert_eq!(said["stranger"]["code"], "UNAUTHENTICATED");
    assert_eq!(said["stranger"]["details"][0]["reason"], "UNAUTHENTICATED");
}
