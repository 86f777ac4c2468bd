//! The loaded code object and its generation.
//!
//! Everything that depends on the object takes one snapshot and works on it; accepted runs hold the module they were
//! accepted with, so a load never pulls it from under them.

use std::sync::{Arc, PoisonError, RwLock};

use hippihx_kernels::catalogue::Op;
use hippihx_kernels::code_object::{CodeObject, check_header, inspect};
use hippihx_kernels::launch::kernels_for_op;
use hippihx_kernels::slot::Slot;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::device::{Device, Module};
use crate::errors::Failure;

/// One loaded code object.
#[derive(Debug)]
pub struct Loaded {
    /// Counts loads, from 1.
    pub generation: u64,
    pub module: Arc<dyn Module>,
    pub object: CodeObject,
    pub sha256: [u8; 32],
    pub size: u64,
    /// A path, or "image".
    pub source: String,
}

impl Loaded {
    /// Why an op cannot run with this object, `None` when it can.
    pub fn not_ready(&self, op: &Op, slot: &Slot) -> Option<&'static str> {
        let kernels = kernels_for_op(op);
        if kernels.is_empty() {
            Some("no kernel body exists for this op under revision 4")
        } else if op.dot && !slot.dot {
            Some("the slot has no packed fp16 dot product")
        } else if kernels.iter().any(|spec| self.object.kernel(spec.name).is_none()) {
            Some("the loaded code object lacks its kernels")
        } else {
            None
        }
    }
}

/// The slot's object, replaced as a whole.
#[derive(Debug)]
pub struct Objects {
    slot: &'static Slot,
    current: RwLock<Arc<Loaded>>,
    /// Loads one after the other, so that generations and contents go together.
    loading: std::sync::Mutex<()>,
    changed: watch::Sender<u64>,
}

impl Objects {
    /// Checks and loads the first object.
    ///
    /// # Errors
    /// ERR_CODE_OBJECT or ERR_FOREIGN_ISA of either level, or the device's refusal.
    pub fn new(device: &dyn Device, slot: &'static Slot, image: Arc<[u8]>, source: String) -> Result<Objects, Failure> {
        let first = load(device, slot, image, source, 1)?;
        Ok(Objects {
            slot,
            current: RwLock::new(Arc::new(first)),
            loading: std::sync::Mutex::new(()),
            changed: watch::Sender::new(1),
        })
    }

    /// What is loaded now.
    pub fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the generation whenever it changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Replaces the object unless its content is the same, and says whether it did.
    ///
    /// # Errors
    /// As [`Objects::new`]; the old object stays.
    pub fn replace(
        &self,
        device: &dyn Device,
        image: Arc<[u8]>,
        source: String,
    ) -> Result<(Arc<Loaded>, bool), Failure> {
        let _one_at_a_time = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current();
        if old.sha256 == digest(&image) {
            return Ok((old, false));
        }
        let new = Arc::new(load(device, self.slot, image, source, old.generation + 1)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        self.changed.send_replace(new.generation);
        Ok((new, true))
    }
}

fn digest(image: &[u8]) -> [u8; 32] {
    Sha256::digest(image).into()
}

fn load(
    device: &dyn Device,
    slot: &'static Slot,
    image: Arc<[u8]>,
    source: String,
    generation: u64,
) -> Result<Loaded, Failure> {
    check_header(&image, slot)?;
    let object = inspect(&image)?;
    object.admit(slot)?;
    let (sha256, size) = (digest(&image), image.len() as u64);
    let module = device.load(image)?;
    Ok(Loaded { generation, module, object, sha256, size, source })
}
