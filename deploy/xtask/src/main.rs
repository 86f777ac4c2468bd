//! The task runner: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod codegen;
mod demo;
mod kernels;
mod package;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Builds, checks and shows hippihx", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Render everything that is rendered from the catalogue and the .proto files
    Codegen(codegen::Args),
    /// Build the code objects of all slots, with a resource table and a manifest
    Kernels(kernels::Args),
    /// Serve two processes on the fake device with the real code object, every result checked
    Demo(demo::Args),
    /// Format, lints, rendered files, dependency policy, and all tests
    Test(test::Args),
    /// Build the Debian package
    Package(package::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Codegen(args) => codegen::run(&args),
        Task::Kernels(args) => kernels::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Package(args) => package::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Where cargo puts what it builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

/// Runs cargo in the repository and wants it to succeed.
fn cargo(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    use anyhow::Context;
    let status = std::process::Command::new(env!("CARGO"))
        .current_dir(root)
        .args(args)
        .status()
        .context("cannot start cargo")?;
    anyhow::ensure!(status.success(), "cargo {} failed ({status})", args.join(" "));
    Ok(())
}
