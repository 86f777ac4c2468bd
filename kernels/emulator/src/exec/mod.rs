//! Executes instructions: one wave's registers at a time, 32 lanes as an array.

mod compare;
mod dpp;
mod ds;
pub(crate) mod float;
pub(crate) mod inst;
mod lane;
pub(crate) mod lds;
pub(crate) mod machine;
pub(crate) mod mode;
mod packed;
mod salu;
mod smem;
pub(crate) mod trap;
mod valu;
mod valu_f32;
mod valu_f64;
mod valu_half;
mod valu_int;
mod vmem;

use crate::isa::decode::{Decoded, Encoding};
use crate::report::Class;
use machine::Exec;

/// The function that carries out an instruction, or `None` if nobody wrote one.
fn lookup(decoded: &Decoded) -> Option<Exec> {
    let name = decoded.row.name;
    match decoded.encoding {
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopk | Encoding::Sopc | Encoding::Sopp => salu::lookup(name),
        Encoding::Smem => smem::lookup(name),
        Encoding::Vopc => compare::lookup(name),
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vop3 => valu_int::lookup(name)
            .or_else(|| valu_f32::lookup(name))
            .or_else(|| valu_half::lookup(name))
            .or_else(|| valu_f64::lookup(name))
            .or_else(|| lane::lookup(name))
            .or_else(|| compare::lookup(name))
            .or_else(|| packed::lookup(name)),
        Encoding::Vop3p => packed::lookup(name).or_else(|| valu_int::lookup(name)),
        Encoding::Ds => ds::lookup(name),
        Encoding::Flat | Encoding::Global | Encoding::Scratch | Encoding::Mubuf => vmem::lookup(decoded.encoding, name),
    }
}

/// What an instruction is counted as.
fn class_of(decoded: &Decoded) -> Class {
    let name = decoded.row.name;
    match decoded.encoding {
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopk | Encoding::Sopc => Class::Scalar,
        Encoding::Sopp if name.contains("branch") => Class::Branch,
        Encoding::Sopp if name == "s_barrier" => Class::Barrier,
        Encoding::Sopp => Class::Control,
        Encoding::Smem => Class::ScalarMemory,
        Encoding::Ds => Class::Lds,
        Encoding::Mubuf if name.ends_with("_inv") => Class::Control,
        Encoding::Mubuf | Encoding::Scratch => Class::Scratch,
        Encoding::Flat | Encoding::Global if name.starts_with("store") => Class::Store,
        Encoding::Flat | Encoding::Global => Class::Load,
        _ if name.contains("dot2") || name.contains("dot4") || name.contains("dot8") => Class::Dot,
        _ if ["exp", "log", "rcp", "rsq", "sqrt", "sin", "cos"].iter().any(|f| name[2..].starts_with(f)) => {
            Class::Transcendental
        }
        _ => Class::Vector,
    }
}

/// Whether [`lower`](inst::lower) found an executor.
pub(crate) fn is_supported(decoded: &Decoded) -> bool {
    lookup(decoded).is_some()
}
