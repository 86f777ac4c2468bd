//! The two sockets: who may use them, how they are made, and how a service manager hands them over.

pub mod activation;
pub mod lock;
pub mod peer;
pub mod sockets;
