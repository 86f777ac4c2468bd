//! Single instructions with values computed by hand. Each row becomes a kernel with the instruction as inline assembly.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::fmt::Write;

use hippihx_emulator::{Access, Buffer, Contents, Dispatch, Memory, Options, Program};

/// Instruction with %0 for the result and %1 to %3 for 32-bit sources; sources; result.
type Row = (&'static str, [u32; 3], u32);

const fn f(x: f32) -> u32 {
    x.to_bits()
}

const INF: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;

const ROWS: &[Row] = &[
    // Integers and bits.
    ("v_add_nc_u32 %0, %1, %2", [0xffff_ffff, 2, 0], 1),
    ("v_add_nc_u32_e64 %0, %1, %2 clamp", [0xffff_ffff, 2, 0], 0xffff_ffff),
    ("v_sub_nc_u32 %0, %1, %2", [3, 5, 0], 0xffff_fffe),
    ("v_subrev_nc_u32 %0, %1, %2", [3, 5, 0], 2),
    ("v_mul_lo_u32 %0, %1, %2", [0x1_0001, 0x1_0001, 0], 0x2_0001),
    ("v_mul_hi_u32 %0, %1, %2", [0x8000_0000, 6, 0], 3),
    ("v_mul_hi_i32 %0, %1, %2", [0x8000_0000, 6, 0], 0xffff_fffd),
    ("v_mul_u32_u24 %0, %1, %2", [0xff00_0003, 5, 0], 15),
    ("v_mul_i32_i24 %0, %1, %2", [0x00ff_ffff, 5, 0], 0xffff_fffb),
    ("v_mad_u32_u24 %0, %1, %2, %3", [0x100_0002, 7, 10], 24),
    ("v_lshlrev_b32 %0, %1, %2", [33, 3, 0], 6),
    ("v_lshrrev_b32 %0, %1, %2", [4, 0x8000_0000, 0], 0x0800_0000),
    ("v_ashrrev_i32 %0, %1, %2", [4, 0x8000_0000, 0], 0xf800_0000),
    ("v_bfe_u32 %0, %1, %2, %3", [0x1234_5678, 8, 12], 0x456),
    ("v_bfe_i32 %0, %1, %2, %3", [0x0000_0f00, 8, 4], 0xffff_ffff),
    ("v_bfi_b32 %0, %1, %2, %3", [0x0000_ffff, 0x1234_5678, 0x9abc_def0], 0x9abc_5678),
    ("v_bfm_b32 %0, %1, %2", [4, 8, 0], 0xf00),
    ("v_bfrev_b32 %0, %1", [1, 0, 0], 0x8000_0000),
    ("v_ffbh_u32 %0, %1", [0x0001_0000, 0, 0], 15),
    ("v_ffbh_u32 %0, %1", [0, 0, 0], 0xffff_ffff),
    ("v_ffbl_b32 %0, %1", [0x0001_0000, 0, 0], 16),
    ("v_ffbh_i32 %0, %1", [0xfff0_0000, 0, 0], 12),
    ("v_bcnt_u32_b32 %0, %1, %2", [0xf0f0, 100, 0], 108),
    ("v_alignbit_b32 %0, %1, %2, %3", [1, 0x8000_0000, 4], 0x1800_0000),
    ("v_alignbyte_b32 %0, %1, %2, %3", [0x4433_2211, 0x8877_6655, 3], 0x3322_1188),
    ("v_perm_b32 %0, %1, %2, %3", [0x0706_0504, 0x0302_0100, 0x0004_0c03], 0x0004_0003),
    ("v_lshl_add_u32 %0, %1, %2, %3", [3, 4, 5], 53),
    ("v_add_lshl_u32 %0, %1, %2, %3", [3, 4, 5], 224),
    ("v_lshl_or_b32 %0, %1, %2, %3", [3, 4, 5], 53),
    ("v_and_or_b32 %0, %1, %2, %3", [0xff, 0x3c, 0x100], 0x13c),
    ("v_or3_b32 %0, %1, %2, %3", [1, 2, 4], 7),
    ("v_xor3_b32 %0, %1, %2, %3", [1, 3, 4], 6),
    ("v_xad_u32 %0, %1, %2, %3", [5, 3, 10], 16),
    ("v_add3_u32 %0, %1, %2, %3", [1, 2, 0xffff_ffff], 2),
    ("v_med3_i32 %0, %1, %2, %3", [0xffff_fff0, 7, 3], 3),
    ("v_min3_u32 %0, %1, %2, %3", [9, 7, 8], 7),
    ("v_max3_i32 %0, %1, %2, %3", [0xffff_ffff, 0xffff_fffe, 0x8000_0000], 0xffff_ffff),
    ("v_sad_u8 %0, %1, %2, %3", [0x0102_0304, 0x0401_0304, 10], 14),
    ("v_cvt_pk_u16_u32 %0, %1, %2", [0x1_0000, 5, 0], 0x0005_ffff),
    ("v_cvt_pk_i16_i32 %0, %1, %2", [0xffff_0000, 40_000, 0], 0x7fff_8000),
    ("v_dot4_i32_i8 %0, %1, %2, %3", [0xff02_0304, 0x0505_0505, 1], 41),
    // fp32.
    ("v_add_f32 %0, %1, %2", [f(1.0), f(2.5), 0], f(3.5)),
    ("v_add_f32 %0, %1, %2", [INF, f(f32::NEG_INFINITY), 0], NAN),
    ("v_sub_f32 %0, %1, %2", [f(1.0), f(2.5), 0], f(-1.5)),
    ("v_subrev_f32 %0, %1, %2", [f(1.0), f(2.5), 0], f(1.5)),
    ("v_mul_f32_e64 %0, -%1, |%2|", [f(3.0), f(-2.0), 0], f(-6.0)),
    ("v_add_f32_e64 %0, %1, %2 clamp", [f(0.75), f(0.75), 0], f(1.0)),
    // 1 + 2^-24 * 1 lies between two floats; the sum with 2^-60 more must round up.
    ("v_fma_f32 %0, %1, %2, %3", [f(1.0), 0x3380_0000, f(1.0)], f(1.0)),
    ("v_fma_f32 %0, %1, %2, %3", [0x3f80_0001, 0x3380_0000, f(1.0)], 0x3f80_0001),
    ("v_max_f32 %0, %1, %2", [NAN, f(-1.0), 0], f(-1.0)),
    ("v_min_f32 %0, %1, %2", [0x8000_0000, 0, 0], 0x8000_0000),
    ("v_med3_f32 %0, %1, %2, %3", [f(5.0), f(-1.0), f(2.0)], f(2.0)),
    ("v_max3_f32 %0, %1, %2, %3", [f(5.0), f(-1.0), f(7.0)], f(7.0)),
    ("v_rcp_f32 %0, %1", [f(4.0), 0, 0], f(0.25)),
    ("v_rcp_f32 %0, %1", [0x8000_0000, 0, 0], f(f32::NEG_INFINITY)),
    ("v_rsq_f32 %0, %1", [f(4.0), 0, 0], f(0.5)),
    ("v_sqrt_f32 %0, %1", [f(9.0), 0, 0], f(3.0)),
    ("v_exp_f32 %0, %1", [f(-3.0), 0, 0], f(0.125)),
    ("v_exp_f32 %0, %1", [f(f32::NEG_INFINITY), 0, 0], 0),
    ("v_exp_f32 %0, %1", [f(-140.0), 0, 0], 0),
    ("v_log_f32 %0, %1", [f(8.0), 0, 0], f(3.0)),
    ("v_sin_f32 %0, %1", [f(0.25), 0, 0], f(1.0)),
    ("v_cos_f32 %0, %1", [f(0.5), 0, 0], f(-1.0)),
    ("v_fract_f32 %0, %1", [f(-0.25), 0, 0], f(0.75)),
    ("v_trunc_f32 %0, %1", [f(-1.75), 0, 0], f(-1.0)),
    ("v_floor_f32 %0, %1", [f(-1.25), 0, 0], f(-2.0)),
    ("v_ceil_f32 %0, %1", [f(1.25), 0, 0], f(2.0)),
    ("v_rndne_f32 %0, %1", [f(2.5), 0, 0], f(2.0)),
    ("v_ldexp_f32 %0, %1, %2", [f(1.5), 3, 0], f(12.0)),
    ("v_frexp_mant_f32 %0, %1", [f(12.0), 0, 0], f(0.75)),
    ("v_frexp_exp_i32_f32 %0, %1", [f(12.0), 0, 0], 4),
    ("v_cvt_i32_f32 %0, %1", [f(-1.9), 0, 0], 0xffff_ffff),
    ("v_cvt_u32_f32 %0, %1", [f(-5.0), 0, 0], 0),
    ("v_cvt_u32_f32 %0, %1", [f(1e20), 0, 0], 0xffff_ffff),
    ("v_cvt_i32_f32 %0, %1", [NAN, 0, 0], 0),
    ("v_cvt_f32_u32 %0, %1", [0x100_0001, 0, 0], f(16_777_216.0)),
    ("v_cvt_f32_i32 %0, %1", [0xffff_fffd, 0, 0], f(-3.0)),
    ("v_cvt_f32_ubyte2 %0, %1", [0x0080_0000, 0, 0], f(128.0)),
    ("v_div_fixup_f32 %0, %1, %2, %3", [f(2.0), f(-3.0), f(6.0)], f(-2.0)),
    // Halves: 0x3c00 is 1, 0x4000 2, 0x3800 0.5, 0x3400 0.25, 0xbc00 -1.
    ("v_add_f16 %0, %1, %2", [0xffff_3c00, 0xffff_4000, 0], 0x4200),
    ("v_mul_f16 %0, %1, %2", [0x3800, 0xbc00, 0], 0xb800),
    ("v_fma_f16 %0, %1, %2, %3", [0x4000, 0x4000, 0x3c00], 0x4500),
    ("v_fma_f16 %0, %1, %2, %3 op_sel:[1,0,0,0]", [0x4000_0000, 0x4000, 0x3c00], 0x4500),
    ("v_cvt_f16_f32 %0, %1", [f(65_520.0), 0, 0], 0x7c00),
    ("v_cvt_f16_f32 %0, %1", [f(5.960_464_5e-8), 0, 0], 0x0001),
    ("v_cvt_f32_f16 %0, %1", [0x0001, 0, 0], f(5.960_464_5e-8)),
    ("v_cvt_f32_f16_sdwa %0, %1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", [0x3c00_0000, 0, 0], f(1.0)),
    ("v_cvt_pkrtz_f16_f32 %0, %1, %2", [f(1.0009), f(-1e9), 0], 0xfbff_3c00),
    ("v_pack_b32_f16 %0, %1, %2", [0x3c00, 0x4000, 0], 0x4000_3c00),
    ("v_max_f16 %0, %1, %2", [0x3c00, 0xbc00, 0], 0x3c00),
    ("v_lshlrev_b16 %0, %1, %2", [4, 0x1234, 0], 0x2340),
    ("v_pk_add_f16 %0, %1, %2", [0x3c00_4000, 0x3c00_3c00, 0], 0x4000_4200),
    ("v_pk_add_f16 %0, %1, %2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0]", [0x3c00_4000, 0x3c00_3c00, 0], 0x4200_0000),
    ("v_pk_fma_f16 %0, %1, %2, %3", [0x4000_4000, 0x4000_3c00, 0x3c00_3c00], 0x4500_4200),
    ("v_pk_mul_lo_u16 %0, %1, %2", [0x0003_0002, 0x0005_0007, 0], 0x000f_000e),
    ("v_pk_max_i16 %0, %1, %2", [0xffff_0001, 0x0000_0002, 0], 0x0000_0002),
    ("v_pk_lshlrev_b16 %0, %1, %2", [0x0001_0002, 0x0003_0003, 0], 0x0006_000c),
    ("v_fma_mix_f32 %0, %1, %2, %3 op_sel_hi:[1,0,0]", [0x4000, f(3.0), f(1.0)], f(7.0)),
    ("v_fma_mix_f32 %0, %1, %2, %3 op_sel:[1,0,0] op_sel_hi:[1,0,0]", [0x4000_0000, f(3.0), f(1.0)], f(7.0)),
    // 1 * 2 + 2 * 0.5 + 10.
    ("v_dot2_f32_f16 %0, %1, %2, %3", [0x4000_3c00, 0x3800_4000, f(10.0)], f(13.0)),
    // A denormal accumulator is flushed.
    ("v_dot2_f32_f16 %0, %1, %2, %3", [0, 0, 0x0000_0001], 0),
    // Lanes: one lane is as good as another, since all hold the same; the row is what moves.
    ("v_mov_b32_dpp %0, %1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", [77, 0, 0], 77),
    ("v_readfirstlane_b32 s40, %1\nv_mov_b32 %0, s40", [78, 0, 0], 78),
    ("v_cmp_lt_i32 vcc_lo, %1, %2\nv_cndmask_b32 %0, %2, %3, vcc_lo", [0xffff_ffff, 0, 5], 5),
    ("v_cmp_lt_u32 vcc_lo, %1, %2\nv_cndmask_b32 %0, %2, %3, vcc_lo", [0xffff_ffff, 0, 5], 0),
    ("v_cmp_class_f32 vcc_lo, %1, %2\nv_cndmask_b32 %0, 0, 1, vcc_lo", [0x8000_0001, 1 << 4, 0], 1),
    ("v_cmp_nlt_f32 vcc_lo, %1, %2\nv_cndmask_b32 %0, 0, 1, vcc_lo", [NAN, 0, 0], 1),
    ("v_add_co_u32 %0, vcc_lo, %1, %2\nv_add_co_ci_u32 %0, vcc_lo, 0, %3, vcc_lo", [0xffff_ffff, 1, 9], 10),
    ("v_sub_co_u32 %0, vcc_lo, %1, %2\nv_sub_co_ci_u32 %0, vcc_lo, %3, 0, vcc_lo", [0, 1, 9], 8),
    ("v_mad_u64_u32 v[40:41], vcc_lo, %1, %2, 0\nv_mov_b32 %0, v41", [0x8000_0000, 6, 0], 3),
    (
        "v_mov_b32 v40, %1\nv_mov_b32 v41, 1\nv_lshlrev_b64 v[40:41], 4, v[40:41]\nv_mov_b32 %0, v41",
        [0xf000_0000, 0, 0],
        0x1f,
    ),
    // fp64: (double)3 * 0.5 back to fp32.
    ("v_cvt_f64_u32 v[40:41], %1\nv_mul_f64 v[40:41], v[40:41], 0.5\nv_cvt_f32_f64 %0, v[40:41]", [3, 0, 0], f(1.5)),
];

/// Scalar instructions: s40 gets the first source, s41 the second; the result is in s42.
const SCALAR: &[Row] = &[
    ("s_add_u32 s42, s40, s41\ns_addc_u32 s42, 0, 0", [0xffff_ffff, 1, 0], 1),
    ("s_sub_u32 s42, s40, s41\ns_subb_u32 s42, 5, 0", [0, 1, 0], 4),
    ("s_mul_hi_u32 s42, s40, s41", [0x8000_0000, 6, 0], 3),
    ("s_bfe_u32 s42, s40, 0xc0008", [0x1234_5678, 0, 0], 0x456),
    ("s_bfe_i32 s42, s40, 0x40008", [0x0000_0f00, 0, 0], 0xffff_ffff),
    ("s_lshl3_add_u32 s42, s40, s41", [5, 2, 0], 42),
    ("s_ff1_i32_b32 s42, s40", [0x50, 0, 0], 4),
    ("s_flbit_i32_b32 s42, s40", [0x0001_0000, 0, 0], 15),
    ("s_bcnt1_i32_b32 s42, s40", [0xff0, 0, 0], 8),
    ("s_brev_b32 s42, s40", [2, 0, 0], 0x4000_0000),
    ("s_sext_i32_i8 s42, s40", [0x80, 0, 0], 0xffff_ff80),
    ("s_pack_ll_b32_b16 s42, s40, s41", [0x1111_2222, 0x3333_4444, 0], 0x4444_2222),
    ("s_min_i32 s42, s40, s41\ns_cselect_b32 s42, 7, s42", [0xffff_fff0, 3, 0], 7),
    ("s_cmp_gt_u32 s40, s41\ns_cselect_b32 s42, 1, 2", [0xffff_fff0, 3, 0], 1),
    ("s_cmp_gt_i32 s40, s41\ns_cselect_b32 s42, 1, 2", [0xffff_fff0, 3, 0], 2),
    ("s_movk_i32 s42, 0x8000\ns_addk_i32 s42, 1", [0, 0, 0], 0xffff_8001),
    ("s_absdiff_i32 s42, s40, s41", [3, 10, 0], 7),
    ("s_andn2_b32 s42, s40, s41", [0xff, 0x0f, 0], 0xf0),
    ("s_bitset1_b32 s42, 4\ns_mov_b32 s42, s40\ns_bitset1_b32 s42, s41", [1, 4, 0], 17),
];

#[test]
fn instructions_give_what_was_computed_by_hand() {
    let mut source = String::from("#define KERNEL extern \"C\" __attribute__((global)) void\n");
    let rows = ROWS.iter().map(|row| (row, false)).chain(SCALAR.iter().map(|row| (row, true)));
    let rows: Vec<(&Row, bool)> = rows.collect();
    for (n, ((text, ..), scalar)) in rows.iter().enumerate() {
        let text = text.replace('\n', "\\n");
        let body = if *scalar {
            format!(
                "asm volatile(\"s_mov_b32 s40, %1\\ns_mov_b32 s41, %2\\n{text}\\nv_mov_b32 %0, s42\" : \"=&v\"(r) : \"s\"(a), \"s\"(b) : \"s40\", \"s41\", \"s42\", \"scc\");"
            )
        } else {
            format!(
                "asm volatile(\"{text}\" : \"+&v\"(r) : \"v\"(a), \"v\"(b), \"v\"(c) : \"vcc\", \"s40\", \"v40\", \"v41\");"
            )
        };
        writeln!(
            source,
            "KERNEL k{n}(const unsigned *in, unsigned *out) {{ unsigned a = in[0], b = in[1], c = in[2], r = 0; {body} \
             out[__builtin_amdgcn_workitem_id_x()] = r; }}"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("semantics.hip");
    std::fs::write(&path, source).unwrap();
    let program = Program::load(&common::build_file(&path, &[])).unwrap();
    assert_eq!(program.unsupported(), Vec::<&str>::new());
    let mut wrong = Vec::new();
    for (n, ((text, sources, want), _)) in rows.iter().enumerate() {
        let (input, out) = (Buffer::from_u32s(*sources), Buffer::zeroed(256));
        let mut memory = Memory::new();
        memory.bind("in", 0x1000, &input, Access::Read, Contents::Initialised).unwrap();
        memory.bind("out", 0x2000, &out, Access::ReadWrite, Contents::Unwritten).unwrap();
        let kernarg = common::Args::new().ptr(0x1000).ptr(0x2000);
        let kernel = format!("k{n}");
        // 40 work-items: the second wave has lanes that are off.
        let dispatch =
            Dispatch { kernel: &kernel, grid: [1, 1, 1], block: [40, 1, 1], lds_bytes: 0, kernarg: &kernarg.0 };
        program.run(&dispatch, &memory, &Options::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
        let found = out.to_u32s();
        if found[..40].iter().any(|x| x != want) || found[40..].iter().any(|&x| x != 0) {
            wrong.push(format!("{text} of {sources:08x?}: {:08x}, not {want:08x}", found[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
