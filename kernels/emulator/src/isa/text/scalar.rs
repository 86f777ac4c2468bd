//! SOP1, SOP2, SOPC, SOPK, SOPP and SMEM.

use super::Parts;
use super::operand::{scalar, source};
use crate::isa::decode::{Decoded, Encoding, bits};
use crate::isa::row::Kind;

pub(super) fn parts(d: &Decoded) -> Parts {
    let mut operands = Vec::new();
    let mut modifiers = Vec::new();
    match d.encoding {
        Encoding::Sopp => operands.extend(sopp(d)),
        Encoding::Sopk => operands.extend(sopk(d)),
        Encoding::Smem => smem(d, &mut operands, &mut modifiers),
        _ => {
            if d.scalar_destination() {
                operands.push(scalar(d.destination(), d.row.dst.width()));
            }
            let (codes, n) = d.sources();
            operands.extend((0..n).map(|k| source(codes[k], d.row.src[k], d.literal)));
        }
    }
    ("", operands, modifiers)
}

/// Small numbers in decimal, larger ones in hex.
fn short(value: u16) -> String {
    if value <= 64 { value.to_string() } else { format!("{value:#x}") }
}

fn sopp(d: &Decoded) -> Option<String> {
    let value = d.words[0] as u16;
    let name = d.row.name;
    Some(match name {
        _ if d.row.has('z') => return None,
        "s_endpgm" if value == 0 => return None,
        "s_endpgm" | "s_sendmsg" | "s_sendmsghalt" => value.to_string(),
        _ if name.contains("branch") => value.to_string(),
        "s_waitcnt" => {
            let value = u32::from(value);
            let vm = bits(value, 0, 4) | bits(value, 14, 2) << 4;
            let counts = [("vmcnt", vm, 63), ("expcnt", bits(value, 4, 3), 7), ("lgkmcnt", bits(value, 8, 6), 63)];
            // A counter at its maximum is not waited for, and shown only if all are.
            let all = counts.iter().all(|(_, count, most)| count == most);
            let shown = counts.iter().filter(|(_, count, most)| all || count != most);
            shown.map(|(name, count, _)| format!("{name}({count})")).collect::<Vec<_>>().join(" ")
        }
        "s_inst_prefetch" | "s_clause" | "s_round_mode" | "s_ttracedata_imm" | "s_waitcnt_depctr" => {
            format!("{value:#x}")
        }
        _ => short(value),
    })
}

fn sopk(d: &Decoded) -> Vec<String> {
    let (value, register) = (d.words[0] as u16, d.destination());
    let one = |width| scalar(register, width);
    match d.row.name {
        "s_version" => vec![value.to_string()],
        "s_call_b64" => vec![one(2), value.to_string()],
        "s_subvector_loop_begin" | "s_subvector_loop_end" => vec![one(1), value.to_string()],
        "s_getreg_b32" => vec![one(1), hardware_register(value)],
        "s_setreg_b32" => vec![hardware_register(value), one(1)],
        "s_setreg_imm32_b32" => vec![hardware_register(value), source(255, Kind::B32, d.literal)],
        _ => vec![one(1), format!("{value:#x}")],
    }
}

/// Register, first bit, number of bits; the last two only where they are not all of it.
fn hardware_register(value: u16) -> String {
    const NAMES: [(u16, &str); 17] = [
        (1, "HW_REG_MODE"),
        (2, "HW_REG_STATUS"),
        (3, "HW_REG_TRAPSTS"),
        (5, "HW_REG_GPR_ALLOC"),
        (6, "HW_REG_LDS_ALLOC"),
        (7, "HW_REG_IB_STS"),
        (15, "HW_REG_SH_MEM_BASES"),
        (16, "HW_REG_TBA_LO"),
        (17, "HW_REG_TBA_HI"),
        (18, "HW_REG_TMA_LO"),
        (19, "HW_REG_TMA_HI"),
        (20, "HW_REG_FLAT_SCR_LO"),
        (21, "HW_REG_FLAT_SCR_HI"),
        (23, "HW_REG_HW_ID1"),
        (24, "HW_REG_HW_ID2"),
        (25, "HW_REG_POPS_PACKER"),
        (29, "HW_REG_SHADER_CYCLES"),
    ];
    let (id, offset, size) = (value & 63, value >> 6 & 31, (value >> 11) + 1);
    let known = NAMES.iter().find(|(known, _)| *known == id);
    let name = known.map_or_else(|| id.to_string(), |(_, name)| (*name).to_owned());
    if offset == 0 && size == 32 { format!("hwreg({name})") } else { format!("hwreg({name}, {offset}, {size})") }
}

fn smem(d: &Decoded, operands: &mut Vec<String>, modifiers: &mut Vec<String>) {
    let [first, second, _] = d.words;
    if d.row.name.starts_with("s_atc_probe") {
        operands.push(short(bits(first, 6, 7) as u16));
    } else if d.scalar_destination() {
        operands.push(scalar(d.destination(), d.row.dst.width()));
    }
    let Some(base) = d.row.src.first() else { return };
    operands.push(scalar(bits(first, 0, 6) * 2, base.width()));
    let offset = (second << 11) as i32 >> 11;
    let hex = if offset < 0 { format!("-{:#x}", offset.unsigned_abs()) } else { format!("{offset:#x}") };
    match (bits(second, 25, 7), offset) {
        (125, 0) => operands.push("null".into()),
        (125, _) => operands.push(hex),
        (register, 0) => operands.push(scalar(register, 1)),
        (register, _) => {
            operands.push(scalar(register, 1));
            modifiers.push(format!("offset:{hex}"));
        }
    }
    if bits(first, 16, 1) == 1 && !d.row.name.starts_with("s_atc") {
        modifiers.push("glc".into());
    }
    if bits(first, 14, 1) == 1 && !d.row.name.starts_with("s_atc") {
        modifiers.push("dlc".into());
    }
}
