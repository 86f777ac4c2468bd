//! Code objects for tests.

use std::path::PathBuf;
use std::sync::Arc;

/// The folder that holds `hippihx_<slot>.hsaco`: `HIPPIHX_KERNELS_DIR`, else where `cargo xtask kernels` puts them.
pub fn folder() -> PathBuf {
    match std::env::var_os("HIPPIHX_KERNELS_DIR") {
        Some(dir) => dir.into(),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kernels/out"),
    }
}

/// A slot's object.
///
/// # Panics
/// With what to do, when it was not built.
pub fn read(slot: &str) -> Arc<[u8]> {
    let path = folder().join(format!("hippihx_{slot}.hsaco"));
    match std::fs::read(&path) {
        Ok(image) => image.into(),
        Err(error) => panic!("{}: {error}; build it with `cargo xtask kernels --slot {slot}`", path.display()),
    }
}
