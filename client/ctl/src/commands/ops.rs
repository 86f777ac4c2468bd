//! `hippihxctl ops`: the ops as the daemon has them.

use std::path::Path;

use anyhow::Result;
use hippihx_proto::v1;
use serde_json::json;

use crate::output;

pub async fn run(socket: &Path, json: bool) -> Result<u8> {
    let about = super::connect(socket).await?.describe(v1::DescribeRequest {}).await?.into_inner();
    if json {
        let ops: Vec<_> = about
            .ops
            .iter()
            .map(|op| {
                json!({
                    "id": op.id, "name": op.name, "dot": op.dot, "fp16_act": op.fp16_act, "needs_fabric": op.needs_fabric,
                    "ready": op.ready, "not_ready_reason": op.not_ready_reason, "summary": op.summary, "params": op.params,
                    "tensors": op.tensors,
                })
            })
            .collect();
        output::json(&json!({ "slot": about.slot, "generation": about.generation, "ops": ops }));
        return Ok(0);
    }
    let mut table = output::table(&["ID", "OP", "READY", "PARAMS", "TENSORS", "SUMMARY"]);
    for op in about.ops {
        let ready = if op.ready { "yes".to_owned() } else { format!("no: {}", op.not_ready_reason) };
        table.add_row([op.id.to_string(), op.name, ready, op.params.join(" "), op.tensors.join(" "), op.summary]);
    }
    output::line(&table.trim_fmt());
    Ok(0)
}
