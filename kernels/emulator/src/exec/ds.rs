//! LDS instructions, and the lane permutations that share their encoding.

use super::inst::Inst;
use super::lds::bank_conflicts;
use super::machine::{Exec, LANES, Lanes, Machine, put_masked};
use super::trap::{Flow, Trap};
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "ds_nop" => |_, _| Ok(Flow::Next),
        "ds_read_b32" => |m, i| read(m, i, 4),
        "ds_read_b64" => |m, i| read(m, i, 8),
        "ds_read_b96" => |m, i| read(m, i, 12),
        "ds_read_b128" => |m, i| read(m, i, 16),
        "ds_read_u8" => |m, i| read_part(m, i, 1, |x, _| x),
        "ds_read_i8" => |m, i| read_part(m, i, 1, |x, _| x as u8 as i8 as u32),
        "ds_read_u16" => |m, i| read_part(m, i, 2, |x, _| x),
        "ds_read_i16" => |m, i| read_part(m, i, 2, |x, _| x as u16 as i16 as u32),
        "ds_read_u8_d16" => |m, i| read_part(m, i, 1, |x, old| old & 0xffff_0000 | x),
        "ds_read_u16_d16" => |m, i| read_part(m, i, 2, |x, old| old & 0xffff_0000 | x),
        "ds_read_u8_d16_hi" => |m, i| read_part(m, i, 1, |x, old| old & 0xffff | x << 16),
        "ds_read_u16_d16_hi" => |m, i| read_part(m, i, 2, |x, old| old & 0xffff | x << 16),
        "ds_read_i8_d16" => |m, i| read_part(m, i, 1, |x, old| old & 0xffff_0000 | x as u8 as i8 as u32 & 0xffff),
        "ds_read_i8_d16_hi" => |m, i| read_part(m, i, 1, |x, old| old & 0xffff | (x as u8 as i8 as u32) << 16),
        "ds_read2_b32" => |m, i| read2(m, i, 4, 4),
        "ds_read2_b64" => |m, i| read2(m, i, 8, 8),
        "ds_read2st64_b32" => |m, i| read2(m, i, 4, 256),
        "ds_read2st64_b64" => |m, i| read2(m, i, 8, 512),
        "ds_write_b8" => |m, i| write(m, i, 1, 0),
        "ds_write_b16" => |m, i| write(m, i, 2, 0),
        "ds_write_b8_d16_hi" => |m, i| write(m, i, 1, 16),
        "ds_write_b16_d16_hi" => |m, i| write(m, i, 2, 16),
        "ds_write_b32" => |m, i| write(m, i, 4, 0),
        "ds_write_b64" => |m, i| write(m, i, 8, 0),
        "ds_write_b96" => |m, i| write(m, i, 12, 0),
        "ds_write_b128" => |m, i| write(m, i, 16, 0),
        "ds_write2_b32" => |m, i| write2(m, i, 4, 4),
        "ds_write2_b64" => |m, i| write2(m, i, 8, 8),
        "ds_write2st64_b32" => |m, i| write2(m, i, 4, 256),
        "ds_write2st64_b64" => |m, i| write2(m, i, 8, 512),
        "ds_add_u32" => |m, i| atomic(m, i, false, u32::wrapping_add),
        "ds_add_rtn_u32" => |m, i| atomic(m, i, true, u32::wrapping_add),
        "ds_sub_u32" => |m, i| atomic(m, i, false, u32::wrapping_sub),
        "ds_sub_rtn_u32" => |m, i| atomic(m, i, true, u32::wrapping_sub),
        "ds_min_u32" => |m, i| atomic(m, i, false, u32::min),
        "ds_max_u32" => |m, i| atomic(m, i, false, u32::max),
        "ds_min_rtn_u32" => |m, i| atomic(m, i, true, u32::min),
        "ds_max_rtn_u32" => |m, i| atomic(m, i, true, u32::max),
        "ds_min_i32" => |m, i| atomic(m, i, false, |a, b| (a as i32).min(b as i32) as u32),
        "ds_max_i32" => |m, i| atomic(m, i, false, |a, b| (a as i32).max(b as i32) as u32),
        "ds_and_b32" => |m, i| atomic(m, i, false, |a, b| a & b),
        "ds_or_b32" => |m, i| atomic(m, i, false, |a, b| a | b),
        "ds_xor_b32" => |m, i| atomic(m, i, false, |a, b| a ^ b),
        "ds_and_rtn_b32" => |m, i| atomic(m, i, true, |a, b| a & b),
        "ds_or_rtn_b32" => |m, i| atomic(m, i, true, |a, b| a | b),
        "ds_xor_rtn_b32" => |m, i| atomic(m, i, true, |a, b| a ^ b),
        "ds_wrxchg_rtn_b32" => |m, i| atomic(m, i, true, |_, b| b),
        "ds_add_f32" => |m, i| atomic(m, i, false, add_f32),
        "ds_add_rtn_f32" => |m, i| atomic(m, i, true, add_f32),
        "ds_min_f32" => |m, i| atomic(m, i, false, super::valu_f32::min),
        "ds_max_f32" => |m, i| atomic(m, i, false, super::valu_f32::max),
        "ds_bpermute_b32" => bpermute,
        "ds_permute_b32" => permute,
        "ds_swizzle_b32" => swizzle,
        _ => return None,
    };
    Some(exec)
}

fn add_f32(a: u32, b: u32) -> u32 {
    super::float::canon32(f32::from_bits(a) + f32::from_bits(b))
}

impl Machine<'_> {
    /// One lane's bytes from LDS, checked.
    #[inline(always)]
    fn lds_read(&mut self, lane: usize, at: u64, out: &mut [u8]) -> Result<(), Box<Trap>> {
        match self.lds.get(at, out.len()) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(outside(lane, at, out.len())),
        }
        if self.lds.unwritten(at, out.len()) {
            self.tally.unwritten_lds(at, lane as u32);
        }
        if let Some(race) = self.lds.note_read(at, out.len(), self.w.index) {
            self.tally.race(race, lane as u32);
        }
        Ok(())
    }

    #[inline(always)]
    fn lds_write(&mut self, lane: usize, at: u64, data: &[u8]) -> Result<(), Box<Trap>> {
        if self.lds.put(at, data).is_none() {
            return Err(outside(lane, at, data.len()));
        }
        if let Some(race) = self.lds.note_write(at, data.len(), self.w.index, self.w.at) {
            self.tally.race(race, lane as u32);
        }
        Ok(())
    }

    /// Counts bank conflicts of one access a lane.
    #[inline(always)]
    fn banks(&mut self, addresses: &Lanes, offset: u64, bytes: usize) {
        if !self.env.checks.bank_conflicts {
            return;
        }
        let exec = self.exec();
        let (mut active, mut n) = ([0_u64; LANES], 0);
        for lane in 0..LANES {
            if exec >> lane & 1 == 1 {
                active[n] = u64::from(addresses[lane]) + offset;
                n += 1;
            }
        }
        self.tally.lds_access(bank_conflicts(&active[..n], bytes), (n * bytes) as u64);
    }
}

fn outside(lane: usize, address: u64, bytes: usize) -> Box<Trap> {
    Box::new(Trap::Lds { lane: lane as u32, address, bytes: bytes as u32 })
}

fn gds(i: &Inst) -> Result<(), Box<Trap>> {
    if i.bits & 1 == 1 { Trap::unmodelled("global data share") } else { Ok(()) }
}

#[inline(always)]
fn read(m: &mut Machine<'_>, i: &Inst, bytes: usize) -> Done {
    gds(i)?;
    let (addresses, exec, offset) = (m.w.v[usize::from(i.addr)], m.exec(), i.imm as u64);
    let mut out = [[0; LANES]; 4];
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let mut buffer = [0; 16];
            m.lds_read(lane, u64::from(addresses[lane]) + offset, &mut buffer[..bytes])?;
            scatter(&mut out, lane, &buffer, bytes);
        }
    }
    m.banks(&addresses, offset, bytes);
    m.put_words(i.dst, &out[..bytes / 4]);
    Ok(Flow::Next)
}

/// Words of one lane into the columns of several registers.
#[inline(always)]
pub(super) fn scatter(out: &mut [Lanes; 4], lane: usize, buffer: &[u8; 16], bytes: usize) {
    for k in 0..bytes.div_ceil(4) {
        out[k][lane] = u32::from_le_bytes([buffer[4 * k], buffer[4 * k + 1], buffer[4 * k + 2], buffer[4 * k + 3]]);
    }
}

#[inline(always)]
fn read_part(m: &mut Machine<'_>, i: &Inst, bytes: usize, merge: impl Fn(u32, u32) -> u32) -> Done {
    gds(i)?;
    let (addresses, exec, offset) = (m.w.v[usize::from(i.addr)], m.exec(), i.imm as u64);
    let mut out = m.w.v[i.d()];
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let mut buffer = [0; 4];
            m.lds_read(lane, u64::from(addresses[lane]) + offset, &mut buffer[..bytes])?;
            out[lane] = merge(u32::from_le_bytes(buffer), out[lane]);
        }
    }
    m.banks(&addresses, offset, bytes);
    m.w.v[i.d()] = out;
    Ok(Flow::Next)
}

#[inline(always)]
fn read2(m: &mut Machine<'_>, i: &Inst, bytes: usize, unit: u64) -> Done {
    gds(i)?;
    let (addresses, exec) = (m.w.v[usize::from(i.addr)], m.exec());
    let offsets = [i.imm as u64 * unit, i.imm2 as u64 * unit];
    let mut out = [[0; LANES]; 4];
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let mut buffer = [0; 16];
            let (first, second) = buffer[..2 * bytes].split_at_mut(bytes);
            m.lds_read(lane, u64::from(addresses[lane]) + offsets[0], first)?;
            m.lds_read(lane, u64::from(addresses[lane]) + offsets[1], second)?;
            scatter(&mut out, lane, &buffer, 2 * bytes);
        }
    }
    m.banks(&addresses, offsets[0], bytes);
    m.banks(&addresses, offsets[1], bytes);
    m.put_words(i.dst, &out[..bytes / 2]);
    Ok(Flow::Next)
}

#[inline(always)]
fn write(m: &mut Machine<'_>, i: &Inst, bytes: usize, shift: u32) -> Done {
    gds(i)?;
    let (addresses, exec, offset) = (m.w.v[usize::from(i.addr)], m.exec(), i.imm as u64);
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let mut buffer = m.gather(i.data, lane);
            if shift != 0 {
                buffer.copy_within(2..4, 0);
            }
            m.lds_write(lane, u64::from(addresses[lane]) + offset, &buffer[..bytes])?;
        }
    }
    m.banks(&addresses, offset, bytes);
    Ok(Flow::Next)
}

#[inline(always)]
fn write2(m: &mut Machine<'_>, i: &Inst, bytes: usize, unit: u64) -> Done {
    gds(i)?;
    let (addresses, exec) = (m.w.v[usize::from(i.addr)], m.exec());
    for (data, offset) in [(i.data, i.imm as u64 * unit), (i.data2, i.imm2 as u64 * unit)] {
        for lane in 0..LANES {
            if exec >> lane & 1 == 1 {
                let buffer = m.gather(data, lane);
                m.lds_write(lane, u64::from(addresses[lane]) + offset, &buffer[..bytes])?;
            }
        }
        m.banks(&addresses, offset, bytes);
    }
    Ok(Flow::Next)
}

/// Lanes in order; atomics of different waves do not race with each other, but do with plain accesses.
fn atomic(m: &mut Machine<'_>, i: &Inst, returns: bool, f: impl Fn(u32, u32) -> u32) -> Done {
    gds(i)?;
    let (addresses, exec, offset) = (m.w.v[usize::from(i.addr)], m.exec(), i.imm as u64);
    let mut out = [0; LANES];
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let at = u64::from(addresses[lane]) + offset;
            let mut word = [0; 4];
            match m.lds.get(at, 4) {
                Some(bytes) => word.copy_from_slice(bytes),
                None => return Err(outside(lane, at, 4)),
            }
            if m.lds.unwritten(at, 4) {
                m.tally.unwritten_lds(at, lane as u32);
            }
            out[lane] = u32::from_le_bytes(word);
            let new = f(out[lane], m.w.v[usize::from(i.data)][lane]);
            if m.lds.put(at, &new.to_le_bytes()).is_none() {
                return Err(outside(lane, at, 4));
            }
        }
    }
    m.banks(&addresses, offset, 4);
    if returns {
        m.put_words(i.dst, &[out]);
    }
    Ok(Flow::Next)
}

/// Each lane reads from the lane whose number times 4 it holds; a disabled one gives 0.
fn bpermute(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (index, data, exec) = (m.w.v[usize::from(i.addr)], m.w.v[usize::from(i.data)], m.exec());
    let out = std::array::from_fn(|l| {
        let lane = (index[l].wrapping_add(i.imm as u32) / 4) as usize % LANES;
        if exec >> lane & 1 == 1 { data[lane] } else { 0 }
    });
    m.put_words(i.dst, &[out]);
    Ok(Flow::Next)
}

/// Each lane sends to the lane whose number times 4 it holds; the highest sender wins, a lane without one gets 0.
fn permute(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (index, data, exec) = (m.w.v[usize::from(i.addr)], m.w.v[usize::from(i.data)], m.exec());
    let mut out = [0; LANES];
    for l in (0..LANES).filter(|l| exec >> l & 1 == 1) {
        out[(index[l].wrapping_add(i.imm as u32) / 4) as usize % LANES] = data[l];
    }
    m.put_words(i.dst, &[out]);
    Ok(Flow::Next)
}

/// Bit 15 of the offset: quads; else and, or, xor masks of five bits each over the lane's number.
fn swizzle(m: &mut Machine<'_>, i: &Inst) -> Done {
    let (data, exec, control) = (m.w.v[usize::from(i.addr)], m.exec(), i.imm as usize);
    if control & 0x8000 != 0 && control & 0x7f00 != 0 {
        return Trap::unmodelled(format!("ds_swizzle with offset {control:#x} (rotations and FFT)"));
    }
    let out = std::array::from_fn(|l| {
        let lane = if control & 0x8000 != 0 {
            l & !3 | control >> (2 * (l & 3)) & 3
        } else {
            (l & control & 31 | control >> 5 & 31) ^ control >> 10 & 31
        };
        if exec >> lane & 1 == 1 { data[lane] } else { 0 }
    });
    m.put_words(i.dst, &[out]);
    Ok(Flow::Next)
}

impl Machine<'_> {
    /// Writes consecutive registers in the active lanes.
    #[inline(always)]
    pub(super) fn put_words(&mut self, first: u8, words: &[Lanes]) {
        let exec = self.exec();
        for (k, word) in words.iter().enumerate() {
            put_masked(&mut self.w.v[(usize::from(first) + k) & 255], exec, word);
        }
    }

    /// Up to 16 bytes of one lane from consecutive registers.
    #[inline(always)]
    pub(super) fn gather(&self, first: u8, lane: usize) -> [u8; 16] {
        let mut buffer = [0; 16];
        for k in 0..4 {
            let word = self.w.v[(usize::from(first) + k) & 255][lane];
            buffer[4 * k..4 * k + 4].copy_from_slice(&word.to_le_bytes());
        }
        buffer
    }
}
