//! Bindings: a plan tied to memory, checked once and packed once; and sequences of them.

use std::sync::Arc;

use hippihx_kernels::catalogue::Access;
use hippihx_kernels::launch::{BoundTensor, Launch, Launches, Step, launches};
use hippihx_kernels::memory::{MemoryFault, Placement, check_memory, reach_bytes};
use hippihx_kernels::{MAX_RANK, Reason, Refusal, SCRATCH_ALIGN, Status, TensorDesc, check_scratch, check_tensors};
use hippihx_proto::v1::{Scratch, StepChange, Tensor};

use super::Owned;
use super::buffer::Buffer;
use crate::device::Sequence;
use crate::errors::Failure;
use crate::objects::Loaded;
use crate::plans::CachedPlan;

/// A bound plan. Holds everything that its launches reach: a run holds the binding and nothing else.
#[derive(Debug)]
pub struct Binding {
    pub plan: Arc<CachedPlan>,
    /// The object it was bound under; accepted runs keep it loaded.
    pub loaded: Arc<Loaded>,
    pub launches: Launches,
    steps: Vec<StepSlot>,
    rows: u32,
    /// Memory of the tensors and of the scratch.
    _held: Vec<Arc<Buffer>>,
}

/// How far the offset of a slot may move from step to step.
#[derive(Debug, Clone, Copy)]
struct StepSlot {
    access: Access,
    /// Bytes behind the bound offset that the buffer has.
    room: u64,
    /// Bytes that one row reaches over, and bytes from row to row.
    row_bytes: u64,
    row_stride: u64,
    elem_bytes: u64,
}

/// A recorded sequence; holds its bindings.
#[derive(Debug)]
pub struct Recorded {
    pub sequence: Arc<dyn Sequence>,
    pub loaded: Arc<Loaded>,
    pub op: &'static str,
    pub launches: usize,
    pub bindings: Vec<Arc<Binding>>,
}

/// Everything of a bind but the memory for daemon scratch, which the caller makes first.
#[derive(Debug)]
pub struct Bind<'a> {
    pub plan: Arc<CachedPlan>,
    pub loaded: Arc<Loaded>,
    pub tensors: &'a [Tensor],
    pub scratch: Option<&'a Scratch>,
    /// The daemon's own scratch, where the caller gave none and the plan needs some.
    pub own_scratch: Option<Arc<Buffer>>,
}

impl Bind<'_> {
    /// Whether the plan needs scratch that the caller did not bring.
    pub fn needs_scratch(&self) -> bool {
        self.plan.plan.scratch_nbytes() > 0 && self.scratch.is_none_or(|scratch| scratch.buffer == 0)
    }

    /// Checks the tensors against the contract's rows alone.
    ///
    /// # Errors
    /// ERR_TENSOR.
    pub fn check_tensors(&self) -> Result<(), Failure> {
        let descs = self.tensors.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        Ok(check_tensors(&self.plan.plan, &descs)?)
    }

    /// Checks the tensors and the scratch against the plan and against their buffers, and packs the arguments.
    ///
    /// # Errors
    /// ERR_TENSOR, ERR_SCRATCH, ERR_NOT_READY, or NOT_FOUND for a buffer.
    pub fn check(self, owned: &Owned) -> Result<Binding, Failure> {
        let plan = &self.plan.plan;
        let descs = self.tensors.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        check_tensors(plan, &descs)?;

        let mut held = Vec::new();
        let nowhere = Placement { base: 0, buffer_bytes: 0, offset: 0 };
        let mut places = vec![nowhere; descs.len()];
        for (slot, (tensor, rule)) in self.tensors.iter().zip(plan.op.tensors).enumerate() {
            if plan.requires(rule.when) {
                let buffer = find(owned, tensor.buffer)?;
                places[slot] = placement(&buffer, tensor.offset);
                held.push(buffer);
            }
        }
        let needed = plan.scratch_nbytes();
        let scratch = match (&self.own_scratch, self.scratch) {
            (Some(buffer), _) => {
                held.push(Arc::clone(buffer));
                Some((placement(buffer, 0), buffer.share.bytes()))
            }
            (None, Some(scratch)) if scratch.buffer != 0 => {
                let buffer = find(owned, scratch.buffer)?;
                let place = placement(&buffer, scratch.offset);
                held.push(buffer);
                Some((place, scratch.nbytes))
            }
            _ => None,
        };
        let address = scratch.map(|(place, _)| place.base.wrapping_add(place.offset));
        check_scratch(plan, address, scratch.map_or(0, |(_, nbytes)| nbytes))?;
        debug_assert!(address.is_none_or(|address| address.is_multiple_of(SCRATCH_ALIGN)));
        // What a caller says of its scratch has to be true, also beyond what the plan needs.
        if let Some((place, nbytes)) = scratch
            && place.offset.checked_add(nbytes).is_none_or(|end| end > place.buffer_bytes)
        {
            let fault = MemoryFault::ScratchReach { offset: place.offset, nbytes, buffer_bytes: place.buffer_bytes };
            return Err(Refusal::for_op(plan.op, Reason::Memory(fault)).into());
        }
        // Only what the plan needs of the scratch is ever touched.
        let touched = scratch.filter(|_| needed > 0).map(|(place, nbytes)| (place, nbytes.min(needed)));
        check_memory(plan, &descs, &places, touched)?;

        let bound: Vec<BoundTensor> = descs
            .iter()
            .zip(&places)
            .map(|(desc, place)| BoundTensor {
                address: place.base + place.offset,
                shape: desc.shape,
                stride: desc.stride,
            })
            .collect();
        let launches = launches(plan, &bound, touched.and(address).unwrap_or(0))?;
        let steps = plan.op.tensors.iter().zip(descs.iter().zip(&places)).filter(|(rule, _)| rule.steps);
        let steps: Vec<StepSlot> = steps
            .map(|(rule, (desc, place))| StepSlot {
                access: rule.access,
                room: place.buffer_bytes - place.offset,
                row_bytes: row_bytes(desc, rule.dtype.bytes()),
                row_stride: desc.stride[0].cast_unsigned().saturating_mul(rule.dtype.bytes()),
                elem_bytes: rule.dtype.bytes(),
            })
            .collect();
        let rows = u32::try_from(descs.first().map_or(0, |desc| desc.shape[0])).unwrap_or(u32::MAX);
        Ok(Binding { plan: self.plan, loaded: self.loaded, launches, steps, rows, _held: held })
    }
}

impl Binding {
    pub fn op(&self) -> &'static str {
        self.plan.plan.op.name
    }

    /// The step that a run asks for, checked against the bound tensors and their buffers in O(1).
    ///
    /// # Errors
    /// ERR_TENSOR, naming the field.
    pub fn step(&self, change: &StepChange) -> Result<Step, Failure> {
        let step = Step { rows: change.rows, q_bytes: change.q_offset, out_bytes: change.out_offset };
        if step == Step::default() {
            return Ok(step);
        }
        let refuse = |field, sentence| Err(Failure::V1 { status: Status::Tensor, field, sentence });
        if self.steps.is_empty() {
            return refuse("step", format!("{} has no tensor that may change from run to run", self.op()));
        }
        if step.rows > self.rows {
            return refuse("rows", format!("rows is {}; 1 to {} were bound (0 keeps them all)", step.rows, self.rows));
        }
        let rows = u64::from(if step.rows == 0 { self.rows } else { step.rows });
        for slot in &self.steps {
            let (field, offset) =
                if slot.access == Access::Input { ("q_offset", step.q_bytes) } else { ("out_offset", step.out_bytes) };
            let reach = (rows - 1).saturating_mul(slot.row_stride).saturating_add(slot.row_bytes);
            let end = offset.checked_add(reach);
            if !offset.is_multiple_of(slot.elem_bytes) || end.is_none_or(|end| end > slot.room) {
                let sentence = format!(
                    "{field} is {offset}; with {rows} rows it must keep {reach} bytes inside the {} that the buffer has behind the bound offset, \
                     and be a multiple of {}",
                    slot.room, slot.elem_bytes
                );
                return refuse(field, sentence);
            }
        }
        Ok(step)
    }

    /// The launches of one step.
    pub fn stepped(&self, step: &Step) -> impl Iterator<Item = Launch> {
        self.launches.iter().map(|launch| launch.stepped(step))
    }
}

/// ERR_NOT_READY for an op.
pub fn not_ready(op: &'static hippihx_kernels::Op, why: &'static str) -> Refusal {
    Refusal::for_op(op, hippihx_kernels::Reason::NotReady { why })
}

fn find(owned: &Owned, id: u64) -> Result<Arc<Buffer>, Failure> {
    owned.buffers.get(id).cloned().ok_or(Failure::NotFound { what: "buffer", id })
}

fn placement(buffer: &Buffer, offset: u64) -> Placement {
    Placement { base: buffer.memory.address(), buffer_bytes: buffer.memory.size(), offset }
}

fn row_bytes(desc: &TensorDesc, elem_bytes: u64) -> u64 {
    let mut row = *desc;
    row.shape[0] = 1;
    reach_bytes(&row, elem_bytes).unwrap_or(u64::MAX)
}

/// The wire's tensor as the contract's rows judge it. A shape and a stride of different lengths are malformed.
fn describe(tensor: &Tensor) -> Result<TensorDesc, Failure> {
    if tensor.absent {
        return Ok(TensorDesc::ABSENT);
    }
    if tensor.shape.len() != tensor.stride.len() {
        let sentence =
            format!("{} extents and {} strides; as many of both are needed", tensor.shape.len(), tensor.stride.len());
        return Err(Failure::V1 { status: Status::Tensor, field: "stride", sentence });
    }
    let mut desc = TensorDesc {
        data_null: tensor.buffer == 0,
        dtype: tensor.dtype,
        rank: i32::try_from(tensor.shape.len()).unwrap_or(i32::MAX),
        ..TensorDesc::ABSENT
    };
    for axis in 0..tensor.shape.len().min(MAX_RANK) {
        (desc.shape[axis], desc.stride[axis]) = (tensor.shape[axis], tensor.stride[axis]);
    }
    Ok(desc)
}
