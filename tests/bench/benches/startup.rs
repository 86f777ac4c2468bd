//! Cold start of the daemon to READY on the fake device, and its idle resident memory.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hippihx_bench::quartiles;

const ROUNDS: usize = 21;
/// To beat.
const MARK_MS: f64 = 20.0;
const MARK_MIB: f64 = 12.0;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "hippihxd"])
        .current_dir(&root)
        .status();
    assert!(built.expect("cargo").success());
    let bench = std::env::current_exe().expect("a path");
    let daemon = bench.ancestors().nth(2).expect("target/release").join("hippihxd");
    let (mut starts, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let notify = folder.path().join("notify");
        let ready = UnixDatagram::bind(&notify).expect("a socket");
        ready.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let started = Instant::now();
        let mut child = Command::new(&daemon)
            .args(["--device", "fake:gfx1030", "--log", "json", "--kernels"])
            .arg(root.join("kernels/out"))
            .arg("--socket")
            .arg(folder.path().join("s.sock"))
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("hippihxd");
        let mut said = [0; 256];
        let length = ready.recv(&mut said).expect("READY within 30 s");
        assert!(said[..length].starts_with(b"READY=1"));
        starts.push(started.elapsed().as_secs_f64() * 1e3);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        resident.push(line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    println!("{:32} {:>9} {:>20} {:>14}", "", "median", "quartiles", "of the mark");
    for (name, values, unit, mark) in
        [("cold start to READY", starts, "ms", MARK_MS), ("idle resident memory", resident, "MiB", MARK_MIB)]
    {
        let (low, median, high) = quartiles(values);
        println!("{name:32} {median:>6.1} {unit:<3} {low:>8.1} to {high:>8.1} {:>9.2} of {mark}", median / mark);
    }
}
