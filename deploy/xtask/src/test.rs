//! `cargo xtask test`: everything that must hold before a push, every failure listed at the end.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only the checks that need no test run: format, lints, rendered files, dependency policy
    #[arg(long)]
    checks: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let root = crate::workspace_root();
    let mut failed = Vec::new();
    let mut step = |name: &'static str, command: &[&str]| {
        println!("== {name}: cargo {}", command.join(" "));
        let started = Instant::now();
        if cargo(&root, command) {
            println!("== {name}: good ({} s)", started.elapsed().as_secs());
        } else {
            println!("== {name}: FAILED");
            failed.push(name);
        }
    };
    step("format", &["fmt", "--all", "--check"]);
    step("rendered files", &["xtask", "codegen", "--check"]);
    if Command::new("cargo-deny").arg("--version").output().is_ok_and(|out| out.status.success()) {
        step("dependency policy", &["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]);
    } else {
        println!("== dependency policy: NOT CHECKED, cargo-deny is not installed (cargo install cargo-deny)");
    }
    step("lints", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    if !args.checks {
        if !kernels_are_built(&root) {
            step("code objects", &["xtask", "kernels"]);
        }
        step("tests", &["test", "--workspace", "--no-fail-fast"]);
    }
    if failed.is_empty() {
        println!("everything holds");
        Ok(())
    } else {
        bail!("failed: {}", failed.join(", "))
    }
}

fn kernels_are_built(root: &Path) -> bool {
    let folder = root.join("kernels/out");
    let objects =
        hippihx_kernels::SLOTS.iter().all(|slot| folder.join(format!("hippihx_{}.hsaco", slot.name)).exists());
    objects && crate::kernels::is_current(root, &folder)
}

fn cargo(root: &Path, args: &[&str]) -> bool {
    Command::new(env!("CARGO")).current_dir(root).args(args).status().is_ok_and(|status| status.success())
}
