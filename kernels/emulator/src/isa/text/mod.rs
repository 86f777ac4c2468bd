//! Instructions as llvm-objdump prints them.

mod memory;
mod operand;
mod scalar;
mod vector;

use super::decode::{Decoded, Encoding};

/// The instruction's text: mnemonic, operands, modifiers.
pub(crate) fn render(decoded: &Decoded) -> String {
    let (suffix, operands, modifiers) = match decoded.encoding {
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc | Encoding::Sopk | Encoding::Sopp | Encoding::Smem => {
            scalar::parts(decoded)
        }
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc | Encoding::Vop3 | Encoding::Vop3p => vector::parts(decoded),
        Encoding::Ds | Encoding::Flat | Encoding::Global | Encoding::Scratch | Encoding::Mubuf => {
            memory::parts(decoded)
        }
    };
    let prefix = match decoded.encoding {
        Encoding::Flat => "flat_",
        Encoding::Global => "global_",
        Encoding::Scratch => "scratch_",
        Encoding::Mubuf => "buffer_",
        _ => "",
    };
    let mut out = format!("{prefix}{}{suffix}", decoded.row.name);
    if !operands.is_empty() {
        out.push(' ');
        out.push_str(&operands.join(", "));
    }
    for modifier in modifiers {
        out.push(' ');
        out.push_str(&modifier);
    }
    out
}

/// Suffix of the mnemonic, operands, modifiers.
type Parts = (&'static str, Vec<String>, Vec<String>);
