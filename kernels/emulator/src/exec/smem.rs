//! Scalar loads.

use super::inst::Inst;
use super::machine::{Exec, Machine};
use super::trap::Flow;
use super::valu::Done;

pub(super) fn lookup(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "s_load_dword" => |m, i| load(m, i, 1),
        "s_load_dwordx2" => |m, i| load(m, i, 2),
        "s_load_dwordx4" => |m, i| load(m, i, 4),
        "s_load_dwordx8" => |m, i| load(m, i, 8),
        "s_load_dwordx16" => |m, i| load(m, i, 16),
        "s_dcache_inv" | "s_gl1_inv" => |_, _| Ok(Flow::Next),
        // A clock that two runs agree on: the wave's own instruction count.
        "s_memtime" | "s_memrealtime" => |m, i| {
            let time = m.w.executed;
            m.set_s64(i.dst, time);
            Ok(Flow::Next)
        },
        _ => return None,
    };
    Some(exec)
}

fn load(m: &mut Machine<'_>, i: &Inst, words: usize) -> Done {
    let at = usize::from(i.addr) & 127;
    let base = u64::from(m.w.s[at]) | u64::from(m.w.s[(at + 1) & 127]) << 32;
    let offset = if i.sdst == 125 { 0 } else { m.w.s[usize::from(i.sdst) & 127] };
    // Scalar memory ignores the two lowest bits.
    let address = base.wrapping_add_signed(i64::from(i.imm)).wrapping_add(u64::from(offset)) & !3;
    let mut bytes = [0; 64];
    m.memory_read(0, address, &mut bytes[..4 * words])?;
    for (k, word) in bytes.chunks_exact(4).take(words).enumerate() {
        let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        m.set_s32(i.dst + k as u8, value);
    }
    Ok(Flow::Next)
}
