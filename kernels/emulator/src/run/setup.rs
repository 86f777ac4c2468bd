//! How waves start: arguments, dispatch packet, registers.

use super::{Dispatch, DispatchError, MAX_LDS, waves_of};
use crate::exec::machine::{EXEC, Env, LANES, Wave};
use crate::object::{Descriptor, HiddenKind};
use crate::program::{Kernel, Program};

/// Bit of the scratch descriptor's last word by which buffer instructions know it: the lane's number is added.
pub(crate) const SCRATCH_KIND: u32 = 1 << 23;

/// What each register holds before a kernel writes it, if anybody looks in spite of the report.
const UNDEFINED: u32 = 0xdead_beef;

/// Checks sizes; the LDS bytes of a workgroup.
pub(super) fn check(kernel: &Kernel, dispatch: &Dispatch<'_>) -> Result<u32, DispatchError> {
    let name = || kernel.name().to_owned();
    let hidden: u64 = kernel.hidden.iter().map(|&(_, size, _)| size).sum();
    let first_hidden = kernel.hidden.iter().map(|&(offset, ..)| offset).min().unwrap_or(kernel.kernarg_bytes);
    let found = dispatch.kernarg.len() as u64;
    // Explicit arguments may be given with or without the padding and the hidden ones behind them.
    if found > kernel.kernarg_bytes || found.next_multiple_of(8) < first_hidden && found < first_hidden {
        return Err(DispatchError::Arguments { kernel: name(), wanted: kernel.kernarg_bytes, hidden, found });
    }
    let items = dispatch.block.iter().try_fold(1_u64, |n, &b| n.checked_mul(u64::from(b))).unwrap_or(u64::MAX);
    let allowed = kernel.max_workgroup.unwrap_or(1024).min(1024);
    if items == 0 || items > allowed {
        return Err(DispatchError::Workgroup { kernel: name(), block: dispatch.block, allowed });
    }
    let lds = dispatch.lds_bytes.max(kernel.static_lds_bytes());
    if lds > MAX_LDS {
        return Err(DispatchError::Lds { kernel: name(), found: lds });
    }
    Ok(lds)
}

/// Everything that waves start from.
pub(super) struct Launch<'a> {
    pub env: Env<'a>,
    pub waves: u32,
    descriptor: Descriptor,
    entry: u32,
    block: [u32; 3],
    kernarg: u64,
    packet: u64,
}

const PAGE: u64 = 4096;

pub(super) fn prepare<'a>(
    program: &Program,
    kernel: &Kernel,
    dispatch: &Dispatch<'_>,
    mut env: Env<'a>,
) -> Result<Launch<'a>, DispatchError> {
    let descriptor = kernel.descriptor;
    let unmodelled = |what: String| DispatchError::Unmodelled { kernel: kernel.name().to_owned(), what };
    if let Err(trap) = crate::exec::mode::check(descriptor.mode) {
        return Err(unmodelled(format!("{trap:?}")));
    }
    let image_len = program.image_at(0).len() as u64;
    let arguments = arguments(kernel, dispatch);
    let total = image_len + arguments.len() as u64 + 4 * PAGE;
    let base = env.memory.free_address(total).ok_or_else(|| unmodelled("no free addresses for the code".to_owned()))?;
    let kernarg = (base + image_len).next_multiple_of(PAGE);
    let packet = (kernarg + arguments.len() as u64).next_multiple_of(PAGE);
    let block = dispatch.block;
    env.internal = vec![
        (kernarg, arguments),
        (packet, packet_bytes(dispatch, &descriptor, base + kernel.descriptor_address, kernarg)),
        (base, program.image_at(base)),
    ];
    env.image_address = base;
    let waves = waves_of(block.iter().map(|&b| u64::from(b)).product());
    Ok(Launch { env, waves, descriptor, entry: kernel.entry, block, kernarg, packet })
}

fn arguments(kernel: &Kernel, dispatch: &Dispatch<'_>) -> Vec<u8> {
    let mut bytes = dispatch.kernarg.to_vec();
    // Compilers load whole vectors of words, past the last argument: runtimes allocate arguments in cache lines.
    bytes.resize((kernel.kernarg_bytes as usize).next_multiple_of(64), 0);
    for &(offset, size, kind) in &kernel.hidden {
        let value: u64 = match kind {
            HiddenKind::BlockCount(axis) => u64::from(dispatch.grid[axis]),
            HiddenKind::GroupSize(axis) => u64::from(dispatch.block[axis]),
            HiddenKind::GridDims => {
                (0..3).rev().find(|&k| dispatch.grid[k] > 1 || dispatch.block[k] > 1).unwrap_or(0) as u64 + 1
            }
            // Grids are whole workgroups and start at 0.
            HiddenKind::Remainder(_) | HiddenKind::GlobalOffset | HiddenKind::Zero => 0,
        };
        let (at, n) = (offset as usize, (size as usize).min(8));
        if let Some(to) = bytes.get_mut(at..at.saturating_add(n)) {
            to.copy_from_slice(&value.to_le_bytes()[..n]);
        }
    }
    bytes
}

/// The AQL packet that the dispatch pointer points at.
fn packet_bytes(dispatch: &Dispatch<'_>, descriptor: &Descriptor, kernel_object: u64, kernarg: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let mut put = |at: usize, value: u64, n: usize| bytes[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
    put(0, 2, 2);
    put(2, 3, 2);
    for axis in 0..3 {
        put(4 + 2 * axis, u64::from(dispatch.block[axis]), 2);
        put(12 + 4 * axis, u64::from(dispatch.grid[axis].wrapping_mul(dispatch.block[axis])), 4);
    }
    put(24, u64::from(descriptor.private_bytes), 4);
    put(28, u64::from(descriptor.group_bytes.max(dispatch.lds_bytes)), 4);
    put(32, kernel_object, 8);
    put(40, kernarg, 8);
    bytes
}

impl Launch<'_> {
    pub(super) fn blank_wave(&self, index: u32) -> Wave {
        Wave {
            v: vec![[UNDEFINED; LANES]; 256]
                .into_boxed_slice()
                .try_into()
                .unwrap_or_else(|_| Box::new([[0; LANES]; 256])),
            s: [0; 128],
            scc: false,
            mode: 0,
            at: 0,
            v_undefined: Box::new([u32::MAX; 256]),
            s_undefined: u128::MAX,
            scratch: vec![0; self.env.scratch_bytes as usize / 4 * LANES],
            flat_scratch: [0; 2],
            index,
            done: false,
            executed: 0,
        }
    }

    /// Registers of a wave at the kernel's entry, for workgroup `id`.
    pub(super) fn start(&self, wave: &mut Wave, id: [u32; 3]) {
        let d = &self.descriptor;
        wave.v.fill([UNDEFINED; LANES]);
        wave.v_undefined.fill(u32::MAX);
        wave.s = [UNDEFINED; 128];
        // Only general registers and VCC begin undefined.
        wave.s_undefined = (1 << 108) - 1;
        wave.s[107..].fill(0);
        (wave.scc, wave.mode, wave.at, wave.done, wave.executed) = (false, d.mode, self.entry, false, 0);
        wave.scratch.fill(UNDEFINED);
        let mut next = 0;
        let mut give = |wave: &mut Wave, words: &[u32]| {
            for &word in words {
                wave.s[next] = word;
                wave.s_undefined &= !(1 << next);
                next += 1;
            }
        };
        let pair = |value: u64| [value as u32, (value >> 32) as u32];
        let user: [(bool, &[u32]); 7] = [
            // Base 0, swizzled, no limit: private memory is found by its kind, see the buffer instructions.
            (d.private_segment_buffer, &[0, 1 << 31, u32::MAX, SCRATCH_KIND | 2 << 21]),
            (d.dispatch_ptr, &pair(self.packet)),
            (d.queue_ptr, &[0, 0]),
            (d.kernarg_ptr, &pair(self.kernarg)),
            (d.dispatch_id, &[0, 0]),
            (d.flat_scratch_init, &[0, 0]),
            (d.private_segment_size, &[d.private_bytes]),
        ];
        for (wanted, words) in user {
            if wanted {
                give(wave, words);
            }
        }
        for axis in 0..3 {
            if d.workgroup_id[axis] {
                give(wave, &[id[axis]]);
            }
        }
        if d.workgroup_info {
            give(wave, &[0]);
        }
        if d.private_wave_offset {
            give(wave, &[0]);
        }
        let items = self.block.iter().map(|&b| u64::from(b)).product::<u64>();
        let first = u64::from(wave.index) * LANES as u64;
        let active = (items - first).min(LANES as u64);
        wave.s[EXEC] = if active == LANES as u64 { u32::MAX } else { (1 << active) - 1 };
        for axis in 0..=(d.workitem_ids.min(2) as usize) {
            wave.v_undefined[axis] = 0;
            for lane in 0..LANES {
                let item = first + lane as u64;
                let [x, y] = [u64::from(self.block[0]), u64::from(self.block[1])];
                wave.v[axis][lane] = [item % x, item / x % y, item / x / y][axis] as u32;
            }
        }
    }
}
