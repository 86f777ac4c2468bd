//! `hippihxctl status`: what the daemon is, or with `--health` whether it serves.

use std::path::Path;

use anyhow::Result;
use hippihx_proto::v1;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::failure::REFUSED;
use crate::output;

/// The service whose health counts.
const SERVICE: &str = "hippihx.v1.KernelService";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ask only whether the service serves: exit status 0 then, 1 else
    #[arg(long)]
    health: bool,
}

pub async fn run(socket: &Path, args: &Args, json: bool) -> Result<u8> {
    if args.health {
        let status = health(socket).await?;
        if json {
            output::json(&json!({ "health": status.as_str_name() }));
        } else {
            output::line(status.as_str_name());
        }
        return Ok(if status == ServingStatus::Serving { 0 } else { REFUSED });
    }
    let about = super::connect(socket).await?.describe(v1::DescribeRequest {}).await?.into_inner();
    let (device, object) = (about.device.unwrap_or_default(), about.code_object.unwrap_or_default());
    if json {
        let kernels: Vec<_> = object
            .kernels
            .iter()
            .map(|kernel| {
                json!({
                    "name": kernel.name, "kernarg_bytes": kernel.kernarg_bytes, "static_lds_bytes": kernel.static_lds_bytes,
                    "vgprs": kernel.vgprs, "sgprs": kernel.sgprs, "spills": kernel.spills,
                    "wavefront_size": kernel.wavefront_size,
                })
            })
            .collect();
        output::json(&json!({
            "version": about.daemon_version,
            "abi_revision": about.abi_revision,
            "slot": about.slot,
            "generation": about.generation,
            "epoch": about.epoch,
            "draining": about.draining,
            "handoff": about.handoff_path,
            "device": {
                "kind": device.kind, "name": device.name, "arch": device.arch, "pci_address": device.pci_address,
                "uuid": device.uuid, "memory_total_bytes": device.memory_total_bytes,
                "memory_free_bytes": device.memory_free_bytes, "context_bytes": device.context_bytes,
                "compute_units": device.compute_units, "runtime_version": device.runtime_version,
                "ordering": device.ordering, "capture_supported": device.capture_supported,
            },
            "code_object": {
                "source": object.source, "sha256": output::hex(&object.sha256), "size_bytes": object.size_bytes,
                "kernels": kernels,
            },
        }));
        return Ok(0);
    }
    let ready = about.ops.iter().filter(|op| op.ready).count();
    let place = if device.pci_address.is_empty() { String::new() } else { format!(" at {}", device.pci_address) };
    output::line(&output::facts([
        ("daemon", format!("hippihxd {} (ABI revision {})", about.daemon_version, about.abi_revision)),
        ("state", if about.draining { "draining" } else { "serving" }.to_owned()),
        ("slot", about.slot),
        ("device", format!("{}: {} ({}){place}", device.kind, device.name, device.arch)),
        (
            "memory",
            format!("{} free of {}", output::bytes(device.memory_free_bytes), output::bytes(device.memory_total_bytes)),
        ),
        ("ordering", device.ordering),
        ("code object", format!("{} ({})", object.source, output::bytes(object.size_bytes))),
        ("sha256", output::hex(&object.sha256)),
        ("generation", about.generation.to_string()),
        ("ops", format!("{ready} of {} ready", about.ops.len())),
    ]));
    Ok(0)
}

/// The service's health as grpc.health.v1 tells it.
pub async fn health(socket: &Path) -> Result<ServingStatus> {
    let channel = hippihx_client::channel(socket).await?;
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    Ok(HealthClient::new(channel).check(request).await?.into_inner().status())
}
