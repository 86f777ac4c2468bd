//! What needs more than one crate: end-to-end, faults, conformance.

#![forbid(unsafe_code)]

pub mod attention;
pub mod conformance;
pub mod daemon;
pub mod objects;
pub mod oracle;
pub mod wire;
