//! 32-bit and 64-bit integer, bit and address arithmetic.

use super::inst::Inst;
use super::machine::{Exec, LANES, Lanes, Machine, mask_of};
use super::trap::Flow;
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "v_nop" | "v_pipeflush" | "v_clrexcp" => |_, _| Ok(Flow::Next),
        "v_mov_b32" => |m, i| m.u1(i, |a| a),
        "v_not_b32" => |m, i| m.u1(i, |a| !a),
        "v_bfrev_b32" => |m, i| m.u1(i, u32::reverse_bits),
        "v_ffbh_u32" => |m, i| m.u1(i, |a| if a == 0 { u32::MAX } else { a.leading_zeros() }),
        "v_ffbl_b32" => |m, i| m.u1(i, |a| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
        "v_ffbh_i32" => |m, i| m.u1(i, leading_sign_bits),
        "v_and_b32" => |m, i| m.u2(i, |a, b| a & b),
        "v_or_b32" => |m, i| m.u2(i, |a, b| a | b),
        "v_xor_b32" => |m, i| m.u2(i, |a, b| a ^ b),
        "v_xnor_b32" => |m, i| m.u2(i, |a, b| !(a ^ b)),
        "v_lshlrev_b32" => |m, i| m.u2(i, |a, b| b << (a & 31)),
        "v_lshrrev_b32" => |m, i| m.u2(i, |a, b| b >> (a & 31)),
        "v_ashrrev_i32" => |m, i| m.u2(i, |a, b| (b as i32 >> (a & 31)) as u32),
        "v_min_i32" => |m, i| m.u2(i, |a, b| (a as i32).min(b as i32) as u32),
        "v_max_i32" => |m, i| m.u2(i, |a, b| (a as i32).max(b as i32) as u32),
        "v_min_u32" => |m, i| m.u2(i, u32::min),
        "v_max_u32" => |m, i| m.u2(i, u32::max),
        "v_add_nc_u32" => |m, i| if i.clamp { m.u2(i, u32::saturating_add) } else { m.u2(i, u32::wrapping_add) },
        "v_sub_nc_u32" => |m, i| if i.clamp { m.u2(i, u32::saturating_sub) } else { m.u2(i, u32::wrapping_sub) },
        "v_subrev_nc_u32" => {
            |m, i| if i.clamp { m.u2(i, |a, b| b.saturating_sub(a)) } else { m.u2(i, |a, b| b.wrapping_sub(a)) }
        }
        "v_add_nc_i32" => |m, i| signed(m, i, i32::saturating_add, i32::wrapping_add),
        "v_sub_nc_i32" => |m, i| signed(m, i, i32::saturating_sub, i32::wrapping_sub),
        "v_mul_lo_u32" => |m, i| m.u2(i, u32::wrapping_mul),
        "v_mul_hi_u32" => |m, i| m.u2(i, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        "v_mul_hi_i32" => |m, i| m.u2(i, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        "v_mul_u32_u24" => |m, i| m.u2(i, |a, b| u24(a).wrapping_mul(u24(b))),
        "v_mul_hi_u32_u24" => |m, i| m.u2(i, |a, b| ((u64::from(u24(a)) * u64::from(u24(b))) >> 32) as u32),
        "v_mul_i32_i24" => |m, i| m.u2(i, |a, b| i24(a).wrapping_mul(i24(b)) as u32),
        "v_mul_hi_i32_i24" => |m, i| m.u2(i, |a, b| ((i64::from(i24(a)) * i64::from(i24(b))) >> 32) as u32),
        "v_mad_u32_u24" => |m, i| m.u3(i, |a, b, c| u24(a).wrapping_mul(u24(b)).wrapping_add(c)),
        "v_mad_i32_i24" => |m, i| m.u3(i, |a, b, c| (i24(a).wrapping_mul(i24(b)) as u32).wrapping_add(c)),
        "v_bcnt_u32_b32" => |m, i| m.u2(i, |a, b| a.count_ones().wrapping_add(b)),
        "v_bfm_b32" => |m, i| m.u2(i, |a, b| ((1_u32 << (a & 31)) - 1) << (b & 31)),
        "v_bfe_u32" => |m, i| m.u3(i, |a, b, c| (a >> (b & 31)) & ((1_u32 << (c & 31)) - 1)),
        "v_bfe_i32" => |m, i| m.u3(i, bfe_i32),
        "v_bfi_b32" => |m, i| m.u3(i, |a, b, c| a & b | !a & c),
        "v_alignbit_b32" => |m, i| m.u3(i, |a, b, c| (wide(a, b) >> (c & 31)) as u32),
        "v_alignbyte_b32" => |m, i| m.u3(i, |a, b, c| (wide(a, b) >> (8 * (c & 3))) as u32),
        "v_perm_b32" => |m, i| m.u3(i, perm),
        "v_xad_u32" => |m, i| m.u3(i, |a, b, c| (a ^ b).wrapping_add(c)),
        "v_lshl_add_u32" => |m, i| m.u3(i, |a, b, c| (a << (b & 31)).wrapping_add(c)),
        "v_add_lshl_u32" => |m, i| m.u3(i, |a, b, c| a.wrapping_add(b) << (c & 31)),
        "v_add3_u32" => |m, i| m.u3(i, |a, b, c| a.wrapping_add(b).wrapping_add(c)),
        "v_lshl_or_b32" => |m, i| m.u3(i, |a, b, c| a << (b & 31) | c),
        "v_and_or_b32" => |m, i| m.u3(i, |a, b, c| a & b | c),
        "v_or3_b32" => |m, i| m.u3(i, |a, b, c| a | b | c),
        "v_xor3_b32" => |m, i| m.u3(i, |a, b, c| a ^ b ^ c),
        "v_min3_i32" => |m, i| m.u3(i, |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32),
        "v_max3_i32" => |m, i| m.u3(i, |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32),
        "v_min3_u32" => |m, i| m.u3(i, |a, b, c| a.min(b).min(c)),
        "v_max3_u32" => |m, i| m.u3(i, |a, b, c| a.max(b).max(c)),
        "v_med3_i32" => |m, i| m.u3(i, |a, b, c| med3(a as i32, b as i32, c as i32) as u32),
        "v_med3_u32" => |m, i| m.u3(i, med3),
        "v_sad_u8" => |m, i| m.u3(i, sad_u8),
        "v_sad_u32" => |m, i| m.u3(i, |a, b, c| a.abs_diff(b).wrapping_add(c)),
        "v_cvt_pk_u16_u32" => |m, i| m.u2(i, |a, b| a.min(0xffff) | b.min(0xffff) << 16),
        "v_cvt_pk_i16_i32" => |m, i| m.u2(i, |a, b| saturate16(a) | saturate16(b) << 16),
        "v_mbcnt_lo_u32_b32" => mbcnt_lo,
        // There are no lanes above 31 in wave32.
        "v_mbcnt_hi_u32_b32" => |m, i| m.u2(i, |_, b| b),
        "v_cndmask_b32" => cndmask,
        "v_add_co_u32" => |m, i| carry(m, i, 2, |a, b, _| a.overflowing_add(b)),
        "v_sub_co_u32" => |m, i| carry(m, i, 2, |a, b, _| a.overflowing_sub(b)),
        "v_subrev_co_u32" => |m, i| carry(m, i, 2, |a, b, _| b.overflowing_sub(a)),
        "v_add_co_ci_u32" => |m, i| carry(m, i, 3, |a, b, c| a.carrying_add(b, c)),
        "v_sub_co_ci_u32" => |m, i| carry(m, i, 3, |a, b, c| a.borrowing_sub(b, c)),
        "v_subrev_co_ci_u32" => |m, i| carry(m, i, 3, |a, b, c| b.borrowing_sub(a, c)),
        "v_mad_u64_u32" => |m, i| mad64(m, i, |a, b, c| (u64::from(a) * u64::from(b)).overflowing_add(c)),
        "v_mad_i64_i32" => |m, i| {
            mad64(m, i, |a, b, c| {
                let (sum, over) = (i64::from(a as i32) * i64::from(b as i32)).overflowing_add(c as i64);
                (sum as u64, over)
            })
        },
        "v_lshlrev_b64" => |m, i| shift64(m, i, |by, x| x << by),
        "v_lshrrev_b64" => |m, i| shift64(m, i, |by, x| x >> by),
        "v_ashrrev_i64" => |m, i| shift64(m, i, |by, x| (x as i64 >> by) as u64),
        "v_dot4c_i32_i8" => |m, i| {
            let old = m.w.v[i.d()];
            let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
            let (a, b) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1));
            let out = std::array::from_fn(|l| dot4_i8(a[l], b[l], old[l]));
            m.put(i, &out);
            Ok(Flow::Next)
        },
        "v_dot4_i32_i8" => |m, i| m.u3(i, dot4_i8),
        "v_dot4_u32_u8" => |m, i| {
            m.u3(i, |a, b, c| (0..4).fold(c, |sum, k| sum.wrapping_add((a >> (8 * k) & 255) * (b >> (8 * k) & 255))))
        },
        _ => return None,
    };
    Some(exec)
}

fn u24(x: u32) -> u32 {
    x & 0x00ff_ffff
}

fn i24(x: u32) -> i32 {
    (x << 8) as i32 >> 8
}

fn wide(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// How many of the highest bits equal the sign, or -1 if all do.
pub(super) fn leading_sign_bits(a: u32) -> u32 {
    let n = (a ^ (a as i32 >> 31) as u32).leading_zeros();
    if n == 32 { u32::MAX } else { n }
}

pub(super) fn bfe_i32(a: u32, offset: u32, width: u32) -> u32 {
    let (offset, width) = (offset & 31, width & 31);
    if width == 0 {
        return 0;
    }
    if offset + width >= 32 {
        return (a as i32 >> offset) as u32;
    }
    ((a >> offset << (32 - width)) as i32 >> (32 - width)) as u32
}

/// Bytes 0 to 3 of the second source, 4 to 7 of the first; 8 to 11 signs; 12 zero; above all ones.
fn perm(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = wide(a, b);
    (0..4).fold(0, |out, k| {
        let byte = match selector >> (8 * k) & 255 {
            n @ 0..=7 => (bytes >> (8 * n)) as u32 & 255,
            n @ 8..=11 => 255 * ((bytes >> (16 * (n - 8) + 15)) as u32 & 1),
            12 => 0,
            _ => 255,
        };
        out | byte << (8 * k)
    })
}

fn med3<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.max(b).min(a.min(b).max(c))
}

fn sad_u8(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(c, |sum, k| sum.wrapping_add((a >> (8 * k) & 255).abs_diff(b >> (8 * k) & 255)))
}

fn saturate16(x: u32) -> u32 {
    (x as i32).clamp(-0x8000, 0x7fff) as u32 & 0xffff
}

fn dot4_i8(a: u32, b: u32, c: u32) -> u32 {
    let byte = |x: u32, k: u32| i32::from((x >> (8 * k)) as u8 as i8);
    (0..4).fold(c, |sum, k| sum.wrapping_add((byte(a, k) * byte(b, k)) as u32))
}

fn signed(m: &mut Machine<'_>, i: &Inst, saturating: fn(i32, i32) -> i32, wrapping: fn(i32, i32) -> i32) -> Done {
    let f = if i.clamp { saturating } else { wrapping };
    m.u2(i, |a, b| f(a as i32, b as i32) as u32)
}

fn mbcnt_lo(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1));
    let out = std::array::from_fn(|l| (a[l] & ((1 << l) - 1)).count_ones().wrapping_add(b[l]));
    m.put(i, &out);
    Ok(Flow::Next)
}

fn cndmask(m: &mut Machine<'_>, i: &Inst) -> Done {
    let mask = m.s32(i, 2);
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    // Sign modifiers apply, flushing does not: the bits pass through.
    let modified = |n: usize, lanes: &Lanes| -> Lanes {
        let (and, xor) = (if i.abs >> n & 1 == 1 { u32::MAX >> 1 } else { u32::MAX }, u32::from(i.neg >> n & 1) << 31);
        lanes.map(|x| x & and ^ xor)
    };
    let a = modified(0, m.lanes(i, 0, &mut r0));
    let b = modified(1, m.lanes(i, 1, &mut r1));
    let mut out = a;
    super::machine::put_masked(&mut out, mask, &b);
    m.put(i, &out);
    Ok(Flow::Next)
}

/// Adds or subtracts with the carry as a mask of lanes.
#[inline(always)]
fn carry(m: &mut Machine<'_>, i: &Inst, n: usize, f: impl Fn(u32, u32, bool) -> (u32, bool)) -> Done {
    let carry_in = if n == 3 { m.s32(i, 2) } else { 0 };
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1));
    let (mut out, mut over) = ([0; LANES], [false; LANES]);
    for l in 0..LANES {
        (out[l], over[l]) = f(a[l], b[l], carry_in >> l & 1 == 1);
    }
    m.put(i, &out);
    m.put_mask(i.sdst, mask_of(|l| over[l]));
    Ok(Flow::Next)
}

#[inline(always)]
fn mad64(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u32, u32, u64) -> (u64, bool)) -> Done {
    let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
    let (a, b, c) = (m.lanes(i, 0, &mut r0), m.lanes(i, 1, &mut r1), m.lanes64(i, 2));
    let (mut out, mut over) = ([0; LANES], [false; LANES]);
    for l in 0..LANES {
        (out[l], over[l]) = f(a[l], b[l], c[l]);
    }
    m.put64(i, &out);
    m.put_mask(i.sdst, mask_of(|l| over[l]));
    Ok(Flow::Next)
}

#[inline(always)]
fn shift64(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u32, u64) -> u64) -> Done {
    let mut room = [0; LANES];
    let (by, x) = (m.lanes(i, 0, &mut room), m.lanes64(i, 1));
    let out = std::array::from_fn(|l| f(by[l] & 63, x[l]));
    m.put64(i, &out);
    Ok(Flow::Next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_fields() {
        assert_eq!(bfe_i32(0x0000_0f80, 7, 5), u32::MAX);
        assert_eq!(bfe_i32(0x0000_0f80, 7, 6), 0x1f);
        assert_eq!(bfe_i32(0x8000_0000, 28, 10), 0xffff_fff8);
        assert_eq!(bfe_i32(0xffff_ffff, 3, 0), 0);
        assert_eq!(leading_sign_bits(0), u32::MAX);
        assert_eq!(leading_sign_bits(0xffff_0000), 16);
        assert_eq!(leading_sign_bits(1), 31);
    }

    #[test]
    fn byte_permutation() {
        assert_eq!(perm(0x7766_5544, 0x3322_1100, 0x0704_0300), 0x7744_3300);
        assert_eq!(perm(0x8000_0000, 0x0000_8000, 0x0d0c_0b08), 0xff00_ffff);
        assert_eq!(perm(0, 0x8000_0000, 0x0a_09_08_0c), 0x00ff_0000);
    }
}
