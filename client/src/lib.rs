//! The Rust client of the hippihx kernel daemon.
