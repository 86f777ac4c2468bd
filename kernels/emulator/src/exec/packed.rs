//! VOP3P: two 16-bit operations at once, dot products, and fma with mixed precisions.

use super::float::{Rounding, dot2, f16_to_f32, fma16, fma32};
use super::inst::Inst;
use super::machine::{Exec, LANES, Lanes, Machine};
use super::trap::Flow;
use super::valu::{Done, to_half};
use super::valu_f32::pair;
use super::valu_half::{max, min};

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_pk_add_f16" => |m, i| float(m, i, 2, |a, b, _, r| to_half(f16_to_f32(a) + f16_to_f32(b), r)),
        "v_pk_mul_f16" => |m, i| float(m, i, 2, |a, b, _, r| to_half(f16_to_f32(a) * f16_to_f32(b), r)),
        "v_pk_min_f16" => |m, i| float(m, i, 2, |a, b, _, _| min(a, b)),
        "v_pk_max_f16" => |m, i| float(m, i, 2, |a, b, _, _| max(a, b)),
        "v_pk_fma_f16" => |m, i| float(m, i, 3, |a, b, c, r| fma16(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c), r)),
        "v_pk_fmac_f16" => |m, i| {
            let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
            let (a, b, c) = (*m.lanes(i, 0, &mut r0), *m.lanes(i, 1, &mut r1), m.w.v[i.d()]);
            let r = m.rounding16();
            let one = |a: u32, b: u32, c: u32| {
                u32::from(fma16(f16_to_f32(a as u16), f16_to_f32(b as u16), f16_to_f32(c as u16), r))
            };
            let out = std::array::from_fn(|l| one(a[l], b[l], c[l]) | one(a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_pk_add_u16" => |m, i| {
            if i.clamp {
                integer(m, i, 2, |a, b, _| a.saturating_add(b))
            } else {
                integer(m, i, 2, |a, b, _| a.wrapping_add(b))
            }
        },
        "v_pk_sub_u16" => |m, i| {
            if i.clamp {
                integer(m, i, 2, |a, b, _| a.saturating_sub(b))
            } else {
                integer(m, i, 2, |a, b, _| a.wrapping_sub(b))
            }
        },
        "v_pk_add_i16" => |m, i| {
            if i.clamp {
                integer(m, i, 2, |a, b, _| (a as i16).saturating_add(b as i16) as u16)
            } else {
                integer(m, i, 2, |a, b, _| a.wrapping_add(b))
            }
        },
        "v_pk_sub_i16" => |m, i| {
            if i.clamp {
                integer(m, i, 2, |a, b, _| (a as i16).saturating_sub(b as i16) as u16)
            } else {
                integer(m, i, 2, |a, b, _| a.wrapping_sub(b))
            }
        },
        "v_pk_mul_lo_u16" => |m, i| integer(m, i, 2, |a, b, _| a.wrapping_mul(b)),
        "v_pk_mad_u16" | "v_pk_mad_i16" => |m, i| integer(m, i, 3, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "v_pk_lshlrev_b16" => |m, i| integer(m, i, 2, |a, b, _| b << (a & 15)),
        "v_pk_lshrrev_b16" => |m, i| integer(m, i, 2, |a, b, _| b >> (a & 15)),
        "v_pk_ashrrev_i16" => |m, i| integer(m, i, 2, |a, b, _| (b as i16 >> (a & 15)) as u16),
        "v_pk_max_u16" => |m, i| integer(m, i, 2, |a, b, _| a.max(b)),
        "v_pk_min_u16" => |m, i| integer(m, i, 2, |a, b, _| a.min(b)),
        "v_pk_max_i16" => |m, i| integer(m, i, 2, |a, b, _| (a as i16).max(b as i16) as u16),
        "v_pk_min_i16" => |m, i| integer(m, i, 2, |a, b, _| (a as i16).min(b as i16) as u16),
        "v_dot2_f32_f16" => dot2_f32_f16,
        "v_fma_mix_f32" => |m, i| {
            let [a, b, c] = mixed(m, i);
            let mut out = std::array::from_fn(|l| super::float::canon32(fma32(a[l], b[l], c[l])));
            m.finish32(i, &mut out);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_fma_mixlo_f16" => |m, i| mixed_half(m, i, false),
        "v_fma_mixhi_f16" => |m, i| mixed_half(m, i, true),
        _ => return None,
    };
    Some(exec)
}

/// Source `n` with its halves selected (low result, high result) and negated.
fn halves(m: &Machine<'_>, i: &Inst, n: usize, float: bool) -> Lanes {
    let mut room = [0; LANES];
    let lanes = *m.lanes(i, n, &mut room);
    let (low, high) = (if i.op_sel >> n & 1 == 1 { 16 } else { 0 }, if i.op_sel_hi >> n & 1 == 1 { 16 } else { 0 });
    let mut flip = 0;
    if float {
        flip = u32::from(i.neg >> n & 1) << 15 | u32::from(i.neg_hi >> n & 1) << 31;
    }
    if low == 0 && high == 16 {
        return lanes.map(|x| x ^ flip);
    }
    lanes.map(|x| (x >> low & 0xffff | (x >> high) << 16) ^ flip)
}

#[inline(always)]
fn float(m: &mut Machine<'_>, i: &Inst, n: usize, f: impl Fn(u16, u16, u16, Rounding) -> u16) -> Done {
    let (a, b) = (halves(m, i, 0, true), halves(m, i, 1, true));
    let c = if n == 3 { halves(m, i, 2, true) } else { a };
    let (rounding, keeps) = (m.rounding16(), m.keeps_denormals16());
    let flush = |x: u32| if keeps { x as u16 } else { super::float::flush16(x as u16) };
    let one = |a: u32, b: u32, c: u32| flush(u32::from(f(flush(a), flush(b), flush(c), rounding)));
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for l in 0..LANES {
        low[l] = one(a[l], b[l], c[l]);
        high[l] = one(a[l] >> 16, b[l] >> 16, c[l] >> 16);
    }
    m.finish16(i, &mut low);
    m.finish16(i, &mut high);
    m.put(i, &std::array::from_fn(|l| u32::from(low[l]) | u32::from(high[l]) << 16));
    Ok(Flow::Next)
}

#[inline(always)]
fn integer(m: &mut Machine<'_>, i: &Inst, n: usize, f: impl Fn(u16, u16, u16) -> u16) -> Done {
    let (a, b) = (halves(m, i, 0, false), halves(m, i, 1, false));
    let c = if n == 3 { halves(m, i, 2, false) } else { a };
    let one = |a: u32, b: u32, c: u32| u32::from(f(a as u16, b as u16, c as u16));
    let out = std::array::from_fn(|l| one(a[l], b[l], c[l]) | one(a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16);
    m.put(i, &out);
    Ok(Flow::Next)
}

fn dot2_f32_f16(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (a, b) = (halves(m, i, 0, true), halves(m, i, 1, true));
    let mut room = [0; LANES];
    let c = m.lanes(i, 2, &mut room);
    let (flip, clear) = (u32::from(i.neg >> 2 & 1) << 31, u32::from(i.neg_hi >> 2 & 1) << 31);
    let mut out = [0; LANES];
    for l in 0..LANES {
        out[l] = dot2(pair(a[l]), pair(b[l]), c[l] & !clear ^ flip);
    }
    m.finish32(i, &mut out);
    m.put(i, &out);
    Ok(Flow::Next)
}

/// Sources of the mixed fma: fp16 where `op_sel_hi` is set (the half in `op_sel`), else fp32; `neg_hi` means absolute value.
fn mixed(m: &Machine<'_>, i: &Inst) -> [[f32; LANES]; 3] {
    std::array::from_fn(|n| {
        let mut room = [0; LANES];
        let lanes = m.lanes(i, n, &mut room);
        let shift = if i.op_sel >> n & 1 == 1 { 16 } else { 0 };
        let half = i.op_sel_hi >> n & 1 == 1;
        std::array::from_fn(|l| {
            let value = if half { f16_to_f32((lanes[l] >> shift) as u16) } else { f32::from_bits(lanes[l]) };
            let value = if i.neg_hi >> n & 1 == 1 { value.abs() } else { value };
            if i.neg >> n & 1 == 1 { -value } else { value }
        })
    })
}

fn mixed_half(m: &mut Machine<'_>, i: &Inst, high: bool) -> Done {
    let [a, b, c] = mixed(m, i);
    let rounding = m.rounding16();
    let old = m.w.v[i.d()];
    let mut out = std::array::from_fn(|l| fma16(a[l], b[l], c[l], rounding));
    // The first source is no half here, so the selection bits mean nothing to `finish16`.
    m.finish16(i, &mut out);
    let merged = std::array::from_fn(|l| {
        let half = u32::from(out[l]);
        if high { old[l] & 0xffff | half << 16 } else { old[l] & 0xffff_0000 | half }
    });
    m.put(i, &merged);
    Ok(Flow::Next)
}
