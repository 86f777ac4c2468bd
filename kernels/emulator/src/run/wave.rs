//! The loop over instructions.

use std::sync::atomic::Ordering;

use crate::exec::inst::Inst;
use crate::exec::machine::{EXEC, Machine};
use crate::exec::trap::{Flow, Trap};
use crate::options::Options;
use crate::report::TraceLine;

/// Instructions between looks at the clock that others wind: cancellation and the limit.
const LOOK: u64 = 4096;

/// Runs a wave to a barrier or its end.
pub(super) fn run(m: &mut Machine<'_>, options: &Options) -> Result<Flow, Box<Trap>> {
    let insts = m.env.program.insts();
    let undefined = options.checks.undefined_registers;
    let traced = options.trace.filter(|of| of.workgroup == m.tally.workgroup && of.wave == m.w.index);
    loop {
        let Some(inst) = insts.get(m.w.at as usize) else {
            return Err(Box::new(Trap::Jump { address: m.env.image_address }));
        };
        m.tally.at = m.w.at;
        let exec = m.w.s[EXEC];
        m.tally.instructions[inst.class as usize] += 1;
        m.tally.lanes[inst.class as usize] += u64::from(exec.count_ones());
        if undefined {
            check_reads(m, inst, exec);
        }
        let flow = (inst.exec)(m, inst)?;
        if undefined {
            note_writes(m, inst, exec);
        }
        if let Some(of) = traced
            && m.tally.trace.len() < of.limit
        {
            trace(m, inst, exec);
        }
        m.w.executed += 1;
        if m.w.executed.is_multiple_of(LOOK) {
            look(m, options)?;
        }
        match flow {
            Flow::Next => m.w.at = inst.next,
            Flow::Jump(to) => m.w.at = to,
            Flow::Barrier | Flow::End => {
                m.w.at = inst.next;
                return Ok(flow);
            }
        }
    }
}

#[cold]
fn look(m: &mut Machine<'_>, options: &Options) -> Result<(), Box<Trap>> {
    if m.env.stop.load(Ordering::Relaxed) {
        return Err(Box::new(Trap::Cancelled));
    }
    if m.w.executed >= options.instruction_limit {
        return Err(Box::new(Trap::InstructionLimit));
    }
    Ok(())
}

#[inline(always)]
fn check_reads(m: &mut Machine<'_>, inst: &Inst, exec: u32) {
    let uses = &inst.uses;
    let bad = uses.reads().iter().fold(0, |bad, &r| bad | m.w.v_undefined[usize::from(r)]);
    if bad & exec != 0 || uses.scalar_reads & m.w.s_undefined != 0 {
        report_reads(m, inst, exec);
    }
}

#[cold]
fn report_reads(m: &mut Machine<'_>, inst: &Inst, exec: u32) {
    for &register in inst.uses.reads() {
        let lanes = m.w.v_undefined[usize::from(register)] & exec;
        if lanes != 0 {
            m.tally.undefined_register(u32::from(register), true, lanes.trailing_zeros());
        }
    }
    let scalars = inst.uses.scalar_reads & m.w.s_undefined;
    if scalars != 0 {
        m.tally.undefined_register(scalars.trailing_zeros(), false, 0);
    }
}

#[inline(always)]
fn note_writes(m: &mut Machine<'_>, inst: &Inst, exec: u32) {
    let uses = &inst.uses;
    for k in 0..uses.n_writes {
        m.w.v_undefined[usize::from(uses.first_write.wrapping_add(k))] &= !exec;
    }
    m.w.s_undefined &= !uses.scalar_writes;
}

#[cold]
fn trace(m: &mut Machine<'_>, inst: &Inst, exec: u32) {
    let program = m.env.program;
    let uses = &inst.uses;
    let vectors = (0..uses.n_writes).map(|k| {
        let register = uses.first_write.wrapping_add(k);
        (format!("v{register}"), m.w.v[usize::from(register)][0])
    });
    let scalars = (0..108_usize).filter(|r| uses.scalar_writes >> r & 1 == 1).map(|r| {
        let name = match r {
            106 => "vcc_lo".to_owned(),
            107 => "vcc_hi".to_owned(),
            _ => format!("s{r}"),
        };
        (name, m.w.s[r])
    });
    let wrote = vectors.chain(scalars).collect();
    let (pc, text) = (program.address_of(m.tally.at), program.text_of(m.tally.at));
    m.tally.trace.push(TraceLine { pc, text, exec, wrote });
}
