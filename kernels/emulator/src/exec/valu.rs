//! The shapes of vector instructions: how many sources of which type, one result. Each is generic over the operation, so
//! that every instruction becomes one loop over 32 lanes that the compiler can vectorise.

use super::float::{self, Rounding, canon32, canon64, f16_to_f32, f32_to_f16, f64_to_f16, flush16};
use super::inst::{Inst, Tail};
use super::machine::{EXEC, LANES, Lanes, Machine, mask_of};
use super::trap::{Flow, Trap};

pub(super) type Done = Result<Flow, Box<Trap>>;

/// One fp16 register half a lane.
pub(super) type Halves = [u16; LANES];

impl Machine<'_> {
    #[inline(always)]
    pub(super) fn u1(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Done {
        let mut room = [0; LANES];
        let a = self.lanes(i, 0, &mut room);
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l]);
        }
        self.put(i, &out);
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn u2(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
        let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
        let (a, b) = (self.lanes(i, 0, &mut r0), self.lanes(i, 1, &mut r1));
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l], b[l]);
        }
        self.put(i, &out);
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn u3(&mut self, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
        let (a, b, c) = (self.lanes(i, 0, &mut r0), self.lanes(i, 1, &mut r1), self.lanes(i, 2, &mut r2));
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l], b[l], c[l]);
        }
        self.put(i, &out);
        Ok(Flow::Next)
    }

    /// fp32 by value; a NaN result is made canonical.
    #[inline(always)]
    pub(super) fn f1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Done {
        self.fb1(i, |a| canon32(f(f32::from_bits(a))))
    }

    #[inline(always)]
    pub(super) fn f2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Done {
        self.fb2(i, |a, b| canon32(f(f32::from_bits(a), f32::from_bits(b))))
    }

    #[inline(always)]
    pub(super) fn f3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) -> Done {
        self.fb3(i, |a, b, c| canon32(f(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c))))
    }

    /// fp32 by its bits.
    #[inline(always)]
    pub(super) fn fb1(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Done {
        let mut room = [0; LANES];
        let a = self.floats(i, 0, &mut room);
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l]);
        }
        self.finish32(i, &mut out);
        self.put(i, &out);
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn fb2(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
        let (mut r0, mut r1) = ([0; LANES], [0; LANES]);
        let (a, b) = (self.floats(i, 0, &mut r0), self.floats(i, 1, &mut r1));
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l], b[l]);
        }
        self.finish32(i, &mut out);
        self.put(i, &out);
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn fb3(&mut self, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let (mut r0, mut r1, mut r2) = ([0; LANES], [0; LANES], [0; LANES]);
        let (a, b, c) = (self.floats(i, 0, &mut r0), self.floats(i, 1, &mut r1), self.floats(i, 2, &mut r2));
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(a[l], b[l], c[l]);
        }
        self.finish32(i, &mut out);
        self.put(i, &out);
        Ok(Flow::Next)
    }

    /// The destination as a third source, flushed if MODE says so.
    #[inline(always)]
    pub(super) fn accumulator<'t>(&'t self, i: &Inst, room: &'t mut Lanes) -> &'t Lanes {
        let old = &self.w.v[i.d()];
        if self.keeps_denormals32() {
            return old;
        }
        *room = old.map(float::flush32);
        room
    }

    /// A float source, an integer result.
    #[inline(always)]
    pub(super) fn f_to_u(&mut self, i: &Inst, f: impl Fn(f32) -> u32) -> Done {
        let mut room = [0; LANES];
        let a = self.floats(i, 0, &mut room);
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = f(f32::from_bits(a[l]));
        }
        self.put(i, &out);
        Ok(Flow::Next)
    }

    /// An integer source, a float result.
    #[inline(always)]
    pub(super) fn u_to_f(&mut self, i: &Inst, f: impl Fn(u32) -> f32) -> Done {
        let mut room = [0; LANES];
        let a = self.lanes(i, 0, &mut room);
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = canon32(f(a[l]));
        }
        self.finish32(i, &mut out);
        self.put(i, &out);
        Ok(Flow::Next)
    }

    /// 16 bits of a source, as half selection, SDWA and sign modifiers have it.
    pub(super) fn halves(&self, i: &Inst, n: usize, float: bool) -> Halves {
        let mut room = [0; LANES];
        let lanes = self.lanes(i, n, &mut room);
        let shift = if i.op_sel >> n & 1 == 1 { 16 } else { 0 };
        let mut out: Halves = std::array::from_fn(|l| (lanes[l] >> shift) as u16);
        if float {
            if i.abs >> n & 1 == 1 {
                out.iter_mut().for_each(|x| *x &= 0x7fff);
            }
            if i.neg >> n & 1 == 1 {
                out.iter_mut().for_each(|x| *x ^= 0x8000);
            }
            if !self.keeps_denormals16() {
                out.iter_mut().for_each(|x| *x = flush16(*x));
            }
        }
        out
    }

    /// 16 bits of the result; the other half of the register stays as it is.
    pub(super) fn put16(&mut self, i: &Inst, out: &Halves) {
        let old = &self.w.v[i.d()];
        let high = i.op_sel & 8 != 0;
        let merged: Lanes = if matches!(i.tail, Tail::Sdwa { .. }) {
            out.map(u32::from)
        } else if high {
            std::array::from_fn(|l| old[l] & 0xffff | u32::from(out[l]) << 16)
        } else {
            std::array::from_fn(|l| old[l] & 0xffff_0000 | u32::from(out[l]))
        };
        self.put(i, &merged);
    }

    /// Output modifier, clamp and flushing of an fp16 result.
    pub(super) fn finish16(&self, i: &Inst, out: &mut Halves) {
        let keeps = self.keeps_denormals16();
        if !i.clamp && keeps {
            return;
        }
        let factor = [1.0, 2.0, 4.0, 0.5][if keeps { 0 } else { usize::from(i.omod) }];
        for x in out.iter_mut() {
            let mut value = f16_to_f32(*x) * factor;
            if i.clamp {
                value = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
            }
            *x = f32_to_f16(value);
            if !keeps {
                *x = flush16(*x);
            }
        }
    }

    pub(super) fn rounding16(&self) -> Rounding {
        Rounding::from_mode(self.w.mode >> 2)
    }

    /// fp16 in, fp32 arithmetic, rounded to fp16. Rounding twice does no harm for one addition, multiplication, division or
    /// square root: 24 bits are twice 11 plus 2.
    #[inline(always)]
    pub(super) fn h1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Done {
        let (a, rounding) = (self.halves(i, 0, true), self.rounding16());
        let mut out: Halves = std::array::from_fn(|l| to_half(f(f16_to_f32(a[l])), rounding));
        self.finish16(i, &mut out);
        self.put16(i, &out);
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn h2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Done {
        let (a, b, rounding) = (self.halves(i, 0, true), self.halves(i, 1, true), self.rounding16());
        let mut out: Halves = std::array::from_fn(|l| to_half(f(f16_to_f32(a[l]), f16_to_f32(b[l])), rounding));
        self.finish16(i, &mut out);
        self.put16(i, &out);
        Ok(Flow::Next)
    }

    /// fp16 by its bits.
    #[inline(always)]
    pub(super) fn hb3(&mut self, i: &Inst, n: usize, f: impl Fn(u16, u16, u16) -> u16) -> Done {
        let a = self.halves(i, 0, true);
        let b = if n > 1 { self.halves(i, 1, true) } else { a };
        let c = if n > 2 { self.halves(i, 2, true) } else { a };
        let mut out: Halves = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        self.finish16(i, &mut out);
        self.put16(i, &out);
        Ok(Flow::Next)
    }

    /// 16-bit integers.
    #[inline(always)]
    pub(super) fn w2(&mut self, i: &Inst, f: impl Fn(u16, u16) -> u16) -> Done {
        let (a, b) = (self.halves(i, 0, false), self.halves(i, 1, false));
        self.put16(i, &std::array::from_fn(|l| f(a[l], b[l])));
        Ok(Flow::Next)
    }

    #[inline(always)]
    pub(super) fn w3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) -> Done {
        let (a, b, c) = (self.halves(i, 0, false), self.halves(i, 1, false), self.halves(i, 2, false));
        self.put16(i, &std::array::from_fn(|l| f(a[l], b[l], c[l])));
        Ok(Flow::Next)
    }

    /// fp64.
    #[inline(always)]
    pub(super) fn d1(&mut self, i: &Inst, f: impl Fn(f64) -> f64) -> Done {
        let a = self.doubles(i, 0);
        self.put_double(i, std::array::from_fn(|l| f(f64::from_bits(a[l]))))
    }

    #[inline(always)]
    pub(super) fn d2(&mut self, i: &Inst, f: impl Fn(f64, f64) -> f64) -> Done {
        let (a, b) = (self.doubles(i, 0), self.doubles(i, 1));
        self.put_double(i, std::array::from_fn(|l| f(f64::from_bits(a[l]), f64::from_bits(b[l]))))
    }

    #[inline(always)]
    pub(super) fn d3(&mut self, i: &Inst, f: impl Fn(f64, f64, f64) -> f64) -> Done {
        let (a, b, c) = (self.doubles(i, 0), self.doubles(i, 1), self.doubles(i, 2));
        let value = |l: usize| f(f64::from_bits(a[l]), f64::from_bits(b[l]), f64::from_bits(c[l]));
        self.put_double(i, std::array::from_fn(value))
    }

    pub(super) fn put_double(&mut self, i: &Inst, mut out: [f64; LANES]) -> Done {
        if i.clamp {
            out = out.map(|x| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) });
        }
        self.put64(i, &out.map(canon64));
        Ok(Flow::Next)
    }

    /// A mask of lanes, into a scalar register or, for v_cmpx, into EXEC.
    #[inline(always)]
    pub(super) fn compare(&mut self, i: &Inst, test: impl Fn(usize) -> bool) -> Done {
        let mask = mask_of(test);
        self.put_compare(i, mask)
    }

    pub(super) fn put_compare(&mut self, i: &Inst, mask: u32) -> Done {
        if i.bits & 1 == 1 {
            self.w.s[EXEC] &= mask;
        } else {
            self.put_mask(i.dst, mask);
        }
        Ok(Flow::Next)
    }
}

#[inline(always)]
pub(super) fn to_half(value: f32, rounding: Rounding) -> u16 {
    if rounding == Rounding::NearestEven { f32_to_f16(value) } else { f64_to_f16(f64::from(value), rounding) }
}
