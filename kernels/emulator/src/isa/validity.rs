//! Which field values an encoding refuses: operand codes that name nothing, registers past the file's end, fields that must
//! be zero.
//!
//! Scalar pairs and quads that are not aligned are refused as well; LLVM prints them with a warning.

use super::decode::{Decoded, Encoding, Extra, bits};
use super::row::{Dst, Kind};

/// Whether every field holds something that the instruction allows.
pub(crate) fn check(d: &Decoded) -> bool {
    let [first, second, _] = d.words;
    let scalar_result = match d.row.dst {
        Dst::S1 | Dst::S2 | Dst::S4 | Dst::S8 | Dst::S16 | Dst::Mask => scalar(d.destination(), d.row.dst.width()),
        _ => true,
    };
    let sources = || {
        let (codes, n) = d.sources();
        (0..n).all(|k| source(d, k, codes[k], d.row.src[k]))
    };
    match d.encoding {
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc => scalar_result && sources(),
        Encoding::Sopk => {
            scalar(d.destination(), d.row.dst.width().max(1))
                || d.row.name == "s_setreg_imm32_b32"
                || d.row.name == "s_version"
        }
        Encoding::Sopp => !d.row.has('z') || first & 0xffff == 0,
        Encoding::Smem => {
            scalar_result
                && d.row
                    .src
                    .first()
                    .is_none_or(|base| scalar(bits(first, 0, 6) * 2, base.width()) && scalar(bits(second, 25, 7), 1))
        }
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc => scalar_result && vector_result(d) && sources() && tail(d),
        Encoding::Vop3 => scalar_result && vector_result(d) && sources() && vop3(d),
        Encoding::Vop3p => vector_result(d) && sources() && packed(d),
        Encoding::Ds => ds(d),
        Encoding::Flat | Encoding::Global | Encoding::Scratch => flat(d),
        Encoding::Mubuf => mubuf(d),
    }
}

/// Whether `width` scalar registers begin at this code: aligned, and of one kind.
fn scalar(code: u32, width: u32) -> bool {
    let aligned = code.is_multiple_of(width.min(4));
    match code {
        // NULL stands for any width.
        125 => true,
        124 => width == 1,
        126 | 127 => width == 1 || width == 2 && code == 126,
        106 | 107 => width == 1 || width == 2 && code == 106,
        0..=105 => aligned && code + width <= 106,
        108..=123 => aligned && code + width <= 124,
        _ => false,
    }
}

fn vector(first: u32, width: u32) -> bool {
    first + width <= 256
}

fn vector_result(d: &Decoded) -> bool {
    match d.row.dst {
        Dst::V1 | Dst::V2 | Dst::V3 | Dst::V4 => vector(d.destination(), d.row.dst.width()),
        _ => true,
    }
}

fn source(d: &Decoded, k: usize, code: u32, kind: Kind) -> bool {
    let width = kind.width();
    match code {
        256.. => kind != Kind::Sgpr && vector(code - 256, width),
        0..=127 => scalar(code, width),
        128..=208 | 235..=248 | 251..=253 => true,
        // LDS_DIRECT is the first source of some vector instructions only; none of them is emitted for compute.
        254 => false,
        255 => d.extra != Extra::Sdwa || k > 1,
        _ => false,
    }
}

/// The second word of DPP and SDWA.
fn tail(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    match d.extra {
        Extra::None => true,
        Extra::Dpp8 { .. } => d.row.has('d'),
        Extra::Dpp16 => d.row.has('d'),
        Extra::Sdwa => d.row.has('w') && bits(second, 8, 3) <= 6,
    }
}

fn vop3(_: &Decoded) -> bool {
    true
}

fn packed(_: &Decoded) -> bool {
    true
}

fn ds(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    let row = d.row;
    let address = usize::from(!row.has('n') && !row.src.is_empty());
    let fields = [second >> 8 & 255, second >> 16 & 255];
    let data = row.src.iter().skip(address);
    data.clone().zip(fields).all(|(kind, first)| vector(first, kind.width())) && vector(second >> 24, row.dst.width())
}

fn flat(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    let data = d.row.src.first().is_none_or(|kind| vector(second >> 8 & 255, kind.width()));
    data && vector(second >> 24, d.row.dst.width())
}

fn mubuf(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    if d.row.dst.width() == 0 && d.row.src.is_empty() {
        return true;
    }
    scalar(bits(second, 16, 5) * 4, 4)
}
