//! The service's Rust and the descriptors that reflection serves, from `proto/hippihx/v1/*.proto`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use prost::Message;

use super::Rendered;

const PROTO: &str = "hippihx/v1/kernel_service.proto";
const OUT: &str = "proto/src/generated";

pub fn render(root: &Path) -> Result<Vec<Rendered>> {
    let folder = root.join("proto");
    let descriptors = protox::compile([PROTO], [&folder]).context("the .proto files do not compile")?;
    let scratch = crate::target_dir().join("codegen");
    fs::create_dir_all(&scratch)?;
    let bytes = descriptors.encode_to_vec();
    tonic_prost_build::configure()
        .out_dir(&scratch)
        // Images and handles travel as `Bytes`: one buffer, shared and not copied.
        .bytes(".")
        .compile_fds(descriptors)
        .context("cannot render the service")?;
    let rendered = fs::read(scratch.join("hippihx.v1.rs")).context("nothing was rendered for hippihx.v1")?;
    Ok(vec![(Path::new(OUT).join("hippihx.v1.rs"), rendered), (Path::new(OUT).join("descriptors.bin"), bytes)])
}
