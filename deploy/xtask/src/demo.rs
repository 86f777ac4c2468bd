//! `cargo xtask demo`: the daemon on the fake device with the real code object, and two serving processes that use it.
//!
//! Everything is built if it must be, started, watched and stopped here; the exit is 0 only if every result was right.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hippihx_kernels::reference::fa_fdot2::{MAX_ABSOLUTE_ERROR, MAX_FROBENIUS_ERROR};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Deserialize;

/// Decode steps of each serving process.
const STEPS: u64 = 64;
const SERVING: [u64; 2] = [1, 2];
/// How long the daemon may take to say that it is ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the fake device computes: reference arithmetic, or isa, which executes the object's machine code
    #[arg(long, default_value = "reference")]
    exec: String,
    /// Another device than the fake one, such as hip:0
    #[arg(long)]
    device: Option<String>,
    /// Decode steps of each process
    #[arg(long, default_value_t = STEPS)]
    steps: u64,
}

/// A line of a serving process.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    phase: String,
    step: u64,
    error: f64,
    steps: u64,
    worst: f64,
    frobenius: f64,
    p50_us: u64,
    p99_us: u64,
    plan_hits: u64,
    plan_misses: u64,
    retried: u64,
}

/// A process that does not outlive this one.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn run(args: &Args) -> Result<()> {
    let root = crate::workspace_root();
    let device = args.device.clone().unwrap_or_else(|| format!("fake:gfx1030,exec={}", args.exec));
    println!("building the daemon, the serving example and the gfx1030 object");
    crate::cargo(&root, &["build", "-p", "hippihxd"])?;
    crate::cargo(&root, &["build", "-p", "hippihx-client", "--example", "serving"])?;
    let kernels = root.join("kernels/out");
    if !kernels.join("hippihx_gfx1030.hsaco").exists() {
        // In this process: a second cargo would wait for nothing but print over the bars.
        crate::kernels::run(&crate::kernels::Args::one_slot("gfx1030"))?;
    }
    let built = crate::target_dir().join("debug");

    let folder = crate::target_dir().join(format!("demo-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = serve(args, &built, &kernels, &folder, &device);
    let log = fs::read_to_string(folder.join("daemon.log")).unwrap_or_default();
    fs::remove_dir_all(&folder)?;
    if result.is_err() && !log.is_empty() {
        eprintln!("the daemon's log:\n{log}");
    }
    result
}

fn serve(args: &Args, built: &Path, kernels: &Path, folder: &Path, device: &str) -> Result<()> {
    let socket = folder.join("hippihx.sock");
    let mut daemon = start_daemon(built, kernels, folder, &socket, device)?;
    println!("hippihxd is ready on {device}; two serving processes prefill, then decode {} steps each", args.steps);

    let bars = MultiProgress::new();
    let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let workers: Vec<_> = SERVING
        .into_iter()
        .map(|seed| {
            let bar =
                bars.add(ProgressBar::new(args.steps).with_style(style.clone()).with_prefix(format!("serving {seed}")));
            let program = built.join("examples/serving");
            let (socket, steps) = (socket.clone(), args.steps);
            std::thread::spawn(move || watch(&program, &socket, seed, steps, &bar))
        })
        .collect();
    let mut summaries = Vec::new();
    for worker in workers {
        summaries.push(worker.join().map_err(|_| anyhow::anyhow!("a thread of the demo panicked"))?);
    }
    let summaries = summaries.into_iter().collect::<Result<Vec<_>>>()?;

    stop(&mut daemon)?;
    println!(
        "{:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>9}",
        "serving", "steps", "max error", "frobenius", "p50 us", "p99 us", "retried"
    );
    for (seed, line) in SERVING.iter().zip(&summaries) {
        let (worst, frobenius) = (line.worst, line.frobenius);
        println!(
            "{seed:>8} {:>6} {worst:>10.2e} {frobenius:>10.2e} {:>10} {:>10} {:>9}",
            line.steps, line.p50_us, line.p99_us, line.retried
        );
        ensure!(line.steps == args.steps, "serving {seed} made {} steps of {}", line.steps, args.steps);
        ensure!(
            worst <= MAX_ABSOLUTE_ERROR && frobenius <= MAX_FROBENIUS_ERROR,
            "serving {seed} is off by more than the contract allows"
        );
    }
    let hits = summaries.iter().map(|line| line.plan_hits).max().unwrap_or(0);
    let misses = summaries.iter().map(|line| line.plan_misses).max().unwrap_or(0);
    println!(
        "plan cache: {hits} hits, {misses} misses; allowed errors: {MAX_ABSOLUTE_ERROR:.0e} absolute, {MAX_FROBENIUS_ERROR:.0e} Frobenius"
    );
    println!("all results are right");
    Ok(())
}

/// Starts the daemon and waits for its READY=1, as a service manager would.
fn start_daemon(built: &Path, kernels: &Path, folder: &Path, socket: &Path, device: &str) -> Result<Guard> {
    let notify = folder.join("notify");
    let ready = UnixDatagram::bind(&notify).context("the notification socket")?;
    ready.set_read_timeout(Some(PATIENCE))?;
    let log = fs::File::create(folder.join("daemon.log"))?;
    let daemon = Command::new(built.join("hippihxd"))
        .args(["--device", device, "--log", "human", "--kernels"])
        .arg(kernels)
        .arg("--socket")
        .arg(socket)
        .env("NOTIFY_SOCKET", &notify)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start hippihxd")?;
    let mut daemon = Guard(daemon);
    let mut said = [0; 512];
    // A daemon that refuses closes nothing here; its exit is looked for while nothing is said.
    ready.set_read_timeout(Some(Duration::from_millis(200)))?;
    let started = std::time::Instant::now();
    while started.elapsed() < PATIENCE {
        if let Ok(length) = ready.recv(&mut said)
            && said[..length].starts_with(b"READY=1")
        {
            return Ok(daemon);
        }
        if let Some(status) = daemon.0.try_wait()? {
            bail!("hippihxd ended before it was ready ({status})");
        }
    }
    bail!("hippihxd did not say that it is ready within {PATIENCE:?}")
}

/// Asks the daemon to drain, and wants it to end well.
fn stop(daemon: &mut Guard) -> Result<()> {
    let status = Command::new("kill").args(["-TERM", &daemon.0.id().to_string()]).status().context("kill")?;
    ensure!(status.success(), "the daemon was gone before it was stopped");
    let status = daemon.0.wait()?;
    ensure!(status.success(), "the daemon ended with {status}");
    Ok(())
}

fn watch(program: &Path, socket: &PathBuf, seed: u64, steps: u64, bar: &ProgressBar) -> Result<Line> {
    let mut child = Command::new(program)
        .args(["--seed", &seed.to_string(), "--steps", &steps.to_string(), "--socket"])
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let lines = child.stdout.take().context("no output")?;
    let mut child = Guard(child);
    let (mut last, mut worst) = (Line::default(), 0.0_f64);
    for line in BufReader::new(lines).lines() {
        last = serde_json::from_str(&line?).context("a serving process said something else than JSON")?;
        worst = worst.max(last.error);
        bar.set_position(last.step.max(last.steps));
        bar.set_message(format!("{} max error {worst:.1e}", last.phase));
    }
    let status = child.0.wait()?;
    if !status.success() {
        let mut why = String::new();
        if let Some(mut errors) = child.0.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut errors, &mut why);
        }
        bail!("serving {seed} ended with {status}: {why}");
    }
    ensure!(last.phase == "done", "serving {seed} ended without a summary");
    bar.finish();
    Ok(last)
}
