//! The command line of the hippihx kernel daemon.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod output;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use failure::USAGE;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Nobody is left to tell when the terminal is gone.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let json = cli.json;
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(failure::report(&error, json)),
    }
}
