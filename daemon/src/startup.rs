//! Start-up, in the design's order, and an exit code for each refusal.

use std::sync::Arc;

use hippihx_kernels::{Slot, Status, slot_by_name};
use thiserror::Error;

use crate::config::{Cli, Config};
use crate::daemon::Daemon;
use crate::device::fake::{FakeDevice, Options, OptionsError};
use crate::device::{Device, DeviceError};
use crate::errors::Failure;
use crate::kernel_files;
use crate::listen::lock::{Lock, LockError};
use crate::listen::sockets::SocketError;
use crate::objects::Objects;

/// Why the daemon does not start. None of these goes away by trying again.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{0}")]
    Config(String),
    #[error(
        "{}: {variable} is set ({value:?}). It makes the runtime run code of another architecture, and every kernel may fault: \
         unset it (systemctl unset-environment, or the unit's Environment=)",
        Status::ForeignIsa
    )]
    Override { variable: String, value: String },
    #[error("{}: {detail}", Status::NoHip)]
    NoDevice { detail: String },
    #[error("{status}: {detail}")]
    Arch { status: Status, detail: String },
    #[error("{status}: {detail}")]
    Object { status: Status, detail: String },
    #[error("{0}")]
    Running(String),
    #[error("{0}")]
    Socket(String),
}

impl StartError {
    /// Exit codes from 64 on, one a kind; `RestartPreventExitStatus` of the unit lists them.
    pub const fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) => 64,
            StartError::Override { .. } => 65,
            StartError::NoDevice { .. } => 66,
            StartError::Arch { .. } => 67,
            StartError::Object { status: Status::ForeignIsa, .. } => 69,
            StartError::Object { .. } => 68,
            StartError::Running(_) => 70,
            StartError::Socket(_) => 71,
        }
    }
}

impl From<SocketError> for StartError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Lock(LockError::Held { .. }) => StartError::Running(error.to_string()),
            _ => StartError::Socket(error.to_string()),
        }
    }
}

/// A daemon that can serve, and what is held while it does.
#[derive(Debug)]
pub struct Started {
    pub daemon: Daemon,
    /// One daemon a device.
    pub device_lock: Option<Lock>,
}

/// Checks, opens the device, loads the slot's object.
///
/// # Errors
/// The first refusal in the design's order: override variables, device, architecture, code object.
pub fn start(cli: Cli, config: Config) -> Result<Started, StartError> {
    check_overrides(
        std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())),
    )?;
    let (device, device_lock) = open_device(&config)?;
    let about = device.describe();
    let slot = slot_of(&about.arch)?;
    let file = kernel_files::of_slot(&config.kernels, slot).map_err(|failure| refused_object(&failure))?;
    let objects =
        Objects::new(device.as_ref(), slot, file.image, file.source).map_err(|failure| refused_object(&failure))?;
    Ok(Started { daemon: Daemon::new(cli, config, slot, device, objects), device_lock })
}

/// Every form of the override, set to whatever, empty included: the per-node form wins over the plain one in the runtime.
fn check_overrides(variables: impl Iterator<Item = (String, String)>) -> Result<(), StartError> {
    const NAME: &str = "HSA_OVERRIDE_GFX_VERSION";
    for (variable, value) in variables {
        let form = variable.strip_prefix(NAME);
        if form.is_some_and(|node| node.is_empty() || node.starts_with('_')) {
            return Err(StartError::Override { variable, value });
        }
    }
    Ok(())
}

/// The slot of a device's architecture string: the part before ':'.
fn slot_of(arch: &str) -> Result<&'static Slot, StartError> {
    let base = arch.split(':').next().unwrap_or(arch);
    slot_by_name(base)
        .map_err(|refusal| StartError::Arch { status: refusal.status(), detail: format!("the device: {refusal}") })
}

fn open_device(config: &Config) -> Result<(Arc<dyn Device>, Option<Lock>), StartError> {
    let absent = |error: DeviceError| StartError::NoDevice { detail: error.to_string() };
    match config.device.split_once(':') {
        Some(("fake", options)) => {
            let options = Options::parse(options)
                .map_err(|error: OptionsError| StartError::Config(format!("device: {error}")))?;
            let claim = options.claim.as_deref().map(|path| Lock::take(path, &format!("the device {}", config.device)));
            let claim = claim.transpose().map_err(|error| match error {
                LockError::Held { .. } => StartError::Running(error.to_string()),
                LockError::Os { .. } => StartError::Config(format!("device: {error}")),
            })?;
            Ok((Arc::new(FakeDevice::new(options).map_err(absent)?), claim))
        }
        _ => Err(StartError::Config(format!(
            "device is {:?}; fake:SLOT[,option=value…] or hip:INDEX-or-PCI-address-or-UUID is needed",
            config.device
        ))),
    }
}

fn refused_object(failure: &Failure) -> StartError {
    StartError::Object { status: failure.v1().unwrap_or(Status::CodeObject), detail: failure.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_override_is_refused_and_no_other_variable() {
        let check = |name: &str, value: &str| check_overrides(std::iter::once((name.to_owned(), value.to_owned())));
        for (name, value) in [
            ("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
            ("HSA_OVERRIDE_GFX_VERSION", ""),
            ("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0"),
        ] {
            let error = check(name, value).unwrap_err();
            assert_eq!(error.exit_code(), 65);
            assert!(error.to_string().contains(name) && error.to_string().contains("ERR_FOREIGN_ISA"), "{error}");
        }
        for name in ["HSA_OVERRIDE_GFX_VERSIONS", "HSA_OVERRIDE", "PATH"] {
            assert!(check(name, "1").is_ok(), "{name}");
        }
    }

    #[test]
    fn features_behind_the_arch_are_no_part_of_the_slot() {
        assert_eq!(slot_of("gfx1030:sramecc-:xnack-").unwrap().name, "gfx1030");
        for (arch, word) in [("gfx1013", "BC-250"), ("gfx906:xnack+", "Vega20"), ("gfx942", "no slot")] {
            let error = slot_of(arch).unwrap_err();
            assert_eq!(error.exit_code(), 67);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
