//! The hippihx kernel daemon, as a library with a thin binary.

pub mod device;
pub mod memory;
