//! `hippihxctl plan`: the contract's Plan, computed here. No daemon is asked.

use anyhow::{Result, bail};
use hippihx_kernels::catalogue::{Param, ParamKind};
use hippihx_kernels::fabric::{HOPS, SWITCHES};
use hippihx_kernels::plan::{complete, resolve};
use hippihx_kernels::refusal::ShortText;
use hippihx_kernels::{Dtype, Fabric, Op, ParamValue, Plan, Reason, Refusal, op_by_id, op_by_name};
use serde_json::json;

use crate::failure::Usage;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name or id, such as attention.fa_fdot2 or 0
    op: String,
    /// Slot, such as gfx1030
    #[arg(long)]
    arch: String,
    /// Lanes of a wavefront: 32, 64, or 0 for the slot's default
    #[arg(long, default_value_t = 0)]
    wave: i32,
    /// Activation dtype by name or number, such as fp16
    #[arg(long, default_value = "unset")]
    dtype: String,
    /// A param of the op; enum values by label or number
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// The fabric of an op that needs one, such as hop=PIX,switch=PEX88096,width=16,acs_clear=1,large_bar=1
    #[arg(long, value_name = "FIELD=VALUE,…")]
    fabric: Option<String>,
}

pub fn run(args: &Args, json: bool) -> Result<u8> {
    let plan = plan(args)?;
    let blocks = plan.scratch();
    if json {
        let scratch: Vec<_> = blocks
            .iter()
            .map(|block| json!({ "name": block.name, "nbytes": block.nbytes, "offset": block.offset }))
            .collect();
        output::json(&json!({
            "op": plan.op.name, "op_id": plan.op.id, "slot": plan.slot.name, "wave": plan.wave, "dtype": plan.dtype.name(),
            "variant": plan.variant, "scratch": scratch, "scratch_nbytes": plan.scratch_nbytes(),
        }));
        return Ok(0);
    }
    output::line(&output::facts([
        ("op", format!("{} (id {})", plan.op.name, plan.op.id)),
        ("slot", plan.slot.name.to_owned()),
        ("wave", plan.wave.to_string()),
        ("dtype", plan.dtype.name().to_owned()),
        ("variant", plan.variant.to_string()),
        ("scratch", format!("{} bytes", plan.scratch_nbytes())),
    ]));
    if !blocks.is_empty() {
        let mut table = output::table(&["BLOCK", "OFFSET", "BYTES"]);
        for block in blocks {
            table.add_row([block.name.to_owned(), block.offset.to_string(), block.nbytes.to_string()]);
        }
        output::line(&format!("\n{}", table.trim_fmt()));
    }
    Ok(0)
}

fn plan(args: &Args) -> Result<Plan> {
    let op = op(&args.op)?;
    let dtype = match args.dtype.parse() {
        Ok(number) => number,
        Err(_) => match Dtype::ALL.iter().find(|dtype| dtype.name() == args.dtype) {
            Some(dtype) => dtype.code(),
            None => {
                let names: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
                bail!(Usage(format!("--dtype is {:?}; {} or a number are known", args.dtype, names.join(", "))));
            }
        },
    };
    // The target first, as the contract has it: a param that is missing matters only for a target that is right.
    let target = resolve(op, Some(args.arch.as_bytes()), args.wave, dtype)?;
    let params = params(op, &args.params)?;
    let fabric = args.fabric.as_deref().map(fabric).transpose()?;
    Ok(complete(&target, &params, fabric.as_ref())?)
}

fn op(text: &str) -> Result<&'static Op, Refusal> {
    match text.parse() {
        Ok(id) => op_by_id(id).ok_or_else(|| Refusal::of(Reason::UnknownOp { found: id })),
        Err(_) => op_by_name(text)
            .ok_or_else(|| Refusal::of(Reason::UnknownOpName { found: ShortText::new(text.as_bytes()) })),
    }
}

/// Named values in the catalogue's order.
fn params(op: &Op, given: &[String]) -> Result<Vec<ParamValue>, Usage> {
    let names = || op.params.iter().map(|param| param.name).collect::<Vec<_>>().join(", ");
    let mut values: Vec<Option<ParamValue>> = vec![None; op.params.len()];
    for text in given {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Usage(format!("--param {text:?} is not NAME=VALUE")));
        };
        let Some(index) = op.params.iter().position(|param| param.name == name) else {
            return Err(Usage(format!("{} has no param {name:?}; it has: {}", op.name, names())));
        };
        if values[index].replace(param(&op.params[index], value)?).is_some() {
            return Err(Usage(format!("param {name} is given twice")));
        }
    }
    let missing: Vec<_> =
        op.params.iter().zip(&values).filter(|(_, value)| value.is_none()).map(|(param, _)| param.name).collect();
    if missing.is_empty() {
        Ok(values.into_iter().flatten().collect())
    } else {
        Err(Usage(format!("{} also needs --param {}", op.name, missing.join("=…, --param ") + "=…")))
    }
}

fn param(param: &Param, text: &str) -> Result<ParamValue, Usage> {
    let wrong = |what: &str| Usage(format!("param {} is {text:?}; {what} is needed", param.name));
    match param.kind {
        ParamKind::Float => text.parse().map(ParamValue::from_f64).map_err(|_| wrong("a number")),
        ParamKind::Enum(values) => {
            let labelled = values.iter().find(|value| value.label == Some(text)).map(|value| value.value);
            let labels: Vec<_> = values
                .iter()
                .map(|value| {
                    value.label.map_or_else(|| value.value.to_string(), |label| format!("{label} ({})", value.value))
                })
                .collect();
            labelled
                .or_else(|| text.parse().ok())
                .map(ParamValue::from_i64)
                .ok_or_else(|| wrong(&format!("one of {}", labels.join(", "))))
        }
        ParamKind::Bool if text == "true" => Ok(ParamValue::from_i64(1)),
        ParamKind::Bool if text == "false" => Ok(ParamValue::from_i64(0)),
        ParamKind::Bool | ParamKind::Int { .. } => {
            text.parse().map(ParamValue::from_i64).map_err(|_| wrong("a whole number"))
        }
    }
}

fn fabric(text: &str) -> Result<Fabric, Usage> {
    let mut fabric = Fabric { hop: 0, pcie_switch: 0, width: 0, acs_clear: 0, large_bar: 0 };
    for part in text.split(',') {
        let (name, value) =
            part.split_once('=').ok_or_else(|| Usage(format!("--fabric {part:?} is not FIELD=VALUE")))?;
        let named = |names: &[&str]| names.iter().position(|name| *name == value).and_then(|at| i32::try_from(at).ok());
        let (field, known) = match name {
            "hop" => (&mut fabric.hop, named(&HOPS)),
            "switch" => (&mut fabric.pcie_switch, named(&SWITCHES)),
            "width" => (&mut fabric.width, None),
            "acs_clear" => (&mut fabric.acs_clear, None),
            "large_bar" => (&mut fabric.large_bar, None),
            _ => {
                return Err(Usage(format!(
                    "--fabric has no field {name:?}; it has: hop, switch, width, acs_clear, large_bar"
                )));
            }
        };
        *field = known.or_else(|| value.parse().ok()).ok_or_else(|| {
            Usage(format!("--fabric {name} is {value:?}; a name of the contract or a number is needed"))
        })?;
    }
    Ok(fabric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(op: &str, params: &[&str]) -> Args {
        Args {
            op: op.to_owned(),
            arch: "gfx1030".to_owned(),
            wave: 0,
            dtype: "fp16".to_owned(),
            params: params.iter().map(|text| (*text).to_owned()).collect(),
            fabric: None,
        }
    }

    const DECODE: [&str; 10] = [
        "scale=0.088",
        "mode=decode",
        "head_dim=128",
        "num_q_heads=32",
        "num_kv_heads=8",
        "block_size=16",
        "kv_splits=4",
        "sliding_window=0",
        "causal=false",
        "max_tokens=8",
    ];

    #[test]
    fn named_params_in_any_order_make_the_contracts_figures() {
        let plan = plan(&args("attention.fa_fdot2", &DECODE)).unwrap();
        assert_eq!((plan.scratch_nbytes(), plan.variant, plan.wave, plan.float(9)), (532_480, 0, 32, 0.088));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (params, word) in [
            (&DECODE[1..], "scale=…"),
            (&["mode"][..], "NAME=VALUE"),
            (&["heads=3"], "num_q_heads"),
            (&["mode=sideways"], "prefill (1)"),
            (&["causal=perhaps"], "whole number"),
            (&["mode=decode", "mode=prefill"], "twice"),
        ] {
            let error = plan(&args("0", params)).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains(word), "{error}");
        }
        let error = plan(&args("attention.none", &[])).unwrap_err();
        assert_eq!(error.downcast_ref::<Refusal>().unwrap().status().name(), "ERR_UNKNOWN_OP");
    }

    #[test]
    fn a_fabric_by_names() {
        let fabric = fabric("hop=PIX,switch=GENERIC,width=8,acs_clear=1,large_bar=0").unwrap();
        assert_eq!(fabric, Fabric { hop: 1, pcie_switch: 3, width: 8, acs_clear: 1, large_bar: 0 });
        assert!(super::fabric("lanes=8").unwrap_err().0.contains("width"));
    }
}
