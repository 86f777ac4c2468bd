//! What stops a run.

use thiserror::Error;

use crate::exec::trap::Trap;
use crate::memory::{Access, Memory};

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FaultKind {
    #[error("{} of {bytes} bytes at {address:#x} outside bound memory ({nearest})", verb(*.access))]
    OutOfBounds { access: Access, address: u64, bytes: u32, nearest: String },
    #[error("store of {bytes} bytes at {address:#x} into the read-only range '{range}'")]
    ReadOnly { address: u64, bytes: u32, range: String },
    #[error("LDS access of {bytes} bytes at offset {offset} beyond the workgroup's {size} bytes")]
    Lds { offset: u64, bytes: u32, size: u32 },
    #[error("scratch access of {bytes} bytes at offset {offset} beyond the lane's {size} bytes")]
    Scratch { offset: u64, bytes: u32, size: u32 },
    #[error("no executor for this instruction")]
    Unsupported,
    #[error("these bytes are no instruction of gfx1030")]
    Undecodable,
    #[error("not modelled: {0}")]
    Unmodelled(String),
    #[error("jump to {address:#x}, which is no instruction of this code object")]
    Jump { address: u64 },
    #[error("s_trap {code}")]
    Software { code: u32 },
    #[error("the wave executed {limit} instructions without ending")]
    InstructionLimit { limit: u64 },
    #[error("cancelled")]
    Cancelled,
}

fn verb(access: Access) -> &'static str {
    if access == Access::Read { "load" } else { "store" }
}

/// Where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "kernel '{kernel}', workgroup {workgroup:?}, wave {wave}{}, pc {pc:#x}: {text} [{}]: {kind}",
    lane.map_or(String::new(), |lane| format!(", lane {lane}")),
    words(bytes)
)]
pub struct Fault {
    pub kernel: String,
    /// Address within the code object.
    pub pc: u64,
    /// The instruction as llvm-objdump prints it.
    pub text: String,
    pub bytes: Vec<u8>,
    pub workgroup: [u32; 3],
    pub wave: u32,
    /// The first lane that it met, for memory accesses.
    pub lane: Option<u32>,
    pub kind: FaultKind,
}

impl Fault {
    /// The address of a memory access outside what was bound.
    pub fn address(&self) -> Option<u64> {
        match self.kind {
            FaultKind::OutOfBounds { address, .. } | FaultKind::ReadOnly { address, .. } => Some(address),
            _ => None,
        }
    }
}

fn words(bytes: &[u8]) -> String {
    let word = |c: &[u8]| format!("{:08x}", c.iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)));
    bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ")
}

/// Adds what only the dispatch knows; the lane where one is to blame.
pub(crate) fn kind_of(
    trap: &Trap,
    memory: &Memory<'_>,
    lds: u32,
    scratch: u32,
    limit: u64,
) -> (FaultKind, Option<u32>) {
    let nearest = |address: u64| {
        memory.neighbour(address).map_or("nothing is bound".to_owned(), |r| {
            format!("nearest range '{}' is {:#x} to {:#x}", r.name, r.address, r.address + r.len)
        })
    };
    match *trap {
        Trap::OutOfBounds { access, lane, address, bytes } => {
            (FaultKind::OutOfBounds { access, address, bytes, nearest: nearest(address) }, Some(lane))
        }
        Trap::ReadOnly { lane, address, bytes } => {
            let range = memory.neighbour(address).map_or(String::new(), |r| r.name.clone());
            (FaultKind::ReadOnly { address, bytes, range }, Some(lane))
        }
        Trap::Lds { lane, address, bytes } => (FaultKind::Lds { offset: address, bytes, size: lds }, Some(lane)),
        Trap::Scratch { lane, address, bytes } => {
            (FaultKind::Scratch { offset: address, bytes, size: scratch }, Some(lane))
        }
        Trap::Unsupported => (FaultKind::Unsupported, None),
        Trap::Undecodable => (FaultKind::Undecodable, None),
        Trap::Unmodelled(ref what) => (FaultKind::Unmodelled(what.clone()), None),
        Trap::Jump { address } => (FaultKind::Jump { address }, None),
        Trap::Software { code } => (FaultKind::Software { code }, None),
        Trap::InstructionLimit => (FaultKind::InstructionLimit { limit }, None),
        Trap::Cancelled => (FaultKind::Cancelled, None),
    }
}
