//! Which field values an encoding refuses: operand codes that name nothing, registers past the file's end, fields that must
//! be zero.

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
        Encoding::Vop1 if d.row.src.is_empty() => bits(first, 17, 8) == 0,
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc => scalar_result && vector_result(d) && sources() && tail(d),
        Encoding::Vop3 => scalar_result && vector_result(d) && sources() && vop3(d),
        Encoding::Vop3p => vector_result(d) && sources() && packed(d),
        Encoding::Ds => ds(d),
        Encoding::Flat | Encoding::Global | Encoding::Scratch => flat(d),
        Encoding::Mubuf => mubuf(d),
    }
}

/// Whether `width` scalar registers of one kind begin at this code. Codes that are not aligned are taken as LLVM takes them.
fn scalar(code: u32, width: u32) -> bool {
    let code = super::decode::aligned(code, width);
    match code {
        // NULL stands for any width.
        125 => true,
        124 => width == 1,
        126 | 127 => width == 1 || width == 2 && code == 126,
        106 | 107 => width == 1 || width == 2 && code == 106,
        0..=105 => code + width <= 106,
        108..=123 => code + width <= 124,
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
    let vector_instruction = !matches!(d.encoding, Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc);
    match code {
        256.. => kind != Kind::Sgpr && vector(code - 256, width),
        0..=127 => scalar(code, width),
        128..=208 | 235..=248 | 251..=253 => true,
        254 => vector_instruction && kind != Kind::Sgpr && width == 1,
        255 => d.extra != Extra::Sdwa || k > 1,
        _ => false,
    }
}

/// Whether source `k` may be negated or made absolute.
fn takes_sign(d: &Decoded, k: u32) -> bool {
    let kind = d.row.src.get(k as usize);
    kind.is_some_and(|kind| matches!(kind, Kind::F16 | Kind::F32 | Kind::F64 | Kind::F16x2))
}

/// Whether the sign bits (one a source) are on sources that have them.
fn signs(d: &Decoded, fields: u32) -> bool {
    (0..3).all(|k| fields >> k & 1 == 0 || takes_sign(d, k))
}

/// The second word of DPP and SDWA.
fn tail(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    let one = |at: u32| bits(second, at, 1);
    match d.extra {
        Extra::None => true,
        Extra::Dpp8 { .. } => d.row.has('d'),
        Extra::Dpp16 => {
            // v_dot4c has the bits, without a meaning.
            let signs = |d: &Decoded, fields: u32| d.row.name == "v_dot4c_i32_i8" || signs(d, fields);
            d.row.has('d')
                && signs(d, one(20) | one(22) << 1)
                && signs(d, one(21) | one(23) << 1)
                && matches!(bits(second, 8, 9), 0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x140 | 0x141 | 0x150..=0x16f)
        }
        Extra::Sdwa => d.row.has('w') && sdwa(d, second),
    }
}

fn sdwa(d: &Decoded, second: u32) -> bool {
    let one = |at: u32| bits(second, at, 1);
    let compare = d.encoding == Encoding::Vopc;
    let name = d.row.name;
    // An exponent is an integer here, whatever its width.
    let integer = |k: u32| !takes_sign(d, k) || name == "v_ldexp_f16" && k == 1;
    let extended = |k: u32, at: u32| one(at) == 0 || d.row.src.get(k as usize).is_some() && integer(k);
    let signs = |fields: u32| (0..3).all(|k| fields >> k & 1 == 0 || !integer(k));
    // An integer result has no output modifier.
    let integer_result =
        ["v_cvt_u", "v_cvt_i", "v_cvt_norm", "v_frexp_exp"].iter().any(|start| name.starts_with(start));
    let omod = d.row.has('o') && !integer_result;
    let no_result = !compare || d.row.dst != Dst::None || one(15) == 0;
    let destination =
        compare || bits(second, 8, 3) <= 6 && bits(second, 11, 2) <= 2 && (omod || bits(second, 14, 2) == 0);
    let second_source = d.encoding != Encoding::Vop1 || second & 0xbf00_0000 == 0;
    destination
        && no_result
        && second_source
        && bits(second, 16, 3) <= 6
        && bits(second, 24, 3) <= 6
        && extended(0, 19)
        && extended(1, 27)
        && signs(one(20) | one(28) << 1)
        && signs(one(21) | one(29) << 1)
}

fn vop3(d: &Decoded) -> bool {
    let [first, second, _] = d.words;
    let row = d.row;
    let n = row.src.len() as u32;
    // Sources that the instruction does not have are zero.
    let unused = (n..3).all(|k| d.vop3_source(k as usize) == 0);
    let clamp = bits(first, 15, 1) == 0 || row.has('c');
    let omod = bits(second, 27, 2) == 0 || row.has('o');
    let (abs, neg) = (bits(first, 8, 3), bits(second, 29, 3));
    // Where halves of integers are selected, the sign bits mean nothing.
    let ignored = row.has('s') && row.src.iter().all(|kind| !matches!(kind, Kind::F16));
    let beside_floats = matches!(row.name, "v_cvt_pk_u8_f32" | "v_ldexp_f32" | "v_ldexp_f64" | "v_trig_preop_f64");
    let within = |fields: u32| fields >> n == 0;
    let sign = if ignored || beside_floats {
        within(neg) && within(abs)
    } else {
        signs(d, neg) && (row.has('b') || signs(d, abs))
    };
    let halves = !row.has('s') || n != 2 || bits(first, 13, 1) == 0;
    let second_result = !row.has('b') || scalar(d.second_destination(), 1);
    unused && clamp && omod && sign && halves && second_result
}

fn packed(d: &Decoded) -> bool {
    let [first, second, _] = d.words;
    let n = d.row.src.len() as u32;
    let within = |fields: u32| fields >> n == 0;
    let unused = (n..3).all(|k| d.vop3_source(k as usize) == 0);
    unused && within(bits(second, 29, 3)) && within(bits(first, 8, 3)) && within(bits(first, 11, 3))
}

fn ds(d: &Decoded) -> bool {
    let [_, second, _] = d.words;
    let row = d.row;
    let address = usize::from(!row.has('n') && !row.src.is_empty());
    let fields = [second >> 8 & 255, second >> 16 & 255];
    let data = row.src.iter().skip(address);
    // Fields that the instruction does not have are zero.
    let n = data.clone().count();
    let unused = (address == 1 || second & 255 == 0)
        && fields.iter().skip(n).all(|&field| field == 0)
        && (row.dst.width() > 0 || second >> 24 == 0)
        && (!row.has('G') || bits(d.words[0], 17, 1) == 1);
    let permute = matches!(row.name, "ds_permute_b32" | "ds_bpermute_b32") && bits(d.words[0], 17, 1) == 1;
    unused
        && !permute
        && data.clone().zip(fields).all(|(kind, first)| vector(first, kind.width()))
        && vector(second >> 24, row.dst.width())
}

/// Loads that can go to LDS: a dword at most.
fn to_lds(d: &Decoded) -> bool {
    matches!(d.row.name, "load_ubyte" | "load_sbyte" | "load_ushort" | "load_sshort" | "load_dword" | "load_format_x")
}

fn flat(d: &Decoded) -> bool {
    let [first, second, _] = d.words;
    let row = d.row;
    let data = match row.src.first() {
        Some(kind) => vector(second >> 8 & 255, kind.width()),
        None => true,
    };
    let saddr = bits(second, 16, 7);
    let address = match d.encoding {
        Encoding::Flat => saddr == 125,
        Encoding::Global => saddr == 125 || scalar(saddr, 2),
        _ => saddr == 127 || saddr == 125 || scalar(saddr, 1),
    };
    let pair = d.encoding == Encoding::Flat || d.encoding == Encoding::Global && saddr == 125;
    let address_register = row.name.ends_with("addtid") || !pair || vector(second & 255, 2);
    let lds = bits(first, 13, 1) == 0 || to_lds(d) && d.encoding != Encoding::Flat;
    let exists = d.encoding != Encoding::Flat || row.name != "atomic_csub";
    let result = row.has('a') && bits(first, 16, 1) == 0 || vector(second >> 24, row.dst.width());
    exists && data && address && address_register && lds && result && bits(second, 23, 1) == 0
}

fn mubuf(d: &Decoded) -> bool {
    let [first, second, _] = d.words;
    let row = d.row;
    if row.dst.width() == 0 && row.src.is_empty() {
        return bits(first, 12, 6) == 0 && bits(second, 23, 1) == 0;
    }
    let at = |n: u32| bits(first, n, 1) == 1;
    let (lds, tfe) = (at(16), bits(second, 23, 1));
    let width = row.src.first().map_or(row.dst.width(), |kind| kind.width()) + tfe;
    let data = lds || vector(second >> 8 & 255, width);
    let address = !(at(12) && at(13)) || vector(second & 255, 2);
    let atomic = !row.has('a') || !at(15) && !lds && tfe == 0;
    let offset = match second >> 24 {
        code @ 0..=127 => scalar(code, 1),
        128..=208 | 235..=248 | 251..=253 | 255 => true,
        _ => false,
    };
    data && address && atomic && offset && (!lds || to_lds(d) && tfe == 0) && scalar(bits(second, 16, 5) * 4, 4)
}
