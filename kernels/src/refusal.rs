//! Why something was refused: which op, which param or tensor slot or axis, what was found, what is allowed.
//!
//! A refusal is plain data and holds no heap, so that the hot paths that may refuse allocate nothing; the sentence is made
//! only when somebody reads it, and it is the same for every reader.

use std::fmt;

use crate::catalogue::{Check, Dim, Layout, Op, ParamKind, TensorSlot};
use crate::dtype::Dtype;
use crate::fabric::{FabricFault, HOPS, SWITCHES};
use crate::memory::MemoryFault;
use crate::slot::{LATER_SLOTS, LaterSlot, SLOTS, Slot};
use crate::status::Status;
use crate::value::ParamValue;

/// The start of a text that came from outside, kept without a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortText {
    bytes: [u8; 40],
    len: u8,
    cut: bool,
}

impl ShortText {
    pub fn new(text: &[u8]) -> Self {
        let mut bytes = [0; 40];
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text[..len]);
        ShortText { bytes, len: len as u8, cut: len < text.len() }
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes[..usize::from(self.len)].escape_ascii())?;
        if self.cut { f.write_str(" (cut)") } else { Ok(()) }
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is wrong with an arch string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchFault {
    Null,
    Empty,
    /// A comma or a space in it.
    Several,
    Later(&'static LaterSlot),
    Unknown,
}

/// What is wrong with a scratch block's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScratchFault {
    /// A dim below 1.
    Dim { found: i64 },
    /// More elements than the rule allows.
    Elements { found: i64, allowed: i64 },
    /// Elements, bytes or the end do not fit an int64 with 256 bytes to spare.
    Overflow,
}

/// The kinds of refusal that plan, tensor and scratch checks know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    UnknownOp {
        found: i32,
    },
    UnknownOpName {
        found: ShortText,
    },
    /// A NULL pointer where one is needed.
    Null {
        what: &'static str,
    },
    /// struct_size or abi_revision.
    Abi {
        field: &'static str,
        found: i64,
        expected: i64,
    },
    Arch {
        found: ShortText,
        fault: ArchFault,
    },
    DotSlot {
        slot: &'static Slot,
    },
    Wave {
        found: i32,
        slot: &'static Slot,
    },
    ActivationDtype {
        found: i32,
    },
    ParamCount {
        found: i64,
    },
    Param {
        index: usize,
        found: ParamValue,
    },
    Divides {
        check: Check,
        num: i64,
        by: i64,
    },
    Fabric(FabricFault),
    ScratchSize {
        rule: usize,
        fault: ScratchFault,
    },
    TensorCount {
        found: i64,
    },
    TensorNull {
        slot: usize,
    },
    TensorDtype {
        slot: usize,
        found: i32,
    },
    TensorRank {
        slot: usize,
        found: i32,
    },
    TensorExtent {
        slot: usize,
        axis: usize,
        found: i64,
        allowed: i64,
    },
    TensorStride {
        slot: usize,
        axis: usize,
        found: i64,
    },
    TensorLayout {
        slot: usize,
        axis: usize,
        found: i64,
        span: i64,
    },
    TensorSpan {
        slot: usize,
        axis: usize,
    },
    ScratchBytes {
        found: u64,
        needed: u64,
    },
    ScratchNull {
        needed: u64,
    },
    ScratchAlign {
        address: u64,
    },
    NotReady {
        why: &'static str,
    },
    Memory(MemoryFault),
}

/// A refusal: its status, its op when one is known, and the reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refusal {
    pub op: Option<&'static Op>,
    pub reason: Reason,
}

impl Refusal {
    /// A refusal that no op is known for yet.
    pub const fn of(reason: Reason) -> Self {
        Refusal { op: None, reason }
    }

    pub const fn for_op(op: &'static Op, reason: Reason) -> Self {
        Refusal { op: Some(op), reason }
    }

    pub const fn with_op(self, op: &'static Op) -> Self {
        Refusal { op: Some(op), ..self }
    }

    /// The contract's status for it.
    pub const fn status(&self) -> Status {
        match self.reason {
            Reason::UnknownOp { .. } | Reason::UnknownOpName { .. } => Status::UnknownOp,
            Reason::Null { .. } => Status::BadArg,
            Reason::Abi { .. } => Status::Abi,
            Reason::Arch { .. } | Reason::DotSlot { .. } | Reason::Wave { .. } => Status::UnsupportedArch,
            Reason::ActivationDtype { .. } => Status::UnsupportedDtype,
            Reason::ParamCount { .. } | Reason::Param { .. } | Reason::Divides { .. } | Reason::ScratchSize { .. } => {
                Status::Param
            }
            Reason::Fabric(FabricFault::Missing | FabricFault::Unsupported { .. }) => Status::UnsupportedFabric,
            Reason::Fabric(FabricFault::Field { .. } | FabricFault::PixWithoutAcs) => Status::BadArg,
            Reason::TensorCount { .. }
            | Reason::TensorNull { .. }
            | Reason::TensorDtype { .. }
            | Reason::TensorRank { .. }
            | Reason::TensorExtent { .. }
            | Reason::TensorStride { .. }
            | Reason::TensorLayout { .. }
            | Reason::TensorSpan { .. } => Status::Tensor,
            Reason::ScratchBytes { .. } | Reason::ScratchNull { .. } | Reason::ScratchAlign { .. } => Status::Scratch,
            Reason::NotReady { .. } => Status::NotReady,
            Reason::Memory(fault) => fault.status(),
        }
    }

    /// The field that was wrong, for programs: a param's or tensor slot's name, or the argument's.
    pub fn field(&self) -> &'static str {
        match self.reason {
            Reason::UnknownOp { .. } | Reason::UnknownOpName { .. } => "op",
            Reason::Null { what } => what,
            Reason::Abi { field, .. } => field,
            Reason::Arch { .. } | Reason::DotSlot { .. } => "caps.arch",
            Reason::Wave { .. } => "caps.wave",
            Reason::ActivationDtype { .. } => "caps.dtype",
            Reason::ParamCount { .. } => "params",
            Reason::Param { index, .. } => self.param_name(index),
            Reason::Divides { check, .. } => self.param_name(check.num),
            Reason::Fabric(_) => "caps.fabric",
            Reason::ScratchSize { rule, .. } => {
                self.op.and_then(|op| op.scratch.get(rule)).map_or("scratch", |rule| rule.name)
            }
            Reason::TensorCount { .. } => "tensors",
            Reason::TensorNull { slot }
            | Reason::TensorDtype { slot, .. }
            | Reason::TensorRank { slot, .. }
            | Reason::TensorExtent { slot, .. }
            | Reason::TensorStride { slot, .. }
            | Reason::TensorLayout { slot, .. }
            | Reason::TensorSpan { slot, .. } => self.tensor_name(slot),
            Reason::ScratchBytes { .. } | Reason::ScratchNull { .. } | Reason::ScratchAlign { .. } => "scratch",
            Reason::NotReady { .. } => "plan",
            Reason::Memory(fault) => fault.tensor().map_or("scratch", |slot| self.tensor_name(slot)),
        }
    }

    fn param_name(&self, index: usize) -> &'static str {
        self.op.and_then(|op| op.params.get(index)).map_or("params", |param| param.name)
    }

    pub(crate) fn tensor_name(&self, slot: usize) -> &'static str {
        self.tensor(slot).map_or("tensor", |slot| slot.name)
    }

    fn tensor(&self, slot: usize) -> Option<&'static TensorSlot> {
        self.op.and_then(|op| op.tensors.get(slot))
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.op {
            write!(f, "{}: ", op.name)?;
        }
        match self.reason {
            Reason::UnknownOp { found } => {
                write!(f, "there is no op with id {found}; ids are 0 to {}", crate::catalogue::OPS.len() - 1)
            }
            Reason::UnknownOpName { found } => {
                write!(
                    f,
                    "there is no op named {found}; names look like attention.fa_fdot2 (hippihxctl ops lists them)"
                )
            }
            Reason::Null { what } => write!(f, "{what} is NULL; a valid pointer is needed"),
            Reason::Abi { field, found, expected } => {
                write!(f, "{field} is {found}, this library speaks {expected}; build against its header and plan again")
            }
            Reason::Arch { found, fault } => write_arch(f, &found, &fault),
            Reason::DotSlot { slot } => {
                write!(f, "a DOT op does not exist on slot {}, which has no packed fp16 dot product", slot.name)
            }
            Reason::Wave { found, slot } => {
                let allowed = if self.op.is_some_and(|op| op.dot) { "32 (it is a DOT op)" } else { "32 or 64" };
                write!(
                    f,
                    "caps.wave is {found}; allowed are {allowed}, or 0 for the default of {} ({})",
                    slot.name, slot.default_wave
                )
            }
            Reason::ActivationDtype { found } => {
                let allowed =
                    if self.op.is_some_and(|op| op.fp16_act) { "unset, fp16" } else { "unset, fp16, bf16, fp32" };
                write!(f, "caps.dtype is {}; activations may be {allowed}", DtypeCode(found))
            }
            Reason::ParamCount { found } => {
                write!(f, "{found} params were given, the op takes {}", self.op.map_or(0, |op| op.params.len()))
            }
            Reason::Param { index, found } => self.write_param(f, index, found),
            Reason::Divides { check, num, by } => {
                let (name, divisor) = (self.param_name(check.num), self.param_name(check.by));
                write!(f, "param {name} is {num}, which is no multiple of {divisor} ({by})")
            }
            Reason::Fabric(fault) => write_fabric(f, &fault),
            Reason::ScratchSize { fault, .. } => {
                let block = self.field();
                match fault {
                    ScratchFault::Dim { found } => {
                        write!(f, "scratch {block} has a dim of {found}; at least 1 is needed")
                    }
                    ScratchFault::Elements { found, allowed } => {
                        write!(
                            f,
                            "scratch {block} would have {found} elements; at most {allowed} are allowed: plan fewer max_tokens or kv_splits"
                        )
                    }
                    ScratchFault::Overflow => {
                        write!(f, "scratch {block} would not fit 64-bit sizes: plan fewer max_tokens")
                    }
                }
            }
            Reason::TensorCount { found } => {
                write!(f, "{found} tensors were given, the op takes {}", self.op.map_or(0, |op| op.tensors.len()))
            }
            Reason::NotReady { why } => write!(f, "not ready: {why}"),
            Reason::ScratchBytes { found, needed } => write!(f, "scratch has {found} bytes, the plan needs {needed}"),
            Reason::ScratchNull { needed } => write!(f, "scratch is NULL, the plan needs {needed} bytes"),
            Reason::ScratchAlign { address } => {
                write!(f, "scratch at {address:#x} is not aligned to {} bytes", crate::catalogue::SCRATCH_ALIGN)
            }
            Reason::Memory(fault) => fault.write(f, self),
            _ => self.write_tensor(f),
        }
    }
}

impl Refusal {
    fn write_param(&self, f: &mut fmt::Formatter<'_>, index: usize, found: ParamValue) -> fmt::Result {
        let name = self.param_name(index);
        let Some(param) = self.op.and_then(|op| op.params.get(index)) else {
            return write!(f, "param {index} is out of its domain");
        };
        match param.kind {
            ParamKind::Int { lo, hi } => {
                write!(f, "param {name} is {}; ", found.as_i64())?;
                match (lo, hi) {
                    (Some(lo), Some(hi)) => write!(f, "allowed are {lo} to {hi}"),
                    (Some(lo), None) => write!(f, "allowed are {lo} and above"),
                    (None, Some(hi)) => write!(f, "allowed are {hi} and below"),
                    (None, None) => f.write_str("any integer is allowed"),
                }
            }
            ParamKind::Enum(values) => {
                write!(f, "param {name} is {}; allowed are ", found.as_i64())?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    match value.label {
                        Some(label) => write!(f, "{comma}{} ({label})", value.value)?,
                        None => write!(f, "{comma}{}", value.value)?,
                    }
                }
                Ok(())
            }
            ParamKind::Bool => write!(f, "param {name} is {}; allowed are 0 and 1", found.as_i64()),
            ParamKind::Float => {
                write!(f, "param {name} is {}; a finite number above 0 is allowed (given as a double)", found.as_f64())
            }
        }
    }

    fn write_tensor(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.field();
        match self.reason {
            Reason::TensorNull { .. } => write!(f, "tensor {name} is NULL; this plan needs it"),
            Reason::TensorDtype { slot, found } => {
                let wanted = self.tensor(slot).map_or("another dtype", |slot| slot.dtype.name());
                write!(f, "tensor {name} has dtype {}; {wanted} is needed", DtypeCode(found))
            }
            Reason::TensorRank { slot, found } => {
                write!(
                    f,
                    "tensor {name} has rank {found}; {} is needed",
                    self.tensor(slot).map_or(0, |slot| slot.dims.len())
                )
            }
            Reason::TensorExtent { slot, axis, found, allowed } => {
                write!(f, "tensor {name} has extent {found} on axis {axis}; ")?;
                let dim = self.tensor(slot).and_then(|slot| slot.dims.get(axis));
                match dim {
                    _ if found < 1 => f.write_str("at least 1 is needed"),
                    Some(Dim::EqualTo(param)) => write!(f, "{} is {allowed}", self.param_name(*param)),
                    Some(Dim::AtMost(param)) => write!(f, "at most {} ({allowed}) is allowed", self.param_name(*param)),
                    _ => write!(f, "{allowed} is needed"),
                }
            }
            Reason::TensorStride { axis, found, .. } => {
                write!(f, "tensor {name} has stride {found} on axis {axis}; strides are elements and never negative")
            }
            Reason::TensorLayout { slot, axis, found, span } => {
                let layout = self.tensor(slot).map_or(Layout::Contiguous, |slot| slot.layout);
                let relation =
                    if layout == Layout::Rows && self.tensor(slot).is_some_and(|slot| axis + 1 < slot.dims.len()) {
                        "at least"
                    } else {
                        "exactly"
                    };
                write!(
                    f,
                    "tensor {name} has stride {found} on axis {axis}; its layout ({}) wants {relation} {span} elements",
                    layout.name()
                )
            }
            Reason::TensorSpan { axis, .. } => {
                write!(f, "tensor {name} spans more than 2^63 - 1 elements at axis {axis}")
            }
            _ => f.write_str("refused"),
        }
    }
}

/// A dtype's number, with its name where it has one.
struct DtypeCode(i32);

impl fmt::Display for DtypeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Dtype::from_code(self.0) {
            Some(dtype) => write!(f, "{} ({})", self.0, dtype.name()),
            None => write!(f, "{} (no dtype)", self.0),
        }
    }
}

fn write_arch(f: &mut fmt::Formatter<'_>, found: &ShortText, fault: &ArchFault) -> fmt::Result {
    match fault {
        ArchFault::Null => f.write_str("the arch is NULL")?,
        ArchFault::Empty => f.write_str("the arch is empty")?,
        ArchFault::Several => write!(f, "the arch is {found}, but it names one slot and holds no comma or space")?,
        ArchFault::Later(later) => write!(f, "the arch is {found}: {}", later.reason)?,
        ArchFault::Unknown => write!(f, "the arch is {found}, which is no slot")?,
    }
    f.write_str("; slots are")?;
    for (place, slot) in SLOTS.iter().enumerate() {
        write!(f, "{} {}", if place == 0 { "" } else { "," }, slot.name)?;
    }
    debug_assert!(LATER_SLOTS.iter().all(|later| SLOTS.iter().all(|slot| slot.name != later.name)));
    Ok(())
}

fn write_fabric(f: &mut fmt::Formatter<'_>, fault: &FabricFault) -> fmt::Result {
    match *fault {
        FabricFault::Missing => f.write_str("no fabric was given; the custom all-reduce needs one, keep RCCL"),
        FabricFault::Field { field, found, allowed } => write!(f, "fabric.{field} is {found}; allowed are {allowed}"),
        FabricFault::PixWithoutAcs => f.write_str("fabric.hop is PIX with acs_clear 0; a PIX hop has acs_clear 1"),
        FabricFault::Unsupported { fabric } => {
            let name = |list: &'static [&'static str], at: i32| {
                usize::try_from(at).ok().and_then(|at| list.get(at).copied()).unwrap_or("?")
            };
            write!(
                f,
                "hop {} over {} with acs_clear {} and large_bar {} is no hop for the custom all-reduce, keep RCCL; it takes \
                 PIX over PEX88096 or GENERIC with both 1",
                name(&HOPS, fabric.hop),
                name(&SWITCHES, fabric.pcie_switch),
                fabric.acs_clear,
                fabric.large_bar
            )
        }
    }
}
