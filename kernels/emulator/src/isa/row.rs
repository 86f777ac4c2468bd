//! What the instruction tables are made of.

/// Where a result goes. The number is how many consecutive registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dst {
    None,
    V1,
    V2,
    V3,
    V4,
    S1,
    S2,
    S4,
    S8,
    S16,
    /// One bit a lane in a scalar register (wave32), or a scalar result of a vector instruction.
    Mask,
}

impl Dst {
    /// Registers written.
    pub(crate) fn width(self) -> u32 {
        match self {
            Self::None => 0,
            Self::V1 | Self::S1 | Self::Mask => 1,
            Self::V2 | Self::S2 => 2,
            Self::V3 => 3,
            Self::V4 | Self::S4 => 4,
            Self::S8 => 8,
            Self::S16 => 16,
        }
    }
}

/// How a source is read: its width, what an inline constant means, and whether a sign modifier is allowed (the floats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    B16,
    F16,
    B16x2,
    F16x2,
    B32,
    F32,
    B64,
    F64,
    B96,
    B128,
    /// A scalar register or constant, never a vector register.
    Sgpr,
}

impl Kind {
    /// Registers read.
    pub(crate) fn width(self) -> u32 {
        match self {
            Self::B64 | Self::F64 => 2,
            Self::B96 => 3,
            Self::B128 => 4,
            _ => 1,
        }
    }
}

/// One instruction. `flags` holds a letter for each thing that its encodings allow: `c` clamp, `o` output modifier,
/// `s` half selection in VOP3, `d` DPP, `w` SDWA, `b` a second, scalar destination, `e` no VOP3 form; the memory tables say
/// what their own letters mean.
#[derive(Debug)]
pub(crate) struct Row {
    pub op: u16,
    pub name: &'static str,
    pub dst: Dst,
    pub src: &'static [Kind],
    pub flags: &'static str,
}

impl Row {
    pub(crate) fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

/// Writes a table: opcode, name, destination, sources, flags.
macro_rules! rows {
    ($($op:literal $name:ident $dst:ident [$($src:ident)*] $flags:literal)*) => {
        &[$(Row {
            op: $op,
            name: stringify!($name),
            dst: $crate::isa::row::Dst::$dst,
            src: &[$($crate::isa::row::Kind::$src),*],
            flags: $flags,
        }),*]
    };
}

pub(crate) use rows;
