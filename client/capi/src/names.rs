//! What the ops are called, as C strings made from the catalogue at compile time.

use std::ffi::{c_char, c_int};

use hippihx_kernels::{ABI_REVISION, OPS, Op, op_by_id};

use crate::guard::value;

/// Bytes of the longest name with its NUL.
const LONGEST: usize = 40;

/// A name of the catalogue with a NUL behind it.
#[derive(Clone, Copy)]
struct Name([u8; LONGEST]);

impl Name {
    const fn of(text: &str) -> Name {
        let bytes = text.as_bytes();
        assert!(bytes.len() < LONGEST, "a name of the catalogue is longer than LONGEST");
        let mut name = [0; LONGEST];
        let mut at = 0;
        while at < bytes.len() {
            name[at] = bytes[at];
            at += 1;
        }
        Name(name)
    }

    const fn as_ptr(&'static self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

const MAX_PARAMS: usize = hippihx_kernels::MAX_PARAMS;
const MAX_TENSORS: usize = 16;

/// All names of one op.
#[derive(Clone, Copy)]
struct Names {
    op: Name,
    params: [Name; MAX_PARAMS],
    tensors: [Name; MAX_TENSORS],
    scratch: [Name; hippihx_kernels::MAX_SCRATCH],
}

const fn names_of(op: &Op) -> Names {
    let empty = Name::of("");
    let mut names = Names {
        op: Name::of(op.name),
        params: [empty; MAX_PARAMS],
        tensors: [empty; MAX_TENSORS],
        scratch: [empty; hippihx_kernels::MAX_SCRATCH],
    };
    let mut at = 0;
    while at < op.params.len() {
        names.params[at] = Name::of(op.params[at].name);
        at += 1;
    }
    at = 0;
    while at < op.tensors.len() {
        names.tensors[at] = Name::of(op.tensors[at].name);
        at += 1;
    }
    at = 0;
    while at < op.scratch.len() {
        names.scratch[at] = Name::of(op.scratch[at].name);
        at += 1;
    }
    names
}

static NAMES: [Names; OPS.len()] = {
    let mut names = [names_of(&OPS[0]); OPS.len()];
    let mut at = 0;
    while at < OPS.len() {
        names[at] = names_of(&OPS[at]);
        at += 1;
    }
    names
};

fn find(op: c_int) -> Option<(&'static Op, &'static Names)> {
    let found = op_by_id(op)?;
    Some((found, NAMES.get(usize::try_from(op).ok()?)?))
}

/// The C string of a scratch block.
pub(crate) fn scratch_name(op: &Op, block: usize) -> *const c_char {
    let names = usize::try_from(op.id).ok().and_then(|id| NAMES.get(id));
    names.and_then(|names| names.scratch.get(block)).map_or(std::ptr::null(), Name::as_ptr)
}

/// ABI revision of this library: 4.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_abi_revision() -> c_int {
    ABI_REVISION
}

/// Number of ops; ids are 0 to one less.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_count() -> c_int {
    OPS.len() as c_int
}

/// Qualified name of an op; NULL for no op.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_name(op: c_int) -> *const c_char {
    value(std::ptr::null(), || find(op).map_or(std::ptr::null(), |(_, names)| names.op.as_ptr()))
}

/// 1 for a DOT op; 0 for another, and for no op.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_is_dot(op: c_int) -> c_int {
    value(0, || find(op).map_or(0, |(op, _)| c_int::from(op.dot)))
}

/// 1 for an op that takes fp16 activations only; 0 for another, and for no op.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_fp16_act(op: c_int) -> c_int {
    value(0, || find(op).map_or(0, |(op, _)| c_int::from(op.fp16_act)))
}

/// Number of params; -1 for no op.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_nparams(op: c_int) -> c_int {
    value(-1, || find(op).map_or(-1, |(op, _)| op.params.len() as c_int))
}

/// Name of a param; NULL out of range.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_param_name(op: c_int, index: c_int) -> *const c_char {
    value(std::ptr::null(), || {
        let named = |(op, names): (&'static Op, &'static Names)| {
            let index = usize::try_from(index).ok().filter(|index| *index < op.params.len())?;
            names.params.get(index).map(Name::as_ptr)
        };
        find(op).and_then(named).unwrap_or(std::ptr::null())
    })
}

/// Number of tensor slots; -1 for no op.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_ntensors(op: c_int) -> c_int {
    value(-1, || find(op).map_or(-1, |(op, _)| op.tensors.len() as c_int))
}

/// Name of a tensor slot; NULL out of range.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_op_tensor_name(op: c_int, index: c_int) -> *const c_char {
    value(std::ptr::null(), || {
        let named = |(op, names): (&'static Op, &'static Names)| {
            let index = usize::try_from(index).ok().filter(|index| *index < op.tensors.len())?;
            names.tensors.get(index).map(Name::as_ptr)
        };
        find(op).and_then(named).unwrap_or(std::ptr::null())
    })
}
