//! `hippihxctl load`: another code object for the daemon's slot.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hippihx_proto::v1::{self, load_request::Source};
use serde_json::json;

use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// File under one of the daemon's kernel folders, as the daemon sees it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Slot that the object is for; the daemon's own when not given
    #[arg(long, value_name = "SLOT")]
    arch: Option<String>,
}

pub async fn run(socket: &Path, args: &Args, json: bool) -> Result<u8> {
    let path = args.path.to_string_lossy().into_owned();
    load(socket, args.arch.clone(), Source::Path(path), json).await
}

pub(super) async fn load(socket: &Path, arch: Option<String>, source: Source, json: bool) -> Result<u8> {
    let mut stub = super::connect(socket).await?;
    let arch = match arch {
        Some(arch) => arch,
        None => stub.describe(v1::DescribeRequest {}).await?.into_inner().slot,
    };
    let loaded = stub.load(v1::LoadRequest { arch, source: Some(source) }).await?.into_inner();
    let object = loaded.code_object.unwrap_or_default();
    let hash = output::hex(&object.sha256);
    if json {
        output::json(&json!({
            "generation": loaded.generation, "changed": loaded.changed, "source": object.source, "sha256": hash,
        }));
    } else {
        let what = if loaded.changed { "loaded" } else { "unchanged:" };
        output::line(&format!("{what} {} (generation {}, sha256 {hash})", object.source, loaded.generation));
    }
    Ok(0)
}
