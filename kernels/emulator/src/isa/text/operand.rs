//! Registers and constants.

use crate::isa::decode::aligned;
use crate::isa::row::Kind;

/// `width` vector registers from `first` on.
pub(super) fn vector(first: u32, width: u32) -> String {
    if width == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first + width - 1) }
}

/// `width` scalar registers by their operand code.
pub(super) fn scalar(code: u32, width: u32) -> String {
    let code = aligned(code, width);
    let range = |name: &str, first: u32| {
        if width == 1 { format!("{name}{first}") } else { format!("{name}[{first}:{}]", first + width - 1) }
    };
    match (code, width) {
        (106, 1) => "vcc_lo".into(),
        (107, 1) => "vcc_hi".into(),
        (106, 2) => "vcc".into(),
        (108..=123, _) => range("ttmp", code - 108),
        (124, 1) => "m0".into(),
        (125, _) => "null".into(),
        (126, 1) => "exec_lo".into(),
        (127, 1) => "exec_hi".into(),
        (126, 2) => "exec".into(),
        _ => range("s", code),
    }
}

/// A source by its nine-bit code.
pub(super) fn source(code: u32, kind: Kind, literal: Option<u32>) -> String {
    const NAMES: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];
    const HALVES: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
    const FLOATS: [u32; 9] = [
        0x3f00_0000,
        0xbf00_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x4000_0000,
        0xc000_0000,
        0x4080_0000,
        0xc080_0000,
        0x3e22_f983,
    ];
    /// High words; 1 / (2 pi) needs the low one too.
    const DOUBLES: [u32; 8] =
        [0x3fe0_0000, 0xbfe0_0000, 0x3ff0_0000, 0xbff0_0000, 0x4000_0000, 0xc000_0000, 0x4010_0000, 0xc010_0000];
    match code {
        256.. => vector(code - 256, kind.width()),
        0..=127 => scalar(code, kind.width()),
        128..=192 => (code - 128).to_string(),
        193..=208 => format!("-{}", code - 192),
        // A 16-bit integer source prints the half's bits.
        240..=248 if kind == Kind::B16 => format!("{:#x}", HALVES[(code - 240) as usize]),
        248 if kind.width() == 2 => "0.15915494309189532".into(),
        240..=248 => NAMES[(code - 240) as usize].into(),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        239 => "src_pops_exiting_wave_id".into(),
        251 => "src_vccz".into(),
        252 => "src_execz".into(),
        253 => "src_scc".into(),
        254 => "src_lds_direct".into(),
        255 => {
            let value = literal.unwrap_or(0);
            let half = value as u16;
            let (bits, integer, name) = match kind {
                Kind::B16 => (u32::from(half), i32::from(half as i16), None),
                Kind::F16 => (u32::from(half), i32::from(half as i16), HALVES.iter().position(|&h| h == half)),
                Kind::F64 => (value, if value == 0 { 0 } else { i32::MAX }, DOUBLES.iter().position(|&d| d == value)),
                _ => (value, value as i32, FLOATS.iter().position(|&f| f == value)),
            };
            // A literal that an inline constant could say prints like one.
            match name {
                Some(at) => NAMES[at].into(),
                None if (-16..=64).contains(&integer) => integer.to_string(),
                None => format!("{bits:#x}"),
            }
        }
        _ => format!("?{code}"),
    }
}
