//! Data movement of DPP16, DPP8 and SDWA, on sources and destinations.

use super::inst::{Inst, Tail};
use super::machine::{LANES, Lanes, put_masked};

/// Changes source `n` in place. DPP moves source 0 only; SDWA cuts both.
pub(super) fn source(inst: &Inst, n: usize, exec: u32, lanes: &mut Lanes) {
    match inst.tail {
        Tail::Dpp16 { .. } | Tail::Dpp8 { .. } if n == 0 => {
            let from = *lanes;
            for (lane, to) in lanes.iter_mut().enumerate() {
                *to = origin(inst.tail, exec, lane).map_or(0, |lane| from[lane]);
            }
        }
        Tail::Sdwa { src_sel, sext, .. } if n < 2 => {
            for value in lanes.iter_mut() {
                *value = select(*value, src_sel[n], sext[n]);
            }
        }
        _ => {}
    }
}

/// One byte, word or all of a register, with or without its sign.
pub(crate) fn select(value: u32, sel: u8, sext: bool) -> u32 {
    let (shift, size) = match sel {
        0..=3 => (u32::from(sel) * 8, 8),
        4 => (0, 16),
        5 => (16, 16),
        _ => (0, 32),
    };
    let left = value << (32 - size - shift);
    if sext { (left as i32 >> (32 - size)) as u32 } else { left >> (32 - size) }
}

/// The lane that `lane` reads, or `None` where there is none that may be read.
fn origin(tail: Tail, exec: u32, lane: usize) -> Option<usize> {
    let (from, fetch_inactive) = match tail {
        Tail::Dpp16 { ctrl, fetch_inactive, .. } => (dpp16_origin(ctrl, lane)?, fetch_inactive),
        Tail::Dpp8 { lanes, fetch_inactive } => {
            ((lane & !7) + (lanes >> (3 * (lane & 7)) & 7) as usize, fetch_inactive)
        }
        _ => (lane, true),
    };
    (fetch_inactive || exec >> from & 1 == 1).then_some(from)
}

fn dpp16_origin(ctrl: u16, lane: usize) -> Option<usize> {
    let (row, in_row, amount) = (lane & !15, lane & 15, usize::from(ctrl & 15));
    Some(match ctrl {
        0..=0xff => (lane & !3) + usize::from(ctrl >> (2 * (lane & 3)) & 3),
        0x101..=0x10f => row + Some(in_row + amount).filter(|&to| to < 16)?,
        0x111..=0x11f => row + in_row.checked_sub(amount)?,
        0x121..=0x12f => row + (in_row + 16 - amount) % 16,
        0x140 => row + 15 - in_row,
        0x141 => (lane & !7) + 7 - (lane & 7),
        0x150..=0x15f => row + amount,
        0x160..=0x16f => row + (in_row ^ amount),
        _ => return None,
    })
}

/// The lanes that a DPP instruction writes.
fn written(tail: Tail, exec: u32) -> u32 {
    (0..LANES).fold(0, |mask, lane| {
        let on = match tail {
            Tail::Dpp16 { row_mask, bank_mask, bound_ctrl, .. } => {
                row_mask >> (lane / 16) & 1 == 1
                    && bank_mask >> (lane % 16 / 4) & 1 == 1
                    && (bound_ctrl || origin(tail, exec, lane).is_some())
            }
            // A DPP8 lane without a source reads 0.
            _ => true,
        };
        mask | u32::from(on) << lane
    }) & exec
}

/// Stores a 32-bit result as the tail says.
pub(super) fn destination(inst: &Inst, exec: u32, to: &mut Lanes, out: &Lanes) {
    match inst.tail {
        Tail::Sdwa { dst_sel, dst_unused, .. } => {
            let mut placed = *out;
            for (value, old) in placed.iter_mut().zip(to.iter()) {
                *value = place(*value, *old, dst_sel, dst_unused);
            }
            put_masked(to, exec, &placed);
        }
        tail => put_masked(to, written(tail, exec), out),
    }
}

/// The active lanes that a compare with this tail may set.
pub(crate) fn place(value: u32, old: u32, sel: u8, unused: u8) -> u32 {
    let (shift, size) = match sel {
        0..=3 => (u32::from(sel) * 8, 8_u32),
        4 => (0, 16),
        5 => (16, 16),
        _ => return value,
    };
    let ones = (1_u32 << size) - 1;
    let field = (value & ones) << shift;
    match unused {
        // UNUSED_PAD, UNUSED_SEXT, UNUSED_PRESERVE.
        0 => field,
        1 => {
            let sign = value >> (size - 1) & 1 == 1;
            // Bits above take the sign, bits below stay zero.
            let above = if shift + size < 32 { u32::MAX << (shift + size) } else { 0 };
            field | if sign { above } else { 0 }
        }
        _ => field | old & !(ones << shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(ctrl: u16) -> Vec<Option<usize>> {
        (0..32).map(|lane| dpp16_origin(ctrl, lane)).collect()
    }

    #[test]
    fn controls_name_the_lane_that_is_read() {
        // quad_perm:[1,0,3,2]
        assert_eq!(moved(0xb1)[..5], [Some(1), Some(0), Some(3), Some(2), Some(5)]);
        // row_shl:1 reads the next lane, none at the row's end.
        assert_eq!((moved(0x101)[0], moved(0x101)[15], moved(0x101)[16]), (Some(1), None, Some(17)));
        // row_shr:2
        assert_eq!((moved(0x112)[1], moved(0x112)[2], moved(0x112)[18]), (None, Some(0), Some(16)));
        // row_ror:4
        assert_eq!((moved(0x124)[0], moved(0x124)[20]), (Some(12), Some(16)));
        assert_eq!((moved(0x140)[0], moved(0x140)[17]), (Some(15), Some(30)));
        assert_eq!((moved(0x141)[0], moved(0x141)[9]), (Some(7), Some(14)));
        assert_eq!((moved(0x153)[0], moved(0x153)[31]), (Some(3), Some(19)));
        assert_eq!((moved(0x168)[1], moved(0x168)[31]), (Some(9), Some(23)));
    }

    #[test]
    fn disabled_and_missing_sources() {
        let dpp = |bound_ctrl, fetch_inactive| Tail::Dpp16 {
            ctrl: 0x111,
            row_mask: 15,
            bank_mask: 15,
            bound_ctrl,
            fetch_inactive,
        };
        // Lane 2 is off: lane 3's source is missing unless inactive lanes may be fetched.
        let exec = !0b100;
        assert_eq!(written(dpp(false, false), exec), exec & !0b1001 & !(1 << 16));
        assert_eq!(written(dpp(false, true), exec), exec & !1 & !(1 << 16));
        assert_eq!(written(dpp(true, false), exec), exec);
        let banks =
            Tail::Dpp16 { ctrl: 0xe4, row_mask: 0b10, bank_mask: 0b0001, bound_ctrl: true, fetch_inactive: true };
        assert_eq!(written(banks, u32::MAX), 0x000f_0000);
    }

    #[test]
    fn parts_of_registers() {
        assert_eq!(select(0x8070_60f0, 0, false), 0xf0);
        assert_eq!(select(0x8070_60f0, 0, true), 0xffff_fff0);
        assert_eq!(select(0x8070_60f0, 5, true), 0xffff_8070);
        assert_eq!(place(0x1234_abcd, 0x5555_5555, 4, 0), 0x0000_abcd);
        assert_eq!(place(0x1234_abcd, 0x5555_5555, 4, 1), 0xffff_abcd);
        assert_eq!(place(0x1234_abcd, 0x5555_5555, 2, 2), 0x55cd_5555);
    }
}
