//! hippihxctl as its users meet it: what it prints, what it exits with.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use hippihx_tests::attention::Case;
use hippihx_tests::daemon::{Daemon, built};
use hippihx_tests::objects;
use hippihx_tests::wire::Session;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Exit code, standard output, standard error.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

fn ctl(socket: &Path, args: &[&str]) -> Said {
    ctl_with(socket, args, &[])
}

fn ctl_with(socket: &Path, args: &[&str], variables: &[(&str, &str)]) -> Said {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BUILT.get_or_init(|| built("hippihxctl")));
    command.arg("--socket").arg(socket).args(args).stdin(Stdio::null()).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Said { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn nowhere() -> PathBuf {
    PathBuf::from("/nowhere/hippihx.sock")
}

const DECODE: [&str; 20] = [
    "--param",
    "mode=decode",
    "--param",
    "head_dim=128",
    "--param",
    "num_q_heads=32",
    "--param",
    "num_kv_heads=8",
    "--param",
    "block_size=16",
    "--param",
    "kv_splits=4",
    "--param",
    "sliding_window=0",
    "--param",
    "causal=0",
    "--param",
    "max_tokens=8",
    "--param",
    "scale=0.088",
];

#[tokio::test]
async fn a_daemon_is_described_counted_reloaded_and_drained() {
    let mut daemon = Daemon::start("gfx1030");
    let socket = daemon.socket();
    let mut session = Session::attach(&socket).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    session.run(bound.binding).await.unwrap();

    let status = ctl(&socket, &["--json", "status"]).json();
    assert_eq!(
        (&status["slot"], &status["generation"], &status["draining"]),
        (&json!("gfx1030"), &json!(1), &json!(false))
    );
    assert_eq!(status["code_object"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(status["code_object"]["kernels"].as_array().unwrap().len(), 6);
    let status = ctl(&socket, &["status"]);
    assert!(status.code == 0 && status.out.contains("gfx1030") && !status.out.contains('\x1b'), "{}", status.out);

    let ops = ctl(&socket, &["ops", "--json"]).json();
    let ready: Vec<_> = ops["ops"].as_array().unwrap().iter().filter(|op| op["ready"] == true).collect();
    assert_eq!((ops["ops"].as_array().unwrap().len(), ready.len(), &ready[0]["id"]), (12, 1, &json!(0)));

    let stats = ctl(&socket, &["--json", "stats"]);
    assert_eq!(stats.out.matches("\"session\":").count(), 1, "one line a session: {}", stats.out);
    let stats = stats.json();
    assert_eq!(stats["runs"], json!([{ "op": "attention.fa_fdot2", "status": "OK", "count": 1 }]));
    let row = &stats["sessions"][0];
    assert_eq!((&row["session"], &row["client"], &row["runs"]), (&json!(session.id), &json!("test"), &json!(1)));
    assert_eq!(ctl(&socket, &["--json", "top", "--once"]).json()["sessions"][0]["runs"], 1);
    assert!(ctl(&socket, &["top", "--once"]).out.contains("attention.fa_fdot2"));
    assert_eq!(ctl(&socket, &["top"]).code, 64, "no screen without a terminal");

    let health = ctl(&socket, &["status", "--health"]);
    assert_eq!((health.code, health.out.trim()), (0, "SERVING"));

    let reload = ctl(&socket, &["--json", "reload"]).json();
    assert_eq!((&reload["changed"], &reload["generation"]), (&json!(false), &json!(1)));
    let load = ctl(&socket, &["load", "/etc/passwd"]);
    assert!(
        load.code == 1 && load.err.contains("ERR_CODE_OBJECT") && load.err.contains("configured folders"),
        "{}",
        load.err
    );
    let load = ctl(&socket, &["--json", "load", "hippihx_gfx1100.hsaco"]);
    assert_eq!((load.code, &load.json()["error"]["status"]), (1, &json!(12)));

    let drain = ctl(&socket, &["--json", "drain"]).json();
    assert_eq!((&drain["runs_in_flight"], &drain["sessions"]), (&json!(0), &json!(1)));
    let ended = async || daemon.ended();
    let ended = hippihx_tests::wire::eventually("the daemon ends", ended, Option::is_some).await;
    assert_eq!(ended.unwrap().code(), Some(0));
    for args in [&["status"][..], &["status", "--health"], &["stats"], &["reload"], &["drain"], &["ops"]] {
        let said = ctl(&socket, args);
        assert!(said.code == 2 && said.err.contains("no daemon at"), "{args:?}: {} {}", said.code, said.err);
    }
}

#[tokio::test]
async fn health_is_not_serving_while_a_daemon_drains() {
    let daemon = Daemon::start("gfx1030,slow=3000000");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (mut stub, request) = (session.client.clone(), session.run_request(bound.binding));
    let run = tokio::spawn(async move { stub.run(request).await });
    let in_flight = async || session.stats().await.unwrap().runs_in_flight;
    hippihx_tests::wire::eventually("the run starts", in_flight, |count| *count == 1).await;
    let socket = daemon.socket();
    assert_eq!(ctl(&socket, &["--json", "drain"]).json()["runs_in_flight"], 1);
    // The answer to the drain may come before the health is told.
    let health = async || {
        let said = ctl(&socket, &["--json", "status", "--health"]);
        (said.code, said.out.contains("\"NOT_SERVING\""))
    };
    hippihx_tests::wire::eventually("health", health, |found| *found == (1, true)).await;
    assert_eq!(ctl(&socket, &["--json", "status"]).json()["draining"], true);
    run.await.unwrap().unwrap();
}

#[test]
fn plan_needs_no_daemon() {
    let mut args = vec!["--json", "plan", "attention.fa_fdot2", "--arch", "gfx1030"];
    args.extend(DECODE);
    let plan = ctl(&nowhere(), &args);
    assert_eq!(plan.code, 0, "{}", plan.err);
    let plan = plan.json();
    assert_eq!((&plan["scratch_nbytes"], &plan["variant"], &plan["wave"]), (&json!(532_480), &json!(0), &json!(32)));
    assert_eq!(plan["scratch"][1], json!({ "name": "m_partial", "nbytes": 4096, "offset": 524_288 }));

    args[4] = "gfx900";
    let refused = ctl(&nowhere(), &args);
    let error = &refused.json()["error"];
    assert_eq!((refused.code, &error["reason"], &error["status"]), (1, &json!("ERR_UNSUPPORTED_ARCH"), &json!(2)));
    let refused =
        ctl(&nowhere(), &["plan", "11", "--arch", "gfx1030", "--param", "max_bytes=1", "--fabric", "hop=PHB,width=16"]);
    assert!(refused.code == 1 && refused.err.contains("ERR_UNSUPPORTED_FABRIC"), "{}", refused.err);
    for args in [&["plan", "0", "--arch", "gfx1030"][..], &["plan", "0"], &["dance"], &["--json"]] {
        assert_eq!(ctl(&nowhere(), args).code, 64, "{args:?}");
    }
}

#[test]
fn inspect_judges_any_file() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good", &objects::read("gfx1030"));
    let report = ctl(&nowhere(), &["--json", "inspect", &good]);
    assert_eq!(report.code, 0);
    let report = report.json();
    assert_eq!((&report["good"], &report["slot"], &report["machine"]), (&json!(true), &json!("gfx1030"), &json!(0x36)));
    for kernel in report["kernels"].as_array().unwrap() {
        assert_eq!((&kernel["vgpr_spills"], &kernel["wavefront_size"]), (&json!(0), &json!(32)), "{kernel}");
        assert!((1..=256).contains(&kernel["vgprs"].as_u64().unwrap()), "{kernel}");
    }
    let other = ctl(&nowhere(), &["--json", "inspect", &good, "--slot", "gfx1100"]);
    assert_eq!((other.code, &other.json()["refusal"]["reason"]), (1, &json!("ERR_FOREIGN_ISA")));

    let mut bundle = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    let target = "hipv4-amdgcn-amd-amdhsa--gfx1030";
    for word in [1, 4096, 77, target.len() as u64] {
        bundle.extend(word.to_le_bytes());
    }
    bundle.extend(target.as_bytes());
    bundle.resize(8192, 0);
    let report = ctl(&nowhere(), &["inspect", &file("bundle", &bundle)]);
    assert_eq!(report.code, 1);
    for word in ["ERR_CODE_OBJECT", "--no-gpu-bundle-output", target, "77"] {
        assert!(report.out.contains(word), "{word}: {}", report.out);
    }
    for (name, bytes) in [("empty", Vec::new()), ("x86", fs::read("/proc/self/exe").unwrap())] {
        let report = ctl(&nowhere(), &["--json", "inspect", &file(name, &bytes)]);
        assert_eq!((report.code, &report.json()["refusal"]["status"]), (1, &json!(11)), "{name}");
    }
    assert_eq!(ctl(&nowhere(), &["inspect", "/nowhere/file"]).code, 1);
}

/// The severity of one check.
fn severity(report: &Value, name: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{report}"));
    check["severity"].as_str().unwrap().to_owned()
}

#[test]
fn doctor_finds_what_is_wrong_by_its_severity() {
    let daemon = Daemon::start("gfx1030");
    let healthy = ctl(&daemon.socket(), &["--json", "doctor", "--gpu", "false"]);
    assert_eq!(healthy.code, 0, "{}", healthy.out);
    for check in ["override", "socket", "admission", "health"] {
        assert_eq!(severity(&healthy.json(), check), "ok");
    }
    let sick = ctl_with(&daemon.socket(), &["--json", "doctor"], &[("HSA_OVERRIDE_GFX_VERSION_1", "")]);
    assert_eq!((sick.code, severity(&sick.json(), "override").as_str()), (2, "fault"));
    assert!(sick.out.contains("unset HSA_OVERRIDE_GFX_VERSION_1"), "{}", sick.out);
    let alone = ctl(&nowhere(), &["--json", "doctor", "--gpu", "false"]);
    assert_eq!((alone.code, severity(&alone.json(), "socket").as_str()), (2, "fault"));
    let folder = TempDir::new().unwrap();
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert!(ctl(&plain, &["doctor"]).out.contains("is no socket"));
}

#[test]
fn the_man_page_and_the_completions_are_made() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("man1");
    assert_eq!(ctl(&nowhere(), &["man", "--out", out.to_str().unwrap()]).code, 0);
    let page = fs::read_to_string(out.join("hippihxctl.1")).unwrap();
    assert!(page.contains(".SS doctor") && page.contains(".SH EXIT STATUS"), "{page}");
    for (shell, word) in
        [("bash", "complete -F _hippihxctl"), ("zsh", "#compdef hippihxctl"), ("fish", "complete -c hippihxctl")]
    {
        let said = ctl(&nowhere(), &["completions", shell]);
        assert!(said.code == 0 && said.out.contains(word), "{shell}: {}", said.out);
    }
    let help = ctl(&nowhere(), &["--help"]);
    assert!(help.code == 0 && help.out.contains("Exit status"), "{}", help.out);
}
