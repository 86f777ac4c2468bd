//! fp32 arithmetic and conversions.
//!
//! Addition, multiplication and fma are the host's IEEE arithmetic, rounded to nearest even, which is all that
//! [`super::mode`] lets a wave ask for. The transcendentals are computed in fp64 and rounded once, so they err by
//! less than the hardware's documented bounds; like the hardware they flush denormals on both sides.

use super::float::{NAN32, canon32, dot2, f16_to_f32, flush32, fma_lanes, fma32};
use super::inst::Inst;
use super::machine::{Exec, LANES, Machine, VCC, mask_of};
use super::trap::Flow;
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_add_f32" => |m, i| m.f2(i, |a, b| a + b),
        "v_sub_f32" => |m, i| m.f2(i, |a, b| a - b),
        "v_subrev_f32" => |m, i| m.f2(i, |a, b| b - a),
        "v_mul_f32" => |m, i| m.f2(i, |a, b| a * b),
        // A zero factor gives +0 even with infinity or NaN.
        "v_mul_legacy_f32" => |m, i| m.f2(i, |a, b| if a == 0.0 || b == 0.0 { 0.0 } else { a * b }),
        "v_min_f32" => |m, i| m.fb2(i, min),
        "v_max_f32" => |m, i| m.fb2(i, max),
        "v_min3_f32" => |m, i| m.fb3(i, |a, b, c| min(min(a, b), c)),
        "v_max3_f32" => |m, i| m.fb3(i, |a, b, c| max(max(a, b), c)),
        "v_med3_f32" => |m, i| m.fb3(i, med3),
        "v_fma_f32" => |m, i| {
            let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
            let (a, b, c) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1), m.floats(i, 2, &mut r2));
            let out = fma_lanes(a, b, c);
            fused(m, i, out)
        },
        "v_fmac_f32" => |m, i| {
            let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
            let (a, b, c) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1), m.accumulator(i, &mut r2));
            let out = fma_lanes(a, b, c);
            fused(m, i, out)
        },
        "v_fmamk_f32" => |m, i| {
            let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
            let (a, b) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1));
            let out = fma_lanes(a, &[i.imm as u32; LANES], b);
            fused(m, i, out)
        },
        "v_fmaak_f32" => |m, i| {
            let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
            let (a, b) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1));
            let out = fma_lanes(a, b, &[i.imm as u32; LANES]);
            fused(m, i, out)
        },
        "v_fma_legacy_f32" => |m, i| m.f3(i, |a, b, c| if a == 0.0 || b == 0.0 { c } else { fma32(a, b, c) }),
        "v_rcp_f32" | "v_rcp_iflag_f32" => |m, i| m.f1(i, |a| via_f64(a, |x| 1.0 / x)),
        "v_rsq_f32" => |m, i| m.f1(i, |a| via_f64(a, |x| 1.0 / x.sqrt())),
        "v_sqrt_f32" => |m, i| m.f1(i, |a| via_f64(a, f64::sqrt)),
        "v_exp_f32" => |m, i| m.f1(i, |a| via_f64(a, f64::exp2)),
        "v_log_f32" => |m, i| m.f1(i, |a| via_f64(a, f64::log2)),
        "v_sin_f32" => |m, i| m.f1(i, |a| via_f64(a, |x| (turn(x) * std::f64::consts::TAU).sin())),
        "v_cos_f32" => |m, i| m.f1(i, |a| via_f64(a, |x| (turn(x) * std::f64::consts::TAU).cos())),
        "v_trunc_f32" => |m, i| m.f1(i, f32::trunc),
        "v_ceil_f32" => |m, i| m.f1(i, f32::ceil),
        "v_floor_f32" => |m, i| m.f1(i, f32::floor),
        "v_rndne_f32" => |m, i| m.f1(i, f32::round_ties_even),
        "v_fract_f32" => |m, i| m.f1(i, fract),
        "v_ldexp_f32" => ldexp,
        "v_frexp_mant_f32" => |m, i| m.fb1(i, |a| frexp(a).0),
        "v_frexp_exp_i32_f32" => |m, i| m.f_to_u(i, |a| frexp(a.to_bits()).1 as u32),
        // `as` truncates, saturates, and makes 0 of NaN, as the hardware does.
        "v_cvt_u32_f32" => |m, i| m.f_to_u(i, |a| a as u32),
        "v_cvt_i32_f32" => |m, i| m.f_to_u(i, |a| a as i32 as u32),
        "v_cvt_rpi_i32_f32" => |m, i| m.f_to_u(i, |a| (f64::from(a) + 0.5).floor() as i32 as u32),
        "v_cvt_flr_i32_f32" => |m, i| m.f_to_u(i, |a| a.floor() as i32 as u32),
        "v_cvt_f32_u32" => |m, i| m.u_to_f(i, |a| a as f32),
        "v_cvt_f32_i32" => |m, i| m.u_to_f(i, |a| a as i32 as f32),
        "v_cvt_f32_ubyte0" => |m, i| m.u_to_f(i, |a| (a & 255) as f32),
        "v_cvt_f32_ubyte1" => |m, i| m.u_to_f(i, |a| (a >> 8 & 255) as f32),
        "v_cvt_f32_ubyte2" => |m, i| m.u_to_f(i, |a| (a >> 16 & 255) as f32),
        "v_cvt_f32_ubyte3" => |m, i| m.u_to_f(i, |a| (a >> 24) as f32),
        "v_div_scale_f32" => div_scale,
        "v_div_fmas_f32" => div_fmas,
        "v_div_fixup_f32" => |m, i| m.fb3(i, div_fixup),
        "v_dot2c_f32_f16" => |m, i| {
            let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
            let (a, b, c) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1), &m.w.v[i.d()]);
            let negate = |n: usize| if i.neg >> n & 1 == 1 { 0x8000_8000 } else { 0 };
            let (na, nb) = (negate(0), negate(1));
            let mut out = [0; LANES];
            for l in 0..LANES {
                out[l] = dot2(pair(a[l] ^ na), pair(b[l] ^ nb), c[l]);
            }
            m.put(i, &out);
            Ok(Flow::Next)
        },
        _ => return None,
    };
    Some(exec)
}

/// Both fp16 halves of a register.
#[inline(always)]
pub(super) fn pair(x: u32) -> [f32; 2] {
    [f16_to_f32(x as u16), f16_to_f32((x >> 16) as u16)]
}

fn fused(m: &mut Machine<'_>, i: &Inst, mut out: [u32; LANES]) -> Done {
    m.finish32(i, &mut out);
    m.put(i, &out);
    Ok(Flow::Next)
}

fn via_f64(a: f32, f: impl Fn(f64) -> f64) -> f32 {
    let a = f32::from_bits(flush32(a.to_bits()));
    f32::from_bits(flush32((f(f64::from(a)) as f32).to_bits()))
}

/// The argument of sine and cosine counts turns; whole ones do not matter.
fn turn(x: f64) -> f64 {
    x - x.floor()
}

fn fract(a: f32) -> f32 {
    if a.is_infinite() { f32::NAN } else { (a - a.floor()).min(f32::from_bits(0x3f7f_ffff)) }
}

fn is_nan(x: u32) -> bool {
    x & 0x7fff_ffff > 0x7f80_0000
}

fn is_signalling(x: u32) -> bool {
    is_nan(x) && x & 0x0040_0000 == 0
}

/// The IEEE mode's minimum: a signalling NaN gives NaN, a quiet one the other operand, and -0 is less than +0.
#[inline(always)]
pub(super) fn min(a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let ordered = if x < y {
        a
    } else if y < x {
        b
    } else {
        a | b
    };
    select_number(a, b, ordered)
}

#[inline(always)]
pub(super) fn max(a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let ordered = if x > y {
        a
    } else if y > x {
        b
    } else {
        a & b
    };
    select_number(a, b, ordered)
}

#[inline(always)]
fn select_number(a: u32, b: u32, ordered: u32) -> u32 {
    let bad = is_signalling(a) | is_signalling(b) | (is_nan(a) & is_nan(b));
    let number = if is_nan(a) {
        b
    } else if is_nan(b) {
        a
    } else {
        ordered
    };
    if bad { NAN32 } else { number }
}

fn med3(a: u32, b: u32, c: u32) -> u32 {
    if is_nan(a) || is_nan(b) || is_nan(c) {
        return min(min(a, b), c);
    }
    let most = max(max(a, b), c);
    if most == a {
        max(b, c)
    } else if most == b {
        max(a, c)
    } else {
        max(a, b)
    }
}

fn ldexp(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, e) = (m.floats(i, 0, &mut r0), m.lanes(i, 1, &mut r1));
    let mut out = std::array::from_fn(|l| canon32(scale(f32::from_bits(a[l]), e[l] as i32)));
    m.finish32(i, &mut out);
    m.put(i, &out);
    Ok(Flow::Next)
}

/// `value * 2^exponent`, rounded once.
fn scale(value: f32, exponent: i32) -> f32 {
    let exponent = exponent.clamp(-500, 500);
    let factor = f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52);
    (f64::from(value) * factor) as f32
}

/// Mantissa in [0.5, 1) with the sign, and exponent; both of zero, infinity and NaN are the value itself and 0.
fn frexp(bits: u32) -> (u32, i32) {
    let value = f32::from_bits(bits);
    if value == 0.0 || !value.is_finite() {
        return (if value.is_nan() { NAN32 } else { bits }, 0);
    }
    // Denormals are scaled up first.
    let (bits, bias) = if bits & 0x7f80_0000 == 0 { ((value * 33_554_432.0).to_bits(), 25) } else { (bits, 0) };
    ((bits & 0x807f_ffff) | 126 << 23, (bits >> 23 & 255) as i32 - 126 - bias)
}

fn exponent(bits: u32) -> i32 {
    (bits >> 23 & 255) as i32
}

fn is_denormal(value: f32) -> bool {
    value != 0.0 && value.abs() < f32::MIN_POSITIVE
}

/// Scales numerator or denominator (source 0) so that the division's Newton steps neither overflow nor go denormal.
fn div_scale(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
    let (s0, s1, s2) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1), m.floats(i, 2, &mut r2));
    let (mut out, mut flag) = ([0; LANES], [false; LANES]);
    for l in 0..LANES {
        (out[l], flag[l]) = scaled(s0[l], s1[l], s2[l]);
    }
    m.put(i, &out);
    m.put_mask(i.sdst, mask_of(|l| flag[l]));
    Ok(Flow::Next)
}

fn scaled(s0: u32, s1: u32, s2: u32) -> (u32, bool) {
    let (denominator, numerator) = (f32::from_bits(s1), f32::from_bits(s2));
    let by = |e: i32| canon32(scale(f32::from_bits(s0), e));
    if numerator == 0.0 || denominator == 0.0 {
        return (NAN32, false);
    }
    let reciprocal_denormal = is_denormal((1.0 / f64::from(denominator)) as f32);
    let quotient_denormal = is_denormal((f64::from(numerator) / f64::from(denominator)) as f32);
    if exponent(s2) - exponent(s1) >= 96 {
        (if s0 == s1 { by(64) } else { s0 }, true)
    } else if is_denormal(denominator) {
        (by(64), false)
    } else if reciprocal_denormal && quotient_denormal {
        (if s0 == s1 { by(64) } else { s0 }, true)
    } else if reciprocal_denormal {
        (by(-64), false)
    } else if quotient_denormal {
        (if s0 == s2 { by(64) } else { s0 }, true)
    } else if exponent(s2) <= 23 {
        (by(64), false)
    } else {
        (s0, false)
    }
}

fn div_fmas(m: &mut Machine<'_>, i: &Inst) -> Done {
    let mask = m.w.s[VCC];
    let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
    let (a, b, c) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1), m.floats(i, 2, &mut r2));
    let mut out = std::array::from_fn(|l| {
        let value = fma32(f32::from_bits(a[l]), f32::from_bits(b[l]), f32::from_bits(c[l]));
        canon32(if mask >> l & 1 == 1 { scale(value, 32) } else { value })
    });
    m.finish32(i, &mut out);
    m.put(i, &out);
    Ok(Flow::Next)
}

fn div_fixup(quotient: u32, denominator: u32, numerator: u32) -> u32 {
    let sign = (denominator ^ numerator) & 0x8000_0000;
    let (d, n) = (f32::from_bits(denominator), f32::from_bits(numerator));
    if d.is_nan() || n.is_nan() || d == 0.0 && n == 0.0 || d.is_infinite() && n.is_infinite() {
        NAN32
    } else if d == 0.0 || n.is_infinite() {
        sign | 0x7f80_0000
    } else if d.is_infinite() || n == 0.0 || exponent(numerator) - exponent(denominator) < -150 {
        sign
    } else {
        sign | quotient & 0x7fff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_and_maximum_of_special_values() {
        let (quiet, signalling, zero, minus_zero, one) = (0x7fc0_0001, 0x7f80_0001, 0, 0x8000_0000, 0x3f80_0000);
        assert_eq!(max(quiet, one), one);
        assert_eq!(max(one, quiet), one);
        assert_eq!(max(signalling, one), NAN32);
        assert_eq!(max(zero, minus_zero), zero);
        assert_eq!(min(zero, minus_zero), minus_zero);
        assert_eq!(min(quiet, quiet), NAN32);
        assert_eq!(med3(0x4040_0000, one, 0x4000_0000), 0x4000_0000);
    }

    #[test]
    fn mantissa_and_exponent() {
        assert_eq!(frexp(8.0_f32.to_bits()), (0.5_f32.to_bits(), 4));
        assert_eq!(frexp((-3.0_f32).to_bits()), ((-0.75_f32).to_bits(), 2));
        assert_eq!(frexp(1), (0.5_f32.to_bits(), -148));
        assert_eq!(fract(-0.25), 0.75);
        assert_eq!(fract(-1e-10), f32::from_bits(0x3f7f_ffff));
    }

    #[test]
    fn fixup_of_quotients() {
        let bits = |x: f32| x.to_bits();
        assert_eq!(div_fixup(bits(2.0), bits(-3.0), bits(6.0)), bits(-2.0));
        assert_eq!(div_fixup(0, bits(0.0), bits(-1.0)), bits(f32::NEG_INFINITY));
        assert_eq!(div_fixup(0, bits(0.0), bits(0.0)), NAN32);
        assert_eq!(div_fixup(NAN32, bits(f32::INFINITY), bits(1.0)), 0);
    }
}
