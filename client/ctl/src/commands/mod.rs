//! One file a command.

pub mod completions;
pub mod doctor;
pub mod drain;
pub mod emulate;
pub mod inspect;
pub mod load;
pub mod man;
pub mod ops;
pub mod plan;
pub mod reload;
pub mod stats;
pub mod status;
pub mod top;

use std::path::Path;

use anyhow::Result;
use hippihx_client::Stub;

use crate::cli::{Cli, Command};

/// Runs a command and gives the exit status.
pub fn run(cli: Cli) -> Result<u8> {
    let (socket, json) = (cli.socket.as_path(), cli.json);
    match cli.command {
        Command::Plan(args) => plan::run(&args, json),
        Command::Inspect(args) => inspect::run(&args, json),
        Command::Emulate(args) => emulate::run(&args).map(|()| 0),
        Command::Man(args) => man::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Status(args) => daemon(status::run(socket, &args, json)),
        Command::Ops => daemon(ops::run(socket, json)),
        Command::Load(args) => daemon(load::run(socket, &args, json)),
        Command::Reload => daemon(reload::run(socket, json)),
        Command::Drain => daemon(drain::run(socket, json)),
        Command::Stats => daemon(stats::run(socket, json)),
        Command::Doctor(args) => daemon(doctor::run(socket, &args, json)),
        Command::Top(args) => daemon(top::run(socket, &args, json)),
    }
}

fn daemon(command: impl Future<Output = Result<u8>>) -> Result<u8> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

async fn connect(socket: &Path) -> Result<Stub> {
    Ok(hippihx_client::connect(socket).await?)
}
