//! Scratch: the blocks that a plan needs, where each lies, and how several plans' blocks share an arena.

use crate::catalogue::{MAX_PARAMS, MAX_SCRATCH, Op, SCRATCH_ALIGN, ScratchDim, ScratchRule};
use crate::plan::{Plan, applies};
use crate::refusal::{Reason, Refusal, ScratchFault};
use crate::value::ParamValue;

/// One block of a plan's scratch. The owner zeroes it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScratchSpec {
    pub name: &'static str,
    /// Index of its rule in the op's row.
    pub rule: usize,
    /// Bytes, exactly; the next block starts at the next multiple of 256.
    pub nbytes: u64,
    /// Bytes from the start of the plan's scratch; a multiple of 256.
    pub offset: u64,
}

/// All blocks of one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScratchLayout {
    blocks: [ScratchSpec; MAX_SCRATCH],
    count: usize,
    nbytes: u64,
}

impl ScratchLayout {
    #[inline]
    pub(crate) fn of(op: &'static Op, params: &[ParamValue; MAX_PARAMS]) -> Result<Self, Refusal> {
        let mut layout = ScratchLayout::default();
        for (index, rule) in op.scratch.iter().enumerate() {
            if !applies(rule.when, params) {
                continue;
            }
            layout
                .push(index, rule, params)
                .map_err(|fault| Refusal::for_op(op, Reason::ScratchSize { rule: index, fault }))?;
        }
        Ok(layout)
    }

    /// A layout of which only the size is known.
    pub(crate) fn of_size(nbytes: u64) -> Self {
        ScratchLayout { nbytes, ..ScratchLayout::default() }
    }

    #[inline]
    fn push(
        &mut self,
        index: usize,
        rule: &ScratchRule,
        params: &[ParamValue; MAX_PARAMS],
    ) -> Result<(), ScratchFault> {
        let mut elems: i64 = 1;
        for dim in rule.dims {
            let extent = match *dim {
                ScratchDim::Param(param) => params[param].as_i64(),
                ScratchDim::Literal(extent) => extent,
            };
            if extent < 1 {
                return Err(ScratchFault::Dim { found: extent });
            }
            elems = elems.checked_mul(extent).ok_or(ScratchFault::Overflow)?;
        }
        if rule.max_elems > 0 && elems > rule.max_elems {
            return Err(ScratchFault::Elements { found: elems, allowed: rule.max_elems });
        }
        let bytes = elems.checked_mul(rule.elem_bytes as i64).ok_or(ScratchFault::Overflow)?;
        // `nbytes` is a multiple of 256 at most INT64_MAX - 255, so the sums fit a u64.
        let end = self.nbytes + bytes.cast_unsigned();
        if end > (i64::MAX - 256).cast_unsigned() {
            return Err(ScratchFault::Overflow);
        }
        self.blocks[self.count] =
            ScratchSpec { name: rule.name, rule: index, nbytes: bytes.cast_unsigned(), offset: self.nbytes };
        self.count += 1;
        self.nbytes = align_up(end);
        Ok(())
    }

    pub(crate) fn blocks(&self) -> &[ScratchSpec] {
        &self.blocks[..self.count]
    }

    pub(crate) const fn nbytes(&self) -> u64 {
        self.nbytes
    }
}

const fn align_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(SCRATCH_ALIGN)
}

/// Checks the scratch of a run: its size in bytes, whether it is there, and its address.
///
/// # Errors
/// ERR_SCRATCH.
pub fn check_scratch(plan: &Plan, address: Option<u64>, nbytes: u64) -> Result<(), Refusal> {
    let needed = plan.scratch_nbytes();
    let refuse = |reason| Err(Refusal::for_op(plan.op, reason));
    if nbytes < needed {
        return refuse(Reason::ScratchBytes { found: nbytes, needed });
    }
    match address {
        None if needed > 0 => refuse(Reason::ScratchNull { needed }),
        Some(address) if !address.is_multiple_of(SCRATCH_ALIGN) => refuse(Reason::ScratchAlign { address }),
        _ => Ok(()),
    }
}

/// Packs several plans' scratch into one arena: the offset of each in bytes, then the arena's size. `None` when it does
/// not fit 64 bits.
pub fn arena_layout(sizes: &[u64]) -> Option<(Vec<u64>, u64)> {
    let mut offsets = Vec::with_capacity(sizes.len());
    let mut end: u64 = 0;
    for size in sizes {
        let start = end.checked_next_multiple_of(SCRATCH_ALIGN)?;
        offsets.push(start);
        end = start.checked_add(*size)?;
    }
    Some((offsets, end.checked_next_multiple_of(SCRATCH_ALIGN)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arena_of_the_contract() {
        let (offsets, nbytes) = arena_layout(&[532_480, 0, 100, 4096]).unwrap();
        assert_eq!((offsets.as_slice(), nbytes), ([0, 532_480, 532_480, 532_736].as_slice(), 536_832));
        assert_eq!(arena_layout(&[]), Some((vec![], 0)));
        assert_eq!(arena_layout(&[u64::MAX]), None);
        assert_eq!(arena_layout(&[u64::MAX - 255, 1]), None);
    }
}
