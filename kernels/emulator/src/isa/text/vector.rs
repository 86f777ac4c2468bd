//! VOP1, VOP2, VOPC, VOP3 and VOP3P with their modifiers.

use super::Parts;
use super::operand::{scalar, source, vector};
use crate::isa::decode::{Decoded, Encoding, Extra, bits};
use crate::isa::row::{Dst, Kind};

pub(super) fn parts(d: &Decoded) -> Parts {
    let row = d.row;
    let mut operands = Vec::new();
    match row.dst {
        Dst::None => {}
        Dst::Mask | Dst::S1 => operands.push(scalar(d.destination(), 1)),
        dst => operands.push(vector(d.destination(), dst.width())),
    }
    if row.has('b') {
        operands.push(scalar(d.second_destination(), 1));
    }
    let (codes, n) = d.sources();
    for k in 0..n {
        // The mixed fma's literals print as halves.
        let literal = d.literal.map(|value| if row.has('m') { value & 0xffff } else { value });
        operands.push(signed(d, k, source(codes[k], row.src[k], literal)));
    }
    if d.has_inline_constant() {
        let value = d.literal.unwrap_or(0);
        let constant = format!("{value:#x}");
        let at = if row.name.starts_with("v_fmamk") { 2 } else { 3 };
        operands.insert(at, constant);
    }
    (suffix(d), operands, modifiers(d))
}

fn suffix(d: &Decoded) -> &'static str {
    match (d.encoding, d.extra) {
        _ if d.row.src.is_empty() => "",
        (_, Extra::Sdwa) => "_sdwa",
        (_, Extra::Dpp16 | Extra::Dpp8 { .. }) => "_dpp",
        (Encoding::Vop3, _) if d.row.op < 0x140 || (0x180..0x200).contains(&d.row.op) => "_e64",
        (Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc, _) if !d.row.has('e') => {
            if d.row.name == "v_nop" {
                ""
            } else {
                "_e32"
            }
        }
        _ => "",
    }
}

/// A source with the signs that its encoding gives it.
fn signed(d: &Decoded, k: usize, text: String) -> String {
    let [first, second, _] = d.words;
    let kind = d.row.src[k];
    let at = |n: u32| bits(second, n, 1) == 1;
    let (neg, abs) = match (d.encoding, d.extra) {
        (Encoding::Vop3, _) if d.row.has('b') => (at(29 + k as u32), false),
        (Encoding::Vop3, _) => (at(29 + k as u32), bits(first, 8 + k as u32, 1) == 1),
        (Encoding::Vop3p, _) if d.row.has('m') => (at(29 + k as u32), bits(first, 8 + k as u32, 1) == 1),
        (_, Extra::Dpp16) if k < 2 => (at(20 + 2 * k as u32), at(21 + 2 * k as u32)),
        (_, Extra::Sdwa) if k < 2 => {
            if at(19 + 8 * k as u32) {
                return format!("sext({text})");
            }
            (at(20 + 8 * k as u32), at(21 + 8 * k as u32))
        }
        _ => (false, false),
    };
    if !kind.takes_sign() {
        // An integer beside floats takes the sign bit as sign extension.
        let extends = matches!(d.row.name, "v_cvt_pk_u8_f32" | "v_ldexp_f32" | "v_ldexp_f64" | "v_trig_preop_f64");
        return if neg && extends && k > 0 { format!("sext({text})") } else { text };
    }
    // The exponent of v_ldexp_f16 has its type, but no sign modifiers.
    if d.row.name == "v_ldexp_f16" && k == 1 {
        return if neg { format!("sext({text})") } else { text };
    }
    let text = if abs { format!("|{text}|") } else { text };
    match neg {
        // A bare minus would make another number of a constant.
        true if !abs && text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => format!("neg({text})"),
        true => format!("-{text}"),
        false => text,
    }
}

fn modifiers(d: &Decoded) -> Vec<String> {
    let [first, second, _] = d.words;
    let mut out = Vec::new();
    match (d.encoding, d.extra) {
        (Encoding::Vop3, _) => {
            let n = d.row.src.len() as u32;
            if d.row.has('s') {
                let selected = bits(first, 11, 4);
                let permlane = d.row.name.starts_with("v_permlane");
                let shown: Vec<u32> = if permlane {
                    (0..2).map(|k| selected >> k & 1).collect()
                } else {
                    (0..n).chain([3]).map(|k| selected >> k & 1).collect()
                };
                if shown.contains(&1) {
                    out.push(list("op_sel", &shown));
                }
            }
            clamp_omod(&mut out, d, bits(first, 15, 1), bits(second, 27, 2));
        }
        (Encoding::Vop3p, _) => packed(&mut out, d),
        (_, Extra::Dpp16) => {
            out.push(control(bits(second, 8, 9)));
            out.push(format!("row_mask:{:#x}", bits(second, 28, 4)));
            out.push(format!("bank_mask:{:#x}", bits(second, 24, 4)));
            if bits(second, 19, 1) == 1 {
                out.push("bound_ctrl:1".into());
            }
            if bits(second, 18, 1) == 1 {
                out.push("fi:1".into());
            }
        }
        (_, Extra::Dpp8 { fetch_inactive }) => {
            out.push(list("dpp8", &std::array::from_fn::<u32, 8, _>(|k| bits(second, 8 + 3 * k as u32, 3))));
            if fetch_inactive {
                out.push("fi:1".into());
            }
        }
        (_, Extra::Sdwa) => sdwa(&mut out, d),
        _ => {}
    }
    out
}

fn list(name: &str, values: &[u32]) -> String {
    let values: Vec<String> = values.iter().map(u32::to_string).collect();
    format!("{name}:[{}]", values.join(","))
}

fn clamp_omod(out: &mut Vec<String>, d: &Decoded, clamp: u32, omod: u32) {
    if clamp == 1 && (d.row.has('c') || d.extra == Extra::Sdwa) {
        out.push("clamp".into());
    }
    if d.row.has('o') {
        out.extend(
            ["", "mul:2", "mul:4", "div:2"].get(omod as usize).filter(|m| !m.is_empty()).map(|m| (*m).to_owned()),
        );
    }
}

fn packed(out: &mut Vec<String>, d: &Decoded) {
    let [first, second, _] = d.words;
    let n = d.row.src.len() as u32;
    let field = |value: u32| (0..n).map(|k| value >> k & 1).collect::<Vec<_>>();
    let (low, high) = (field(bits(first, 11, 3)), field(bits(second, 27, 2) | bits(first, 14, 1) << 2));
    if low.contains(&1) {
        out.push(list("op_sel", &low));
    }
    let default = u32::from(!d.row.has('m'));
    if high.contains(&(1 - default)) {
        out.push(list("op_sel_hi", &high));
    }
    if !d.row.has('m') {
        let (neg_lo, neg_hi) = (field(bits(second, 29, 3)), field(bits(first, 8, 3)));
        if neg_lo.contains(&1) {
            out.push(list("neg_lo", &neg_lo));
        }
        if neg_hi.contains(&1) {
            out.push(list("neg_hi", &neg_hi));
        }
    }
    if bits(first, 15, 1) == 1 && d.row.has('c') {
        out.push("clamp".into());
    }
}

fn control(ctrl: u32) -> String {
    match ctrl {
        0..=0xff => list("quad_perm", &std::array::from_fn::<u32, 4, _>(|k| ctrl >> (2 * k) & 3)),
        0x101..=0x10f => format!("row_shl:{}", ctrl & 15),
        0x111..=0x11f => format!("row_shr:{}", ctrl & 15),
        0x121..=0x12f => format!("row_ror:{}", ctrl & 15),
        0x140 => "row_mirror".into(),
        0x141 => "row_half_mirror".into(),
        0x150..=0x15f => format!("row_share:{}", ctrl & 15),
        0x160..=0x16f => format!("row_xmask:{}", ctrl & 15),
        _ => format!("dpp_ctrl:{ctrl:#x}"),
    }
}

fn sdwa(out: &mut Vec<String>, d: &Decoded) {
    const SELECT: [&str; 8] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"];
    const UNUSED: [&str; 4] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"];
    let second = d.words[1];
    let select = |at: u32| SELECT[bits(second, at, 3) as usize];
    if d.encoding != Encoding::Vopc {
        clamp_omod(out, d, bits(second, 13, 1), bits(second, 14, 2));
        out.push(format!("dst_sel:{}", select(8)));
        out.push(format!("dst_unused:{}", UNUSED[bits(second, 11, 2) as usize]));
    }
    out.push(format!("src0_sel:{}", select(16)));
    if d.encoding != Encoding::Vop1 {
        out.push(format!("src1_sel:{}", select(24)));
    }
}

impl Kind {
    /// Whether a sign modifier shows on it.
    fn takes_sign(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::F16x2)
    }
}
