//! `hippihxctl stats`: counters since start, and what each session holds.

use std::path::Path;

use anyhow::Result;
use comfy_table::Table;
use hippihx_proto::v1;
use serde_json::{Value, json};

use crate::output;

pub async fn run(socket: &Path, json: bool) -> Result<u8> {
    let stats = super::connect(socket).await?.stats(v1::StatsRequest {}).await?.into_inner();
    if json {
        output::json(&value(&stats));
    } else {
        output::line(&text(&stats));
    }
    Ok(0)
}

pub(super) fn value(stats: &v1::StatsResponse) -> Value {
    let latency = |latency: &Option<v1::LatencyStats>| {
        let latency = latency.unwrap_or_default();
        json!({
            "count": latency.count, "sum_us": latency.sum_us, "p50_us": latency.p50_us, "p90_us": latency.p90_us,
            "p99_us": latency.p99_us,
        })
    };
    let cache = stats.plan_cache.unwrap_or_default();
    let runs: Vec<_> =
        stats.runs.iter().map(|run| json!({ "op": run.op, "status": run.status, "count": run.count })).collect();
    let sessions: Vec<_> = stats
        .sessions
        .iter()
        .map(|session| {
            json!({
                "session": session.session, "client": session.client_name, "uid": session.uid, "pid": session.pid,
                "buffers": session.buffers, "buffer_bytes": session.buffer_bytes, "bindings": session.bindings,
                "sequences": session.sequences, "runs": session.runs, "runs_in_flight": session.runs_in_flight,
                "ring_depth": session.ring_depth, "attached_us": session.attached_us,
            })
        })
        .collect();
    json!({
        "healthy": stats.healthy,
        "uptime_us": stats.uptime_us,
        "generation": stats.generation,
        "plan_cache": {
            "hits": cache.hits, "misses": cache.misses, "evictions": cache.evictions, "entries": cache.entries,
            "capacity": cache.capacity,
        },
        "runs": runs,
        "runs_in_flight": stats.runs_in_flight,
        "run_latency": latency(&stats.run_latency),
        "queue_latency": latency(&stats.queue_latency),
        "buffers": stats.buffers,
        "buffer_bytes": stats.buffer_bytes,
        "bindings": stats.bindings,
        "sequences": stats.sequences,
        "grpc_bytes_in": stats.grpc_bytes_in,
        "grpc_bytes_out": stats.grpc_bytes_out,
        "sessions": sessions,
    })
}

pub(super) fn text(stats: &v1::StatsResponse) -> String {
    let quantiles = |latency: &Option<v1::LatencyStats>| {
        let latency = latency.unwrap_or_default();
        let [p50, p90, p99] = [latency.p50_us, latency.p90_us, latency.p99_us].map(output::duration);
        format!("p50 {p50}, p90 {p90}, p99 {p99} over {}", latency.count)
    };
    let cache = stats.plan_cache.unwrap_or_default();
    let mut text = output::facts([
        ("health", if stats.healthy { "serving" } else { "not serving" }.to_owned()),
        ("up", output::duration(stats.uptime_us)),
        ("generation", stats.generation.to_string()),
        ("runs in flight", stats.runs_in_flight.to_string()),
        ("run latency", quantiles(&stats.run_latency)),
        ("queue latency", quantiles(&stats.queue_latency)),
        (
            "plan cache",
            format!("{} hits, {} misses, {} of {} entries", cache.hits, cache.misses, cache.entries, cache.capacity),
        ),
        ("buffers", format!("{} with {}", stats.buffers, output::bytes(stats.buffer_bytes))),
        ("bindings", format!("{}, sequences {}", stats.bindings, stats.sequences)),
        ("gRPC", format!("{} in, {} out", output::bytes(stats.grpc_bytes_in), output::bytes(stats.grpc_bytes_out))),
    ]);
    let mut runs = output::table(&["OP", "STATUS", "RUNS"]);
    for run in &stats.runs {
        runs.add_row([run.op.clone(), run.status.clone(), run.count.to_string()]);
    }
    for table in [runs, sessions(stats)] {
        if table.row_count() > 0 {
            text.push_str("\n\n");
            text.push_str(&table.trim_fmt());
        }
    }
    text
}

fn sessions(stats: &v1::StatsResponse) -> Table {
    let mut table = output::table(&[
        "SESSION",
        "CLIENT",
        "UID",
        "PID",
        "BUFFERS",
        "MEMORY",
        "BINDINGS",
        "RUNS",
        "IN FLIGHT",
        "SINCE",
    ]);
    for session in &stats.sessions {
        table.add_row([
            session.session.to_string(),
            // Text of a stranger's: no escape sequence of it reaches the terminal.
            session.client_name.escape_debug().to_string(),
            session.uid.to_string(),
            session.pid.to_string(),
            session.buffers.to_string(),
            output::bytes(session.buffer_bytes),
            session.bindings.to_string(),
            session.runs.to_string(),
            session.runs_in_flight.to_string(),
            output::duration(session.attached_us),
        ]);
    }
    table
}
