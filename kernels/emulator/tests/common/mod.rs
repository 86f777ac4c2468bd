//! Compiles probe kernels for gfx1030.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler, by version 19 and newer. There is no test without one: a missing compiler fails.
pub fn clang() -> PathBuf {
    let named = std::env::var_os("HIPPIHX_CLANG").map(PathBuf::from);
    let found = named.or_else(|| {
        ["clang-19", "clang-20", "clang-21"]
            .iter()
            .map(PathBuf::from)
            .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()))
    });
    found.expect("clang-19 or newer is needed for these tests: install clang-19 and lld-19, or set HIPPIHX_CLANG")
}

/// Builds `source`, a file in tests/probes, into a code object.
pub fn build(source: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes").join(source);
    build_file(&path, &[])
}

pub fn build_file(path: &Path, defines: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let object = folder.path().join("probe.hsaco");
    let out = Command::new(clang())
        .args([
            "-x",
            "hip",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            "-O3",
            "-std=c++17",
            "-nogpuinc",
            "-nogpulib",
        ])
        .args(["-fuse-cuid=none", "--offload-arch=gfx1030", "-Wno-unused-command-line-argument"])
        .args(defines)
        .arg(path)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang starts");
    assert!(out.status.success(), "clang failed on {}: {}", path.display(), String::from_utf8_lossy(&out.stderr));
    std::fs::read(object).expect("clang wrote the object")
}

/// Packs kernel arguments: pointers and 8-byte values are aligned to 8.
#[derive(Default)]
pub struct Args(pub Vec<u8>);

impl Args {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn ptr(mut self, address: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(address.to_le_bytes());
        self
    }

    pub fn i32(mut self, value: i32) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn f32(self, value: f32) -> Self {
        self.i32(value.to_bits() as i32)
    }
}
