//! Plan and the tensor checks allocate nothing, refusals included: a counting allocator says so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hippihx_kernels::{Caps, ParamValue, TensorDesc, check_scratch, check_tensors, plan};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of this thread during a call.
fn allocations<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let answer = call();
    (ALLOCATIONS.with(Cell::get) - before, answer)
}

#[test]
fn plan_and_its_checks_allocate_nothing() {
    assert_eq!(allocations(|| Box::new(7)).0, 1, "the counter counts");
    let mut params: Vec<_> = [0, 128, 32, 8, 16, 4, 0, 0, 8].map(ParamValue::from_i64).to_vec();
    params.push(ParamValue::from_f64(0.1));
    let caps = Caps { arch: "gfx1030", ..Caps::default() };
    let (count, planned) = allocations(|| plan(0, &caps, &params));
    assert_eq!(count, 0);
    let planned = planned.unwrap();
    for (refused, given) in
        [(Caps { arch: "gfx906", ..caps }, &params[..]), (Caps { dtype: 2, ..caps }, &params[..]), (caps, &params[..9])]
    {
        let (count, refusal) = allocations(|| plan(0, &refused, given));
        assert!(refusal.is_err());
        assert_eq!(count, 0);
    }
    let tensors = [TensorDesc::ABSENT; 7];
    let (count, refusal) = allocations(|| check_tensors(&planned, &tensors));
    assert!(refusal.is_err());
    assert_eq!(count, 0);
    assert_eq!(allocations(|| check_scratch(&planned, None, 0)).0, 0);
}
