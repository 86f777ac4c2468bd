//! Describe, Stats and Load: what the daemon is, what it did, and what it runs.

use std::path::Path;
use std::sync::atomic::Ordering;

use hippihx_kernels::{ABI_REVISION, OPS, slot_by_name};
use hippihx_proto::v1;

use crate::daemon::Daemon;
use crate::errors::Failure;
use crate::kernel_files;
use crate::lifecycle::Phase;
use crate::objects::Loaded;
use crate::stats::Histogram;

pub(super) fn describe(daemon: &Daemon) -> v1::DescribeResponse {
    let loaded = daemon.objects.current();
    let config = daemon.config();
    let ops = OPS.iter().map(|op| {
        let reason = loaded.not_ready(op, daemon.slot);
        v1::OpInfo {
            id: op.id,
            name: op.name.to_owned(),
            dot: op.dot,
            fp16_act: op.fp16_act,
            needs_fabric: op.needs_fabric,
            ready: reason.is_none(),
            not_ready_reason: reason.unwrap_or_default().to_owned(),
            summary: op.summary.to_owned(),
            params: op.params.iter().map(|param| param.name.to_owned()).collect(),
            tensors: op.tensors.iter().map(|slot| slot.name.to_owned()).collect(),
        }
    });
    v1::DescribeResponse {
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        abi_revision: ABI_REVISION.cast_unsigned(),
        slot: daemon.slot.name.to_owned(),
        device: Some(device(daemon)),
        code_object: Some(code_object(&loaded)),
        ops: ops.collect(),
        generation: loaded.generation,
        epoch: daemon.epoch,
        draining: daemon.lifecycle.phase() == Phase::Draining,
        handoff_path: daemon.handoff_path.display().to_string(),
        namespaces: Some(namespaces()),
        limits: Some(limits(&config.limits)),
    }
}

fn device(daemon: &Daemon) -> v1::DeviceInfo {
    let about = daemon.device.describe();
    let memory = daemon.device.memory_info().unwrap_or_default();
    v1::DeviceInfo {
        kind: about.kind.to_owned(),
        name: about.name.clone(),
        arch: about.arch.clone(),
        pci_address: about.pci_address.clone(),
        uuid: about.uuid.clone(),
        memory_total_bytes: memory.total,
        memory_free_bytes: memory.free,
        context_bytes: about.context_bytes,
        compute_units: about.compute_units,
        wavefront_size: about.wavefront_size,
        lds_per_workgroup_bytes: about.lds_per_workgroup_bytes,
        runtime_version: about.runtime_version.clone(),
        ordering: about.ordering.clone(),
        capture_supported: about.capture_supported,
    }
}

fn code_object(loaded: &Loaded) -> v1::CodeObjectInfo {
    let kernels = loaded.object.kernels.iter().map(|kernel| v1::KernelInfo {
        name: kernel.name.clone(),
        kernarg_bytes: kernel.kernarg_bytes as u32,
        static_lds_bytes: kernel.static_lds_bytes as u32,
        vgprs: kernel.vgprs as u32,
        sgprs: kernel.sgprs as u32,
        spills: (kernel.vgpr_spills.saturating_add(kernel.sgpr_spills)) as u32,
        wavefront_size: kernel.wavefront_size as u32,
    });
    v1::CodeObjectInfo {
        source: loaded.source.clone(),
        sha256: loaded.sha256.to_vec().into(),
        size_bytes: loaded.size,
        kernels: kernels.collect(),
    }
}

pub(super) fn limits(limits: &crate::config::Limits) -> v1::Limits {
    v1::Limits {
        buffers: limits.buffers,
        buffer_bytes: limits.buffer_bytes,
        bindings: limits.bindings,
        plans: limits.plans,
        sequences: limits.sequences,
        ring_entries: limits.ring_entries,
        requests_in_flight: limits.requests_in_flight,
        events: limits.events,
    }
}

/// The daemon's namespaces, 0 for one that cannot be read.
pub(super) fn namespaces() -> v1::Namespaces {
    let inode = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(Path::new("/proc/self/ns").join(name)).map_or(0, |found| found.ino())
    };
    v1::Namespaces {
        ipc: inode("ipc"),
        pid: inode("pid"),
        net: inode("net"),
        hip_ipc_mode: std::env::var("HSA_ENABLE_IPC_MODE_LEGACY").unwrap_or_default(),
    }
}

pub(super) fn load(daemon: &Daemon, request: v1::LoadRequest) -> Result<v1::LoadResponse, Failure> {
    use v1::load_request::Source;
    let slot = slot_by_name(&request.arch)?;
    if slot != daemon.slot {
        let sentence =
            format!("this daemon serves slot {}, not {}; ask the daemon of that GPU", daemon.slot.name, slot.name);
        return Err(Failure::V1 { status: hippihx_kernels::Status::UnsupportedArch, field: "arch", sentence });
    }
    let (loaded, changed) = match request.source {
        Some(Source::Reload(_)) => {
            let changed = daemon.reload()?;
            (daemon.objects.current(), changed)
        }
        Some(Source::Path(path)) => {
            let file = kernel_files::named(&daemon.config().kernels, Path::new(&path))?;
            daemon.objects.replace(daemon.device.as_ref(), file.image, file.source)?
        }
        Some(Source::Image(image)) => {
            daemon.objects.replace(daemon.device.as_ref(), image.as_ref().into(), "image".to_owned())?
        }
        None => return Err(Failure::invalid("source", "a path, an image or reload is needed")),
    };
    Ok(v1::LoadResponse { generation: loaded.generation, code_object: Some(code_object(&loaded)), changed })
}

pub(super) fn stats(daemon: &Daemon) -> v1::StatsResponse {
    let (stats, cache) = (&daemon.stats, daemon.plans.stats());
    let mut totals = v1::StatsResponse {
        uptime_us: u64::try_from(stats.uptime().as_micros()).unwrap_or(u64::MAX),
        plan_cache: Some(v1::PlanCacheStats {
            hits: cache.hits,
            misses: cache.misses,
            evictions: cache.evictions,
            entries: cache.entries,
            capacity: cache.capacity,
        }),
        runs: stats
            .runs()
            .into_iter()
            .map(|(op, status, count)| v1::RunCount { op: op.to_owned(), status: status.to_owned(), count })
            .collect(),
        generation: daemon.objects.current().generation,
        run_latency: Some(latency(&stats.run_latency)),
        queue_latency: Some(latency(&stats.queue_latency)),
        grpc_bytes_in: stats.grpc_bytes_in.load(Ordering::Relaxed),
        grpc_bytes_out: stats.grpc_bytes_out.load(Ordering::Relaxed),
        healthy: daemon.lifecycle.is_serving(),
        ..v1::StatsResponse::default()
    };
    for session in daemon.sessions.all() {
        let in_flight = session.queue.in_flight() as u64;
        let owned = session.owned();
        let row = v1::SessionStats {
            session: session.id,
            client_name: session.client_name.clone(),
            uid: session.peer.uid,
            pid: session.peer.pid,
            buffers: owned.buffers.len() as u64,
            buffer_bytes: session.quota.bytes(),
            bindings: owned.bindings.len() as u64,
            sequences: owned.sequences.len() as u64,
            runs: session.runs.load(Ordering::Relaxed),
            runs_in_flight: in_flight,
            ring_depth: 0,
            attached_us: u64::try_from(session.attached.elapsed().as_micros()).unwrap_or(u64::MAX),
        };
        drop(owned);
        totals.buffers += row.buffers;
        totals.buffer_bytes += row.buffer_bytes;
        totals.bindings += row.bindings;
        totals.sequences += row.sequences;
        totals.runs_in_flight += in_flight;
        totals.sessions.push(row);
    }
    totals.sessions.sort_by_key(|session| session.session);
    totals
}

fn latency(histogram: &Histogram) -> v1::LatencyStats {
    let [p50_us, p90_us, p99_us] = [0.5, 0.9, 0.99].map(|quantile| histogram.quantile_us(quantile));
    v1::LatencyStats { count: histogram.count(), sum_us: histogram.sum_us(), p50_us, p90_us, p99_us }
}
