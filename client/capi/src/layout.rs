//! The structs of the C ABI, with every size and offset asserted at compile time.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

use hippihx_kernels::{MAX_PARAMS, MAX_RANK, MAX_SCRATCH, ParamValue};

/// An int64 or a double, as the op's schema says.
pub type Param = ParamValue;

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Fabric {
    pub hop: i32,
    pub pcie_switch: i32,
    pub width: i32,
    pub acs_clear: i32,
    pub large_bar: i32,
}

#[derive(Debug)]
#[repr(C)]
pub struct Caps {
    pub arch: *const c_char,
    pub wave: c_int,
    pub dtype: c_int,
    pub fabric: *const Fabric,
}

#[derive(Debug)]
#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub dtype: i32,
    pub rank: i32,
    pub shape: [i64; MAX_RANK],
    pub stride: [i64; MAX_RANK],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ScratchSpec {
    /// Library-owned and static.
    pub name: *const c_char,
    pub nbytes: usize,
    pub offset: usize,
    /// Always 1: the owner zeroes a block once.
    pub zeroed: c_int,
}

#[derive(Debug)]
#[repr(C)]
pub struct Plan {
    pub struct_size: usize,
    pub abi_revision: i32,
    pub op: i32,
    pub arch: i32,
    pub wave: i32,
    pub dtype: i32,
    pub ready: i32,
    pub variant: i32,
    pub nparams: i32,
    pub params: [Param; MAX_PARAMS],
    pub nscratch: i32,
    pub scratch: [ScratchSpec; MAX_SCRATCH],
    pub scratch_nbytes: usize,
}

const _: () = {
    assert!(size_of::<Param>() == 8 && size_of::<Fabric>() == 20 && size_of::<Caps>() == 24);
    assert!(offset_of!(Caps, wave) == 8 && offset_of!(Caps, dtype) == 12 && offset_of!(Caps, fabric) == 16);
    assert!(size_of::<Tensor>() == 112 && offset_of!(Tensor, dtype) == 8 && offset_of!(Tensor, rank) == 12);
    assert!(offset_of!(Tensor, shape) == 16 && offset_of!(Tensor, stride) == 64);
    assert!(size_of::<ScratchSpec>() == 32 && offset_of!(ScratchSpec, nbytes) == 8);
    assert!(offset_of!(ScratchSpec, offset) == 16 && offset_of!(ScratchSpec, zeroed) == 24);
    assert!(size_of::<Plan>() == 312 && offset_of!(Plan, abi_revision) == 8 && offset_of!(Plan, nparams) == 36);
    assert!(offset_of!(Plan, params) == 40 && offset_of!(Plan, nscratch) == 168);
    assert!(offset_of!(Plan, scratch) == 176 && offset_of!(Plan, scratch_nbytes) == 304);
};
