//! Vector loads and stores: GLOBAL, FLAT, and MUBUF on private memory.

use super::ds::scatter;
use super::inst::Inst;
use super::machine::{Exec, LANES, Lanes, Machine, PRIVATE_APERTURE, SHARED_APERTURE, put_masked};
use super::trap::{Flow, Trap};
use super::valu::Done;
use crate::isa::decode::Encoding;
use crate::memory::Access;

/// What becomes of the loaded bytes, with the register's old value.
type Merge = fn(u32, u32) -> u32;

/// The load's width in bytes and how it lands, or the store's width and where it starts in the register.
macro_rules! shapes {
    ($name:expr, $load:ident, $store:ident) => {{
        let exec: Exec = match $name {
            "load_dword" => |m, i| $load(m, i, 4, None),
            "load_dwordx2" => |m, i| $load(m, i, 8, None),
            "load_dwordx3" => |m, i| $load(m, i, 12, None),
            "load_dwordx4" => |m, i| $load(m, i, 16, None),
            "load_ubyte" => |m, i| $load(m, i, 1, Some(|x, _| x)),
            "load_sbyte" => |m, i| $load(m, i, 1, Some(|x, _| x as u8 as i8 as u32)),
            "load_ushort" => |m, i| $load(m, i, 2, Some(|x, _| x)),
            "load_sshort" => |m, i| $load(m, i, 2, Some(|x, _| x as u16 as i16 as u32)),
            "load_ubyte_d16" => |m, i| $load(m, i, 1, Some(|x, old| old & 0xffff_0000 | x)),
            "load_ubyte_d16_hi" => |m, i| $load(m, i, 1, Some(|x, old| old & 0xffff | x << 16)),
            "load_sbyte_d16" => |m, i| $load(m, i, 1, Some(|x, old| old & 0xffff_0000 | x as u8 as i8 as u32 & 0xffff)),
            "load_sbyte_d16_hi" => |m, i| $load(m, i, 1, Some(|x, old| old & 0xffff | (x as u8 as i8 as u32) << 16)),
            "load_short_d16" => |m, i| $load(m, i, 2, Some(|x, old| old & 0xffff_0000 | x)),
            "load_short_d16_hi" => |m, i| $load(m, i, 2, Some(|x, old| old & 0xffff | x << 16)),
            "store_byte" => |m, i| $store(m, i, 1, 0),
            "store_byte_d16_hi" => |m, i| $store(m, i, 1, 2),
            "store_short" => |m, i| $store(m, i, 2, 0),
            "store_short_d16_hi" => |m, i| $store(m, i, 2, 2),
            "store_dword" => |m, i| $store(m, i, 4, 0),
            "store_dwordx2" => |m, i| $store(m, i, 8, 0),
            "store_dwordx3" => |m, i| $store(m, i, 12, 0),
            "store_dwordx4" => |m, i| $store(m, i, 16, 0),
            _ => return None,
        };
        Some(exec)
    }};
}

pub(super) fn lookup(encoding: Encoding, name: &str) -> Option<Exec> {
    match (encoding, name) {
        (Encoding::Mubuf, "gl0_inv" | "gl1_inv") => Some(|_, _| Ok(Flow::Next)),
        (Encoding::Mubuf, _) => shapes!(name, private_load, private_store),
        (Encoding::Global, _) => shapes!(name, global_load, global_store),
        (Encoding::Flat, _) => shapes!(name, flat_load, flat_store),
        _ => None,
    }
}

/// The lanes' addresses: a vector pair, or a scalar pair plus a 32-bit vector offset.
fn addresses(m: &Machine<'_>, i: &Inst, scalar: bool) -> [u64; LANES] {
    let offset = i64::from(i.imm);
    let low = &m.w.v[usize::from(i.addr)];
    if scalar {
        let s = usize::from(i.sdst) & 127;
        let base = u64::from(m.w.s[s]) | u64::from(m.w.s[(s + 1) & 127]) << 32;
        let base = base.wrapping_add_signed(offset);
        return std::array::from_fn(|l| base.wrapping_add(u64::from(low[l])));
    }
    let high = &m.w.v[(usize::from(i.addr) + 1) & 255];
    std::array::from_fn(|l| (u64::from(low[l]) | u64::from(high[l]) << 32).wrapping_add_signed(offset))
}

impl Machine<'_> {
    /// Bytes from a bound range, or from the emulator's own memory.
    #[inline]
    pub(super) fn memory_read(&mut self, lane: usize, address: u64, out: &mut [u8]) -> Result<(), Box<Trap>> {
        let len = out.len() as u64;
        let Some((range, offset)) = self.env.memory.locate(address, len, self.hint) else {
            return self.internal_read(lane, address, out);
        };
        self.hint = range;
        let bound = &self.env.memory.ranges()[range];
        if bound.unwritten(offset, len) {
            self.tally.unwritten_memory(range, address, lane as u32);
        }
        bound.read(offset, out);
        self.tally.load(range, len);
        if let Some(touched) = &self.env.touched {
            touched.load(range, offset, len);
        }
        Ok(())
    }

    fn internal_read(&mut self, lane: usize, address: u64, out: &mut [u8]) -> Result<(), Box<Trap>> {
        for (base, bytes) in &self.env.internal {
            let Some(at) = address.checked_sub(*base).and_then(|at| usize::try_from(at).ok()) else { continue };
            if let Some(found) = at.checked_add(out.len()).and_then(|end| bytes.get(at..end)) {
                out.copy_from_slice(found);
                return Ok(());
            }
        }
        let bytes = out.len() as u32;
        Err(Box::new(Trap::OutOfBounds { access: Access::Read, lane: lane as u32, address, bytes }))
    }

    #[inline]
    pub(super) fn memory_write(&mut self, lane: usize, address: u64, data: &[u8]) -> Result<(), Box<Trap>> {
        let (len, lane) = (data.len() as u64, lane as u32);
        let Some((range, offset)) = self.env.memory.locate(address, len, self.hint) else {
            return Err(Box::new(Trap::OutOfBounds { access: Access::ReadWrite, lane, address, bytes: len as u32 }));
        };
        self.hint = range;
        let bound = &self.env.memory.ranges()[range];
        if bound.access == Access::Read {
            return Err(Box::new(Trap::ReadOnly { lane, address, bytes: len as u32 }));
        }
        bound.write(offset, data);
        self.tally.store(range, len);
        if let Some(touched) = &self.env.touched {
            touched.store(range, offset, len);
        }
        Ok(())
    }
}

/// Loads with whatever `fetch` reads a lane's bytes from.
#[inline(always)]
fn load(
    m: &mut Machine<'_>,
    i: &Inst,
    bytes: usize,
    merge: Option<Merge>,
    mut fetch: impl FnMut(&mut Machine<'_>, usize, &mut [u8]) -> Result<(), Box<Trap>>,
) -> Done {
    let exec = m.exec();
    let mut out = [[0; LANES]; 4];
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let mut buffer = [0; 16];
            fetch(m, lane, &mut buffer[..bytes])?;
            scatter(&mut out, lane, &buffer, bytes);
        }
    }
    if let Some(merge) = merge {
        let to = &mut m.w.v[i.d()];
        let merged = std::array::from_fn(|l| merge(out[0][l], to[l]));
        put_masked(to, exec, &merged);
    } else {
        m.put_words(i.dst, &out[..bytes / 4]);
    }
    Ok(Flow::Next)
}

#[inline(always)]
fn store(
    m: &mut Machine<'_>,
    i: &Inst,
    bytes: usize,
    from: usize,
    mut put: impl FnMut(&mut Machine<'_>, usize, &[u8]) -> Result<(), Box<Trap>>,
) -> Done {
    let exec = m.exec();
    for lane in 0..LANES {
        if exec >> lane & 1 == 1 {
            let buffer = m.gather(i.data, lane);
            put(m, lane, &buffer[from..from + bytes])?;
        }
    }
    Ok(Flow::Next)
}

#[inline(always)]
fn global_load(m: &mut Machine<'_>, i: &Inst, bytes: usize, merge: Option<Merge>) -> Done {
    let at = addresses(m, i, i.sdst != 125);
    m.tally.lines(&at, m.w.s[super::machine::EXEC], bytes);
    load(m, i, bytes, merge, |m, lane, out| m.memory_read(lane, at[lane], out))
}

#[inline(always)]
fn global_store(m: &mut Machine<'_>, i: &Inst, bytes: usize, from: usize) -> Done {
    let at = addresses(m, i, i.sdst != 125);
    m.tally.lines(&at, m.w.s[super::machine::EXEC], bytes);
    store(m, i, bytes, from, |m, lane, data| m.memory_write(lane, at[lane], data))
}

fn flat_load(m: &mut Machine<'_>, i: &Inst, bytes: usize, merge: Option<Merge>) -> Done {
    let at = addresses(m, i, false);
    load(m, i, bytes, merge, |m, lane, out| match (at[lane] >> 32) as u32 {
        SHARED_APERTURE => {
            let local = at[lane] & 0xffff_ffff;
            let outside = Trap::Lds { lane: lane as u32, address: local, bytes: out.len() as u32 };
            out.copy_from_slice(m.lds.get(local, out.len()).ok_or(outside)?);
            Ok(())
        }
        PRIVATE_APERTURE => m.scratch_read(lane, at[lane] & 0xffff_ffff, out),
        _ => m.memory_read(lane, at[lane], out),
    })
}

fn flat_store(m: &mut Machine<'_>, i: &Inst, bytes: usize, from: usize) -> Done {
    let at = addresses(m, i, false);
    store(m, i, bytes, from, |m, lane, data| match (at[lane] >> 32) as u32 {
        SHARED_APERTURE => {
            let local = at[lane] & 0xffff_ffff;
            let outside = Trap::Lds { lane: lane as u32, address: local, bytes: data.len() as u32 };
            m.lds.put(local, data).ok_or_else(|| Box::new(outside))
        }
        PRIVATE_APERTURE => m.scratch_write(lane, at[lane] & 0xffff_ffff, data),
        _ => m.memory_write(lane, at[lane], data),
    })
}

/// A lane's offset in its private memory for a swizzled buffer access. The scalar offset counts bytes of the whole wave.
fn private_offsets(m: &Machine<'_>, i: &Inst) -> Result<[u64; LANES], Box<Trap>> {
    let s = usize::from(i.sdst);
    // The descriptor that the wave was given: base 0 (a wave's scratch starts at its own zero) and swizzling on.
    let [low, high, _, kind] = std::array::from_fn(|k| m.w.s[(s + k) & 127]);
    if kind & super::super::run::SCRATCH_KIND == 0 || high & 0xffff != 0 {
        return Trap::unmodelled("a buffer access with a descriptor that is not the scratch one");
    }
    if i.bits & 4 != 0 {
        return Trap::unmodelled("a buffer access with an index");
    }
    let scalar = u64::from(low) + u64::from(m.s32(i, 0));
    if scalar % (LANES as u64 * 4) != 0 {
        return Trap::unmodelled(format!("a scratch offset of {scalar} bytes, which is no multiple of 128"));
    }
    let base = scalar / LANES as u64 + i.imm as u64;
    let offsets: Lanes = if i.bits & 2 != 0 { m.w.v[usize::from(i.addr)] } else { [0; LANES] };
    Ok(offsets.map(|offset| base + u64::from(offset)))
}

impl Machine<'_> {
    fn scratch_check(&self, lane: usize, offset: u64, bytes: usize) -> Result<usize, Box<Trap>> {
        if offset.checked_add(bytes as u64).is_none_or(|end| end > u64::from(self.env.scratch_bytes)) {
            return Err(Box::new(Trap::Scratch { lane: lane as u32, address: offset, bytes: bytes as u32 }));
        }
        Ok(offset as usize)
    }

    fn scratch_read(&mut self, lane: usize, offset: u64, out: &mut [u8]) -> Result<(), Box<Trap>> {
        let offset = self.scratch_check(lane, offset, out.len())?;
        for (k, byte) in out.iter_mut().enumerate() {
            let at = offset + k;
            *byte = self.w.scratch[at / 4 * LANES + lane].to_le_bytes()[at % 4];
        }
        self.tally.scratch(out.len() as u64);
        Ok(())
    }

    fn scratch_write(&mut self, lane: usize, offset: u64, data: &[u8]) -> Result<(), Box<Trap>> {
        let offset = self.scratch_check(lane, offset, data.len())?;
        for (k, byte) in data.iter().enumerate() {
            let at = offset + k;
            let word = &mut self.w.scratch[at / 4 * LANES + lane];
            let mut bytes = word.to_le_bytes();
            bytes[at % 4] = *byte;
            *word = u32::from_le_bytes(bytes);
        }
        self.tally.scratch(data.len() as u64);
        Ok(())
    }
}

/// MUBUF loads and stores use one register field for both, so the data's is the destination's.
fn private_load(m: &mut Machine<'_>, i: &Inst, bytes: usize, merge: Option<Merge>) -> Done {
    let at = private_offsets(m, i)?;
    load(m, i, bytes, merge, |m, lane, out| m.scratch_read(lane, at[lane], out))
}

fn private_store(m: &mut Machine<'_>, i: &Inst, bytes: usize, from: usize) -> Done {
    let at = private_offsets(m, i)?;
    store(m, i, bytes, from, |m, lane, data| m.scratch_write(lane, at[lane], data))
}
