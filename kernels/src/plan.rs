//! Plan: host-only arithmetic that checks caps and params, sizes scratch and picks the variant.
//!
//! Nothing here allocates, locks or touches a device, so a plan is safe while a graph is being captured. Readiness is no
//! part of a plan: it belongs to the loaded code object and is read with its generation.

use std::hash::{Hash, Hasher};

use crate::catalogue::{Condition, MAX_PARAMS, Op, Param, ParamKind, op_by_id};
use crate::dtype::Dtype;
use crate::fabric::{self, Fabric};
use crate::refusal::{Reason, Refusal};
use crate::scratch::{ScratchLayout, ScratchSpec};
use crate::slot::{Slot, slot_by_bytes};
use crate::value::ParamValue;

/// What a caller says of the target and the activations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caps<'a> {
    /// Slot name, such as `gfx1030`.
    pub arch: &'a str,
    /// 32, 64, or 0 for the slot's default.
    pub wave: i32,
    /// A dtype's number.
    pub dtype: i32,
    pub fabric: Option<Fabric>,
}

/// Caps that were found right for an op.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub op: &'static Op,
    pub slot: &'static Slot,
    /// Resolved: 32 or 64.
    pub wave: i32,
    pub dtype: Dtype,
}

/// An accepted plan. Plain data: copying it is all that a cache needs.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub op: &'static Op,
    pub slot: &'static Slot,
    /// Resolved: 32 or 64.
    pub wave: i32,
    pub dtype: Dtype,
    /// Explore rank of the variant param's value; 0 for an op without one.
    pub variant: i32,
    pub fabric: Option<Fabric>,
    params: [ParamValue; MAX_PARAMS],
    scratch: ScratchLayout,
}

impl Plan {
    /// A plan that was handed out as plain numbers and came back, for checks of tensors and scratch. Its slot and wave do not
    /// come back, since those checks ask for neither.
    pub fn restored(op: &'static Op, params: &[ParamValue; MAX_PARAMS], scratch_nbytes: u64) -> Plan {
        let slot = &crate::slot::SLOTS[0];
        Plan {
            op,
            slot,
            wave: slot.default_wave,
            dtype: Dtype::Unset,
            variant: 0,
            fabric: None,
            params: *params,
            scratch: ScratchLayout::of_size(scratch_nbytes),
        }
    }

    /// In the catalogue's order.
    pub fn params(&self) -> &[ParamValue] {
        &self.params[..self.op.params.len()]
    }

    /// The param at this index of the catalogue as an integer; 0 beyond the op's params.
    pub fn int(&self, index: usize) -> i64 {
        self.params.get(index).map_or(0, |value| value.as_i64())
    }

    /// The param at this index of the catalogue as a float; 0 beyond the op's params.
    pub fn float(&self, index: usize) -> f64 {
        self.params.get(index).map_or(0.0, |value| value.as_f64())
    }

    /// The blocks that this plan needs, in the catalogue's order.
    pub fn scratch(&self) -> &[ScratchSpec] {
        self.scratch.blocks()
    }

    /// Bytes of all blocks together, a multiple of 256.
    pub fn scratch_nbytes(&self) -> u64 {
        self.scratch.nbytes()
    }

    /// Whether a rule with these conditions applies to this plan.
    pub fn requires(&self, when: &[Condition]) -> bool {
        applies(when, &self.params)
    }
}

/// Equality is the cache's: op, slot, wave, dtype, fabric, and the params bit for bit.
impl PartialEq for Plan {
    fn eq(&self, other: &Plan) -> bool {
        self.op == other.op
            && self.slot.id == other.slot.id
            && self.wave == other.wave
            && self.dtype == other.dtype
            && self.fabric == other.fabric
            && self.params() == other.params()
    }
}

impl Eq for Plan {}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op.id, self.slot.id, self.wave, self.dtype, self.fabric).hash(state);
        self.params().hash(state);
    }
}

/// Plans an op.
///
/// # Errors
/// In this order: ERR_UNKNOWN_OP; ERR_UNSUPPORTED_ARCH for the arch, a DOT op on a slot without DOT, the wave;
/// ERR_UNSUPPORTED_DTYPE; ERR_PARAM for the count, a domain, a check; the fabric's; ERR_PARAM for scratch.
#[inline]
pub fn plan(op_id: i32, caps: &Caps<'_>, params: &[ParamValue]) -> Result<Plan, Refusal> {
    let op = op_by_id(op_id).ok_or_else(|| Refusal::of(Reason::UnknownOp { found: op_id }))?;
    let target = resolve(op, Some(caps.arch.as_bytes()), caps.wave, caps.dtype)?;
    complete(&target, params, caps.fabric.as_ref())
}

/// The first half of plan: arch, DOT, wave and activation dtype. `arch` is `None` for a NULL of C.
///
/// # Errors
/// ERR_UNSUPPORTED_ARCH or ERR_UNSUPPORTED_DTYPE.
#[inline]
pub fn resolve(op: &'static Op, arch: Option<&[u8]>, wave: i32, dtype: i32) -> Result<Target, Refusal> {
    let slot = slot_by_bytes(arch).map_err(|refusal| refusal.with_op(op))?;
    if op.dot && !slot.dot {
        return Err(Refusal::for_op(op, Reason::DotSlot { slot }));
    }
    let resolved = if wave == 0 { slot.default_wave } else { wave };
    if !(resolved == 32 || (resolved == 64 && !op.dot)) {
        return Err(Refusal::for_op(op, Reason::Wave { found: wave, slot }));
    }
    let refused = Refusal::for_op(op, Reason::ActivationDtype { found: dtype });
    let dtype = Dtype::from_code(dtype).filter(|dtype| dtype.is_activation()).ok_or(refused)?;
    if op.fp16_act && !matches!(dtype, Dtype::Unset | Dtype::Fp16) {
        return Err(refused);
    }
    Ok(Target { op, slot, wave: resolved, dtype })
}

/// The second half of plan: params, checks, fabric, scratch.
///
/// # Errors
/// ERR_PARAM, or the fabric's ERR_BAD_ARG and ERR_UNSUPPORTED_FABRIC.
#[inline]
pub fn complete(target: &Target, params: &[ParamValue], fabric: Option<&Fabric>) -> Result<Plan, Refusal> {
    let op = target.op;
    check_param_count(op, params.len() as i64)?;
    let mut kept = [ParamValue::default(); MAX_PARAMS];
    for (index, (param, value)) in op.params.iter().zip(params).enumerate() {
        if !in_domain(param, *value) {
            return Err(Refusal::for_op(op, Reason::Param { index, found: *value }));
        }
        kept[index] = *value;
    }
    for check in op.checks {
        let (num, by) = (kept[check.num].as_i64(), kept[check.by].as_i64());
        // checked_rem is None for a divisor of 0, and for i64::MIN % -1, whose true remainder is 0.
        let divides = num.checked_rem(by).map_or(by == -1, |rest| rest == 0);
        if !divides {
            return Err(Refusal::for_op(op, Reason::Divides { check: *check, num, by }));
        }
    }
    if op.needs_fabric {
        fabric::verdict(fabric).map_err(|refusal| refusal.with_op(op))?;
    }
    let scratch = ScratchLayout::of(op, &kept)?;
    Ok(Plan {
        op,
        slot: target.slot,
        wave: target.wave,
        dtype: target.dtype,
        variant: variant(op, &kept),
        fabric: if op.needs_fabric { fabric.copied() } else { None },
        params: kept,
        scratch,
    })
}

/// Compares a param count of a caller with the op's.
///
/// # Errors
/// ERR_PARAM.
#[inline]
pub fn check_param_count(op: &'static Op, found: i64) -> Result<(), Refusal> {
    if usize::try_from(found) == Ok(op.params.len()) {
        Ok(())
    } else {
        Err(Refusal::for_op(op, Reason::ParamCount { found }))
    }
}

#[inline]
fn in_domain(param: &Param, value: ParamValue) -> bool {
    let found = value.as_i64();
    match param.kind {
        ParamKind::Int { lo, hi } => lo.is_none_or(|lo| found >= lo) && hi.is_none_or(|hi| found <= hi),
        ParamKind::Enum(values) => values.iter().any(|allowed| allowed.value == found),
        ParamKind::Bool => found == 0 || found == 1,
        ParamKind::Float => value.as_f64().is_finite() && value.as_f64() > 0.0,
    }
}

#[inline]
fn variant(op: &Op, params: &[ParamValue; MAX_PARAMS]) -> i32 {
    let Some(index) = op.variant_param else { return 0 };
    let ParamKind::Enum(values) = op.params[index].kind else { return 0 };
    values.iter().position(|allowed| allowed.value == params[index].as_i64()).map_or(0, |rank| rank as i32)
}

/// A rule with no conditions always applies; one with several, when any of them holds.
#[inline]
pub(crate) fn applies(when: &[Condition], params: &[ParamValue; MAX_PARAMS]) -> bool {
    when.is_empty()
        || when.iter().any(|condition| match *condition {
            Condition::Equals { param, value } => params[param].as_i64() == value,
            Condition::Above { param, value } => params[param].as_i64() > value,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::fa_fdot2::*;
    use crate::status::Status;

    pub(crate) fn decode_params() -> Vec<ParamValue> {
        let mut params: Vec<_> = [0, 128, 32, 8, 16, 4, 0, 0, 8].map(ParamValue::from_i64).to_vec();
        params.push(ParamValue::from_f64(0.088_388_347_648_318_44));
        params
    }

    fn gfx1030() -> Caps<'static> {
        Caps { arch: "gfx1030", ..Caps::default() }
    }

    #[test]
    fn the_worked_figures_of_the_contract() {
        let decode = plan(OP, &gfx1030(), &decode_params()).unwrap();
        let blocks: Vec<_> = decode.scratch().iter().map(|block| (block.name, block.nbytes, block.offset)).collect();
        assert_eq!(blocks, [("o_partial", 524_288, 0), ("m_partial", 4096, 524_288), ("l_partial", 4096, 528_384)]);
        assert_eq!((decode.scratch_nbytes(), decode.wave, decode.variant), (532_480, 32, 0));

        let mut params = decode_params();
        params[P_MODE] = ParamValue::from_i64(MODE_PREFILL);
        params[P_KV_SPLITS] = ParamValue::from_i64(1);
        let prefill = plan(OP, &gfx1030(), &params).unwrap();
        assert_eq!((prefill.scratch().len(), prefill.scratch_nbytes(), prefill.variant), (0, 0, 1));
    }

    #[test]
    fn the_order_of_the_checks_decides_the_status() {
        // Everything is wrong; the first check in the contract's order answers. Then that one is mended, and so on.
        let bad = [ParamValue::from_i64(-1)];
        let status = |op, caps: &Caps<'_>, params: &[ParamValue]| plan(op, caps, params).unwrap_err().status();
        assert_eq!(status(12, &Caps { arch: "no", wave: 7, dtype: 9, fabric: None }, &bad), Status::UnknownOp);
        assert_eq!(status(0, &Caps { arch: "no", wave: 7, dtype: 9, fabric: None }, &bad), Status::UnsupportedArch);
        assert_eq!(status(0, &Caps { arch: "gfx900", wave: 7, dtype: 9, fabric: None }, &bad), Status::UnsupportedArch);
        assert_eq!(
            status(0, &Caps { arch: "gfx1030", wave: 64, dtype: 9, fabric: None }, &bad),
            Status::UnsupportedArch
        );
        assert_eq!(
            status(0, &Caps { arch: "gfx1030", wave: 32, dtype: 2, fabric: None }, &bad),
            Status::UnsupportedDtype
        );
        assert_eq!(status(0, &Caps { arch: "gfx1030", wave: 32, dtype: 1, fabric: None }, &bad), Status::Param);
        assert_eq!(status(11, &gfx1030(), &[ParamValue::from_i64(524_289)]), Status::Param);
        assert_eq!(status(11, &gfx1030(), &[ParamValue::from_i64(524_288)]), Status::UnsupportedFabric);
    }

    #[test]
    fn waves_follow_the_slot_and_the_op() {
        let wave = |op, arch, wave| plan(op, &Caps { arch, wave, ..Caps::default() }, &[]).map(|plan| plan.wave);
        assert_eq!(wave(2, "gfx900", 0), Ok(64));
        assert_eq!(wave(2, "gfx900", 32), Ok(32));
        assert_eq!(wave(2, "gfx1030", 64), Ok(64));
        assert_eq!(wave(2, "gfx1030", 16).unwrap_err().status(), Status::UnsupportedArch);
        assert_eq!(wave(5, "gfx1030", 64).unwrap_err().status(), Status::UnsupportedArch);
    }

    #[test]
    fn sentences_name_what_was_found_and_what_is_allowed() {
        let mut params = decode_params();
        params[P_HEAD_DIM] = ParamValue::from_i64(96);
        let text = plan(OP, &gfx1030(), &params).unwrap_err().to_string();
        assert_eq!(text, "attention.fa_fdot2: param head_dim is 96; allowed are 128, 256");
        let text = plan(OP, &Caps { dtype: 2, ..gfx1030() }, &params).unwrap_err().to_string();
        assert_eq!(text, "attention.fa_fdot2: caps.dtype is 2 (bf16); activations may be unset, fp16");
        let text = plan(OP, &gfx1030(), &decode_params()[..9]).unwrap_err().to_string();
        assert_eq!(text, "attention.fa_fdot2: 9 params were given, the op takes 10");
    }

    #[test]
    fn partials_beyond_31_bits_are_refused() {
        let mut params = decode_params();
        params[P_MAX_TOKENS] = ParamValue::from_i64(1 << 40);
        let refusal = plan(OP, &gfx1030(), &params).unwrap_err();
        assert_eq!((refusal.status(), refusal.field()), (Status::Param, "o_partial"));
        params[P_MAX_TOKENS] = ParamValue::from_i64(i64::MAX);
        assert_eq!(plan(OP, &gfx1030(), &params).unwrap_err().status(), Status::Param);
    }
}
