//! Runs the machine code of an AMDGPU code object on the CPU.
//!
//! A [`Program`] is a code object for gfx1030 to gfx1036, parsed and decoded once. [`Program::run`] executes one
//! [`Dispatch`] of it against a [`Memory`] of bound address ranges, as the hardware would: waves of 32 lanes with EXEC, VCC,
//! SCC and MODE, LDS, barriers, private memory. Any access outside the ranges ends the run with a [`Fault`] that names
//! kernel, pc, instruction, lane and address; so does an instruction that it does not know.
//!
//! ```no_run
//! use hippihx_emulator::{Access, Buffer, Contents, Dispatch, Memory, Options, Program};
//!
//! let program = Program::load(&std::fs::read("hippihx_gfx1030.hsaco")?)?;
//! let (input, output) = (Buffer::from_f32s([1.0; 64]), Buffer::zeroed(256));
//! let mut memory = Memory::new();
//! memory.bind("input", 0x1_0000, &input, Access::Read, Contents::Initialised)?;
//! memory.bind("output", 0x2_0000, &output, Access::ReadWrite, Contents::Unwritten)?;
//! let mut kernarg = Vec::new();
//! kernarg.extend(0x1_0000_u64.to_le_bytes());
//! kernarg.extend(0x2_0000_u64.to_le_bytes());
//! let dispatch = Dispatch { kernel: "scale", grid: [1, 1, 1], block: [64, 1, 1], lds_bytes: 0, kernarg: &kernarg };
//! let report = program.run(&dispatch, &memory, &Options::default())?;
//! print!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sharing memory
//! A range lies over a [`Backing`]: bytes that the caller knows how to copy. [`Buffer`] is one of the crate's own; a daemon
//! implements it for its mappings. Addresses are whatever the caller says; kernel arguments, dispatch packet and code are
//! placed where nothing is bound. A `Memory` lives for several dispatches, so that what one stores is known as written to
//! the next.
//!
//! # Checks
//! [`Checks`] turns on reports of undefined registers, unwritten memory, LDS races and bank conflicts, and counts of bytes
//! touched; they are in the [`Report`], which prints as text. What is not modelled is in the crate's README.

#![forbid(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "lanes of several arrays are walked together")]

mod arguments;
mod exec;
mod fault;
mod isa;
mod memory;
mod object;
mod options;
mod program;
mod report;
mod run;

pub use arguments::{ArgumentError, Arguments};
pub use fault::{Fault, FaultKind};
pub use memory::{Access, Backing, BindError, Buffer, Contents, Memory};
pub use object::LoadError;
pub use options::{Checks, Options, TraceOf};
pub use program::{Kernel, Program};
pub use report::{Class, ClassCount, Finding, FindingKind, RangeTraffic, Report, TraceLine};
pub use run::{Dispatch, DispatchError, MAX_LDS, RunError};

/// The first instruction of `words` as llvm-objdump prints it for gfx1030, and how many words it has.
pub fn disassemble(words: &[u32]) -> Option<(String, usize)> {
    let decoded = isa::decode::decode(words)?;
    Some((isa::text::render(&decoded), decoded.len))
}
