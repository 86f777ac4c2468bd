//! Fuzz targets for whatever reads bytes from outside.
//!
//! A target is a plain function on bytes that must return, whatever they are. `cargo run --release -p hippihx-fuzz --
//! TARGET --inputs N` drives it on any toolchain; with a nightly one the same functions serve cargo-fuzz.

#![forbid(unsafe_code)]

pub mod mutate;
pub mod targets;
