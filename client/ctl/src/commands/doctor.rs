//! `hippihxctl doctor`: what keeps a daemon or a client from working on this machine, in plain words.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::Result;
use comfy_table::{Cell, Color};
use hippihx_client::{Error, Options, Session};
use serde_json::json;
use tonic_health::pb::health_check_response::ServingStatus;

use super::status;
use crate::output;

const KFD: &str = "/dev/kfd";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look at what the daemon's side needs too: the GPU driver and its groups
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    gpu: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Ok,
    Warning,
    Fault,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    name: &'static str,
    severity: Severity,
    found: String,
    /// What to do; empty when nothing is to be done.
    todo: String,
}

fn check(name: &'static str, severity: Severity, found: impl Into<String>, todo: impl Into<String>) -> Check {
    Check { name, severity, found: found.into(), todo: todo.into() }
}

pub async fn run(socket: &Path, args: &Args, json: bool) -> Result<u8> {
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let mut checks = overrides(variables);
    if args.gpu {
        checks.extend([driver(Path::new(KFD)), render_group()]);
    }
    checks.extend(daemon(socket).await);
    let worst = checks.iter().map(|check| check.severity).max().unwrap_or(Severity::Ok);
    if json {
        let list: Vec<_> = checks
            .iter()
            .map(|check| {
                json!({ "check": check.name, "severity": check.severity.name(), "found": check.found, "todo": check.todo })
            })
            .collect();
        output::json(&json!({ "severity": worst.name(), "checks": list }));
    } else {
        let mut table = output::table(&["", "CHECK", "FOUND", "TO DO"]);
        for check in &checks {
            let mut mark = Cell::new(check.severity.name());
            if output::colours() {
                mark = mark.fg(match check.severity {
                    Severity::Ok => Color::Green,
                    Severity::Warning => Color::Yellow,
                    Severity::Fault => Color::Red,
                });
            }
            table.add_row([mark, Cell::new(check.name), Cell::new(&check.found), Cell::new(&check.todo)]);
        }
        output::line(&table.trim_fmt());
    }
    Ok(worst as u8)
}

/// Every form of the override that a daemon refuses to start under.
fn overrides(variables: impl Iterator<Item = (String, String)>) -> Vec<Check> {
    const NAME: &str = "HSA_OVERRIDE_GFX_VERSION";
    let found: Vec<_> = variables
        .filter(|(name, _)| name.strip_prefix(NAME).is_some_and(|node| node.is_empty() || node.starts_with('_')))
        .map(|(name, value)| {
            check(
                "override",
                Severity::Fault,
                format!("{name} is set ({value:?}): the runtime would run code of another architecture, and faults"),
                format!("unset {name}, here and where it is set for services"),
            )
        })
        .collect();
    if found.is_empty() {
        vec![check("override", Severity::Ok, format!("{NAME} is not set in any form"), "")]
    } else {
        found
    }
}

/// A client needs no driver, and a fake device neither: its absence is a warning.
fn driver(path: &Path) -> Check {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_char_device() => {
            check("driver", Severity::Ok, format!("{} is there", path.display()), "")
        }
        Ok(_) => check(
            "driver",
            Severity::Fault,
            format!("{} is no device", path.display()),
            "remove it and load the amdgpu driver",
        ),
        Err(error) => check(
            "driver",
            Severity::Warning,
            format!("{}: {error}", path.display()),
            "for a GPU of AMD's load the amdgpu driver; in a container pass the device in",
        ),
    }
}

/// The group that may open render nodes, as the device files themselves name it.
fn render_group() -> Check {
    const NAME: &str = "render group";
    let nodes = fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let mut nodes: Vec<_> = nodes.filter(|node| node.file_name().to_string_lossy().starts_with("renderD")).collect();
    nodes.sort_by_key(fs::DirEntry::file_name);
    let Some((path, group)) = nodes.iter().find_map(|node| Some((node.path(), node.metadata().ok()?.gid()))) else {
        return check(
            NAME,
            Severity::Warning,
            "no render node under /dev/dri",
            "for a GPU load its driver; in a container pass /dev/dri in",
        );
    };
    let mine = rustix::process::getgroups().unwrap_or_default().iter().any(|mine| mine.as_raw() == group)
        || rustix::process::getegid().as_raw() == group
        || rustix::process::geteuid().is_root();
    let path = path.display();
    if mine {
        check(NAME, Severity::Ok, format!("this user may open {path} (gid {group})"), "")
    } else {
        check(
            NAME,
            Severity::Warning,
            format!("this user is not in the group of {path} (gid {group})"),
            "only the daemon's user must be; a client that uses the GPU itself: usermod -aG render USER, then log in again",
        )
    }
}

/// The socket, then whether this user is admitted, then the health.
async fn daemon(socket: &Path) -> Vec<Check> {
    let path = socket.display();
    let found = match fs::metadata(socket) {
        Ok(found) => found,
        Err(error) => {
            return vec![check(
                "socket",
                Severity::Fault,
                format!("{path}: {error}"),
                "start the daemon (systemctl start hippihxd@0.socket), or name its socket with --socket or HIPPIHX_SOCKET",
            )];
        }
    };
    if !found.file_type().is_socket() {
        return vec![check("socket", Severity::Fault, format!("{path} is no socket"), "name the daemon's socket")];
    }
    if let Err(error) = hippihx_client::connect(socket).await {
        let closed = error.to_string().contains("ermission denied");
        let todo = if closed {
            format!("join the socket's group (gid {}): usermod -aG GROUP USER, then log in again", found.gid())
        } else {
            "nobody listens: start the daemon, and look at journalctl -u 'hippihxd@*'".to_owned()
        };
        return vec![check("socket", Severity::Fault, error.to_string(), todo)];
    }
    let mut checks = vec![check("socket", Severity::Ok, format!("{path} can be connected to"), "")];
    let mut options = Options::named("hippihxctl doctor");
    // One try: a daemon that drains is a finding, not something to wait for.
    options.patience = std::time::Duration::ZERO;
    checks.push(match Session::attach(socket, options).await {
        Ok(_) => check("admission", Severity::Ok, "the daemon gives this user a session", ""),
        Err(Error::Refused(refusal)) => check(
            "admission",
            Severity::Fault,
            refusal.message,
            "an administrator of the daemon has to do that, then reload",
        ),
        Err(Error::Draining { .. }) => {
            check("admission", Severity::Warning, "the daemon is draining", "wait for the next one")
        }
        Err(error) => check("admission", Severity::Fault, error.to_string(), "look at the daemon's log"),
    });
    checks.push(match status::health(socket).await {
        Ok(ServingStatus::Serving) => check("health", Severity::Ok, "the service serves", ""),
        Ok(other) => {
            check("health", Severity::Warning, other.as_str_name(), "it is draining or lost its device; see its log")
        }
        Err(error) => check("health", Severity::Fault, error.to_string(), "see the daemon's log"),
    });
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_override_is_a_fault_even_an_empty_one() {
        let judge = |names: &[&str]| {
            overrides(names.iter().map(|name| ((*name).to_owned(), String::new())))
                .iter()
                .map(|check| check.severity)
                .collect::<Vec<_>>()
        };
        assert_eq!(judge(&["PATH", "HSA_OVERRIDE_GFX_VERSIONS"]), [Severity::Ok]);
        assert_eq!(judge(&["HSA_OVERRIDE_GFX_VERSION", "HSA_OVERRIDE_GFX_VERSION_1"]), [Severity::Fault; 2]);
    }

    #[test]
    fn a_driver_that_is_no_device_is_a_fault_and_a_missing_one_a_warning() {
        assert_eq!(driver(Path::new("/proc/self/exe")).severity, Severity::Fault);
        assert_eq!(driver(Path::new("/nowhere/kfd")).severity, Severity::Warning);
        assert_eq!(driver(Path::new("/dev/null")).severity, Severity::Ok);
    }
}
