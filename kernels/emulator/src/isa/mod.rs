//! The instruction set: tables, decoding, text.

pub(crate) mod decode;
pub(crate) mod row;
mod scalar;
pub(crate) mod text;
mod validity;
mod vmem;
mod vop12;
mod vop3;
mod vopc;
