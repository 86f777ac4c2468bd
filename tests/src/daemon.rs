//! The real `hippihxd` as a process of its own, and what the kernel says about it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::objects;

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running daemon with sockets of its own; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    dir: TempDir,
}

impl Daemon {
    /// With the fake device of these options (`gfx1030,slow=500`), after it can be connected to.
    pub fn start(fake: &str) -> Self {
        Self::configured(fake, "")
    }

    /// The same with more lines of its TOML file.
    ///
    /// # Panics
    /// With what the daemon said, when it does not come up.
    pub fn configured(fake: &str, toml: &str) -> Self {
        let dir = TempDir::new().expect("a folder for the sockets");
        let config = dir.path().join("hippihxd.toml");
        fs::write(&config, toml).expect("a configuration file");
        let log = fs::File::create(dir.path().join("log")).expect("a log file");
        let child = Command::new(binary())
            .arg("--device")
            .arg(format!("fake:{fake}"))
            .arg("--kernels")
            .arg(objects::folder())
            .arg("--socket")
            .arg(dir.path().join("hippihx.sock"))
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("hippihxd starts");
        let mut daemon = Self { child, dir };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(daemon.socket()).is_err() {
            let ended = daemon.child.try_wait().expect("a child");
            assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}: {}", daemon.log());
            thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("hippihx.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// What the kernel holds for it.
    pub fn figures(&self) -> Figures {
        let proc = PathBuf::from(format!("/proc/{}", self.pid()));
        let maps = fs::read_to_string(proc.join("maps")).unwrap_or_default();
        let shared = maps.lines().filter(|line| line.contains("/memfd:"));
        let bytes = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        };
        Figures {
            open_files: entries(&proc.join("fd")),
            threads: entries(&proc.join("task")),
            shared_bytes: shared.filter_map(bytes).sum(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

/// Kernel objects of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub open_files: usize,
    pub threads: usize,
    /// Bytes of memfds that are mapped.
    pub shared_bytes: u64,
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// The daemon of the same profile as this test.
pub fn binary() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("hippihxd"))
}

/// The program of a package, of the same profile as this test; built when it is not up to date.
///
/// # Panics
/// When it does not build.
pub fn built(package: &str) -> PathBuf {
    // target/PROFILE/deps/TEST
    let test = std::env::current_exe().expect("a path of this test");
    let profile = test.ancestors().nth(2).expect("a target folder").to_owned();
    let release = profile.file_name().is_some_and(|name| name == "release");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package]).args(release.then_some("--release"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", profile.parent().expect("a target folder"));
    // What cargo set for this test would make the build look different from everybody else's.
    let inherited: BTreeMap<_, _> = std::env::vars_os().filter(|(name, _)| is_of_a_package(name)).collect();
    inherited.keys().for_each(|name| {
        build.env_remove(name);
    });
    assert!(build.status().expect("cargo runs").success(), "{package} does not build");
    profile.join(package)
}

fn is_of_a_package(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}
