//! fp16 and 16-bit integers, one a register, and conversions to and from them.

use super::float::{NAN16, Rounding, f16_to_f32, f64_to_f16, flush16, fma16};
use super::inst::Inst;
use super::machine::{Exec, LANES, Machine};
use super::trap::Flow;
use super::valu::{Done, Halves, to_half};

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_add_f16" => |m, i| m.h2(i, |a, b| a + b),
        "v_sub_f16" => |m, i| m.h2(i, |a, b| a - b),
        "v_subrev_f16" => |m, i| m.h2(i, |a, b| b - a),
        "v_mul_f16" => |m, i| m.h2(i, |a, b| a * b),
        "v_min_f16" => |m, i| m.hb3(i, 2, |a, b, _| min(a, b)),
        "v_max_f16" => |m, i| m.hb3(i, 2, |a, b, _| max(a, b)),
        "v_min3_f16" => |m, i| m.hb3(i, 3, |a, b, c| min(min(a, b), c)),
        "v_max3_f16" => |m, i| m.hb3(i, 3, |a, b, c| max(max(a, b), c)),
        "v_fma_f16" => |m, i| {
            let rounding = m.rounding16();
            m.hb3(i, 3, |a, b, c| fma16(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c), rounding))
        },
        "v_fmac_f16" => |m, i| {
            let (rounding, old) = (m.rounding16(), m.w.v[i.d()]);
            let (a, b) = (m.halves(i, 0, true), m.halves(i, 1, true));
            fused(m, i, &a, &b, &old.map(|x| x as u16), rounding)
        },
        "v_fmamk_f16" => |m, i| {
            let (rounding, k) = (m.rounding16(), [i.imm as u16; LANES]);
            let (a, b) = (m.halves(i, 0, true), m.halves(i, 1, true));
            fused(m, i, &a, &k, &b, rounding)
        },
        "v_fmaak_f16" => |m, i| {
            let (rounding, k) = (m.rounding16(), [i.imm as u16; LANES]);
            let (a, b) = (m.halves(i, 0, true), m.halves(i, 1, true));
            fused(m, i, &a, &b, &k, rounding)
        },
        "v_rcp_f16" => |m, i| m.h1(i, |a| 1.0 / a),
        "v_sqrt_f16" => |m, i| m.h1(i, f32::sqrt),
        "v_rsq_f16" => |m, i| m.h1(i, |a| 1.0 / a.sqrt()),
        "v_exp_f16" => |m, i| m.h1(i, f32::exp2),
        "v_log_f16" => |m, i| m.h1(i, f32::log2),
        "v_trunc_f16" => |m, i| m.h1(i, f32::trunc),
        "v_ceil_f16" => |m, i| m.h1(i, f32::ceil),
        "v_floor_f16" => |m, i| m.h1(i, f32::floor),
        "v_rndne_f16" => |m, i| m.h1(i, f32::round_ties_even),
        "v_fract_f16" => |m, i| m.h1(i, |a| (a - a.floor()).min(0.999_511_7)),
        "v_ldexp_f16" => |m, i| {
            let (a, e, rounding) = (m.halves(i, 0, true), m.halves(i, 1, false), m.rounding16());
            let scale = |e: u16| f64::from(i32::from(e as i16).clamp(-64, 64)).exp2();
            let mut out: Halves =
                std::array::from_fn(|l| f64_to_f16(f64::from(f16_to_f32(a[l])) * scale(e[l]), rounding));
            m.finish16(i, &mut out);
            m.put16(i, &out);
            Ok(Flow::Next)
        },
        "v_cvt_f32_f16" => |m, i| {
            let a = m.halves(i, 0, true);
            let mut out = std::array::from_fn(|l| super::float::canon32(f16_to_f32(a[l])));
            m.finish32(i, &mut out);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_cvt_f16_f32" => |m, i| {
            let rounding = m.rounding16();
            let mut room = [0; LANES];
            let a = m.floats(i, 0, &mut room);
            let mut out: Halves = std::array::from_fn(|l| to_half(f32::from_bits(a[l]), rounding));
            m.finish16(i, &mut out);
            m.put16(i, &out);
            Ok(Flow::Next)
        },
        // Truncates whatever MODE says.
        "v_cvt_pkrtz_f16_f32" => |m, i| {
            let keeps = m.keeps_denormals16();
            m.fb2_raw(i, |a, b| {
                let half = |x: u32| f64_to_f16(f64::from(f32::from_bits(x)), Rounding::Zero);
                let half = |x: u32| u32::from(if keeps { half(x) } else { flush16(half(x)) });
                half(a) | half(b) << 16
            })
        },
        "v_cvt_f16_u16" => |m, i| {
            let (a, rounding) = (m.halves(i, 0, false), m.rounding16());
            from_integer(m, i, a.map(f32::from), rounding)
        },
        "v_cvt_f16_i16" => |m, i| {
            let (a, rounding) = (m.halves(i, 0, false), m.rounding16());
            from_integer(m, i, a.map(|x| f32::from(x as i16)), rounding)
        },
        "v_cvt_u16_f16" => |m, i| {
            let a = m.halves(i, 0, true);
            m.put16(i, &a.map(|x| f16_to_f32(x) as u16));
            Ok(Flow::Next)
        },
        "v_cvt_i16_f16" => |m, i| {
            let a = m.halves(i, 0, true);
            m.put16(i, &a.map(|x| f16_to_f32(x) as i16 as u16));
            Ok(Flow::Next)
        },
        "v_pack_b32_f16" => |m, i| {
            let (a, b) = (m.halves(i, 0, true), m.halves(i, 1, true));
            m.put(i, &std::array::from_fn(|l| u32::from(a[l]) | u32::from(b[l]) << 16));
            Ok(Flow::Next)
        },
        "v_add_nc_u16" => |m, i| if i.clamp { m.w2(i, u16::saturating_add) } else { m.w2(i, u16::wrapping_add) },
        "v_sub_nc_u16" => |m, i| if i.clamp { m.w2(i, u16::saturating_sub) } else { m.w2(i, u16::wrapping_sub) },
        "v_add_nc_i16" => |m, i| signed(m, i, i16::saturating_add, i16::wrapping_add),
        "v_sub_nc_i16" => |m, i| signed(m, i, i16::saturating_sub, i16::wrapping_sub),
        "v_mul_lo_u16" => |m, i| m.w2(i, u16::wrapping_mul),
        "v_lshlrev_b16" => |m, i| m.w2(i, |a, b| b << (a & 15)),
        "v_lshrrev_b16" => |m, i| m.w2(i, |a, b| b >> (a & 15)),
        "v_ashrrev_i16" => |m, i| m.w2(i, |a, b| (b as i16 >> (a & 15)) as u16),
        "v_max_u16" => |m, i| m.w2(i, u16::max),
        "v_min_u16" => |m, i| m.w2(i, u16::min),
        "v_max_i16" => |m, i| m.w2(i, |a, b| (a as i16).max(b as i16) as u16),
        "v_min_i16" => |m, i| m.w2(i, |a, b| (a as i16).min(b as i16) as u16),
        "v_mad_u16" => |m, i| m.w3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "v_mad_i16" => |m, i| m.w3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "v_min3_u16" => |m, i| m.w3(i, |a, b, c| a.min(b).min(c)),
        "v_max3_u16" => |m, i| m.w3(i, |a, b, c| a.max(b).max(c)),
        "v_min3_i16" => |m, i| m.w3(i, |a, b, c| (a as i16).min(b as i16).min(c as i16) as u16),
        "v_max3_i16" => |m, i| m.w3(i, |a, b, c| (a as i16).max(b as i16).max(c as i16) as u16),
        "v_mad_u32_u16" => |m, i| mad32(m, i, |a, b, c| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        "v_mad_i32_i16" => {
            |m, i| mad32(m, i, |a, b, c| ((i32::from(a as i16) * i32::from(b as i16)) as u32).wrapping_add(c))
        }
        _ => return None,
    };
    Some(exec)
}

fn is_nan(x: u16) -> bool {
    x & 0x7fff > 0x7c00
}

fn is_signalling(x: u16) -> bool {
    is_nan(x) && x & 0x0200 == 0
}

/// Like the fp32 minimum.
pub(super) fn min(a: u16, b: u16) -> u16 {
    let (x, y) = (f16_to_f32(a), f16_to_f32(b));
    pick(
        a,
        b,
        if x < y {
            a
        } else if y < x {
            b
        } else {
            a | b
        },
    )
}

pub(super) fn max(a: u16, b: u16) -> u16 {
    let (x, y) = (f16_to_f32(a), f16_to_f32(b));
    pick(
        a,
        b,
        if x > y {
            a
        } else if y > x {
            b
        } else {
            a & b
        },
    )
}

fn pick(a: u16, b: u16, ordered: u16) -> u16 {
    if is_signalling(a) || is_signalling(b) || is_nan(a) && is_nan(b) {
        NAN16
    } else if is_nan(a) {
        b
    } else if is_nan(b) {
        a
    } else {
        ordered
    }
}

fn fused(m: &mut Machine<'_>, i: &Inst, a: &Halves, b: &Halves, c: &Halves, rounding: Rounding) -> Done {
    let mut out: Halves =
        std::array::from_fn(|l| fma16(f16_to_f32(a[l]), f16_to_f32(b[l]), f16_to_f32(c[l]), rounding));
    m.finish16(i, &mut out);
    m.put16(i, &out);
    Ok(Flow::Next)
}

fn from_integer(m: &mut Machine<'_>, i: &Inst, values: [f32; LANES], rounding: Rounding) -> Done {
    let mut out = values.map(|x| to_half(x, rounding));
    m.finish16(i, &mut out);
    m.put16(i, &out);
    Ok(Flow::Next)
}

fn signed(m: &mut Machine<'_>, i: &Inst, saturating: fn(i16, i16) -> i16, wrapping: fn(i16, i16) -> i16) -> Done {
    let f = if i.clamp { saturating } else { wrapping };
    m.w2(i, |a, b| f(a as i16, b as i16) as u16)
}

fn mad32(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u16, u16, u32) -> u32) -> Done {
    let (a, b) = (m.halves(i, 0, false), m.halves(i, 1, false));
    let mut room = [0; LANES];
    let c = m.lanes(i, 2, &mut room);
    let out = std::array::from_fn(|l| f(a[l], b[l], c[l]));
    m.put(i, &out);
    Ok(Flow::Next)
}

impl Machine<'_> {
    /// Float sources, a result that no output modifier touches.
    #[inline(always)]
    fn fb2_raw(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
        let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
        let (a, b) = (self.floats(i, 0, &mut r0), self.floats(i, 1, &mut r1));
        let out = std::array::from_fn(|l| f(a[l], b[l]));
        self.put(i, &out);
        Ok(Flow::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::float::f32_to_f16;
    use super::*;

    #[test]
    fn halves_order_like_numbers() {
        assert_eq!(max(0x3c00, 0xc000), 0x3c00);
        assert_eq!(min(0x3c00, 0xc000), 0xc000);
        assert_eq!(max(0x7e00, 0x3c00), 0x3c00);
        assert_eq!(max(0x7d00, 0x3c00), NAN16);
        assert_eq!(min(0x0000, 0x8000), 0x8000);
        assert_eq!(f32_to_f16(f16_to_f32(0x0001)), 1);
    }
}
