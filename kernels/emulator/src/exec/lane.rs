//! Moves between lanes and between vector and scalar registers.

use super::inst::{Inst, Src};
use super::machine::{Exec, LANES, Machine};
use super::trap::Flow;
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_readfirstlane_b32" => |m, i| {
            // With no lane active, lane 0.
            let lane = (m.exec().trailing_zeros() as usize) % LANES;
            read_lane(m, i, lane)
        },
        "v_readlane_b32" => |m, i| {
            let lane = m.s32(i, 1) as usize % LANES;
            read_lane(m, i, lane)
        },
        "v_writelane_b32" => |m, i| {
            let (value, lane) = (m.s32(i, 0), m.s32(i, 1) as usize % LANES);
            m.w.v[i.d()][lane] = value;
            m.w.v_undefined[i.d()] &= !(1 << lane);
            Ok(Flow::Next)
        },
        "v_swap_b32" => |m, i| {
            let Src::Vector(other) = i.src[0] else { return Ok(Flow::Next) };
            let (other, exec) = (usize::from(other), m.exec());
            let (a, b) = (m.w.v[i.d()], m.w.v[other]);
            super::machine::put_masked(&mut m.w.v[i.d()], exec, &b);
            super::machine::put_masked(&mut m.w.v[other], exec, &a);
            Ok(Flow::Next)
        },
        "v_permlane16_b32" => |m, i| permlane(m, i, 0),
        "v_permlanex16_b32" => |m, i| permlane(m, i, 16),
        _ => return None,
    };
    Some(exec)
}

fn read_lane(m: &mut Machine<'_>, i: &Inst, lane: usize) -> Done {
    let value = match i.src[0] {
        Src::Vector(r) => {
            let r = usize::from(r);
            if m.w.v_undefined[r] >> lane & 1 == 1 {
                m.tally.undefined_register(r as u32, true, lane as u32);
            }
            m.w.v[r][lane]
        }
        _ => m.s32(i, 0),
    };
    m.set_s32(i.dst, value);
    Ok(Flow::Next)
}

/// Each lane reads the lane of its row (or of the other row) that a four-bit field of the two scalar sources names.
fn permlane(m: &mut Machine<'_>, i: &Inst, other_row: usize) -> Done {
    let select = u64::from(m.s32(i, 1)) | u64::from(m.s32(i, 2)) << 32;
    let (exec, fetch_inactive, bound_ctrl) = (m.exec(), i.op_sel & 1 == 1, i.op_sel & 2 == 2);
    let mut room = [0; LANES];
    let from = *m.lanes(i, 0, &mut room);
    let old = m.w.v[i.d()];
    let out = std::array::from_fn(|l| {
        let lane = (l & 16 ^ other_row) + (select >> (4 * (l & 15)) & 15) as usize;
        if fetch_inactive || exec >> lane & 1 == 1 {
            from[lane]
        } else if bound_ctrl {
            0
        } else {
            old[l]
        }
    });
    m.put(i, &out);
    Ok(Flow::Next)
}
