//! Configuration: the command line over a TOML file over defaults.
//!
//! Every option exists in both; the file's keys are the long options' names with underscores.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Deserialize;
use thiserror::Error;

/// The kernel daemon of one GPU.
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "hippihxd", version)]
pub struct Cli {
    /// The GPU: hip:INDEX, hip:PCI-ADDRESS, hip:UUID, or fake:SLOT[,option=value…]
    #[arg(long)]
    pub device: Option<String>,
    /// Folder with hippihx_<slot>.hsaco; given several times, the first is the one that is loaded from at start
    #[arg(long, value_name = "DIR")]
    pub kernels: Vec<PathBuf>,
    /// Unix socket of the gRPC service; the hand-off socket is PATH.handoff
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// TOML file with the options that are not given here
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Form of the log
    #[arg(long, value_enum)]
    pub log: Option<LogForm>,
    /// What is logged, such as info or hippihxd=debug
    #[arg(long)]
    pub log_filter: Option<String>,
    /// Read the configuration, say what is wrong with it, and exit
    #[arg(long)]
    pub check_config: bool,
    /// Print the man page
    #[arg(long, hide = true)]
    pub man: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    /// Human on a terminal, journald under systemd, JSON elsewhere
    Auto,
    Human,
    Json,
    Journald,
}

/// What one session may have at most.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub buffers: u32,
    /// Bytes over all buffers.
    pub buffer_bytes: u64,
    pub bindings: u32,
    pub plans: u32,
    pub sequences: u32,
    /// Entries of a ring's submission queue, a power of two.
    pub ring_entries: u32,
    pub requests_in_flight: u32,
    pub events: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            buffers: 4096,
            buffer_bytes: 1 << 40,
            bindings: 65_536,
            plans: 4096,
            sequences: 4096,
            ring_entries: 4096,
            requests_in_flight: 1024,
            events: 1024,
        }
    }
}

/// Everything that can be configured, after the file and the command line were put together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub device: String,
    pub kernels: Vec<PathBuf>,
    pub socket: PathBuf,
    /// Mode of the sockets that the daemon makes itself, in octal.
    pub socket_mode: String,
    /// Whoever the sockets' mode lets connect is admitted.
    pub allow_all: bool,
    /// Peers that are admitted, beside root and the daemon's own user.
    pub allow_uids: Vec<u32>,
    pub allow_gids: Vec<u32>,
    /// Peers that may load and reload code objects and drain, beside root and the daemon's own user.
    pub admin_uids: Vec<u32>,
    /// Peers' memfds may be registered with the GPU for everyone, not for admins alone.
    pub register_client_memory: bool,
    pub limits: Limits,
    /// Sessions at the same time.
    pub max_sessions: u32,
    /// Plans that the cache keeps.
    pub plan_cache: usize,
    /// Longest time that accepted runs may take after a stop was asked for, in seconds.
    pub drain_s: u64,
    /// Longest time that one run may take before the device counts as hung, in milliseconds.
    pub longest_run_ms: u64,
    /// Threads of the gRPC runtime.
    pub threads: usize,
    pub log: LogForm,
    pub log_filter: String,
    /// Prometheus listener: a loopback address with port, or unix:PATH; empty is none.
    pub metrics: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            device: "hip:0".to_owned(),
            kernels: vec![PathBuf::from("/usr/lib/hippihx/kernels")],
            socket: PathBuf::from(hippihx_proto::DEFAULT_SOCKET),
            socket_mode: "0660".to_owned(),
            allow_all: false,
            allow_uids: Vec::new(),
            allow_gids: Vec::new(),
            admin_uids: Vec::new(),
            register_client_memory: false,
            limits: Limits::default(),
            max_sessions: 256,
            plan_cache: 4096,
            drain_s: 30,
            longest_run_ms: 10_000,
            threads: 2,
            log: LogForm::Auto,
            log_filter: "info".to_owned(),
            metrics: String::new(),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{key} is {found}; {allowed}")]
    Value { key: &'static str, found: String, allowed: &'static str },
}

impl Config {
    /// The file named on the command line, then the command line over it.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, holds an unknown key, or a value is outside what is allowed.
    pub fn load(cli: &Cli) -> Result<Config, ConfigError> {
        let mut config = cli.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        if let Some(device) = &cli.device {
            config.device.clone_from(device);
        }
        if !cli.kernels.is_empty() {
            config.kernels.clone_from(&cli.kernels);
        }
        if let Some(socket) = &cli.socket {
            config.socket.clone_from(socket);
        }
        config.log = cli.log.unwrap_or(config.log);
        if let Some(filter) = &cli.log_filter {
            config.log_filter.clone_from(filter);
        }
        config.check()?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, found: String, allowed| Err(ConfigError::Value { key, found, allowed });
        if self.mode().is_none() {
            return refuse(
                "socket_mode",
                format!("{:?}", self.socket_mode),
                "an octal mode such as \"0660\" is needed",
            );
        }
        if self.kernels.is_empty() {
            return refuse("kernels", "empty".to_owned(), "at least one folder is needed");
        }
        if !self.limits.ring_entries.is_power_of_two() || self.limits.ring_entries > 1 << 16 {
            return refuse(
                "limits.ring_entries",
                self.limits.ring_entries.to_string(),
                "a power of two up to 65536 is needed",
            );
        }
        if self.plan_cache == 0 || self.threads == 0 || self.threads > 64 || self.max_sessions == 0 {
            let found = format!("{}, {}, {}", self.plan_cache, self.threads, self.max_sessions);
            return refuse("plan_cache, threads, max_sessions", found, "at least 1 each, and at most 64 threads");
        }
        if self.longest_run_ms == 0 {
            return refuse("longest_run_ms", "0".to_owned(), "at least 1 is needed");
        }
        Ok(())
    }

    /// Mode of the sockets that the daemon makes.
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(&self.socket_mode, 8).ok().filter(|mode| *mode <= 0o777)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }

    pub fn longest_run(&self) -> Duration {
        Duration::from_millis(self.longest_run_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hippihxd.toml");
        fs::write(&path, text).unwrap();
        Config::load(&Cli { config: Some(path), device: Some("fake:gfx1030".to_owned()), ..Cli::default() })
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let config = parse("device = \"hip:3\"\ndrain_s = 5\n[limits]\nbuffers = 2\n").unwrap();
        assert_eq!((config.device.as_str(), config.drain_s, config.limits.buffers), ("fake:gfx1030", 5, 2));
        assert_eq!(config.limits.bindings, Limits::default().bindings);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("devise = \"hip:0\"", "devise"),
            ("[limits]\nbufers = 2", "bufers"),
            ("socket_mode = \"rw\"", "octal"),
            ("kernels = []", "at least one folder"),
            ("[limits]\nring_entries = 100", "power of two"),
            ("longest_run_ms = 0", "longest_run_ms"),
            ("drain_s = -1", "drain_s"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
