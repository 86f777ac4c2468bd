//! `cargo xtask package`: the Debian package, from a release build, in one command.
//!
//! Staged as a plain tree and packed by `dpkg-deb`, since the package is made of five crates' outputs and of files that
//! no crate owns.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Where each file of the repository goes, and with which mode.
const FILES: &[(&str, &str, u32)] = &[
    ("deploy/systemd/hippihxd@.service", "usr/lib/systemd/system/hippihxd@.service", 0o644),
    ("deploy/systemd/hippihxd@.socket", "usr/lib/systemd/system/hippihxd@.socket", 0o644),
    (
        "deploy/systemd/hippihxd@fake.service.d/fake.conf",
        "usr/lib/systemd/system/hippihxd@fake.service.d/fake.conf",
        0o644,
    ),
    ("deploy/sysusers.d/hippihx.conf", "usr/lib/sysusers.d/hippihx.conf", 0o644),
    ("deploy/tmpfiles.d/hippihx.conf", "usr/lib/tmpfiles.d/hippihx.conf", 0o644),
    ("deploy/preset/90-hippihx.preset", "usr/lib/systemd/system-preset/90-hippihx.preset", 0o644),
    ("deploy/hippihxd.toml", "etc/hippihx/hippihxd.toml", 0o644),
    ("deploy/grafana/hippihx.json", "usr/share/hippihx/grafana/hippihx.json", 0o644),
    ("client/capi/include/hippihx/v1.h", "usr/include/hippihx/v1.h", 0o644),
    ("README.md", "usr/share/doc/hippihx/README.md", 0o644),
];

/// The maintainer scripts, which dpkg wants executable.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// What the package is called, made of and needs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Version of the package; the workspace's when left out.
    #[arg(long)]
    version: Option<String>,
    /// Folder of the finished package.
    #[arg(long, default_value = "target/package")]
    out: PathBuf,
    /// Folder with the twelve code objects; built there when one is missing.
    #[arg(long, default_value = "kernels/out")]
    kernels: PathBuf,
}

/// Builds everything in release form, stages it, packs it, and prints the package's path.
pub fn run(args: &Args) -> Result<()> {
    let root = crate::workspace_root();
    let version = args.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    ensure!(
        version.starts_with(|c: char| c.is_ascii_digit()),
        "a Debian version starts with a digit, found {version:?}"
    );
    let out = root.join(&args.out);
    let tree = out.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot clear {}", tree.display()))?;
    }

    crate::cargo(&root, &["build", "--release", "-p", "hippihxd", "-p", "hippihxctl", "-p", "hippihx-capi"])?;
    let built = crate::target_dir().join("release");
    install(&built.join("hippihxd"), &tree.join("usr/bin/hippihxd"), 0o755)?;
    install(&built.join("hippihxctl"), &tree.join("usr/bin/hippihxctl"), 0o755)?;
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    install(&built.join("libhippihx_v1.so"), &libraries.join("libhippihx_v1.so"), 0o644)?;
    for (from, to, mode) in FILES {
        install(&root.join(from), &tree.join(to), *mode)?;
    }
    let pc = fs::read_to_string(root.join("client/capi/hippihx_v1.pc.in")).context("client/capi/hippihx_v1.pc.in")?;
    let pc =
        pc.replace("@prefix@", "/usr").replace("@libdir@", "/usr/lib/x86_64-linux-gnu").replace("@version@", &version);
    write(&libraries.join("pkgconfig/hippihx_v1.pc"), pc.as_bytes())?;
    stage_kernels(&root, &root.join(&args.kernels), &tree.join("usr/lib/hippihx/kernels"))?;
    stage_ctl_docs(&built.join("hippihxctl"), &tree)?;
    stage_daemon_manual(&built.join("hippihxd"), &tree)?;
    let copyright = "hippihx is licensed under MIT OR Apache-2.0, at your choice.\n\n".to_owned()
        + &fs::read_to_string(root.join("LICENSE-MIT"))?
        + "\nThe Apache License, version 2.0, is /usr/share/common-licenses/Apache-2.0 on Debian systems.\n";
    write(&tree.join("usr/share/doc/hippihx/copyright"), copyright.as_bytes())?;

    stage_control(&root, &tree, &version)?;
    let package = out.join(format!("hippihx_{version}_amd64.deb"));
    let status = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .arg(&tree)
        .arg(&package)
        .status()
        .context("dpkg-deb is not here; the package is built on Debian or a system like it")?;
    ensure!(status.success(), "dpkg-deb failed ({status})");
    println!("{}", package.display());
    Ok(())
}

/// All slots' objects and their manifest; they are built when one is missing, so one command is enough.
fn stage_kernels(root: &Path, from: &Path, to: &Path) -> Result<()> {
    let names: Vec<String> = hippihx_kernels::SLOTS
        .iter()
        .map(|slot| format!("hippihx_{}.hsaco", slot.name))
        .chain(["manifest.json".to_owned()])
        .collect();
    if names.iter().any(|name| !from.join(name).exists()) {
        crate::cargo(root, &["xtask", "kernels"])?;
    }
    for name in &names {
        install(&from.join(name), &to.join(name), 0o644)?;
    }
    Ok(())
}

/// The tool renders its own man pages and completions, so they cannot drift from its options.
fn stage_ctl_docs(ctl: &Path, tree: &Path) -> Result<()> {
    let man = tree.join("usr/share/man/man1");
    fs::create_dir_all(&man)?;
    output(Command::new(ctl).args(["man", "--out"]).arg(&man))?;
    for entry in fs::read_dir(&man)? {
        compress(&entry?.path())?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/hippihxctl"),
        ("zsh", "usr/share/zsh/vendor-completions/_hippihxctl"),
        ("fish", "usr/share/fish/vendor_completions.d/hippihxctl.fish"),
    ] {
        write(&tree.join(path), &output(Command::new(ctl).args(["completions", shell]))?)?;
    }
    Ok(())
}

fn stage_daemon_manual(daemon: &Path, tree: &Path) -> Result<()> {
    let page = tree.join("usr/share/man/man8/hippihxd.8");
    write(&page, &output(Command::new(daemon).arg("--man"))?)?;
    compress(&page)
}

fn stage_control(root: &Path, tree: &Path, version: &str) -> Result<()> {
    let debian = tree.join("DEBIAN");
    for script in SCRIPTS {
        install(&root.join("deploy/debian").join(script), &debian.join(script), 0o755)?;
    }
    write(&debian.join("conffiles"), b"/etc/hippihx/hippihxd.toml\n")?;
    let kib = tree_bytes(tree)?.div_ceil(1024);
    let control = format!(
        "Package: hippihx\nVersion: {version}\nArchitecture: amd64\nMaintainer: the hippihx maintainers <maintainers@hippihx.invalid>\n\
         Installed-Size: {kib}\nSection: science\nPriority: optional\n\
         Depends: libc6 (>= 2.34), libgcc-s1, systemd (>= 249)\n\
         Description: kernel service for AMD RDNA GPUs\n \
         One daemon a GPU loads the slot's code object after strict checks and serves Plan,\n \
         Bind and Run to serving processes over a Unix socket and shared memory.\n \
         With it: hippihxctl, the code objects of all slots, and the C library of the V1 ABI.\n"
    );
    write(&debian.join("control"), control.as_bytes())
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(to, &bytes)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(|| format!("cannot chmod {}", to.display()))
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644)).with_context(|| format!("cannot chmod {}", to.display()))
}

/// Debian wants man pages compressed, and without a time stamp inside so that a rebuild gives the same bytes.
fn compress(page: &Path) -> Result<()> {
    output(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(page)).map(drop)
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let out = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("{command:?} failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.stdout)
}

fn tree_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        bytes += if kind.is_dir() { tree_bytes(&entry.path())? } else { kind.len() };
    }
    Ok(bytes)
}
