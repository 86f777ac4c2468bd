//! One wave's registers, and what it shares with its workgroup and the dispatch.

use std::sync::atomic::AtomicBool;

use super::inst::{Inst, Src, Tail};
use super::lds::Lds;
use super::trap::{Flow, Trap};
use super::{dpp, float};
use crate::memory::{Memory, Touched};
use crate::options::Checks;
use crate::program::Program;
use crate::report::Tally;

/// Lanes of a wave.
pub(crate) const LANES: usize = 32;
/// One vector register.
pub(crate) type Lanes = [u32; LANES];

pub(crate) const VCC: usize = 106;
pub(crate) const M0: usize = 124;
pub(crate) const EXEC: usize = 126;

/// High words of the flat addresses that mean LDS and private memory.
pub(crate) const SHARED_APERTURE: u32 = 0x0001_0000;
pub(crate) const PRIVATE_APERTURE: u32 = 0x0002_0000;

pub(crate) type Exec = for<'m> fn(&mut Machine<'m>, &Inst) -> Result<Flow, Box<Trap>>;

/// What a wave keeps while others of its workgroup run.
#[derive(Debug)]
pub(crate) struct Wave {
    pub v: Box<[Lanes; 256]>,
    /// By operand code: SGPRs, VCC at 106, M0 at 124, EXEC at 126. 125 takes writes that go nowhere.
    pub s: [u32; 128],
    pub scc: bool,
    pub mode: u32,
    /// Index of the next instruction.
    pub at: u32,
    /// Lanes of each vector register, and scalar registers, that nothing has written.
    pub v_undefined: Box<[u32; 256]>,
    pub s_undefined: u128,
    /// Private memory: word by word, the lanes of each side by side.
    pub scratch: Vec<u32>,
    pub flat_scratch: [u32; 2],
    pub index: u32,
    pub done: bool,
    pub executed: u64,
}

/// What does not change during a dispatch.
#[derive(Debug)]
pub(crate) struct Env<'m> {
    pub program: &'m Program,
    pub memory: &'m Memory<'m>,
    /// Read-only memory of the emulator's own: kernel arguments, dispatch packet, the code object's image.
    pub internal: Vec<(u64, Vec<u8>)>,
    pub touched: Option<Touched>,
    pub checks: Checks,
    pub stop: &'m AtomicBool,
    pub image_address: u64,
    pub scratch_bytes: u32,
}

/// A wave that runs.
#[derive(Debug)]
pub(crate) struct Machine<'m> {
    pub w: &'m mut Wave,
    pub lds: &'m mut Lds,
    pub env: &'m Env<'m>,
    pub tally: &'m mut Tally,
    /// The range found last.
    pub hint: usize,
}

impl Machine<'_> {
    #[inline(always)]
    pub(crate) fn exec(&self) -> u32 {
        self.w.s[EXEC]
    }

    /// A scalar source.
    #[inline(always)]
    pub(crate) fn s32(&self, inst: &Inst, n: usize) -> u32 {
        self.scalar(inst.src[n], 0)
    }

    #[inline(always)]
    pub(crate) fn s64(&self, inst: &Inst, n: usize) -> u64 {
        u64::from(self.scalar(inst.src[n], 0)) | u64::from(self.scalar(inst.src[n], 1)) << 32
    }

    /// Word `part` of a scalar source.
    #[inline(always)]
    fn scalar(&self, source: Src, part: usize) -> u32 {
        match source {
            Src::Scalar(r) => self.w.s[(usize::from(r) + part) & 127],
            Src::Constant(low, high) => [low, high][part],
            Src::Condition(251) => u32::from(part == 0 && self.w.s[VCC] == 0),
            Src::Condition(252) => u32::from(part == 0 && self.exec() == 0),
            Src::Condition(_) => u32::from(part == 0 && self.w.scc),
            Src::Vector(r) => self.w.v[usize::from(r)][0],
        }
    }

    #[inline(always)]
    pub(crate) fn set_s32(&mut self, register: u8, value: u32) {
        self.w.s[usize::from(register) & 127] = value;
    }

    #[inline(always)]
    pub(crate) fn set_s64(&mut self, register: u8, value: u64) {
        self.set_s32(register, value as u32);
        self.set_s32(register + 1, (value >> 32) as u32);
    }

    /// A 32-bit vector source as it stands in the register, moved between lanes where DPP asks for it, cut out where SDWA does.
    #[inline(always)]
    pub(crate) fn lanes<'t>(&'t self, inst: &Inst, n: usize, room: &'t mut Lanes) -> &'t Lanes {
        match inst.src[n] {
            Src::Vector(r) if inst.tail == Tail::None => &self.w.v[usize::from(r)],
            source => {
                self.lanes_slow(inst, n, source, room);
                room
            }
        }
    }

    #[inline(never)]
    fn lanes_slow(&self, inst: &Inst, n: usize, source: Src, room: &mut Lanes) {
        match source {
            Src::Vector(r) => *room = self.w.v[usize::from(r)],
            other => *room = [self.scalar(other, 0); LANES],
        }
        if inst.tail != Tail::None {
            dpp::source(inst, n, self.exec(), room);
        }
    }

    /// Low and high words of a 64-bit source.
    pub(crate) fn lanes64(&self, inst: &Inst, n: usize) -> [u64; LANES] {
        match inst.src[n] {
            Src::Vector(r) => {
                let (low, high) = (&self.w.v[usize::from(r)], &self.w.v[usize::from(r.wrapping_add(1))]);
                std::array::from_fn(|l| u64::from(low[l]) | u64::from(high[l]) << 32)
            }
            _ => [self.s64(inst, n); LANES],
        }
    }

    /// A float source with its sign modifiers, and flushed if MODE says so.
    #[inline(always)]
    pub(crate) fn floats<'t>(&'t self, inst: &Inst, n: usize, room: &'t mut Lanes) -> &'t Lanes {
        let plain = (inst.abs | inst.neg) >> n & 1 == 0 && self.keeps_denormals32();
        match inst.src[n] {
            Src::Vector(r) if plain && inst.tail == Tail::None => &self.w.v[usize::from(r)],
            source => {
                self.floats_slow(inst, n, source, room);
                room
            }
        }
    }

    #[inline(never)]
    fn floats_slow(&self, inst: &Inst, n: usize, source: Src, room: &mut Lanes) {
        self.lanes_slow(inst, n, source, room);
        if inst.abs >> n & 1 == 1 {
            room.iter_mut().for_each(|x| *x &= 0x7fff_ffff);
        }
        if inst.neg >> n & 1 == 1 {
            room.iter_mut().for_each(|x| *x ^= 0x8000_0000);
        }
        if !self.keeps_denormals32() {
            room.iter_mut().for_each(|x| *x = float::flush32(*x));
        }
    }

    #[inline(always)]
    pub(crate) fn keeps_denormals32(&self) -> bool {
        self.w.mode & 0x30 == 0x30
    }

    pub(crate) fn keeps_denormals16(&self) -> bool {
        self.w.mode & 0xc0 == 0xc0
    }

    /// A 64-bit float source with its sign modifiers.
    pub(crate) fn doubles(&self, inst: &Inst, n: usize) -> [u64; LANES] {
        let mut all = self.lanes64(inst, n);
        if inst.abs >> n & 1 == 1 {
            all.iter_mut().for_each(|x| *x &= u64::MAX >> 1);
        }
        if inst.neg >> n & 1 == 1 {
            all.iter_mut().for_each(|x| *x ^= 1 << 63);
        }
        if !self.keeps_denormals16() {
            all.iter_mut().filter(|x| **x & 0x7ff0_0000_0000_0000 == 0).for_each(|x| *x &= 1 << 63);
        }
        all
    }

    /// Writes a vector register in the active lanes.
    #[inline(always)]
    pub(crate) fn put(&mut self, inst: &Inst, out: &Lanes) {
        let exec = self.exec();
        let to = &mut self.w.v[inst.d()];
        if inst.tail == Tail::None {
            put_masked(to, exec, out);
        } else {
            dpp::destination(inst, exec, to, out);
        }
    }

    pub(crate) fn put64(&mut self, inst: &Inst, out: &[u64; LANES]) {
        let exec = self.exec();
        let d = inst.d();
        put_masked(&mut self.w.v[d], exec, &out.map(|x| x as u32));
        put_masked(&mut self.w.v[(d + 1) & 255], exec, &out.map(|x| (x >> 32) as u32));
    }

    /// A mask of lanes into a scalar register: inactive lanes give 0.
    #[inline(always)]
    pub(crate) fn put_mask(&mut self, register: u8, mask: u32) {
        let exec = self.exec();
        self.set_s32(register, mask & exec);
    }

    /// Output modifier, clamp and flushing of an fp32 result.
    #[inline(always)]
    pub(crate) fn finish32(&self, inst: &Inst, out: &mut Lanes) {
        if inst.omod != 0 || inst.clamp || !self.keeps_denormals32() {
            self.finish32_slow(inst, out);
        }
    }

    #[inline(never)]
    fn finish32_slow(&self, inst: &Inst, out: &mut Lanes) {
        // The hardware ignores the output modifier where denormal results are kept.
        let omod = if self.keeps_denormals32() { 0 } else { inst.omod };
        let factor = [1.0, 2.0, 4.0, 0.5][usize::from(omod)];
        for x in out.iter_mut() {
            let mut value = f32::from_bits(*x) * factor;
            if inst.clamp {
                // DX10_CLAMP: NaN becomes 0.
                value = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
            }
            *x = float::canon32(value);
            if !self.keeps_denormals32() {
                *x = float::flush32(*x);
            }
        }
    }
}

/// Lane bits, so that a mask is expanded by a comparison the compiler can do on whole vectors.
const BIT: Lanes = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// Replaces the lanes of `to` that `mask` names.
#[inline(always)]
pub(crate) fn put_masked(to: &mut Lanes, mask: u32, out: &Lanes) {
    if mask == u32::MAX {
        *to = *out;
        return;
    }
    for lane in 0..LANES {
        to[lane] = if mask & BIT[lane] != 0 { out[lane] } else { to[lane] };
    }
}

/// The lanes for which `test` holds.
#[inline(always)]
pub(crate) fn mask_of(test: impl Fn(usize) -> bool) -> u32 {
    (0..LANES).fold(0, |mask, lane| mask | if test(lane) { BIT[lane] } else { 0 })
}
