//! What a run did, as plain values.

mod tally;
mod text;

pub(crate) use tally::Tally;

/// Kinds of instructions that are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Scalar,
    ScalarMemory,
    Branch,
    Barrier,
    /// Waits, hints, cache controls, program ends.
    Control,
    Vector,
    Dot,
    Transcendental,
    Lds,
    Load,
    Store,
    Scratch,
    /// What did not decode.
    Other,
}

impl Class {
    /// All, in the order of [`Report::instructions`].
    pub const ALL: [Self; 13] = [
        Self::Scalar,
        Self::ScalarMemory,
        Self::Branch,
        Self::Barrier,
        Self::Control,
        Self::Vector,
        Self::Dot,
        Self::Transcendental,
        Self::Lds,
        Self::Load,
        Self::Store,
        Self::Scratch,
        Self::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::ScalarMemory => "scalar memory",
            Self::Branch => "branch",
            Self::Barrier => "barrier",
            Self::Control => "control",
            Self::Vector => "vector",
            Self::Dot => "dot product",
            Self::Transcendental => "transcendental",
            Self::Lds => "LDS",
            Self::Load => "load",
            Self::Store => "store",
            Self::Scratch => "scratch",
            Self::Other => "other",
        }
    }

    /// Whether the instruction works on lanes.
    pub fn is_vector(self) -> bool {
        matches!(
            self,
            Self::Vector | Self::Dot | Self::Transcendental | Self::Lds | Self::Load | Self::Store | Self::Scratch
        )
    }
}

/// Executed instructions of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCount {
    pub class: Class,
    /// Once a wave.
    pub instructions: u64,
    /// Once an active lane; 0 for scalar classes.
    pub lanes: u64,
}

/// Traffic of one bound range. Counts are bytes that lanes asked for: lanes that share an address count each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTraffic {
    pub name: String,
    pub address: u64,
    /// Bytes of the range.
    pub len: u64,
    pub loaded: u64,
    pub stored: u64,
    /// Bytes loaded and stored at least once, if [`crate::Checks::unique_bytes`].
    pub unique_loaded: Option<u64>,
    pub unique_stored: Option<u64>,
}

/// A suspicion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// A register that nothing had written; `vector` or scalar, its number.
    UndefinedRegister { vector: bool, register: u32 },
    /// Bytes of LDS that this workgroup had not written.
    UnwrittenLds { offset: u64 },
    /// Bytes of a range that began unwritten and that no one had stored: index into [`Report::ranges`], address.
    UnwrittenMemory { range: usize, address: u64 },
    /// Two waves at the same LDS bytes without a barrier between them; the pc of the other's write, where that was one.
    LdsRace { offset: u32, other_write: Option<u64> },
}

/// A suspicion with the first place where it arose; one for each kind and instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub pc: u64,
    pub text: String,
    pub workgroup: [u32; 3],
    pub wave: u32,
    pub lane: u32,
    /// How often in all.
    pub times: u64,
}

/// One instruction of the traced wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    pub pc: u64,
    pub text: String,
    /// EXEC before it.
    pub exec: u32,
    /// Registers that it wrote, by name, in lane 0 for vector ones.
    pub wrote: Vec<(String, u32)>,
}

/// What a dispatch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub kernel: String,
    pub workgroups: u64,
    pub waves: u64,
    /// By class; see [`Class::ALL`].
    pub instructions: Vec<ClassCount>,
    pub ranges: Vec<RangeTraffic>,
    /// Bytes that lanes read from and wrote to LDS.
    pub lds_bytes: u64,
    /// Bytes of private memory moved.
    pub scratch_bytes: u64,
    /// LDS accesses, and the extra cycles that 32 banks would need for them.
    pub lds_accesses: u64,
    pub bank_conflicts: u64,
    /// Distinct 128-byte lines that global loads and stores asked for, summed over instructions.
    pub lines: u64,
    pub findings: Vec<Finding>,
    pub trace: Vec<TraceLine>,
}

impl Report {
    /// All executed instructions, once a wave.
    pub fn total(&self) -> u64 {
        self.instructions.iter().map(|count| count.instructions).sum()
    }

    /// Lane-instructions: vector instructions, once an active lane.
    pub fn lanes(&self) -> u64 {
        self.instructions.iter().map(|count| count.lanes).sum()
    }

    /// Traffic of the range with this name.
    pub fn range(&self, name: &str) -> Option<&RangeTraffic> {
        self.ranges.iter().find(|range| range.name == name)
    }
}
