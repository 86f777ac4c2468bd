//! An oracle for the V1 contract, written from its text alone: its own tables, big integers, no code of the implementation.
//!
//! It answers with the status number that plan or run must give. It is slow and plain on purpose.

use num_bigint::BigInt;

/// A fabric's five numbers.
pub type Fabric = [i32; 5];

/// Everything that a C caller passes to plan.
#[derive(Debug, Clone)]
pub struct PlanCall {
    pub op: i32,
    pub arch: Option<String>,
    pub wave: i32,
    pub dtype: i32,
    pub fabric: Option<Fabric>,
    /// `None` is a NULL pointer; each entry is the eight bytes as an integer.
    pub params: Option<Vec<i64>>,
    pub nparams: i32,
}

/// A tensor of a run.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub null: bool,
    pub dtype: i32,
    pub rank: i32,
    pub shape: [i64; 6],
    pub stride: [i64; 6],
}

/// (DOT, fp16 activations only) of each op, by id.
const OPS: [(bool, bool); 12] = [
    (true, true),
    (false, true),
    (false, false),
    (false, false),
    (false, false),
    (true, true),
    (true, true),
    (false, false),
    (true, true),
    (false, false),
    (false, false),
    (false, false),
];

const DOT_SLOTS: [&str; 11] = [
    "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1151", "gfx1031", "gfx1032", "gfx1033", "gfx1035",
    "gfx1036",
];

/// Status of plan, and the scratch blocks (bytes, offset) with the total on success.
pub fn plan(call: &PlanCall) -> (i32, Vec<(u64, u64)>, u64) {
    let fail = |status| (status, Vec::new(), 0);
    let Some((dot, fp16_only)) = usize::try_from(call.op).ok().and_then(|op| OPS.get(op)).copied() else {
        return fail(1);
    };
    let arch = call.arch.as_deref().unwrap_or("");
    let dot_slot = DOT_SLOTS.contains(&arch);
    if !dot_slot && arch != "gfx900" {
        return fail(2);
    }
    if dot && !dot_slot {
        return fail(2);
    }
    if !(call.wave == 0 || call.wave == 32 || (call.wave == 64 && !dot)) {
        return fail(2);
    }
    // wave 0 on gfx900 is 64, which a DOT op would refuse; but no DOT op gets here on gfx900.
    let dtype_fits = match call.dtype {
        0 | 1 => true,
        2 | 3 => !fp16_only,
        _ => false,
    };
    if !dtype_fits {
        return fail(6);
    }
    if call.nparams > 0 && call.params.is_none() {
        return fail(3);
    }
    let wanted = match call.op {
        0 => 10,
        11 => 1,
        _ => 0,
    };
    if call.nparams != wanted {
        return fail(8);
    }
    let params = call.params.clone().unwrap_or_default();
    match call.op {
        0 => match attention_scratch(&params) {
            Some((blocks, total)) => (0, blocks, total),
            None => fail(8),
        },
        11 => {
            if params[0] < 1 || params[0] > 512 * 1024 {
                return fail(8);
            }
            fail(fabric(call.fabric))
        }
        _ => fail(0),
    }
}

fn fabric(fabric: Option<Fabric>) -> i32 {
    let Some([hop, switch, width, acs_clear, large_bar]) = fabric else { return 10 };
    let listed = [0, 1, 2, 3].contains(&hop)
        && [0, 1, 2, 3].contains(&switch)
        && [1, 2, 4, 8, 16].contains(&width)
        && [0, 1].contains(&acs_clear)
        && [0, 1].contains(&large_bar);
    if !listed || (hop == 1 && acs_clear == 0) {
        return 3;
    }
    if hop == 1 && (switch == 1 || switch == 3) && acs_clear == 1 && large_bar == 1 { 0 } else { 10 }
}

/// `None` for ERR_PARAM.
fn attention_scratch(p: &[i64]) -> Option<(Vec<(u64, u64)>, u64)> {
    let scale = f64::from_bits(p[9] as u64);
    let good = (p[0] == 0 || p[0] == 1)
        && (p[1] == 128 || p[1] == 256)
        && p[2] >= 1
        && p[3] >= 1
        && p[4] >= 1
        && (1..=16).contains(&p[5])
        && p[6] >= 0
        && (p[7] == 0 || p[7] == 1)
        && p[8] >= 1
        && scale.is_finite()
        && scale > 0.0;
    if !good || BigInt::from(p[2]) % BigInt::from(p[3]) != BigInt::from(0) {
        return None;
    }
    if p[0] == 1 && p[5] == 1 {
        return Some((Vec::new(), 0));
    }
    let rows = BigInt::from(p[8]) * BigInt::from(p[2]) * BigInt::from(p[5]);
    let largest = BigInt::from(i64::MAX) - 256;
    let (mut blocks, mut end) = (Vec::new(), BigInt::from(0));
    for (elements, bound) in [(&rows * BigInt::from(p[1]), true), (rows.clone(), false), (rows.clone(), false)] {
        if elements > BigInt::from(i64::MAX) || (bound && elements > BigInt::from(i32::MAX)) {
            return None;
        }
        let bytes: BigInt = elements * 4;
        let offset = (&end + 255) / 256 * 256;
        end = &offset + &bytes;
        if bytes > BigInt::from(i64::MAX) || end > largest {
            return None;
        }
        blocks.push((u64::try_from(&bytes).ok()?, u64::try_from(&offset).ok()?));
    }
    let total: BigInt = (&end + 255) / 256 * 256;
    Some((blocks, u64::try_from(&total).ok()?))
}

/// A tensor slot as the contract's table has it: dtype, dims, layout.
enum Dim {
    Any,
    Is(usize),
    AtMost(usize),
}

/// Status of run for a good plan of fa_fdot2 with these params, before readiness: 5 when everything is right.
pub fn run(p: &[i64], tensors: &[Tensor], scratch: Option<u64>, scratch_nbytes: u64, plan_nbytes: u64) -> i32 {
    use Dim::{Any, AtMost, Is};
    let rows = || vec![AtMost(8), Is(2), Is(1)];
    let slots: [(i32, Vec<Dim>, &str, bool); 7] = [
        (1, rows(), "contiguous", true),
        (1, vec![Any, Is(3), Any, Is(4), Any], "strided", true),
        (1, vec![Any, Any, Any, Any, Any], "strided", true),
        (4, vec![Any, Any], "rows", true),
        (4, vec![Any], "contiguous", true),
        (4, vec![Any], "contiguous", p[0] == 1),
        (1, rows(), "contiguous", true),
    ];
    if tensors.len() != slots.len() {
        return 9;
    }
    for (tensor, (dtype, dims, layout, required)) in tensors.iter().zip(slots) {
        if required && !fits(p, tensor, dtype, &dims, layout) {
            return 9;
        }
    }
    let aligned = scratch.is_none_or(|address| address % 256 == 0);
    if scratch_nbytes < plan_nbytes || (scratch.is_none() && plan_nbytes > 0) || !aligned {
        return 4;
    }
    5
}

fn fits(p: &[i64], tensor: &Tensor, dtype: i32, dims: &[Dim], layout: &str) -> bool {
    if tensor.null || tensor.dtype != dtype || i64::from(tensor.rank) != dims.len() as i64 {
        return false;
    }
    for (axis, dim) in dims.iter().enumerate() {
        let (extent, stride) = (tensor.shape[axis], tensor.stride[axis]);
        let allowed = match dim {
            Dim::Any => true,
            Dim::Is(param) => extent == p[*param],
            Dim::AtMost(param) => extent <= p[*param],
        };
        if extent < 1 || !allowed || stride < 0 {
            return false;
        }
    }
    if layout == "strided" {
        return true;
    }
    let mut span = BigInt::from(1);
    for axis in (0..dims.len()).rev() {
        if tensor.shape[axis] == 1 {
            continue;
        }
        let stride = BigInt::from(tensor.stride[axis]);
        let innermost = axis == dims.len() - 1;
        let good = if layout == "rows" && !innermost { stride >= span } else { stride == span };
        span = stride * BigInt::from(tensor.shape[axis]);
        if !good || span > BigInt::from(i64::MAX) {
            return false;
        }
    }
    true
}
