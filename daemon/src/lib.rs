//! The hippihx kernel daemon, as a library with a thin binary.

pub mod memory;
