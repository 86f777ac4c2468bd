//! Scalar arithmetic, branches and the wave's own state.

use super::inst::Inst;
use super::machine::{EXEC, Exec, M0, Machine};
use super::trap::{Flow, Trap};
use super::valu::Done;
use super::valu_int::{bfe_i32, leading_sign_bits};

pub(super) fn lookup(name: &str) -> Option<Exec> {
    sop2(name).or_else(|| sop1(name)).or_else(|| save_exec(name)).or_else(|| compare(name)).or_else(|| control(name))
}

impl Machine<'_> {
    /// A result with SCC.
    #[inline(always)]
    fn out(&mut self, i: &Inst, (value, scc): (u32, bool)) -> Done {
        self.set_s32(i.dst, value);
        self.w.scc = scc;
        Ok(Flow::Next)
    }

    /// SCC says whether the result is not zero.
    #[inline(always)]
    fn nz(&mut self, i: &Inst, value: u32) -> Done {
        self.out(i, (value, value != 0))
    }

    #[inline(always)]
    fn nz64(&mut self, i: &Inst, value: u64) -> Done {
        self.set_s64(i.dst, value);
        self.w.scc = value != 0;
        Ok(Flow::Next)
    }

    /// A result that leaves SCC alone.
    #[inline(always)]
    fn plain(&mut self, i: &Inst, value: u32) -> Done {
        self.set_s32(i.dst, value);
        Ok(Flow::Next)
    }

    #[inline(always)]
    fn plain64(&mut self, i: &Inst, value: u64) -> Done {
        self.set_s64(i.dst, value);
        Ok(Flow::Next)
    }

    #[inline(always)]
    fn a(&self, i: &Inst) -> u32 {
        self.s32(i, 0)
    }

    #[inline(always)]
    fn b(&self, i: &Inst) -> u32 {
        self.s32(i, 1)
    }
}

fn sop2(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "s_add_u32" => |m, i| m.out(i, m.a(i).overflowing_add(m.b(i))),
        "s_sub_u32" => |m, i| m.out(i, m.a(i).overflowing_sub(m.b(i))),
        "s_add_i32" => |m, i| m.out(i, signed((m.a(i) as i32).overflowing_add(m.b(i) as i32))),
        "s_sub_i32" => |m, i| m.out(i, signed((m.a(i) as i32).overflowing_sub(m.b(i) as i32))),
        "s_addc_u32" => |m, i| m.out(i, m.a(i).carrying_add(m.b(i), m.w.scc)),
        "s_subb_u32" => |m, i| m.out(i, m.a(i).borrowing_sub(m.b(i), m.w.scc)),
        "s_min_i32" => |m, i| pick(m, i, |a, b| (a as i32) < b as i32),
        "s_min_u32" => |m, i| pick(m, i, |a, b| a < b),
        "s_max_i32" => |m, i| pick(m, i, |a, b| a as i32 > b as i32),
        "s_max_u32" => |m, i| pick(m, i, |a, b| a > b),
        "s_cselect_b32" => |m, i| m.plain(i, if m.w.scc { m.a(i) } else { m.b(i) }),
        "s_cselect_b64" => |m, i| m.plain64(i, if m.w.scc { m.s64(i, 0) } else { m.s64(i, 1) }),
        "s_and_b32" => |m, i| m.nz(i, m.a(i) & m.b(i)),
        "s_and_b64" => |m, i| m.nz64(i, m.s64(i, 0) & m.s64(i, 1)),
        "s_or_b32" => |m, i| m.nz(i, m.a(i) | m.b(i)),
        "s_or_b64" => |m, i| m.nz64(i, m.s64(i, 0) | m.s64(i, 1)),
        "s_xor_b32" => |m, i| m.nz(i, m.a(i) ^ m.b(i)),
        "s_xor_b64" => |m, i| m.nz64(i, m.s64(i, 0) ^ m.s64(i, 1)),
        "s_andn2_b32" => |m, i| m.nz(i, m.a(i) & !m.b(i)),
        "s_andn2_b64" => |m, i| m.nz64(i, m.s64(i, 0) & !m.s64(i, 1)),
        "s_orn2_b32" => |m, i| m.nz(i, m.a(i) | !m.b(i)),
        "s_orn2_b64" => |m, i| m.nz64(i, m.s64(i, 0) | !m.s64(i, 1)),
        "s_nand_b32" => |m, i| m.nz(i, !(m.a(i) & m.b(i))),
        "s_nand_b64" => |m, i| m.nz64(i, !(m.s64(i, 0) & m.s64(i, 1))),
        "s_nor_b32" => |m, i| m.nz(i, !(m.a(i) | m.b(i))),
        "s_nor_b64" => |m, i| m.nz64(i, !(m.s64(i, 0) | m.s64(i, 1))),
        "s_xnor_b32" => |m, i| m.nz(i, !(m.a(i) ^ m.b(i))),
        "s_xnor_b64" => |m, i| m.nz64(i, !(m.s64(i, 0) ^ m.s64(i, 1))),
        "s_lshl_b32" => |m, i| m.nz(i, m.a(i) << (m.b(i) & 31)),
        "s_lshl_b64" => |m, i| m.nz64(i, m.s64(i, 0) << (m.b(i) & 63)),
        "s_lshr_b32" => |m, i| m.nz(i, m.a(i) >> (m.b(i) & 31)),
        "s_lshr_b64" => |m, i| m.nz64(i, m.s64(i, 0) >> (m.b(i) & 63)),
        "s_ashr_i32" => |m, i| m.nz(i, (m.a(i) as i32 >> (m.b(i) & 31)) as u32),
        "s_ashr_i64" => |m, i| m.nz64(i, (m.s64(i, 0) as i64 >> (m.b(i) & 63)) as u64),
        "s_bfm_b32" => |m, i| m.plain(i, ((1 << (m.a(i) & 31)) - 1) << (m.b(i) & 31)),
        "s_bfm_b64" => |m, i| m.plain64(i, ((1 << (m.a(i) & 63)) - 1) << (m.b(i) & 63)),
        "s_mul_i32" => |m, i| m.plain(i, m.a(i).wrapping_mul(m.b(i))),
        "s_mul_hi_u32" => |m, i| m.plain(i, ((u64::from(m.a(i)) * u64::from(m.b(i))) >> 32) as u32),
        "s_mul_hi_i32" => |m, i| m.plain(i, ((i64::from(m.a(i) as i32) * i64::from(m.b(i) as i32)) >> 32) as u32),
        "s_bfe_u32" => |m, i| {
            let (offset, width) = (m.b(i) & 31, m.b(i) >> 16 & 127);
            let mask = if width >= 32 { u32::MAX } else { (1 << width) - 1 };
            m.nz(i, m.a(i) >> offset & mask)
        },
        "s_bfe_i32" => |m, i| {
            let (offset, width) = (m.b(i) & 31, m.b(i) >> 16 & 127);
            let value = if width >= 32 { (m.a(i) as i32 >> offset) as u32 } else { bfe_i32(m.a(i), offset, width) };
            m.nz(i, value)
        },
        "s_bfe_u64" => |m, i| {
            let (offset, width) = (m.b(i) & 63, m.b(i) >> 16 & 127);
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            m.nz64(i, m.s64(i, 0) >> offset & mask)
        },
        "s_bfe_i64" => |m, i| {
            let (offset, width) = (m.b(i) & 63, (m.b(i) >> 16 & 127).min(64));
            let field = m.s64(i, 0) as i64 >> offset;
            m.nz64(i, if width == 0 { 0 } else { (field << (64 - width) >> (64 - width)) as u64 })
        },
        "s_absdiff_i32" => |m, i| m.nz(i, (m.a(i) as i32).wrapping_sub(m.b(i) as i32).unsigned_abs()),
        "s_lshl1_add_u32" => |m, i| m.out(i, shift_add(m.a(i), 1, m.b(i))),
        "s_lshl2_add_u32" => |m, i| m.out(i, shift_add(m.a(i), 2, m.b(i))),
        "s_lshl3_add_u32" => |m, i| m.out(i, shift_add(m.a(i), 3, m.b(i))),
        "s_lshl4_add_u32" => |m, i| m.out(i, shift_add(m.a(i), 4, m.b(i))),
        "s_pack_ll_b32_b16" => |m, i| m.plain(i, m.a(i) & 0xffff | m.b(i) << 16),
        "s_pack_lh_b32_b16" => |m, i| m.plain(i, m.a(i) & 0xffff | m.b(i) & 0xffff_0000),
        "s_pack_hh_b32_b16" => |m, i| m.plain(i, m.a(i) >> 16 | m.b(i) & 0xffff_0000),
        _ => return None,
    };
    Some(exec)
}

fn signed((value, over): (i32, bool)) -> (u32, bool) {
    (value as u32, over)
}

/// SCC says whether the first source was taken.
fn pick(m: &mut Machine<'_>, i: &Inst, first: impl Fn(u32, u32) -> bool) -> Done {
    let (a, b) = (m.a(i), m.b(i));
    let taken = first(a, b);
    m.out(i, (if taken { a } else { b }, taken))
}

fn shift_add(a: u32, by: u32, b: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}

fn sop1(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "s_mov_b32" => |m, i| m.plain(i, m.a(i)),
        "s_mov_b64" => |m, i| m.plain64(i, m.s64(i, 0)),
        "s_cmov_b32" => |m, i| if m.w.scc { m.plain(i, m.a(i)) } else { Ok(Flow::Next) },
        "s_cmov_b64" => |m, i| if m.w.scc { m.plain64(i, m.s64(i, 0)) } else { Ok(Flow::Next) },
        "s_not_b32" => |m, i| m.nz(i, !m.a(i)),
        "s_not_b64" => |m, i| m.nz64(i, !m.s64(i, 0)),
        "s_brev_b32" => |m, i| m.plain(i, m.a(i).reverse_bits()),
        "s_brev_b64" => |m, i| m.plain64(i, m.s64(i, 0).reverse_bits()),
        "s_bcnt0_i32_b32" => |m, i| m.nz(i, m.a(i).count_zeros()),
        "s_bcnt0_i32_b64" => |m, i| m.nz(i, m.s64(i, 0).count_zeros()),
        "s_bcnt1_i32_b32" => |m, i| m.nz(i, m.a(i).count_ones()),
        "s_bcnt1_i32_b64" => |m, i| m.nz(i, m.s64(i, 0).count_ones()),
        "s_ff0_i32_b32" => |m, i| m.plain(i, position(m.a(i).trailing_ones(), 32)),
        "s_ff0_i32_b64" => |m, i| m.plain(i, position(m.s64(i, 0).trailing_ones(), 64)),
        "s_ff1_i32_b32" => |m, i| m.plain(i, position(m.a(i).trailing_zeros(), 32)),
        "s_ff1_i32_b64" => |m, i| m.plain(i, position(m.s64(i, 0).trailing_zeros(), 64)),
        "s_flbit_i32_b32" => |m, i| m.plain(i, position(m.a(i).leading_zeros(), 32)),
        "s_flbit_i32_b64" => |m, i| m.plain(i, position(m.s64(i, 0).leading_zeros(), 64)),
        "s_flbit_i32" => |m, i| m.plain(i, leading_sign_bits(m.a(i))),
        "s_flbit_i32_i64" => |m, i| {
            let a = m.s64(i, 0);
            m.plain(i, position((a ^ (a as i64 >> 63) as u64).leading_zeros(), 64))
        },
        "s_sext_i32_i8" => |m, i| m.plain(i, m.a(i) as u8 as i8 as u32),
        "s_sext_i32_i16" => |m, i| m.plain(i, m.a(i) as u16 as i16 as u32),
        "s_bitset0_b32" => |m, i| m.plain(i, m.w.s[i.d()] & !(1 << (m.a(i) & 31))),
        "s_bitset1_b32" => |m, i| m.plain(i, m.w.s[i.d()] | 1 << (m.a(i) & 31)),
        "s_bitset0_b64" => |m, i| m.plain64(i, destination64(m, i) & !(1 << (m.a(i) & 63))),
        "s_bitset1_b64" => |m, i| m.plain64(i, destination64(m, i) | 1 << (m.a(i) & 63)),
        "s_abs_i32" => |m, i| m.nz(i, (m.a(i) as i32).unsigned_abs()),
        "s_bitreplicate_b64_b32" => |m, i| {
            let a = u64::from(m.a(i));
            m.plain64(i, (0..32).fold(0, |out, k| out | ((a >> k & 1) * 3) << (2 * k)))
        },
        "s_movrels_b32" => |m, i| {
            let super::inst::Src::Scalar(r) = i.src[0] else { return Trap::unmodelled("s_movrels of a constant") };
            let value = m.w.s[(usize::from(r) + m.w.s[M0] as usize) & 127];
            m.plain(i, value)
        },
        "s_movreld_b32" => |m, i| {
            let (value, to) = (m.a(i), (i.d() + m.w.s[M0] as usize) & 127);
            m.w.s[to] = value;
            m.w.s_undefined &= !(1 << to);
            Ok(Flow::Next)
        },
        "s_getpc_b64" => |m, i| {
            let pc = m.env.image_address + m.env.program.address_of(i.next);
            m.plain64(i, pc)
        },
        "s_setpc_b64" => |m, i| m.jump_to(m.s64(i, 0)),
        "s_swappc_b64" => |m, i| {
            let (target, pc) = (m.s64(i, 0), m.env.image_address + m.env.program.address_of(i.next));
            m.set_s64(i.dst, pc);
            m.jump_to(target)
        },
        _ => return None,
    };
    Some(exec)
}

fn position(n: u32, none: u32) -> u32 {
    if n == none { u32::MAX } else { n }
}

fn destination64(m: &Machine<'_>, i: &Inst) -> u64 {
    u64::from(m.w.s[i.d() & 127]) | u64::from(m.w.s[(i.d() + 1) & 127]) << 32
}

impl Machine<'_> {
    fn jump_to(&self, address: u64) -> Done {
        let index = address.checked_sub(self.env.image_address).and_then(|at| self.env.program.index_at(at));
        index.map(Flow::Jump).ok_or_else(|| Box::new(Trap::Jump { address }))
    }

    fn branch(&self, i: &Inst, taken: bool) -> Done {
        if !taken {
            return Ok(Flow::Next);
        }
        if i.target == u32::MAX {
            let address = self.env.program.address_of(i.next).wrapping_add_signed(i64::from(i.imm) * 4);
            return Err(Box::new(Trap::Jump { address }));
        }
        Ok(Flow::Jump(i.target))
    }
}

/// Saves EXEC, or changes it and returns the new value. In wave32 the high word of EXEC is zero.
fn save_exec(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "s_and_saveexec_b32" => |m, i| save(m, i, |a, exec| a & exec),
        "s_or_saveexec_b32" => |m, i| save(m, i, |a, exec| a | exec),
        "s_xor_saveexec_b32" => |m, i| save(m, i, |a, exec| a ^ exec),
        "s_andn2_saveexec_b32" => |m, i| save(m, i, |a, exec| a & !exec),
        "s_orn2_saveexec_b32" => |m, i| save(m, i, |a, exec| a | !exec),
        "s_nand_saveexec_b32" => |m, i| save(m, i, |a, exec| !(a & exec)),
        "s_nor_saveexec_b32" => |m, i| save(m, i, |a, exec| !(a | exec)),
        "s_xnor_saveexec_b32" => |m, i| save(m, i, |a, exec| !(a ^ exec)),
        "s_andn1_saveexec_b32" => |m, i| save(m, i, |a, exec| !a & exec),
        "s_orn1_saveexec_b32" => |m, i| save(m, i, |a, exec| !a | exec),
        "s_andn1_wrexec_b32" => |m, i| write_exec(m, i, |a, exec| !a & exec),
        "s_andn2_wrexec_b32" => |m, i| write_exec(m, i, |a, exec| a & !exec),
        _ => return None,
    };
    Some(exec)
}

fn save(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
    let (a, old) = (m.a(i), m.exec());
    m.set_s32(i.dst, old);
    m.w.s[EXEC] = f(a, old);
    m.w.scc = m.exec() != 0;
    Ok(Flow::Next)
}

fn write_exec(m: &mut Machine<'_>, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
    let new = f(m.a(i), m.exec());
    m.w.s[EXEC] = new;
    m.nz(i, new)
}

fn compare(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        "s_cmp_eq_i32" | "s_cmp_eq_u32" => |m, i| scc(m, m.a(i) == m.b(i)),
        "s_cmp_lg_i32" | "s_cmp_lg_u32" => |m, i| scc(m, m.a(i) != m.b(i)),
        "s_cmp_gt_i32" => |m, i| scc(m, m.a(i) as i32 > m.b(i) as i32),
        "s_cmp_ge_i32" => |m, i| scc(m, m.a(i) as i32 >= m.b(i) as i32),
        "s_cmp_lt_i32" => |m, i| scc(m, (m.a(i) as i32) < m.b(i) as i32),
        "s_cmp_le_i32" => |m, i| scc(m, m.a(i) as i32 <= m.b(i) as i32),
        "s_cmp_gt_u32" => |m, i| scc(m, m.a(i) > m.b(i)),
        "s_cmp_ge_u32" => |m, i| scc(m, m.a(i) >= m.b(i)),
        "s_cmp_lt_u32" => |m, i| scc(m, m.a(i) < m.b(i)),
        "s_cmp_le_u32" => |m, i| scc(m, m.a(i) <= m.b(i)),
        "s_cmp_eq_u64" => |m, i| scc(m, m.s64(i, 0) == m.s64(i, 1)),
        "s_cmp_lg_u64" => |m, i| scc(m, m.s64(i, 0) != m.s64(i, 1)),
        "s_bitcmp0_b32" => |m, i| scc(m, m.a(i) >> (m.b(i) & 31) & 1 == 0),
        "s_bitcmp1_b32" => |m, i| scc(m, m.a(i) >> (m.b(i) & 31) & 1 == 1),
        "s_bitcmp0_b64" => |m, i| scc(m, m.s64(i, 0) >> (m.b(i) & 63) & 1 == 0),
        "s_bitcmp1_b64" => |m, i| scc(m, m.s64(i, 0) >> (m.b(i) & 63) & 1 == 1),
        "s_movk_i32" => |m, i| m.plain(i, i.imm as u32),
        "s_cmovk_i32" => |m, i| if m.w.scc { m.plain(i, i.imm as u32) } else { Ok(Flow::Next) },
        "s_cmpk_eq_i32" => |m, i| scc(m, m.w.s[i.d()] as i32 == i.imm),
        "s_cmpk_lg_i32" => |m, i| scc(m, m.w.s[i.d()] as i32 != i.imm),
        "s_cmpk_gt_i32" => |m, i| scc(m, m.w.s[i.d()] as i32 > i.imm),
        "s_cmpk_ge_i32" => |m, i| scc(m, m.w.s[i.d()] as i32 >= i.imm),
        "s_cmpk_lt_i32" => |m, i| scc(m, (m.w.s[i.d()] as i32) < i.imm),
        "s_cmpk_le_i32" => |m, i| scc(m, m.w.s[i.d()] as i32 <= i.imm),
        "s_cmpk_eq_u32" => |m, i| scc(m, m.w.s[i.d()] == unsigned(i)),
        "s_cmpk_lg_u32" => |m, i| scc(m, m.w.s[i.d()] != unsigned(i)),
        "s_cmpk_gt_u32" => |m, i| scc(m, m.w.s[i.d()] > unsigned(i)),
        "s_cmpk_ge_u32" => |m, i| scc(m, m.w.s[i.d()] >= unsigned(i)),
        "s_cmpk_lt_u32" => |m, i| scc(m, m.w.s[i.d()] < unsigned(i)),
        "s_cmpk_le_u32" => |m, i| scc(m, m.w.s[i.d()] <= unsigned(i)),
        "s_addk_i32" => |m, i| m.out(i, signed((m.w.s[i.d()] as i32).overflowing_add(i.imm))),
        "s_mulk_i32" => |m, i| m.plain(i, m.w.s[i.d()].wrapping_mul(i.imm as u32)),
        _ => return None,
    };
    Some(exec)
}

fn scc(m: &mut Machine<'_>, value: bool) -> Done {
    m.w.scc = value;
    Ok(Flow::Next)
}

/// SIMM16 without its sign.
fn unsigned(i: &Inst) -> u32 {
    u32::from(i.imm as u16)
}

fn control(name: &str) -> Option<Exec> {
    let exec: Exec = match name {
        // Memory is in order here, so there is nothing to wait for.
        "s_nop" | "s_waitcnt" | "s_waitcnt_vscnt" | "s_waitcnt_vmcnt" | "s_waitcnt_expcnt" | "s_waitcnt_lgkmcnt"
        | "s_waitcnt_depctr" | "s_sleep" | "s_setprio" | "s_inst_prefetch" | "s_clause" | "s_icache_inv"
        | "s_wakeup" | "s_ttracedata" | "s_ttracedata_imm" | "s_incperflevel" | "s_decperflevel" | "s_version"
        | "s_wait_idle" => |_, _| Ok(Flow::Next),
        "s_endpgm" => |_, _| Ok(Flow::End),
        "s_barrier" => |_, _| Ok(Flow::Barrier),
        "s_branch" => |m, i| m.branch(i, true),
        "s_cbranch_scc0" => |m, i| m.branch(i, !m.w.scc),
        "s_cbranch_scc1" => |m, i| m.branch(i, m.w.scc),
        "s_cbranch_vccz" => |m, i| m.branch(i, m.w.s[super::machine::VCC] == 0),
        "s_cbranch_vccnz" => |m, i| m.branch(i, m.w.s[super::machine::VCC] != 0),
        "s_cbranch_execz" => |m, i| m.branch(i, m.exec() == 0),
        "s_cbranch_execnz" => |m, i| m.branch(i, m.exec() != 0),
        "s_call_b64" => |m, i| {
            let pc = m.env.image_address + m.env.program.address_of(i.next);
            m.set_s64(i.dst, pc);
            m.branch(i, true)
        },
        // Padding after a program's end.
        "s_code_end" => |_, _| Trap::unmodelled("execution past the end of a program (s_code_end)"),
        "s_trap" => |_, i| Err(Box::new(Trap::Software { code: i.imm as u32 & 0xffff })),
        "s_round_mode" => |m, i| super::mode::set(m, 0, 4, i.imm as u32),
        "s_denorm_mode" => |m, i| super::mode::set(m, 4, 4, i.imm as u32),
        "s_setreg_b32" => |m, i| super::mode::set_register(m, i.imm as u32 & 0xffff, m.w.s[i.d()]),
        "s_setreg_imm32_b32" => |m, i| super::mode::set_register(m, i.imm as u32 & 0xffff, i.imm2 as u32),
        "s_getreg_b32" => |m, i| {
            let value = super::mode::get_register(m, i.imm as u32 & 0xffff)?;
            m.plain(i, value)
        },
        _ => return None,
    };
    Some(exec)
}
