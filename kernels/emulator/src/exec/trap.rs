//! How an instruction ends.

use crate::memory::Access;

/// Where the wave goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    /// To the instruction with this index.
    Jump(u32),
    Barrier,
    End,
}

/// Why an instruction cannot be carried out; [`crate::Fault`] adds where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trap {
    Unsupported,
    Undecodable,
    /// A mode, field or register that the executor does not model.
    Unmodelled(String),
    OutOfBounds {
        access: Access,
        lane: u32,
        address: u64,
        bytes: u32,
    },
    ReadOnly {
        lane: u32,
        address: u64,
        bytes: u32,
    },
    Lds {
        lane: u32,
        address: u64,
        bytes: u32,
    },
    Scratch {
        lane: u32,
        address: u64,
        bytes: u32,
    },
    Jump {
        address: u64,
    },
    Software {
        code: u32,
    },
    InstructionLimit,
    Cancelled,
}

impl Trap {
    pub(crate) fn unmodelled<T>(what: impl Into<String>) -> Result<T, Box<Self>> {
        Err(Box::new(Self::Unmodelled(what.into())))
    }
}
