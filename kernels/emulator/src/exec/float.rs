//! Floating-point rules that the host's arithmetic does not give by itself.
//!
//! Every NaN that an instruction computes is the canonical quiet one, so that two hosts agree.

/// How a result is rounded; the MODE register's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    NearestEven,
    Up,
    Down,
    Zero,
}

impl Rounding {
    pub(crate) fn from_mode(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::NearestEven,
            1 => Self::Up,
            2 => Self::Down,
            _ => Self::Zero,
        }
    }
}

pub(crate) const NAN32: u32 = 0x7fc0_0000;
pub(crate) const NAN16: u16 = 0x7e00;
pub(crate) const NAN64: u64 = 0x7ff8_0000_0000_0000;

#[inline(always)]
pub(crate) fn canon32(value: f32) -> u32 {
    if value.is_nan() { NAN32 } else { value.to_bits() }
}

#[inline(always)]
pub(crate) fn canon64(value: f64) -> u64 {
    if value.is_nan() { NAN64 } else { value.to_bits() }
}

/// Zero of the same sign for a denormal.
#[inline(always)]
pub(crate) fn flush32(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

#[inline(always)]
pub(crate) fn flush16(bits: u16) -> u16 {
    if bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

/// Exact.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    // Moving exponent and fraction into place leaves the exponent 112 too small; a multiplication by 2^112 corrects it, and
    // makes denormals normal on the way.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let special = 0x7f80_0000 | magnitude << 13;
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { scaled.to_bits() })
}

/// The fp16 nearest to `value` in the sense of `rounding`, from all the bits of an f64.
pub(crate) fn f64_to_f16(value: f64, rounding: Rounding) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    if exponent == 1024 {
        return if value.is_nan() { NAN16 } else { sign | 0x7c00 };
    }
    if value == 0.0 {
        return sign;
    }
    // The value is fraction * 2^(exponent - 52); fp16 keeps 10 bits below the leading one, or everything above 2^-24.
    let fraction = bits & ((1 << 52) - 1) | u64::from(exponent > -1023) << 52;
    let drop = (42 + (-14 - exponent).max(0)).min(63) as u32;
    let (kept, rest, half) = (fraction >> drop, fraction & ((1 << drop) - 1), 1_u64 << (drop - 1));
    let up = match rounding {
        Rounding::NearestEven => rest > half || rest == half && kept & 1 == 1,
        Rounding::Up => rest != 0 && sign == 0,
        Rounding::Down => rest != 0 && sign != 0,
        Rounding::Zero => false,
    };
    let kept = kept as u32 + u32::from(up);
    // A carry out of the fraction raises the exponent by itself.
    let biased = if exponent < -14 { kept } else { kept + ((exponent + 14) as u32).min(40) * 1024 };
    if biased >= 0x7c00 {
        let to_infinity = match rounding {
            Rounding::NearestEven => true,
            Rounding::Up => sign == 0,
            Rounding::Down => sign != 0,
            Rounding::Zero => false,
        };
        return sign | if to_infinity { 0x7c00 } else { 0x7bff };
    }
    sign | biased as u16
}

/// Nearest even, from an f32: the form that vectorises least badly and is used most.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let normal = {
        // Round at bit 13, then move the exponent's bias from 127 to 15.
        let rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        (rounded.wrapping_sub(112 << 23) >> 13) as u16
    };
    // Adding 2^-1 * 2^0 aligns the denormal's bits at the bottom of the fraction, rounded by the addition itself.
    let small = ((f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits())) as u16;
    let magnitude16 = if magnitude > 0x7f80_0000 {
        return NAN16;
    } else if magnitude >= 0x477f_f000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        small
    } else {
        normal
    };
    sign | magnitude16
}

/// `a * b + c` rounded once. The product of two floats is exact in f64; the sum is made with round-to-odd, after which
/// the final rounding cannot go wrong (53 bits are more than twice 24 plus 2).
#[inline(always)]
pub(crate) fn fma32(a: f32, b: f32, c: f32) -> f32 {
    add_odd(f64::from(a) * f64::from(b), f64::from(c)) as f32
}

/// The sum rounded to odd: the exact sum if it fits, else whichever neighbour has its last bit set.
#[inline(always)]
pub(crate) fn add_odd(p: f64, c: f64) -> f64 {
    let sum = p + c;
    // What the rounding lost, exactly (two-sum).
    let c_part = sum - p;
    let lost = (p - (sum - c_part)) + (c - c_part);
    let bits = sum.to_bits();
    let inexact = lost.abs() > 0.0 && sum.abs() < f64::INFINITY;
    let away = (lost > 0.0) == (sum > 0.0);
    let step = if away { 1_i64 } else { -1 };
    let adjust = if inexact && bits & 1 == 0 { step } else { 0 };
    f64::from_bits(bits.wrapping_add(adjust as u64))
}

/// fp16 fused multiply-add, rounded once.
#[inline]
pub(crate) fn fma16(a: f32, b: f32, c: f32, rounding: Rounding) -> u16 {
    f64_to_f16(add_odd(f64::from(a) * f64::from(b), f64::from(c)), rounding)
}

/// [`fma32`] of 32 lanes. The f64 sum rounded to f32 is right unless it lies exactly between two floats, or the result is
/// denormal: those lanes are done again the slow way. Measured against doing all that way: about three times as fast.
#[inline]
pub(crate) fn fma_lanes(a: &[u32; 32], b: &[u32; 32], c: &[u32; 32]) -> [u32; 32] {
    let (mut out, mut again) = ([0; 32], [0_u32; 32]);
    for l in 0..32 {
        let [x, y, z] = [a[l], b[l], c[l]].map(|bits| f64::from(f32::from_bits(bits)));
        let sum = x * y + z;
        let (low, high) = (sum.to_bits() as u32, (sum.to_bits() >> 32) as u32);
        // 29 bits are dropped; below an exponent of -125 more are.
        let between = low & 0x1fff_ffff == 0x1000_0000;
        let small = high & 0x7ff0_0000 < (1023 - 125) << 20;
        again[l] = u32::from(between | small);
        out[l] = canon32(sum as f32);
    }
    if again.iter().fold(0, |any, &lane| any | lane) != 0 {
        for l in (0..32).filter(|&l| again[l] != 0) {
            out[l] = canon32(fma32(f32::from_bits(a[l]), f32::from_bits(b[l]), f32::from_bits(c[l])));
        }
    }
    out
}

/// fp16 dot product of two pairs plus an fp32 accumulator. AMD does not document how the sum is rounded. Here: the low
/// product is added first, then the high one, each addition rounded to nearest even; products of halves are exact in fp32, so
/// this is a chain of two fused multiply-adds. fp32 denormals are flushed on the accumulator and on the result, whatever MODE
/// says; fp16 denormals count.
#[inline(always)]
pub(crate) fn dot2(a: [f32; 2], b: [f32; 2], c: u32) -> u32 {
    let sum = (f32::from_bits(flush32(c)) + a[0] * b[0]) + a[1] * b[1];
    flush32(canon32(sum))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_convert_exactly_there_and_back() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if bits & 0x7fff > 0x7c00 {
                assert!(value.is_nan());
                continue;
            }
            assert_eq!(f32_to_f16(value), bits, "{bits:#06x} is {value}");
            for rounding in [Rounding::NearestEven, Rounding::Up, Rounding::Down, Rounding::Zero] {
                assert_eq!(f64_to_f16(f64::from(value), rounding), bits);
            }
        }
    }

    #[test]
    fn roundings_to_half() {
        // 1 + 2^-11 lies half-way between 0x3c00 and 0x3c01.
        let tie = 1.0 + 2_f64.powi(-11);
        assert_eq!(f64_to_f16(tie, Rounding::NearestEven), 0x3c00);
        assert_eq!(f64_to_f16(tie, Rounding::Up), 0x3c01);
        assert_eq!(f64_to_f16(tie + 1e-15, Rounding::NearestEven), 0x3c01);
        assert_eq!(f64_to_f16(-tie, Rounding::Down), 0xbc01);
        assert_eq!(f64_to_f16(65520.0, Rounding::NearestEven), 0x7c00);
        assert_eq!(f64_to_f16(65519.9, Rounding::NearestEven), 0x7bff);
        assert_eq!(f64_to_f16(1e9, Rounding::Zero), 0x7bff);
        assert_eq!(f64_to_f16(2_f64.powi(-25), Rounding::NearestEven), 0);
        assert_eq!(f64_to_f16(2_f64.powi(-25), Rounding::Up), 1);
        assert_eq!(f64_to_f16(f64::MIN_POSITIVE / 4.0, Rounding::Up), 1);
        assert_eq!(f64_to_f16(f64::NAN, Rounding::Zero), NAN16);
    }

    fn any_float() -> impl Strategy<Value = f32> {
        prop_oneof![any::<u32>().prop_map(f32::from_bits), (-1000_i32..1000).prop_map(|x| x as f32 * 0.125)]
    }

    proptest! {
        #[test]
        fn half_from_f32_agrees_with_half_from_f64(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assert_eq!(f32_to_f16(value), f64_to_f16(f64::from(value), Rounding::NearestEven));
        }

        #[test]
        fn fma_is_the_hosts(a in any_float(), b in any_float(), c in any_float()) {
            prop_assert_eq!(canon32(fma32(a, b, c)), canon32(a.mul_add(b, c)), "{} {} {}", a, b, c);
        }

        #[test]
        fn fma_of_lanes_is_the_hosts(seeds in proptest::array::uniform3(any::<u64>()), few in any::<bool>()) {
            // Few bits make exact ties likely.
            let lanes = |seed: u64| -> [u32; 32] {
                std::array::from_fn(|l| {
                    let bits = (seed.rotate_left(l as u32 * 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
                    if few { bits & 0x83e0_1000 | 0x3e00_0000 } else { bits }
                })
            };
            let [a, b, c] = seeds.map(lanes);
            let found = fma_lanes(&a, &b, &c);
            for l in 0..32 {
                let want = f32::from_bits(a[l]).mul_add(f32::from_bits(b[l]), f32::from_bits(c[l]));
                prop_assert_eq!(found[l], canon32(want));
            }
        }

        /// Any order and any rounding of three exact terms stays within two units in the last place of the largest.
        #[test]
        fn dot2_is_near_the_exact_sum(a in any::<[u16; 2]>(), b in any::<[u16; 2]>(), c in -1e5_f32..1e5) {
            let finite = |x: u16| f16_to_f32(if x & 0x7c00 == 0x7c00 { x & !0x4000 } else { x });
            let (a, b) = (a.map(finite), b.map(finite));
            let terms = [f64::from(a[0]) * f64::from(b[0]), f64::from(a[1]) * f64::from(b[1]), f64::from(c)];
            let largest = terms.iter().fold(0.0_f64, |most, term| most.max(term.abs()));
            let found = f64::from(f32::from_bits(dot2(a, b, c.to_bits())));
            let exact: f64 = terms.iter().sum();
            prop_assert!((found - exact).abs() <= largest * 2_f64.powi(-22), "{found} {exact}");
        }

        #[test]
        fn fma_near_cancellation(a in any::<u32>(), b in any::<u32>(), ulps in -3_i32..3) {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            let c = f32::from_bits((-(a * b)).to_bits().wrapping_add(ulps as u32));
            prop_assert_eq!(canon32(fma32(a, b, c)), canon32(a.mul_add(b, c)), "{} {} {}", a, b, c);
        }
    }
}
