//! Where the daemon is in its life, and who is told.
//!
//! ```text
//! Serving ──SIGTERM, drain──► Draining ──all done or time over──► Stopped
//!    └──a run beyond longest_run, device lost──► Lost ──► process exit for the service manager
//! ```

use tokio::sync::watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Serving,
    Draining,
    /// The device is gone; the sentence says how that was seen.
    Lost(String),
}

#[derive(Debug)]
pub struct Lifecycle {
    phase: watch::Sender<Phase>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle { phase: watch::Sender::new(Phase::Serving) }
    }
}

impl Lifecycle {
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub fn is_serving(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }

    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Starts the drain; says whether this call did.
    pub fn drain(&self) -> bool {
        self.phase.send_if_modified(|phase| {
            let starts = *phase == Phase::Serving;
            if starts {
                *phase = Phase::Draining;
            }
            starts
        })
    }

    /// Gives the device up; says whether this call did.
    pub fn lose(&self, how: &str) -> bool {
        self.phase.send_if_modified(|phase| {
            let starts = !matches!(phase, Phase::Lost(_));
            if starts {
                *phase = Phase::Lost(how.to_owned());
            }
            starts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_cannot_be_drained_back() {
        let life = Lifecycle::default();
        assert!(life.drain() && !life.drain() && !life.is_serving());
        assert!(life.lose("hung") && !life.lose("again") && !life.drain());
        assert_eq!(life.phase(), Phase::Lost("hung".to_owned()));
    }
}
