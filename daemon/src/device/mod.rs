//! One GPU, in the daemon's own terms. Nothing above this trait knows HIP.
//!
//! Who checks what: callers hand over only code objects that passed both levels of checks, launches made by
//! [`hippihx_kernels::launch`] for the module's own kernels, and addresses inside memory of this device that they keep
//! alive through [`Submission::holds`]. An implementation checks what only it can know (its own limits, its runtime's
//! answers) and reports everything else as a [`DeviceError`] of one of a few classes that a caller can act on.

pub mod fake;

use std::any::Any;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use hippihx_kernels::launch::Launch;
use thiserror::Error;

/// What a caller can do about a failure of the device.
#[derive(Debug, Clone, Error)]
pub enum DeviceError {
    /// Ask for less, or release something first.
    #[error("out of device memory: asked for {asked} bytes ({detail})")]
    OutOfMemory { asked: u64, detail: String },
    /// The device is gone or stopped answering; only a new process can help.
    #[error("device lost: {0}")]
    Lost(String),
    /// The device refused this work; later work may succeed.
    #[error("launch failed: {0}")]
    LaunchFailed(String),
    /// The argument is one that this device never takes.
    #[error("refused: {0}")]
    Refused(String),
    /// No runtime or no device behind this implementation (V1 status ERR_NO_HIP).
    #[error("no device: {0}")]
    Absent(String),
    /// The runtime refused a code object that passed our checks (V1 status ERR_CODE_OBJECT).
    #[error("code object rejected by the device's runtime: {0}")]
    CodeObject(String),
}

/// What the device is; read once at start and shown by Describe.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// "fake" or "hip".
    pub kind: &'static str,
    pub name: String,
    /// The full architecture string, features after ':' included; the slot is the part before it.
    pub arch: String,
    /// domain:bus:device.function; empty for a fake device.
    pub pci_address: String,
    pub uuid: String,
    pub compute_units: u32,
    pub wavefront_size: u32,
    pub lds_per_workgroup_bytes: u32,
    pub runtime_version: String,
    /// "events", or "host: why".
    pub ordering: String,
    /// A run can be taken from inside a client's captured graph.
    pub capture_supported: bool,
    /// Device bytes that this process's own context takes; 0 when not known.
    pub context_bytes: u64,
}

/// Bytes of device memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryInfo {
    pub total: u64,
    pub free: u64,
}

/// How a buffer's memory can be given to another process.
#[derive(Debug)]
pub enum Export<'a> {
    Memfd(BorrowedFd<'a>),
    HipIpc([u8; 64]),
}

/// Memory that kernels may touch. Dropping the last reference frees it, in whatever thread HIP wants that done.
pub trait Memory: Send + Sync + fmt::Debug {
    /// Device address of the first byte.
    fn address(&self) -> u64;
    /// Bytes, as the kernel or the runtime says.
    fn size(&self) -> u64;
    fn export(&self) -> Result<Export<'_>, DeviceError>;
    /// True once a page of shared memory could not come back: its contents are lost, and the session that it belongs to has
    /// to end. Only ever changes when [`crate::memory::sigbus::faults`] does.
    fn faulted(&self) -> bool {
        false
    }
}

/// A loaded code object with all its kernels resolved. Dropping it unloads it.
pub trait Module: Send + Sync + fmt::Debug + Any {}

/// Device work recorded from explicit kernel nodes; replayed as one.
pub trait Sequence: Send + Sync + fmt::Debug + Any {}

/// An event of another process, to wait on or to record.
pub trait Event: Send + Sync + fmt::Debug + Any {}

/// What one submission does.
#[derive(Debug)]
pub enum Work<'a> {
    /// In order.
    Launches(&'a [Launch]),
    Replay(&'a Arc<dyn Sequence>),
}

/// One accepted run. `ticket` grows by one a submission of a queue and comes back with its completion.
#[derive(Debug)]
pub struct Submission<'a> {
    pub ticket: u64,
    pub module: &'a Arc<dyn Module>,
    pub work: Work<'a>,
    pub wait: Option<&'a Arc<dyn Event>>,
    pub record: Option<&'a Arc<dyn Event>>,
    /// Everything that the work reaches; the device drops it after the completion, never before.
    pub holds: Arc<dyn Any + Send + Sync>,
}

/// How a submission ended.
#[derive(Debug, Clone)]
pub struct Completion {
    pub ticket: u64,
    /// Nanoseconds on the device; 0 when the device does not measure.
    pub device_ns: u64,
    pub result: Result<(), DeviceError>,
}

/// Where a queue reports completions: once a ticket, in ticket order, from any one thread at a time, and possibly from
/// inside [`Queue::submit`] itself. Must not block.
pub trait CompletionSink: Send + Sync {
    fn complete(&self, completion: Completion);
}

/// An ordered stream of device work, owned by one thread (blocking calls are allowed in it).
pub trait Queue: Send {
    /// Enqueues without waiting for the work. An error means that nothing was enqueued and no completion will come.
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), DeviceError>;
    /// Records launches as one sequence; they run in the order given.
    fn record(&mut self, module: &Arc<dyn Module>, launches: &[Launch]) -> Result<Arc<dyn Sequence>, DeviceError>;
}

/// A GPU, or something that behaves as one.
pub trait Device: Send + Sync + fmt::Debug {
    fn describe(&self) -> &Description;
    fn memory_info(&self) -> Result<MemoryInfo, DeviceError>;
    /// Loads an image that passed both levels of checks; keeps it alive for the module's life.
    fn load(&self, image: Arc<[u8]>) -> Result<Arc<dyn Module>, DeviceError>;
    /// Takes a memfd whose seals were checked; `size` is its sealed size in bytes.
    fn import_shared(&self, memfd: OwnedFd, size: u64) -> Result<Arc<dyn Memory>, DeviceError>;
    fn import_ipc(&self, handle: &[u8; 64]) -> Result<Arc<dyn Memory>, DeviceError>;
    fn import_event(&self, handle: &[u8; 64]) -> Result<Arc<dyn Event>, DeviceError>;
    /// Zeroed memory of at least `size` bytes.
    fn allocate(&self, size: u64) -> Result<Arc<dyn Memory>, DeviceError>;
    fn queue(&self, sink: Arc<dyn CompletionSink>) -> Result<Box<dyn Queue>, DeviceError>;
}
