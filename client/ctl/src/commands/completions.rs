//! `hippihxctl completions`: the completions of a shell, on the standard output.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<u8> {
    clap_complete::generate(args.shell, &mut Cli::command(), "hippihxctl", &mut std::io::stdout());
    Ok(0)
}
