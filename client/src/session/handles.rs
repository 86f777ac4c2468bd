//! What a caller holds: descriptions that remember the id which the present daemon gave them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hippihx_kernels::{Fabric, ParamValue};
use hippihx_proto::v1;

use crate::error::Error;
use crate::memory::{Element, SharedMemory, View};

/// The id that the present daemon gave a description, if it did.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Option<Given>>);

#[derive(Debug)]
struct Given {
    /// The attachment and the generation that the id is good for; generation 0 is every one.
    incarnation: u64,
    generation: u64,
    id: u64,
    /// The whole answer, of a plan.
    answer: Option<Box<v1::PlanResponse>>,
}

impl Known {
    fn given(&self) -> MutexGuard<'_, Option<Given>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, incarnation: u64, generation: u64) -> Option<u64> {
        let given = self.given();
        let given = given.as_ref()?;
        let good = given.incarnation == incarnation && (given.generation == 0 || given.generation == generation);
        good.then_some(given.id)
    }

    pub(crate) fn set(&self, incarnation: u64, generation: u64, id: u64) {
        *self.given() = Some(Given { incarnation, generation, id, answer: None });
    }

    pub(crate) fn set_answer(&self, incarnation: u64, answer: v1::PlanResponse) {
        let (generation, id) = (answer.generation, answer.plan);
        *self.given() = Some(Given { incarnation, generation, id, answer: Some(Box::new(answer)) });
    }

    pub(crate) fn answer(&self) -> v1::PlanResponse {
        self.given().as_ref().and_then(|given| given.answer.as_deref().cloned()).unwrap_or_default()
    }

    pub(crate) fn forget(&self) {
        *self.given() = None;
    }
}

/// A plan's whole question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlanSpec {
    pub op: String,
    pub arch: String,
    /// 32, 64, or 0 for the slot's default.
    pub wave: i32,
    /// A dtype's number.
    pub dtype: i32,
    pub fabric: Option<Fabric>,
    /// In the catalogue's order. Whether a value is an integer or a float is the op's business; the bits are sent.
    pub params: Vec<ParamValue>,
}

impl PlanSpec {
    pub fn new(op: &str, arch: &str) -> PlanSpec {
        PlanSpec { op: op.to_owned(), arch: arch.to_owned(), wave: 0, dtype: 0, fabric: None, params: Vec::new() }
    }

    pub(crate) fn request(&self) -> v1::PlanRequest {
        let fabric = self.fabric.map(|fabric| v1::Fabric {
            hop: fabric.hop,
            pcie_switch: fabric.pcie_switch,
            width: fabric.width,
            acs_clear: fabric.acs_clear,
            large_bar: fabric.large_bar,
        });
        v1::PlanRequest {
            op: Some(v1::plan_request::Op::OpName(self.op.clone())),
            caps: Some(v1::Caps { arch: self.arch.clone(), wave: self.wave, dtype: self.dtype, fabric }),
            params: self
                .params
                .iter()
                .map(|value| v1::ParamValue { value: Some(v1::param_value::Value::I(value.as_i64())) })
                .collect(),
        }
    }
}

/// A planned op.
#[derive(Debug, Clone)]
pub struct Plan(pub(crate) Arc<PlanInner>);

#[derive(Debug)]
pub(crate) struct PlanInner {
    pub(crate) spec: PlanSpec,
    pub(crate) known: Known,
}

impl Plan {
    /// The daemon's last answer: readiness, variant, scratch.
    pub fn answer(&self) -> v1::PlanResponse {
        self.0.known.answer()
    }
}

/// Memory that both sides have mapped.
#[derive(Debug, Clone)]
pub struct Buffer(pub(crate) Arc<BufferInner>);

#[derive(Debug)]
pub(crate) struct BufferInner {
    pub(crate) label: String,
    pub(crate) memory: Arc<SharedMemory>,
    /// The attachment whose daemon owns it; its contents are gone with that.
    pub(crate) owned_by: Option<u64>,
    pub(crate) known: Known,
}

impl Buffer {
    /// Bytes.
    pub fn size(&self) -> usize {
        self.0.memory.size()
    }

    /// `len` elements from byte `offset` on, without a copy.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is not inside the buffer, or not aligned.
    pub fn view<T: Element>(&self, offset: usize, len: usize) -> Result<View<'_, T>, Error> {
        self.0.memory.view(offset, len)
    }
}

/// A tensor of a binding.
#[derive(Debug, Clone)]
pub struct TensorRef {
    /// `None` stands for a NULL tensor.
    pub(crate) buffer: Option<Buffer>,
    offset: u64,
    dtype: i32,
    shape: Vec<i64>,
    stride: Vec<i64>,
}

impl TensorRef {
    /// A tensor in a buffer; offset in bytes, shape and stride in elements.
    pub fn new(
        buffer: &Buffer,
        offset: u64,
        dtype: hippihx_kernels::Dtype,
        shape: &[i64],
        stride: &[i64],
    ) -> TensorRef {
        TensorRef {
            buffer: Some(buffer.clone()),
            offset,
            dtype: dtype.code(),
            shape: shape.to_vec(),
            stride: stride.to_vec(),
        }
    }

    /// The same with the strides of a dense tensor.
    pub fn dense(buffer: &Buffer, offset: u64, dtype: hippihx_kernels::Dtype, shape: &[i64]) -> TensorRef {
        let mut stride = vec![1_i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            stride[axis - 1] = stride[axis].saturating_mul(shape[axis]);
        }
        TensorRef::new(buffer, offset, dtype, shape, &stride)
    }

    /// What stands in a slot that the plan does not require.
    pub fn absent() -> TensorRef {
        TensorRef { buffer: None, offset: 0, dtype: 0, shape: Vec::new(), stride: Vec::new() }
    }

    pub(crate) fn wire(&self, buffer: u64) -> v1::Tensor {
        v1::Tensor {
            buffer,
            offset: self.offset,
            dtype: self.dtype,
            shape: self.shape.clone(),
            stride: self.stride.clone(),
            absent: self.buffer.is_none(),
        }
    }
}

/// A bound plan.
#[derive(Debug, Clone)]
pub struct Binding(pub(crate) Arc<BindingInner>);

#[derive(Debug)]
pub(crate) struct BindingInner {
    pub(crate) plan: Plan,
    pub(crate) tensors: Vec<TensorRef>,
    pub(crate) scratch: Option<(Buffer, u64, u64)>,
    pub(crate) known: Known,
}

/// A recorded list of bindings.
#[derive(Debug, Clone)]
pub struct Sequence(pub(crate) Arc<SequenceInner>);

#[derive(Debug)]
pub(crate) struct SequenceInner {
    pub(crate) bindings: Vec<Binding>,
    pub(crate) known: Known,
}

impl SequenceInner {
    /// Forgets the ids of the sequence and of everything in it.
    pub(crate) fn forget(&self) {
        self.known.forget();
        self.bindings.iter().for_each(|binding| binding.0.known.forget());
    }
}
