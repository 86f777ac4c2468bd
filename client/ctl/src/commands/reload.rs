//! `hippihxctl reload`: the configuration and the configured code object, read again.

use std::path::Path;

use anyhow::Result;
use hippihx_proto::v1::load_request::Source;

pub async fn run(socket: &Path, json: bool) -> Result<u8> {
    super::load::load(socket, None, Source::Reload(true), json).await
}
