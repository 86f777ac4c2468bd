//! `cargo xtask codegen [--check]`: everything that is rendered, from the one table and the .proto files.
//!
//! Rendered files are checked in, so that a build needs none of this; `--check` compares bytes and names every file that
//! differs.

mod header;
mod proto;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file differs from what would be rendered
    #[arg(long)]
    check: bool,
}

/// A file's path from the repository's root, and its bytes.
type Rendered = (PathBuf, Vec<u8>);

pub fn run(args: &Args) -> Result<()> {
    let root = crate::workspace_root();
    let mut files: Vec<Rendered> = vec![header::render()];
    files.extend(proto::render(&root)?);
    let mut stale = Vec::new();
    for (path, bytes) in &files {
        let at = root.join(path);
        if fs::read(&at).ok().as_deref() == Some(bytes) {
            continue;
        }
        stale.push(path.display().to_string());
        if !args.check {
            if let Some(folder) = at.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&at, bytes).with_context(|| format!("cannot write {}", at.display()))?;
        }
    }
    match (stale.is_empty(), args.check) {
        (true, _) => println!("{} rendered files are up to date", files.len()),
        (false, false) => println!("rendered {}", stale.join(", ")),
        (false, true) => bail!("stale: {}; run `cargo xtask codegen` and commit the result", stale.join(", ")),
    }
    Ok(())
}
