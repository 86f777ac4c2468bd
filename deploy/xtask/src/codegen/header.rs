//! `hippihx/v1.h`, rendered from the catalogue.

use std::fmt::Write;
use std::path::PathBuf;

use hippihx_kernels::catalogue::{
    ABI_REVISION, AR_MAX_KB, MAX_PARAMS, MAX_RANK, MAX_SCRATCH, ParamKind, SCRATCH_ALIGN,
};
use hippihx_kernels::fabric::{HOPS, SWITCHES};
use hippihx_kernels::{Dtype, LATER_SLOTS, OPS, SLOTS, Status};

use super::Rendered;

const PATH: &str = "client/capi/include/hippihx/v1.h";

pub fn render() -> Rendered {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_header(&mut out);
    (PathBuf::from(PATH), out.into_bytes())
}

fn write_header(out: &mut String) -> std::fmt::Result {
    out.push_str(INTRODUCTION);
    for (name, value, comment) in [
        ("ABI_REVISION", i64::from(ABI_REVISION), "revision of this contract"),
        ("MAX_RANK", MAX_RANK as i64, "axes of a tensor at most"),
        ("MAX_PARAMS", MAX_PARAMS as i64, "params of an op at most"),
        ("MAX_SCRATCH", MAX_SCRATCH as i64, "scratch blocks of a plan at most"),
        ("SCRATCH_ALIGN", SCRATCH_ALIGN as i64, "alignment of scratch, bytes"),
        ("AR_MAX_KB", AR_MAX_KB, "largest comm.pcie message, KiB"),
    ] {
        writeln!(out, "#define HIPPIHX_V1_{name} {value} /* {comment} */")?;
    }

    enumeration(
        out,
        "status",
        "Statuses",
        Status::ALL.iter().map(|status| {
            let name = if *status == Status::Ok { "OK".to_owned() } else { status.name().to_owned() };
            (name, i64::from(status.code()), status.meaning().to_owned())
        }),
    )?;
    enumeration(
        out,
        "dtype",
        "Element types",
        Dtype::ALL.iter().map(|dtype| {
            (
                format!("DTYPE_{}", dtype.name().to_uppercase()),
                i64::from(dtype.code()),
                format!("{} bytes", dtype.bytes()),
            )
        }),
    )?;
    enumeration(
        out,
        "arch",
        "GPU slots; one code object each",
        SLOTS.iter().map(|slot| {
            let dot = if slot.dot { "DOT" } else { "no DOT" };
            let note = if slot.note.is_empty() { String::new() } else { format!("; {}", slot.note) };
            (
                format!("ARCH_{}", slot.name.to_uppercase()),
                i64::from(slot.id),
                format!("machine {:#04x}, {dot}, wave {}{note}", slot.mach, slot.default_wave),
            )
        }),
    )?;
    out.push_str("/* Known by name, and refused:\n");
    for later in &LATER_SLOTS {
        writeln!(out, " * {}: {}", later.name, later.reason)?;
    }
    out.push_str(" */\n");
    enumeration(
        out,
        "op",
        "Ops",
        OPS.iter().map(|op| (format!("OP_{}", op.c_name), i64::from(op.id), format!("{}: {}", op.name, op.summary))),
    )?;
    enumeration(out, "hop", "Hops between two GPUs", numbered("HOP", &HOPS))?;
    enumeration(out, "switch", "PCIe switches", numbered("SWITCH", &SWITCHES))?;

    for op in OPS.iter().filter(|op| op.pinned) {
        writeln!(out, "\n/* {} */", op.name)?;
        out.push_str("enum {\n");
        for (index, param) in op.params.iter().enumerate() {
            writeln!(
                out,
                "    HIPPIHX_V1_{}_P_{} = {index}, /* {}: {} */",
                op.c_name,
                param.name.to_uppercase(),
                domain(&param.kind),
                param.meaning
            )?;
        }
        writeln!(out, "    HIPPIHX_V1_{}_P_COUNT = {},", op.c_name, op.params.len())?;
        for (index, slot) in op.tensors.iter().enumerate() {
            let when = if slot.when.is_empty() { "" } else { ", not always required" };
            writeln!(
                out,
                "    HIPPIHX_V1_{}_T_{} = {index}, /* {}, {}{when}: {} */",
                op.c_name,
                slot.name.to_uppercase(),
                slot.dtype.name(),
                slot.layout.name(),
                slot.meaning
            )?;
        }
        writeln!(out, "    HIPPIHX_V1_{}_T_COUNT = {}", op.c_name, op.tensors.len())?;
        out.push_str("};\n");
        for param in op.params {
            let ParamKind::Enum(values) = param.kind else { continue };
            for value in values {
                if let Some(label) = value.label {
                    let name = format!("{}_{}_{}", op.c_name, param.name.to_uppercase(), label.to_uppercase());
                    writeln!(out, "#define HIPPIHX_V1_{name} {}", value.value)?;
                }
            }
        }
    }
    out.push_str(DECLARATIONS);
    Ok(())
}

fn numbered<'a>(prefix: &'a str, names: &'a [&'a str]) -> impl Iterator<Item = (String, i64, String)> {
    names.iter().enumerate().map(move |(number, name)| (format!("{prefix}_{name}"), number as i64, String::new()))
}

fn enumeration(
    out: &mut String,
    tag: &str,
    title: &str,
    rows: impl Iterator<Item = (String, i64, String)>,
) -> std::fmt::Result {
    writeln!(out, "\n/* {title} */\nenum hippihx_v1_{tag} {{")?;
    let rows: Vec<_> = rows.collect();
    for (index, (name, value, comment)) in rows.iter().enumerate() {
        let comma = if index + 1 < rows.len() { "," } else { "" };
        let comment = if comment.is_empty() { String::new() } else { format!(" /* {comment} */") };
        writeln!(out, "    HIPPIHX_V1_{name} = {value}{comma}{comment}")?;
    }
    out.push_str("};\n");
    Ok(())
}

fn domain(kind: &ParamKind) -> String {
    match kind {
        ParamKind::Int { lo, hi } => {
            let bound = |bound: &Option<i64>| bound.map_or_else(|| "open".to_owned(), |bound| bound.to_string());
            format!("int {} to {}", bound(lo), bound(hi))
        }
        ParamKind::Enum(values) => {
            let list: Vec<_> = values.iter().map(|value| value.value.to_string()).collect();
            format!("one of {}", list.join(", "))
        }
        ParamKind::Bool => "0 or 1".to_owned(),
        ParamKind::Float => "double, finite and above 0".to_owned(),
    }
}

const INTRODUCTION: &str = "\
/* The hippihx V1 op contract, ABI revision 4.
 *
 * Rendered from the op catalogue by `cargo xtask codegen`; do not edit.
 * C11 and C++17. Link with -lhippihx_v1, or open libhippihx_v1.so at run time.
 */
#ifndef HIPPIHX_V1_H
#define HIPPIHX_V1_H

#include <stddef.h>
#include <stdint.h>

";

const DECLARATIONS: &str = r#"
/* An int64 or a double, as the op's schema says. */
typedef union hippihx_v1_param {
    int64_t i;
    double f;
} hippihx_v1_param;

typedef struct hippihx_v1_fabric {
    int32_t hop;
    int32_t pcie_switch;
    int32_t width; /* PCIe lanes: 1, 2, 4, 8 or 16 */
    int32_t acs_clear; /* 0 or 1 */
    int32_t large_bar; /* 0 or 1 */
} hippihx_v1_fabric;

typedef struct hippihx_v1_caps {
    const char *arch; /* slot name, such as gfx1030 */
    int wave; /* 32, 64, or 0 for the slot's default */
    int dtype; /* activation dtype */
    const hippihx_v1_fabric *fabric; /* comm only */
} hippihx_v1_caps;

typedef struct hippihx_v1_tensor {
    void *data; /* device address; NULL where the plan does not require the slot */
    int32_t dtype;
    int32_t rank;
    int64_t shape[HIPPIHX_V1_MAX_RANK]; /* elements */
    int64_t stride[HIPPIHX_V1_MAX_RANK]; /* elements */
} hippihx_v1_tensor;

typedef struct hippihx_v1_scratch_spec {
    const char *name; /* static, owned by the library */
    size_t nbytes;
    size_t offset; /* bytes from the start of the plan's scratch */
    int zeroed; /* always 1: zeroed once by its owner */
} hippihx_v1_scratch_spec;

typedef struct hippihx_v1_plan_t {
    size_t struct_size; /* set to sizeof(hippihx_v1_plan_t) before planning */
    int32_t abi_revision; /* 0 in a plan that failed */
    int32_t op;
    int32_t arch;
    int32_t wave; /* resolved */
    int32_t dtype;
    int32_t ready; /* 1 when the op has a body and its slot is loaded */
    int32_t variant;
    int32_t nparams;
    hippihx_v1_param params[HIPPIHX_V1_MAX_PARAMS];
    int32_t nscratch;
    hippihx_v1_scratch_spec scratch[HIPPIHX_V1_MAX_SCRATCH];
    size_t scratch_nbytes; /* a multiple of HIPPIHX_V1_SCRATCH_ALIGN */
} hippihx_v1_plan_t;

#ifdef __cplusplus
extern "C" {
#endif

int hippihx_v1_abi_revision(void);
int hippihx_v1_op_count(void);
/* NULL out of range, like every name. */
const char *hippihx_v1_op_name(int op);
int hippihx_v1_op_is_dot(int op);
int hippihx_v1_op_fp16_act(int op);
/* -1 out of range. */
int hippihx_v1_op_nparams(int op);
const char *hippihx_v1_op_param_name(int op, int index);
int hippihx_v1_op_ntensors(int op);
const char *hippihx_v1_op_tensor_name(int op, int index);

/* Host-only: no device work, no allocation, safe during graph capture. */
int hippihx_v1_plan(int op, const hippihx_v1_caps *caps, const hippihx_v1_param *params, int nparams,
                    hippihx_v1_plan_t *out);
/* Enqueues on a stream; never allocates, never synchronises. */
int hippihx_v1_run(const hippihx_v1_plan_t *plan, const hippihx_v1_tensor *tensors, int ntensors, void *scratch,
                   size_t scratch_nbytes, void *stream);

int hippihx_v1_load(const char *arch, const char *path);
int hippihx_v1_load_image(const char *arch, const void *image, size_t nbytes);
/* 1 when the slot has a loaded code object. */
int hippihx_v1_loaded(const char *arch);

/* Text of the calling thread's last failed call: never NULL, good until the thread asks again. */
const char *hippihx_v1_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* HIPPIHX_V1_H */
"#;
