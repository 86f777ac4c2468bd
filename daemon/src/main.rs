//! hippihxd: configuration, start, serve, exit code.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use hippihxd::config::{Cli, Config};
use hippihxd::listen::sockets::Sockets;
use hippihxd::startup::{StartError, Started, start};
use hippihxd::{logging, manual, server};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.man {
        print!("{}", manual::page());
        return ExitCode::SUCCESS;
    }
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            // Before and beside the log: a refusal must be seen wherever the daemon was started from.
            eprintln!("hippihxd: {error:#}");
            error.downcast_ref::<StartError>().map_or(ExitCode::FAILURE, |refusal| ExitCode::from(refusal.exit_code()))
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let config = Config::load(&cli).map_err(|error| StartError::Config(error.to_string()))?;
    if cli.check_config {
        println!("the configuration is good");
        return Ok(ExitCode::SUCCESS);
    }
    logging::start(&config).map_err(|error| StartError::Config(error.to_string()))?;
    let mode = config.mode().unwrap_or(0o600);
    let (socket, threads) = (config.socket.clone(), config.threads);
    let Started { daemon, device_lock } = start(cli, config)?;
    let sockets = Sockets::open(&socket, mode).map_err(StartError::from)?;
    let (grpc, handoff) = sockets.descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("hx-grpc")
        .thread_stack_size(512 * 1024)
        .enable_all()
        .build()?;
    let code = runtime.block_on(server::serve(Arc::new(daemon), grpc, handoff));
    // A device that hangs may hold threads for ever; the process does not wait for them.
    runtime.shutdown_background();
    drop((sockets, device_lock));
    code
}
