//! The MODE register and the few hardware registers that programs touch.

use super::machine::Machine;
use super::trap::{Flow, Trap};
use super::valu::Done;

const HW_REG_MODE: u32 = 1;
const HW_REG_FLAT_SCR_LO: u32 = 20;
const HW_REG_FLAT_SCR_HI: u32 = 21;

/// Puts the low `len` bits of `value` at bit `at` of MODE.
pub(super) fn set(m: &mut Machine<'_>, at: u32, len: u32, value: u32) -> Done {
    let mask = ((1 << len) - 1) << at;
    let mode = m.w.mode & !mask | value << at & mask;
    check(mode)?;
    m.w.mode = mode;
    Ok(Flow::Next)
}

/// fp32 arithmetic is done by the host's, which rounds to nearest even.
pub(crate) fn check(mode: u32) -> Result<(), Box<Trap>> {
    if mode & 3 != 0 {
        return Trap::unmodelled(format!("fp32 rounding mode {} (only 0, to nearest even, is)", mode & 3));
    }
    Ok(())
}

/// Register, first bit and number of bits, as s_setreg and s_getreg encode them.
fn field(code: u32) -> (u32, u32, u32) {
    (code & 63, code >> 6 & 31, (code >> 11 & 31) + 1)
}

pub(super) fn set_register(m: &mut Machine<'_>, code: u32, value: u32) -> Done {
    let (register, at, len) = field(code);
    match register {
        HW_REG_MODE if at + len <= 32 && len < 32 => set(m, at, len, value),
        HW_REG_FLAT_SCR_LO | HW_REG_FLAT_SCR_HI if at == 0 && len == 32 => {
            m.w.flat_scratch[(register - HW_REG_FLAT_SCR_LO) as usize] = value;
            Ok(Flow::Next)
        }
        _ => Trap::unmodelled(format!("writing hardware register {register}, bits {at} to {}", at + len - 1)),
    }
}

pub(super) fn get_register(m: &Machine<'_>, code: u32) -> Result<u32, Box<Trap>> {
    let (register, at, len) = field(code);
    let value = match register {
        HW_REG_MODE => m.w.mode,
        HW_REG_FLAT_SCR_LO | HW_REG_FLAT_SCR_HI => m.w.flat_scratch[(register - HW_REG_FLAT_SCR_LO) as usize],
        _ => return Trap::unmodelled(format!("reading hardware register {register}")),
    };
    let mask = if len >= 32 { u32::MAX } else { (1 << len) - 1 };
    Ok(value >> at & mask)
}
