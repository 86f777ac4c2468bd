//! v_cmp and v_cmpx. The name holds the condition and the type; the executor is chosen from both.

use super::float::f16_to_f32;
use super::inst::Inst;
use super::machine::{Exec, LANES, Lanes, Machine};
use super::valu::{Done, Halves};

/// The six conditions of integers, and the two constants.
macro_rules! integers {
    ($condition:expr, $fetch:ident, $as:ty) => {{
        let exec: Exec = match $condition {
            "f" => |m, i| m.put_compare(i, 0),
            "t" => |m, i| m.put_compare(i, u32::MAX),
            "lt" => |m, i| $fetch(m, i, |a, b| (a as $as) < (b as $as)),
            "le" => |m, i| $fetch(m, i, |a, b| (a as $as) <= (b as $as)),
            "gt" => |m, i| $fetch(m, i, |a, b| (a as $as) > (b as $as)),
            "ge" => |m, i| $fetch(m, i, |a, b| (a as $as) >= (b as $as)),
            "eq" => |m, i| $fetch(m, i, |a, b| a == b),
            "ne" => |m, i| $fetch(m, i, |a, b| a != b),
            _ => return None,
        };
        Some(exec)
    }};
}

/// Conditions of floats: an `n` in front negates, so it holds for NaN too.
macro_rules! floats {
    ($condition:expr, $fetch:ident) => {{
        let exec: Exec = match $condition {
            "f" => |m, i| m.put_compare(i, 0),
            "tru" => |m, i| m.put_compare(i, u32::MAX),
            "lt" => |m, i| $fetch(m, i, |a, b| a < b),
            "le" => |m, i| $fetch(m, i, |a, b| a <= b),
            "gt" => |m, i| $fetch(m, i, |a, b| a > b),
            "ge" => |m, i| $fetch(m, i, |a, b| a >= b),
            "eq" => |m, i| $fetch(m, i, |a, b| a == b),
            "lg" => |m, i| $fetch(m, i, |a, b| a != b && !a.is_nan() && !b.is_nan()),
            "o" => |m, i| $fetch(m, i, |a, b| !a.is_nan() && !b.is_nan()),
            "u" => |m, i| $fetch(m, i, |a, b| a.is_nan() || b.is_nan()),
            "nge" => |m, i| $fetch(m, i, |a, b| !(a >= b)),
            "nlg" => |m, i| $fetch(m, i, |a, b| a == b || a.is_nan() || b.is_nan()),
            "ngt" => |m, i| $fetch(m, i, |a, b| !(a > b)),
            "nle" => |m, i| $fetch(m, i, |a, b| !(a <= b)),
            "neq" => |m, i| $fetch(m, i, |a, b| a != b),
            "nlt" => |m, i| $fetch(m, i, |a, b| !(a < b)),
            _ => return None,
        };
        Some(exec)
    }};
}

#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "the negation differs from the opposite for NaN, which is the point"
)]
pub(super) fn lookup(name: &str) -> Option<Exec> {
    let rest = name.strip_prefix("v_cmpx_").or_else(|| name.strip_prefix("v_cmp_"))?;
    let (condition, kind) = rest.rsplit_once('_')?;
    if condition == "class" {
        return match kind {
            "f32" => Some(class32),
            "f16" => Some(class16),
            "f64" => Some(class64),
            _ => None,
        };
    }
    match kind {
        "f32" => floats!(condition, of_f32),
        "f16" => floats!(condition, of_f16),
        "f64" => floats!(condition, of_f64),
        "i32" => integers!(condition, of_u32, i32),
        "u32" => integers!(condition, of_u32, u32),
        "i16" => integers!(condition, of_u16, i16),
        "u16" => integers!(condition, of_u16, u16),
        "i64" => integers!(condition, of_u64, i64),
        "u64" => integers!(condition, of_u64, u64),
        _ => None,
    }
}

#[inline(always)]
fn of_u32(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u32, u32) -> bool) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1));
    let mask = super::machine::mask_of(|l| f(a[l], b[l]));
    m.put_compare(i, mask)
}

#[inline(always)]
fn of_f32(m: &mut Machine<'_>, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b): (&Lanes, &Lanes) = (m.floats(i, 0, &mut r0), m.floats(i, 1, &mut r1));
    let mask = super::machine::mask_of(|l| f(f32::from_bits(a[l]), f32::from_bits(b[l])));
    m.put_compare(i, mask)
}

#[inline(always)]
fn of_u16(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u16, u16) -> bool) -> Done {
    let (a, b): (Halves, Halves) = (m.halves(i, 0, false), m.halves(i, 1, false));
    m.compare(i, |l| f(a[l], b[l]))
}

#[inline(always)]
fn of_f16(m: &mut Machine<'_>, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Done {
    let (a, b) = (m.halves(i, 0, true), m.halves(i, 1, true));
    m.compare(i, |l| f(f16_to_f32(a[l]), f16_to_f32(b[l])))
}

#[inline(always)]
fn of_u64(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u64, u64) -> bool) -> Done {
    let (a, b) = (m.lanes64(i, 0), m.lanes64(i, 1));
    m.compare(i, |l| f(a[l], b[l]))
}

#[inline(always)]
fn of_f64(m: &mut Machine<'_>, i: &Inst, f: impl Fn(f64, f64) -> bool) -> Done {
    let (a, b) = (m.doubles(i, 0), m.doubles(i, 1));
    m.compare(i, |l| f(f64::from_bits(a[l]), f64::from_bits(b[l])))
}

/// The bit of the class mask: signalling NaN 0, quiet NaN 1, -inf 2, -normal 3, -denormal 4, -0 5, +0 6, and up.
fn class(sign: bool, nan: bool, quiet: bool, infinite: bool, denormal: bool, zero: bool) -> u32 {
    let bit = match (nan, infinite, zero, denormal) {
        (true, ..) => return 1 << u32::from(quiet),
        (_, true, ..) => 2,
        (_, _, true, _) => 5,
        (_, _, _, true) => 4,
        _ => 3,
    };
    1 << if sign { bit } else { 11 - bit }
}

fn class32(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b) = (*m.floats(i, 0, &mut r0), *m.lanes(i, 1, &mut r1));
    m.compare(i, |l| class_of(u64::from(a[l]), 8, 23) & b[l] != 0)
}

fn class16(m: &mut Machine<'_>, i: &Inst) -> Done {
    let a = m.halves(i, 0, true);
    let mut r1 = [0; LANES];
    let b = *m.lanes(i, 1, &mut r1);
    m.compare(i, |l| class_of(u64::from(a[l]), 5, 10) & b[l] != 0)
}

fn class64(m: &mut Machine<'_>, i: &Inst) -> Done {
    let a = m.doubles(i, 0);
    let mut r1 = [0; LANES];
    let b = *m.lanes(i, 1, &mut r1);
    m.compare(i, |l| class_of(a[l], 11, 52) & b[l] != 0)
}

fn class_of(bits: u64, exponent_bits: u32, fraction_bits: u32) -> u32 {
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let full = exponent == (1 << exponent_bits) - 1;
    class(
        bits >> (exponent_bits + fraction_bits) & 1 == 1,
        full && fraction != 0,
        fraction >> (fraction_bits - 1) & 1 == 1,
        full,
        exponent == 0 && fraction != 0,
        exponent == 0 && fraction == 0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let of = |x: f32| class_of(u64::from(x.to_bits()), 8, 23).trailing_zeros();
        assert_eq!(of(f32::NEG_INFINITY), 2);
        assert_eq!(of(-1.0), 3);
        assert_eq!(of(-1e-40), 4);
        assert_eq!(of(-0.0), 5);
        assert_eq!(of(0.0), 6);
        assert_eq!(of(1e-40), 7);
        assert_eq!(of(1.0), 8);
        assert_eq!(of(f32::INFINITY), 9);
        assert_eq!(class_of(0x7fc0_0000, 8, 23), 2);
        assert_eq!(class_of(0x7f80_0001, 8, 23), 1);
        assert_eq!(class_of(0x7c00, 5, 10), 1 << 9);
    }
}
