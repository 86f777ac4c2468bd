//! Logs through tracing: for people on a terminal, for journald under systemd, JSON elsewhere.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, LogForm};

/// Starts logging.
///
/// # Errors
/// The filter does not parse, or journald was asked for and is not there.
pub fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log_filter).map_err(|error| {
        anyhow::anyhow!(
            "log_filter is {:?}: {error}; a level such as info, or target=level, is needed",
            config.log_filter
        )
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    let form = match config.log {
        LogForm::Auto if stderr().is_terminal() => LogForm::Human,
        LogForm::Auto if std::env::var_os("JOURNAL_STREAM").is_some() => LogForm::Journald,
        LogForm::Auto => LogForm::Json,
        form => form,
    };
    match form {
        LogForm::Journald => match tracing_journald::layer() {
            Ok(layer) => registry.with(layer).try_init()?,
            Err(error) if config.log == LogForm::Auto => {
                registry.with(tracing_subscriber::fmt::layer().json().with_writer(stderr)).try_init()?;
                tracing::warn!(%error, "journald is not there; logging JSON");
            }
            Err(error) => return Err(anyhow::anyhow!("journald is not there: {error}")),
        },
        LogForm::Json => registry.with(tracing_subscriber::fmt::layer().json().with_writer(stderr)).try_init()?,
        _ => {
            let colour = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            registry
                .with(tracing_subscriber::fmt::layer().with_ansi(colour).with_target(false).with_writer(stderr))
                .try_init()?;
        }
    }
    Ok(())
}
