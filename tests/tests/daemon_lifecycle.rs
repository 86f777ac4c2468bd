//! A daemon's life: what it refuses to start with, its sockets, reload, drain, and what a crash means to its clients.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hippihx_client as client;
use hippihx_kernels::Dtype;
use hippihx_proto::v1::{self, load_request, session_event::Event};
use hippihx_tests::attention::{Case, Inputs};
use hippihx_tests::daemon::{PATIENCE, binary};
use hippihx_tests::objects;
use hippihx_tests::wire::{Session, eventually, reason};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A folder with everything of one daemon: socket, log, code objects of its own.
struct Home {
    dir: TempDir,
}

impl Home {
    /// With gfx1030's object under `kernels/`.
    fn new() -> Home {
        let home = Home { dir: TempDir::new().unwrap() };
        fs::create_dir(home.path("kernels")).unwrap();
        fs::write(home.object(), objects::read("gfx1030")).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("hippihx.sock")
    }

    fn object(&self) -> PathBuf {
        self.path("kernels/hippihx_gfx1030.hsaco")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The daemon's command line; its output goes to the log.
    fn command(&self, fake: &str) -> Command {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(binary());
        command
            .args(["--device", &format!("fake:{fake}")])
            .arg("--kernels")
            .arg(self.path("kernels"))
            .arg("--socket")
            .arg(self.socket())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    /// A daemon that can be connected to.
    fn start(&self, fake: &str) -> Running {
        let mut running = Running(self.command(fake).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            let ended = running.0.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}: {}", self.log());
            std::thread::yield_now();
        }
        running
    }

    /// The exit code of a daemon that must not start, and what it said.
    fn refused(&self, command: &mut Command) -> (i32, String) {
        let code = Running(command.spawn().unwrap()).wait().code().unwrap();
        (code, self.log())
    }
}

/// Killed when dropped.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_start_up_refusal_has_its_exit_code_and_its_sentence() {
    for (variable, value) in [
        ("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
        ("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0"),
        ("HSA_OVERRIDE_GFX_VERSION", ""),
    ] {
        let home = Home::new();
        let (code, said) = home.refused(home.command("gfx1030").env(variable, value));
        assert_eq!(code, 65, "{variable}={value:?}: {said}");
        assert!(said.contains(variable) && said.contains("ERR_FOREIGN_ISA"), "{said}");
        assert!(!home.socket().exists(), "a refused daemon leaves no socket");
    }

    // What, the fake device's options, exit code, a word of what is said, and what is done to the folder before.
    type Row = (&'static str, &'static str, i32, &'static str, fn(&Home));
    let cases: [Row; 7] = [
        ("a later slot", "gfx906", 67, "Vega20", |_| {}),
        ("no slot", "gfx942", 67, "ERR_UNSUPPORTED_ARCH", |_| {}),
        ("no device", "gfx1030,absent=1", 66, "ERR_NO_HIP", |_| {}),
        ("no such option", "gfx1030,colour=red", 64, "colour", |_| {}),
        ("no object", "gfx1030", 68, "hippihx_gfx1030.hsaco", |home| fs::remove_file(home.object()).unwrap()),
        ("half an object", "gfx1030", 68, "ERR_CODE_OBJECT", |home| {
            fs::write(home.object(), &objects::read("gfx1030")[..5000]).unwrap();
        }),
        ("another slot's object", "gfx1030", 69, "gfx1100", |home| {
            fs::write(home.object(), objects::read("gfx1100")).unwrap();
        }),
    ];
    for (what, fake, expected, word, prepare) in cases {
        let home = Home::new();
        prepare(&home);
        let (code, said) = home.refused(&mut home.command(fake));
        assert_eq!(code, expected, "{what}: {said}");
        assert!(said.contains(word), "{what}: {said}");
    }
}

#[test]
fn a_second_daemon_on_the_same_device_is_told_so_whatever_its_socket() {
    let (home, other) = (Home::new(), Home::new());
    let claim = tempfile::NamedTempFile::new().expect("a lock file");
    let device = format!("gfx1030,claim={}", claim.path().display());
    let first = home.start(&device);
    let (code, said) = other.refused(&mut other.command(&device));
    assert_eq!(code, 70, "{said}");
    assert!(said.contains("already running") && said.contains(&format!("pid {}", first.0.id())), "{said}");
    drop(first);
    // Nobody has it any more.
    drop(other.start(&device));
}

#[tokio::test]
async fn a_second_daemon_is_told_who_has_the_socket_and_the_first_serves_on() {
    let home = Home::new();
    let first = home.start("gfx1030");
    let (code, said) = home.refused(&mut home.command("gfx1030"));
    assert_eq!(code, 70, "{said}");
    assert!(said.contains("already running") && said.contains(&format!("pid {}", first.0.id())), "{said}");
    Session::attach(&home.socket()).await.unwrap();
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let home = Home::new();
    fs::write(home.socket(), "somebody's").unwrap();
    let (code, said) = home.refused(&mut home.command("gfx1030"));
    assert_eq!(code, 71, "{said}");
    assert!(said.contains("is no socket"), "{said}");
    assert_eq!(fs::read_to_string(home.socket()).unwrap(), "somebody's");
}

#[test]
fn the_sockets_never_have_a_wider_mode() {
    let home = Home::new();
    let mut command = Command::new("sh");
    // The widest mask there is: what the daemon asks for is then what it gets.
    let daemon = home.command("gfx1030");
    command.args(["-c", "umask 000 && exec \"$0\" \"$@\""]).arg(daemon.get_program()).args(daemon.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let handoff = hippihx_proto::handoff_path(&home.socket());
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + PATIENCE;
    let look = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.permissions().mode() & 0o7777);
    while UnixStream::connect(home.socket()).is_err() || look(&handoff).is_none() {
        seen.extend([look(&home.socket()), look(&handoff)].into_iter().flatten());
        assert!(running.0.try_wait().unwrap().is_none() && Instant::now() < deadline);
    }
    seen.extend([look(&home.socket()), look(&handoff)].into_iter().flatten());
    assert_eq!(seen, BTreeSet::from([0o660]));
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_replaced() {
    let home = Home::new();
    let mut first = home.start("gfx1030");
    first.signal(Signal::KILL);
    first.wait();
    assert!(home.socket().exists(), "SIGKILL leaves the socket");
    assert!(UnixStream::connect(home.socket()).is_err());
    let _second = home.start("gfx1030");
    let mut session = Session::attach(&home.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    session.run(bound.binding).await.unwrap();
    bound.verify().unwrap();
}

#[tokio::test]
async fn sigterm_finishes_what_was_accepted_and_takes_nothing_more() {
    let home = Home::new();
    let mut daemon = home.start("gfx1030,slow=1000000");
    let mut session = Session::attach(&home.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let (mut stub, request) = (session.client.clone(), session.run_request(bound.binding));
    let run = tokio::spawn(async move { stub.run(request).await });
    let in_flight = async || session.stats().await.unwrap().runs_in_flight;
    eventually("the run starts", in_flight, |count| *count == 1).await;

    daemon.signal(Signal::TERM);
    let told = session.events.message().await.unwrap().and_then(|event| event.event);
    assert!(matches!(told, Some(Event::Draining(_))), "{told:?}");
    let refused = session.run(bound.binding).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), refused.code()), ("DRAINING", tonic::Code::Unavailable));
    let refused = Session::attach(&home.socket()).await.unwrap_err();
    assert_eq!(reason(&refused), "DRAINING", "{refused}");

    run.await.unwrap().unwrap();
    bound.verify().unwrap();
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!home.socket().exists(), "a daemon that ends takes its sockets with it");
}

#[tokio::test]
async fn sighup_raises_the_generation_when_the_object_changed_and_not_otherwise() {
    let home = Home::new();
    let daemon = home.start("gfx1030");
    let mut session = Session::attach(&home.socket()).await.unwrap();
    let bound = session.bind_case(&Case::default()).await.unwrap();
    let before = session.attached.generation;
    let times = |word: &'static str| {
        let home = &home;
        async move || home.log().matches(word).count()
    };

    daemon.signal(Signal::HUP);
    eventually("a reload without a change", times("\"changed\":false"), |count| *count == 1).await;
    assert_eq!(session.stats().await.unwrap().generation, before);
    session.run(bound.binding).await.unwrap();

    // Another content of the same meaning. The new file takes the old one's place whole, as a package does it.
    let mut image = objects::read("gfx1030").to_vec();
    image.push(0);
    fs::write(home.path("next"), &image).unwrap();
    fs::rename(home.path("next"), home.object()).unwrap();
    daemon.signal(Signal::HUP);
    let told = session.events.message().await.unwrap().and_then(|event| event.event);
    assert_eq!(told, Some(Event::GenerationChanged(v1::GenerationChanged { generation: before + 1 })));
    assert_eq!(reason(&session.run(bound.binding).await.unwrap_err()), "STALE_GENERATION");

    fs::write(home.path("next"), "broken").unwrap();
    fs::rename(home.path("next"), home.object()).unwrap();
    daemon.signal(Signal::HUP);
    eventually("the refused reload", times("the reload is refused"), |count| *count == 1).await;
    let request = v1::LoadRequest { arch: "gfx1030".to_owned(), source: Some(load_request::Source::Reload(true)) };
    assert_eq!(reason(&session.client.load(request).await.unwrap_err()), "ERR_CODE_OBJECT");
    assert_eq!(session.stats().await.unwrap().generation, before + 1);
    let again = session.bind_case(&Case::default()).await.unwrap();
    session.run(again.binding).await.unwrap();
    again.verify().unwrap();
}

/// A session of the client library with one bound case.
struct Engine {
    session: client::Session,
    inputs: Inputs,
    buffer: client::Buffer,
    binding: client::Binding,
}

impl Engine {
    async fn attach(socket: &Path, seed: u64) -> Engine {
        let case = Case { seed, ..Case::default() };
        let inputs = case.inputs();
        let session = client::Session::attach(socket, client::Options::named("engine")).await.unwrap();
        let buffer = session.share("case", inputs.bytes.len()).await.unwrap();
        buffer.view::<u8>(0, inputs.bytes.len()).unwrap().write(&inputs.bytes);
        let mut spec = client::PlanSpec::new("attention.fa_fdot2", "gfx1030");
        spec.params = case.params().to_vec();
        let plan = session.plan(&spec).await.unwrap();
        let tensors: Vec<_> = inputs
            .tensors
            .iter()
            .map(|placed| match Dtype::from_code(placed.dtype) {
                Some(dtype) if !placed.absent => {
                    client::TensorRef::new(&buffer, placed.offset, dtype, &placed.shape, &placed.stride)
                }
                _ => client::TensorRef::absent(),
            })
            .collect();
        let binding = session.bind(&plan, &tensors, None).await.unwrap();
        Engine { session, inputs, buffer, binding }
    }

    fn memory(&self) -> Vec<u8> {
        self.buffer.view::<u8>(0, self.inputs.bytes.len()).unwrap().to_vec()
    }

    async fn run(&self) -> Result<(), client::Error> {
        self.session.run(&self.binding, client::Step::default()).await.map(|_| ())
    }

    fn verify(&self) {
        self.inputs.compare(&self.memory(), &self.inputs.reference()).unwrap();
    }
}

fn runs(stats: &v1::StatsResponse) -> u64 {
    stats.runs.iter().map(|run| run.count).sum()
}

#[tokio::test]
async fn a_run_in_flight_when_the_daemon_dies_is_reported_and_not_run_again() {
    let home = Home::new();
    // Longer than the test looks on: every run is in flight at the kill.
    let mut first = home.start("gfx1030,slow=8000000");
    let mut engines = Vec::new();
    for seed in 0..3 {
        engines.push(std::sync::Arc::new(Engine::attach(&home.socket(), seed).await));
    }
    let lost: Vec<_> = engines
        .iter()
        .map(|engine| {
            let engine = std::sync::Arc::clone(engine);
            tokio::spawn(async move { engine.run().await })
        })
        .collect();
    let mut watching = Session::attach(&home.socket()).await.unwrap();
    let in_flight = async || watching.stats().await.unwrap().runs_in_flight;
    eventually("the runs start", in_flight, |count| *count == 3).await;
    first.signal(Signal::KILL);
    first.wait();
    let _second = home.start("gfx1030");
    for (run, engine) in lost.into_iter().zip(&engines) {
        let error = run.await.unwrap().unwrap_err();
        assert!(matches!(error, client::Error::RunLost { .. }), "{error:?}");
        // The next daemon did not write what the lost run would have written.
        assert!(engine.memory() == engine.inputs.bytes, "the lost run was run again");
    }
    let mut watching = Session::attach(&home.socket()).await.unwrap();
    assert_eq!(runs(&watching.stats().await.unwrap()), 0);
    for engine in &engines {
        engine.run().await.unwrap();
        engine.verify();
        assert_eq!(engine.session.attachments(), 2);
    }
    assert_eq!(runs(&watching.stats().await.unwrap()), 3);
}

#[tokio::test]
async fn sessions_under_load_go_on_by_themselves_with_the_next_daemon() {
    const ENGINES: u64 = 4;
    let home = Home::new();
    let mut first = home.start("gfx1030,slow=2000");
    let mut loads = Vec::new();
    for seed in 0..ENGINES {
        let engine = Engine::attach(&home.socket(), seed).await;
        loads.push(tokio::spawn(async move {
            let (mut lost, mut with_next) = (0, 0);
            while with_next < 20 {
                match engine.run().await {
                    Ok(()) if engine.session.attachments() == 2 => with_next += 1,
                    Ok(()) => {}
                    Err(client::Error::RunLost { .. }) => lost += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            engine.verify();
            (lost, with_next)
        }));
    }
    let mut watching = Session::attach(&home.socket()).await.unwrap();
    let busy = async || {
        let stats = watching.stats().await.unwrap();
        (runs(&stats), stats.runs_in_flight)
    };
    eventually("a load", busy, |(done, in_flight)| *done > 50 && *in_flight > 0).await;
    first.signal(Signal::KILL);
    first.wait();
    let _second = home.start("gfx1030");
    let (mut lost, mut completed) = (0, 0);
    for load in loads {
        let (one_lost, with_next) = tokio::time::timeout(Duration::from_secs(60), load).await.unwrap().unwrap();
        assert!(one_lost <= 1, "one run of a session is in flight at a time, {one_lost} were lost");
        lost += one_lost;
        completed += with_next;
    }
    assert!(lost > 0, "nothing was in flight when the daemon was killed");
    let mut watching = Session::attach(&home.socket()).await.unwrap();
    // Not one more than was asked for: what was lost was not run by the next daemon.
    assert_eq!(runs(&watching.stats().await.unwrap()), completed);
}
