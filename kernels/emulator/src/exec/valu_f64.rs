//! fp64 arithmetic: the host's, rounded to nearest even.

use super::inst::Inst;
use super::machine::{Exec, LANES, Machine, VCC, mask_of};
use super::trap::Flow;
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_add_f64" => |m, i| m.d2(i, |a, b| a + b),
        "v_mul_f64" => |m, i| m.d2(i, |a, b| a * b),
        "v_min_f64" => |m, i| m.d2(i, |a, b| if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }),
        "v_max_f64" => |m, i| m.d2(i, |a, b| if a == b { if a.is_sign_negative() { b } else { a } } else { a.max(b) }),
        "v_fma_f64" => |m, i| m.d3(i, f64::mul_add),
        "v_rcp_f64" => |m, i| m.d1(i, |a| 1.0 / a),
        "v_rsq_f64" => |m, i| m.d1(i, |a| 1.0 / a.sqrt()),
        "v_sqrt_f64" => |m, i| m.d1(i, f64::sqrt),
        "v_trunc_f64" => |m, i| m.d1(i, f64::trunc),
        "v_ceil_f64" => |m, i| m.d1(i, f64::ceil),
        "v_floor_f64" => |m, i| m.d1(i, f64::floor),
        "v_rndne_f64" => |m, i| m.d1(i, f64::round_ties_even),
        "v_fract_f64" => |m, i| m.d1(i, |a| (a - a.floor()).min(1.0 - f64::EPSILON / 2.0)),
        "v_ldexp_f64" => |m, i| {
            let a = m.doubles(i, 0);
            let mut room = [0; LANES];
            let e = *m.lanes(i, 1, &mut room);
            m.put_double(i, std::array::from_fn(|l| scale(f64::from_bits(a[l]), e[l] as i32)))
        },
        "v_cvt_f64_f32" => |m, i| {
            let mut room = [0; LANES];
            let a = *m.floats(i, 0, &mut room);
            m.put_double(i, a.map(|x| f64::from(f32::from_bits(x))))
        },
        "v_cvt_f64_i32" => |m, i| {
            let mut room = [0; LANES];
            let a = *m.lanes(i, 0, &mut room);
            m.put_double(i, a.map(|x| f64::from(x as i32)))
        },
        "v_cvt_f64_u32" => |m, i| {
            let mut room = [0; LANES];
            let a = *m.lanes(i, 0, &mut room);
            m.put_double(i, a.map(f64::from))
        },
        "v_cvt_f32_f64" => |m, i| {
            let a = m.doubles(i, 0);
            let mut out = a.map(|x| super::float::canon32(f64::from_bits(x) as f32));
            m.finish32(i, &mut out);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_cvt_i32_f64" => |m, i| {
            let out = m.doubles(i, 0).map(|x| f64::from_bits(x) as i32 as u32);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_cvt_u32_f64" => |m, i| {
            let out = m.doubles(i, 0).map(|x| f64::from_bits(x) as u32);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_frexp_exp_i32_f64" => |m, i| {
            let out = m.doubles(i, 0).map(|x| frexp(f64::from_bits(x)).1 as u32);
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_frexp_mant_f64" => |m, i| m.d1(i, |a| frexp(a).0),
        "v_div_scale_f64" => div_scale,
        "v_div_fmas_f64" => |m, i| {
            let mask = m.w.s[VCC];
            let (a, b, c) = (m.doubles(i, 0), m.doubles(i, 1), m.doubles(i, 2));
            let value = |l: usize| {
                let fma = f64::from_bits(a[l]).mul_add(f64::from_bits(b[l]), f64::from_bits(c[l]));
                if mask >> l & 1 == 1 { scale(fma, 64) } else { fma }
            };
            m.put_double(i, std::array::from_fn(value))
        },
        "v_div_fixup_f64" => |m, i| m.d3(i, div_fixup),
        _ => return None,
    };
    Some(exec)
}

/// `value * 2^exponent`, rounded once: only the last step can leave the normal range.
fn scale(value: f64, exponent: i32) -> f64 {
    let mut exponent = exponent.clamp(-2300, 2300);
    let mut value = value;
    let power = |e: i32| f64::from_bits(((1023 + e) as u64) << 52);
    while exponent > 1000 {
        value *= power(1000);
        exponent -= 1000;
    }
    if exponent >= -1000 {
        return value * power(exponent);
    }
    // Bring a normal value down while it stays normal, so that bits are lost once.
    let own = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let safe = (-1000 - own).min(0).max(exponent + 1000).max(-1000);
    let rest = exponent - safe;
    value * power(safe) * power(rest.max(-1022)) * power((rest + 1022).clamp(-1022, 0))
}

fn frexp(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, bias) = if value.abs() < f64::MIN_POSITIVE { (value * 2_f64.powi(60), 60) } else { (value, 0) };
    let bits = value.to_bits();
    let mantissa = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    (mantissa, (bits >> 52 & 0x7ff) as i32 - 1022 - bias)
}

fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32
}

fn is_denormal(value: f64) -> bool {
    value != 0.0 && value.abs() < f64::MIN_POSITIVE
}

fn div_scale(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (s0, s1, s2) = (m.doubles(i, 0), m.doubles(i, 1), m.doubles(i, 2));
    let all: [(f64, bool); LANES] =
        std::array::from_fn(|l| scaled(f64::from_bits(s0[l]), f64::from_bits(s1[l]), f64::from_bits(s2[l])));
    m.put_double(i, all.map(|(value, _)| value))?;
    m.put_mask(i.sdst, mask_of(|l| all[l].1));
    Ok(Flow::Next)
}

fn scaled(s0: f64, denominator: f64, numerator: f64) -> (f64, bool) {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    if numerator == 0.0 || denominator == 0.0 {
        return (f64::NAN, false);
    }
    let (reciprocal, quotient) = (is_denormal(1.0 / denominator), is_denormal(numerator / denominator));
    if exponent(numerator) - exponent(denominator) >= 768 {
        (if same(s0, denominator) { scale(s0, 128) } else { s0 }, true)
    } else if is_denormal(denominator) {
        (scale(s0, 128), false)
    } else if reciprocal && quotient {
        (if same(s0, denominator) { scale(s0, 128) } else { s0 }, true)
    } else if reciprocal {
        (scale(s0, -128), false)
    } else if quotient {
        (if same(s0, numerator) { scale(s0, 128) } else { s0 }, true)
    } else if exponent(numerator) <= 53 {
        (scale(s0, 128), false)
    } else {
        (s0, false)
    }
}

fn div_fixup(quotient: f64, d: f64, n: f64) -> f64 {
    let sign = if d.is_sign_negative() == n.is_sign_negative() { 1.0 } else { -1.0 };
    if d.is_nan() || n.is_nan() || d == 0.0 && n == 0.0 || d.is_infinite() && n.is_infinite() {
        f64::NAN
    } else if d == 0.0 || n.is_infinite() {
        sign * f64::INFINITY
    } else if d.is_infinite() || n == 0.0 || exponent(n) - exponent(d) < -1075 {
        sign * 0.0
    } else {
        sign * quotient.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_rounds_once() {
        assert_eq!(scale(3.0, 4), 48.0);
        assert_eq!(scale(1.0, -1074), f64::from_bits(1));
        assert_eq!(scale(1.5, -1074), f64::from_bits(2));
        assert_eq!(scale(f64::from_bits(0x3ff8_0000_0000_0001), -1074), f64::from_bits(2));
        assert_eq!(scale(f64::from_bits(0x3ff7_ffff_ffff_ffff), -1074), f64::from_bits(1));
        assert_eq!(scale(f64::from_bits(1), 2000), 2_f64.powi(926));
        assert_eq!(scale(1.0, -5000), 0.0);
        assert_eq!(frexp(-6.0), (-0.75, 3));
    }
}
