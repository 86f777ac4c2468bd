//! The recipe of `attention.fa_fdot2`: which kernels, which grids, which arguments.

use super::{ArgKind, ArgSpec, BoundTensor, Kernarg, KernelSpec, Launch, Launches, StepFields};
use crate::catalogue::fa_fdot2::*;
use crate::plan::Plan;
use crate::refusal::{Reason, Refusal};

/// Query heads of one KV head that a decode workgroup takes at once.
const HEADS_PER_GROUP: i64 = 8;
/// Query rows of a prefill workgroup.
const PREFILL_ROWS: u32 = 16;
/// Work-items of every workgroup.
const BLOCK: [u32; 3] = [128, 1, 1];
/// Steps of grid axes 1 and 2 that every device takes.
const MAX_GRID: i64 = 65_535;
/// Scales beyond it overflow a product of fp16 dots; the softmax is a choice of the largest there already.
const MAX_SCALE_LOG2E: f64 = 1e25;

const PATH_SCALAR: u32 = 0;
const PATH_DEPTH: u32 = 1;
const PATH_TOKENS: u32 = 2;

const fn pack<const N: usize>(fields: [(&'static str, ArgKind); N]) -> [ArgSpec; N] {
    let mut args = [const { ArgSpec { name: "", offset: 0, kind: ArgKind::U32 } }; N];
    let (mut at, mut offset) = (0, 0);
    while at < N {
        args[at] = ArgSpec { name: fields[at].0, offset, kind: fields[at].1 };
        offset += fields[at].1.bytes();
        at += 1;
    }
    args
}

/// One list for all kernels of the op, in the order of `kernels/hip/attention/fa_fdot2/args.h`.
static ARGS: [ArgSpec; 35] = pack([
    ("q", ArgKind::Buffer),
    ("k_cache", ArgKind::Buffer),
    ("v_cache", ArgKind::Buffer),
    ("block_table", ArgKind::Buffer),
    ("seq_lens", ArgKind::Buffer),
    ("cu_query_lens", ArgKind::Buffer),
    ("out", ArgKind::Buffer),
    ("o_partial", ArgKind::Buffer),
    ("m_partial", ArgKind::Buffer),
    ("l_partial", ArgKind::Buffer),
    ("k_stride_block", ArgKind::I64),
    ("k_stride_head", ArgKind::I64),
    ("k_stride_group", ArgKind::I64),
    ("k_stride_token", ArgKind::I64),
    ("k_stride_lane", ArgKind::I64),
    ("v_stride_block", ArgKind::I64),
    ("v_stride_head", ArgKind::I64),
    ("v_stride_group", ArgKind::I64),
    ("v_stride_token", ArgKind::I64),
    ("v_stride_lane", ArgKind::I64),
    ("table_stride", ArgKind::I64),
    ("blocks", ArgKind::U32),
    ("rows", ArgKind::U32),
    ("sequences", ArgKind::U32),
    ("capacity", ArgKind::U32),
    ("block_size", ArgKind::U32),
    ("q_heads", ArgKind::U32),
    ("kv_heads", ArgKind::U32),
    ("pack_shift", ArgKind::U32),
    ("splits", ArgKind::U32),
    ("window", ArgKind::U32),
    ("causal", ArgKind::U32),
    ("scale_log2e", ArgKind::F32),
    ("k_path", ArgKind::U32),
    ("v_path", ArgKind::U32),
]);

const KERNARG_BYTES: u32 = 224;
const OFFSET_Q: u32 = 0;
const OFFSET_OUT: u32 = 48;
const OFFSET_ROWS: u32 = 172;

const fn kernel(name: &'static str, static_lds_bytes: u32, rows_per_group: u32) -> KernelSpec {
    KernelSpec {
        name,
        args: &ARGS,
        kernarg_bytes: KERNARG_BYTES,
        static_lds_bytes,
        block: BLOCK,
        dot: true,
        steps: StepFields { q: OFFSET_Q, out: OFFSET_OUT, rows: OFFSET_ROWS, rows_per_group },
    }
}

/// Six kernels: three kinds at two head sizes.
pub static KERNELS: [KernelSpec; 6] = [
    kernel("hippihx_fa_fdot2_decode_d128", 21_504, 1),
    kernel("hippihx_fa_fdot2_decode_d256", 21_504, 1),
    kernel("hippihx_fa_fdot2_prefill_d128", 32_768, PREFILL_ROWS),
    kernel("hippihx_fa_fdot2_prefill_d256", 32_768, PREFILL_ROWS),
    kernel("hippihx_fa_fdot2_combine_d128", 0, 1),
    kernel("hippihx_fa_fdot2_combine_d256", 0, 1),
];

pub(super) fn launches(plan: &Plan, tensors: &[BoundTensor], scratch: u64) -> Result<Launches, Refusal> {
    let Some([q, k, v, table, lens, cu, out]) = tensors.first_chunk::<7>() else {
        return Err(Refusal::for_op(plan.op, Reason::TensorCount { found: tensors.len() as i64 }));
    };
    let prefill = plan.int(P_MODE) == MODE_PREFILL;
    let (q_heads, kv_heads, splits) = (plan.int(P_NUM_Q_HEADS), plan.int(P_NUM_KV_HEADS), plan.int(P_KV_SPLITS));
    let fit = |slot, axis, found: i64, allowed: i64| {
        if found <= allowed {
            Ok(found as u32)
        } else {
            Err(Refusal::for_op(plan.op, Reason::TensorExtent { slot, axis, found, allowed }))
        }
    };
    // Grid axis 0 counts work-items in 32 bits on a GPU.
    let rows = fit(T_Q, 0, q.shape[0], i64::from(u32::MAX / BLOCK[0]))?;
    let heads = fit(T_Q, 1, q_heads, MAX_GRID)?;
    let sequences = fit(T_SEQ_LENS, 0, lens.shape[0], i64::from(i32::MAX))?;
    let group = q_heads / kv_heads;
    let decode_groups = kv_heads as u32
        * group.div_euclid(HEADS_PER_GROUP).saturating_add(i64::from(group % HEADS_PER_GROUP != 0)) as u32;

    let block_size = plan.int(P_BLOCK_SIZE).min(i64::from(i32::MAX));
    let capacity = table.shape[1].saturating_mul(block_size).min(i64::from(i32::MAX));
    let (k_path, v_path) = paths(plan, k, v);
    let partial = |block: usize| plan.scratch().get(block).map_or(0, |spec| scratch + spec.offset);
    let buffers = [
        q.address,
        k.address,
        v.address,
        table.address,
        lens.address,
        if prefill { cu.address } else { 0 },
        out.address,
        partial(S_O_PARTIAL),
        partial(S_M_PARTIAL),
        partial(S_L_PARTIAL),
    ];
    let strides = [k.stride, v.stride].map(|stride| [stride[0], stride[1], stride[2], stride[3], stride[4]]);
    let scale_log2e = (plan.float(P_SCALE) * std::f64::consts::LOG2_E).min(MAX_SCALE_LOG2E) as f32;
    let words = [
        k.shape[0].min(i64::from(i32::MAX)) as u32,
        rows,
        sequences,
        capacity as u32,
        block_size as u32,
        heads,
        kv_heads as u32,
        (k.shape[4].max(1) as u64).trailing_zeros(),
        splits as u32,
        plan.int(P_SLIDING_WINDOW).min(i64::from(i32::MAX)) as u32,
        plan.int(P_CAUSAL) as u32,
        scale_log2e.to_bits(),
        k_path,
        v_path,
    ];
    let mut kernarg = Kernarg::zeroed(KERNARG_BYTES);
    let wide =
        buffers.into_iter().chain(strides.into_iter().flatten().chain([table.stride[0]]).map(i64::cast_unsigned));
    let mut offset = 0;
    for word in wide {
        kernarg.write(offset, &word.to_le_bytes());
        offset += 8;
    }
    for word in words {
        kernarg.write(offset, &word.to_le_bytes());
        offset += 4;
    }

    let size = usize::from(plan.int(P_HEAD_DIM) == 256);
    let launch = |kernel: &'static KernelSpec, groups_y: u32, groups_z: u32| Launch {
        kernel,
        grid: [rows.div_ceil(kernel.steps.rows_per_group), groups_y, groups_z],
        block: BLOCK,
        lds_bytes: 0,
        kernarg,
    };
    let first = if prefill {
        launch(&KERNELS[2 + size], heads, splits as u32)
    } else {
        launch(&KERNELS[size], decode_groups, splits as u32)
    };
    let combine = (splits > 1).then(|| launch(&KERNELS[4 + size], heads, 1));
    Ok(Launches { list: [Some(first), combine] })
}

/// Whether eight neighbouring elements can be loaded as 16 bytes: their base and every stride that moves it must keep the
/// alignment, and the eight must be neighbours.
fn paths(plan: &Plan, k: &BoundTensor, v: &BoundTensor) -> (u32, u32) {
    let eights = |tensor: &BoundTensor, axes: &[usize]| {
        tensor.address.is_multiple_of(16)
            && axes.iter().all(|axis| tensor.stride[*axis] % 8 == 0 || tensor.shape[*axis] == 1)
    };
    // An axis of eight or more neighbours is never of extent 1, so its stride says something.
    let depth =
        |tensor: &BoundTensor| tensor.shape[4] % 8 == 0 && tensor.stride[4] == 1 && eights(tensor, &[0, 1, 2, 3]);
    let tokens = plan.int(P_BLOCK_SIZE) % 8 == 0 && v.stride[3] == 1 && eights(v, &[0, 1, 2, 4]);
    let k_path = if depth(k) { PATH_DEPTH } else { PATH_SCALAR };
    let v_path = if depth(v) {
        PATH_DEPTH
    } else if tokens {
        PATH_TOKENS
    } else {
        PATH_SCALAR
    };
    (k_path, v_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Step;
    use crate::plan::{Caps, plan};
    use crate::value::ParamValue;

    fn planned(ints: [i64; 9]) -> Plan {
        let mut params: Vec<_> = ints.map(ParamValue::from_i64).to_vec();
        params.push(ParamValue::from_f64(0.5));
        plan(OP, &Caps { arch: "gfx1030", ..Caps::default() }, &params).unwrap()
    }

    fn dense(address: u64, shape: &[i64]) -> BoundTensor {
        let mut tensor = BoundTensor { address, ..BoundTensor::default() };
        let mut span = 1;
        for axis in (0..shape.len()).rev() {
            (tensor.shape[axis], tensor.stride[axis]) = (shape[axis], span);
            span *= shape[axis];
        }
        tensor
    }

    fn bound(kv_heads: i64, q_heads: i64) -> [BoundTensor; 7] {
        let cache = dense(0x20000, &[64, kv_heads, 16, 16, 8]);
        [
            dense(0x10000, &[8, q_heads, 128]),
            cache,
            BoundTensor { address: 0x30000, ..cache },
            dense(0x40000, &[8, 4]),
            dense(0x50000, &[8]),
            dense(0x60000, &[9]),
            dense(0x70000, &[8, q_heads, 128]),
        ]
    }

    fn arg(launch: &Launch, name: &str) -> u64 {
        launch.kernarg.read(launch.kernel.args.iter().find(|arg| arg.name == name).unwrap())
    }

    #[test]
    fn decode_is_split_k_and_a_combine() {
        let plan = planned([0, 128, 32, 8, 16, 4, 100, 0, 8]);
        let launches = launches(&plan, &bound(8, 32), 0x100_0000).unwrap();
        let [first, combine] = launches.iter().collect::<Vec<_>>()[..] else { panic!("two launches") };
        assert_eq!((first.kernel.name, first.grid), ("hippihx_fa_fdot2_decode_d128", [8, 8, 4]));
        assert_eq!((combine.kernel.name, combine.grid), ("hippihx_fa_fdot2_combine_d128", [8, 32, 1]));
        assert_eq!(arg(first, "m_partial"), 0x100_0000 + 524_288);
        assert_eq!((arg(first, "capacity"), arg(first, "window"), arg(first, "pack_shift")), (64, 100, 3));
        assert_eq!(f32::from_bits(arg(first, "scale_log2e") as u32), 0.5 * std::f32::consts::LOG2_E);
        assert_eq!((arg(first, "cu_query_lens"), arg(first, "k_path"), arg(first, "v_path")), (0, 1, 1));
        assert_eq!(arg(first, "k_stride_block"), 8 * 2048);
    }

    #[test]
    fn groups_beyond_eight_take_several_passes_and_one_split_needs_no_combine() {
        for (q_heads, kv_heads, groups) in [(32, 8, 8), (28, 4, 4), (40, 2, 6), (64, 4, 8), (12, 4, 4), (9, 1, 2)] {
            let plan = planned([0, 128, q_heads, kv_heads, 16, 1, 0, 0, 8]);
            let launches = launches(&plan, &bound(kv_heads, q_heads), 0).unwrap();
            assert_eq!(
                launches.iter().map(|launch| launch.grid).collect::<Vec<_>>(),
                [[8, groups, 1]],
                "{q_heads}/{kv_heads}"
            );
        }
    }

    #[test]
    fn prefill_covers_rows_by_sixteen() {
        let plan = planned([1, 128, 32, 8, 16, 2, 0, 1, 100]);
        let mut tensors = bound(8, 32);
        tensors[T_Q].shape[0] = 33;
        let launches = launches(&plan, &tensors, 0x100_0000).unwrap();
        let grids: Vec<_> = launches.iter().map(|launch| (launch.kernel.name, launch.grid)).collect();
        let names = ["hippihx_fa_fdot2_prefill_d128", "hippihx_fa_fdot2_combine_d128"];
        assert_eq!(grids, [(names[0], [3, 32, 2]), (names[1], [33, 32, 1])]);
        assert_eq!(launches.iter().map(|launch| arg(launch, "cu_query_lens")).collect::<Vec<_>>(), [0x60000, 0x60000]);
    }

    #[test]
    fn wide_loads_only_where_alignment_holds() {
        let plan = planned([0, 128, 32, 8, 16, 1, 0, 0, 8]);
        let paths_of = |change: &dyn Fn(&mut [BoundTensor; 7])| {
            let mut tensors = bound(8, 32);
            change(&mut tensors);
            paths(&plan, &tensors[T_K_CACHE], &tensors[T_V_CACHE])
        };
        assert_eq!(paths_of(&|_| ()), (PATH_DEPTH, PATH_DEPTH));
        assert_eq!(paths_of(&|t| t[1].address += 2), (PATH_SCALAR, PATH_DEPTH));
        assert_eq!(paths_of(&|t| t[1].stride[0] += 4), (PATH_SCALAR, PATH_DEPTH));
        assert_eq!(paths_of(&|t| t[2].stride = [16384, 2048, 128, 1, 16, 0]), (PATH_DEPTH, PATH_TOKENS));
        assert_eq!(paths_of(&|t| t[2].stride = [16384, 2048, 128, 1, 17, 0]), (PATH_DEPTH, PATH_SCALAR));
        assert_eq!(paths_of(&|t| t[1].shape = [64, 8, 128, 16, 1, 0]), (PATH_SCALAR, PATH_DEPTH));
    }

    #[test]
    fn a_step_moves_addresses_and_rows_and_nothing_else() {
        let plan = planned([0, 128, 32, 8, 16, 4, 0, 0, 8]);
        let launches = launches(&plan, &bound(8, 32), 0x100_0000).unwrap();
        let first = *launches.iter().next().unwrap();
        let stepped = first.stepped(&Step { rows: 3, q_bytes: 0x100, out_bytes: 0x200 });
        assert_eq!(stepped.grid, [3, 8, 4]);
        assert_eq!((arg(&stepped, "q"), arg(&stepped, "out"), arg(&stepped, "rows")), (0x10100, 0x70200, 3));
        let changed = ARGS.iter().filter(|spec| first.kernarg.read(spec) != stepped.kernarg.read(spec)).count();
        assert_eq!(changed, 3);
        assert_eq!(first.stepped(&Step::default()), first);
    }

    #[test]
    fn the_step_fields_are_where_the_arguments_are() {
        let offset = |name| ARGS.iter().find(|arg| arg.name == name).unwrap().offset;
        assert_eq!((offset("q"), offset("out"), offset("rows")), (OFFSET_Q, OFFSET_OUT, OFFSET_ROWS));
    }
}
