//! DS, FLAT, GLOBAL, SCRATCH and MUBUF.

use super::Parts;
use super::operand::{scalar, source, vector};
use crate::isa::decode::{Decoded, Encoding, bits};
use crate::isa::row::Kind;

const NULL: u32 = 125;

pub(super) fn parts(d: &Decoded) -> Parts {
    let (operands, modifiers) = match d.encoding {
        Encoding::Ds => ds(d),
        Encoding::Mubuf => mubuf(d),
        _ => flat(d),
    };
    ("", operands, modifiers)
}

fn ds(d: &Decoded) -> (Vec<String>, Vec<String>) {
    let [first, second, _] = d.words;
    let row = d.row;
    let (mut operands, mut modifiers) = (Vec::new(), Vec::new());
    if row.dst.width() > 0 {
        operands.push(vector(second >> 24, row.dst.width()));
    }
    let address = !row.has('n') && !row.src.is_empty();
    if address {
        operands.push(vector(second & 255, 1));
    }
    for (k, kind) in row.src.iter().skip(usize::from(address)).enumerate() {
        operands.push(vector(second >> (8 + 8 * k) & 255, kind.width()));
    }
    let (low, high) = (bits(first, 0, 8), bits(first, 8, 8));
    if row.has('2') {
        if low != 0 {
            modifiers.push(format!("offset0:{low}"));
        }
        if high != 0 {
            modifiers.push(format!("offset1:{high}"));
        }
    } else if row.name == "ds_swizzle_b32" {
        modifiers.extend(swizzle(bits(first, 0, 16)));
    } else if bits(first, 0, 16) != 0 {
        modifiers.push(format!("offset:{}", bits(first, 0, 16)));
    }
    if bits(first, 17, 1) == 1 || row.has('G') {
        modifiers.push("gds".into());
    }
    (operands, modifiers)
}

/// The offset of ds_swizzle as the pattern that it means.
fn swizzle(offset: u32) -> Option<String> {
    let [and, or, xor] = [0, 5, 10].map(|at| bits(offset, at, 5));
    let pattern = if offset == 0 {
        return None;
    } else if offset & 0xff00 == 0x8000 {
        let lanes: Vec<String> = (0..4).map(|k| (offset >> (2 * k) & 3).to_string()).collect();
        format!("QUAD_PERM,{}", lanes.join(","))
    } else if offset & 0x8000 != 0 {
        return Some(format!("offset:{offset}"));
    } else if and == 31 && or == 0 && xor.count_ones() == 1 {
        format!("SWAP,{xor}")
    } else if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
        format!("REVERSE,{}", xor + 1)
    } else if let size @ 2.. = 32 - and
        && size.is_power_of_two()
        && or < size
        && xor == 0
    {
        format!("BROADCAST,{size},{or}")
    } else {
        // From the highest bit: cleared, set, kept or inverted by the three masks together.
        let symbol = |at: u32| {
            let through = |bit: u32| (bit & and >> at | or >> at) & 1 ^ xor >> at & 1;
            match (through(0), through(1)) {
                (0, 0) => '0',
                (1, 1) => '1',
                (0, _) => 'p',
                _ => 'i',
            }
        };
        format!("BITMASK_PERM,\"{}\"", (0..5).rev().map(symbol).collect::<String>())
    };
    Some(format!("offset:swizzle({pattern})"))
}

fn flat(d: &Decoded) -> (Vec<String>, Vec<String>) {
    let [first, second, _] = d.words;
    let row = d.row;
    let (glc, lds) = (bits(first, 16, 1) == 1, bits(first, 13, 1) == 1);
    let (mut operands, mut modifiers) = (Vec::new(), Vec::new());
    let returns = row.dst.width() > 0 && (!row.has('a') || glc);
    if returns && !lds {
        operands.push(vector(second >> 24, row.dst.width()));
    }
    let saddr = bits(second, 16, 7);
    let data = row.src.first().map(|kind| vector(second >> 8 & 255, kind.width()));
    let scalar_address = (d.encoding != Encoding::Flat).then(|| {
        let width = if d.encoding == Encoding::Global { 2 } else { 1 };
        if matches!(saddr, NULL | 127) { "off".to_owned() } else { scalar(saddr, width) }
    });
    let address = match d.encoding {
        _ if row.name.ends_with("addtid") => None,
        Encoding::Scratch if saddr != NULL => Some("off".to_owned()),
        Encoding::Global if saddr != NULL => Some(vector(second & 255, 1)),
        Encoding::Scratch => Some(vector(second & 255, 1)),
        _ => Some(vector(second & 255, 2)),
    };
    operands.extend(address);
    operands.extend(data);
    operands.extend(scalar_address);
    let offset = match d.encoding {
        Encoding::Flat => bits(first, 0, 12) as i32,
        _ => (first << 20) as i32 >> 20,
    };
    if offset != 0 {
        modifiers.push(format!("offset:{offset}"));
    }
    cache(&mut modifiers, glc, bits(first, 17, 1) == 1, bits(first, 12, 1) == 1);
    if lds {
        modifiers.push("lds".into());
    }
    (operands, modifiers)
}

fn cache(modifiers: &mut Vec<String>, glc: bool, slc: bool, dlc: bool) {
    for (on, name) in [(glc, "glc"), (slc, "slc"), (dlc, "dlc")] {
        if on {
            modifiers.push(name.into());
        }
    }
}

fn mubuf(d: &Decoded) -> (Vec<String>, Vec<String>) {
    let [first, second, _] = d.words;
    let row = d.row;
    if row.dst.width() == 0 && row.src.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let at = |n: u32| bits(first, n, 1) == 1;
    let (offen, idxen, glc, dlc, lds) = (at(12), at(13), at(14), at(15), at(16));
    let (slc, tfe) = (bits(second, 22, 1) == 1, bits(second, 23, 1) == 1);
    let (mut operands, mut modifiers) = (Vec::new(), Vec::new());
    let width = row.src.first().map_or(row.dst.width(), |kind| kind.width()) + u32::from(tfe);
    if !lds {
        operands.push(vector(second >> 8 & 255, width));
    }
    operands.push(match (offen, idxen) {
        (false, false) => "off".into(),
        (true, true) => vector(second & 255, 2),
        _ => vector(second & 255, 1),
    });
    operands.push(scalar(bits(second, 16, 5) * 4, 4));
    operands.push(source(second >> 24, Kind::B32, d.literal));
    let offset = bits(first, 0, 12);
    for (on, text) in [
        (idxen, "idxen".to_owned()),
        (offen, "offen".to_owned()),
        (offset != 0, format!("offset:{offset}")),
        (glc, "glc".to_owned()),
        (slc, "slc".to_owned()),
        (dlc, "dlc".to_owned()),
        (tfe, "tfe".to_owned()),
        (lds, "lds".to_owned()),
    ] {
        if on {
            modifiers.push(text);
        }
    }
    (operands, modifiers)
}
