//! Computes one launch from its kernel arguments.

mod attention;
mod cache;
mod kernargs;
mod softmax;

use hippihx_kernels::launch::Launch;

use super::memory::AddressSpace;
use super::module::Kernels;
use super::options::Exec;
use crate::device::DeviceError;

/// Runs one launch to its end.
pub(super) fn launch(space: &AddressSpace, kernels: &Kernels, launch: &Launch, how: Exec) -> Result<(), DeviceError> {
    let _ = (space, kernels, launch, how);
    Ok(())
}
