//! Everything that the parts of a running daemon share.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use hippihx_kernels::Slot;

use crate::config::{Cli, Config};
use crate::device::Device;
use crate::errors::Failure;
use crate::kernel_files;
use crate::lifecycle::Lifecycle;
use crate::listen::peer::Admission;
use crate::objects::Objects;
use crate::plans::PlanCache;
use crate::session::registry::{Registry, random_u64};
use crate::stats::Stats;

#[derive(Debug)]
pub struct Daemon {
    pub slot: &'static Slot,
    pub device: Arc<dyn Device>,
    pub objects: Objects,
    pub plans: PlanCache,
    pub sessions: Registry,
    pub stats: Arc<Stats>,
    pub lifecycle: Arc<Lifecycle>,
    /// Changes with every start.
    pub epoch: u64,
    pub handoff_path: PathBuf,
    /// What was given on the command line, to be put over the file again at a reload.
    cli: Cli,
    config: RwLock<Arc<Config>>,
}

impl Daemon {
    pub fn new(cli: Cli, config: Config, slot: &'static Slot, device: Arc<dyn Device>, objects: Objects) -> Daemon {
        let (stats, lifecycle) = (Arc::new(Stats::default()), Arc::new(Lifecycle::default()));
        Daemon {
            slot,
            device,
            objects,
            plans: PlanCache::new(config.plan_cache),
            sessions: Registry::new(Arc::clone(&stats), Arc::clone(&lifecycle)),
            stats,
            lifecycle,
            epoch: random_u64(),
            handoff_path: hippihx_proto::handoff_path(&config.socket),
            cli,
            config: RwLock::new(Arc::new(config)),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who may do what, by the configuration in force.
    pub fn admission(&self) -> Admission {
        Admission::new(&self.config())
    }

    /// Reads the configuration again, then the code object; says whether that changed. Device, socket and threads stay as
    /// they were at the start.
    ///
    /// # Errors
    /// The configuration or the object is refused; then everything stays as it is.
    pub fn reload(&self) -> Result<bool, Failure> {
        let config = Config::load(&self.cli).map_err(|error| Failure::invalid("configuration", error.to_string()))?;
        let file = kernel_files::of_slot(&config.kernels, self.slot)?;
        let (loaded, changed) = self.objects.replace(self.device.as_ref(), file.image, file.source)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        tracing::info!(generation = loaded.generation, changed, source = loaded.source, "reloaded");
        Ok(changed)
    }
}
