//! The hippihx kernel daemon, as a library with a thin binary.
//!
//! A newcomer's way in: [`startup`] checks and opens, [`server`] serves, [`service`] answers calls, [`session`] holds what a
//! client owns, [`device`] is the GPU.

pub mod config;
pub mod daemon;
pub mod device;
pub mod errors;
pub mod handoff;
pub mod ids;
pub mod kernel_files;
pub mod lifecycle;
pub mod listen;
pub mod logging;
pub mod manual;
pub mod memory;
pub mod notify;
pub mod objects;
pub mod plans;
pub mod server;
pub mod service;
pub mod session;
pub mod startup;
pub mod stats;
