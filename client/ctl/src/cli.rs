//! The options, as the help, the man page and the completions say them.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use hippihx_proto::{DEFAULT_SOCKET, SOCKET_VARIABLE};

use crate::commands::{completions, doctor, emulate, inspect, load, man, plan, status, top};

/// What the process ends with, for the help and the man page.
pub const EXIT_STATUS: &str = "0 done; 1 refused or failed (doctor: a warning); 2 no daemon at the socket (doctor: a fault); \
                               64 the command line is wrong.";

/// Looks at and steers the kernel daemon of one GPU.
#[derive(Debug, Parser)]
#[command(
    name = "hippihxctl",
    version,
    after_help = format!("Exit status: {EXIT_STATUS}\nNO_COLOR in the environment turns colours off.")
)]
pub struct Cli {
    /// Unix socket of the daemon
    #[arg(long, global = true, value_name = "PATH", env = SOCKET_VARIABLE, default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Answer in JSON, errors too
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// What the daemon is: slot, device, code object, generation
    Status(status::Args),
    /// The ops of the contract, and why some are not ready
    Ops,
    /// Plans an op here, without a daemon: scratch and variant, or the refusal
    Plan(plan::Args),
    /// Loads a code object from one of the daemon's kernel folders
    Load(load::Args),
    /// Has the daemon read its configuration and its code object again
    Reload,
    /// Has the daemon finish what it accepted, and end
    Drain,
    /// What is in a code object, and whether a daemon would take it
    Inspect(inspect::Args),
    /// Executes a kernel of a gfx1030 code object on this CPU, and says what it did
    Emulate(emulate::Emulate),
    /// Counters since start, and the sessions
    Stats,
    /// Looks for what keeps a daemon or a client from working here
    Doctor(doctor::Args),
    /// Sessions and rates, again and again
    Top(top::Args),
    /// Writes the man page
    #[command(hide = true)]
    Man(man::Args),
    /// Prints the completions of a shell
    #[command(hide = true)]
    Completions(completions::Args),
}
