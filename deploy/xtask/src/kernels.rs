//! `cargo xtask kernels`: the code objects of all slots, their resource table, and a manifest.

mod compiler;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hippihx_kernels::code_object::{self, CodeObject, Kernel};
use hippihx_kernels::{SLOTS, Slot, slot_by_name};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use compiler::Compiler;

/// The translation unit, from the folder that the compiler runs in: relative, so that the bytes depend on no folder's name.
const SOURCE_FOLDER: &str = "kernels/hip";
const SOURCE: &str = "hippihx.hip";

/// VGPRs of a SIMD for one lane of a wave32, and the most waves it holds (RDNA2 and later).
const VGPRS_PER_SIMD: u64 = 1024;
const MAX_WAVES: u64 = 16;
/// Register granule of a wave32 allocation.
const VGPR_GRANULE: u64 = 8;
/// LDS and SIMDs of a workgroup processor.
const WGP_LDS_BYTES: u64 = 128 * 1024;
const WGP_SIMDS: u64 = 4;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this slot; all when left out
    #[arg(long)]
    slot: Option<String>,
    /// Folder of the objects and the manifest
    #[arg(long, default_value = "kernels/out")]
    out: PathBuf,
    /// Fail instead of installing a compiler when there is none
    #[arg(long)]
    no_install: bool,
}

impl Args {
    /// One slot into the usual folder.
    pub fn one_slot(slot: &str) -> Args {
        Args { slot: Some(slot.to_owned()), out: PathBuf::from("kernels/out"), no_install: false }
    }
}

/// What was built, from what, and what it needs. Written beside the objects.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    compiler: String,
    flags: Vec<String>,
    /// SHA-256 over the names and bytes of the sources.
    source_sha256: String,
    objects: BTreeMap<String, ObjectRow>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ObjectRow {
    file: String,
    sha256: String,
    bytes: u64,
    kernels: Vec<KernelRow>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KernelRow {
    name: String,
    vgprs: u64,
    sgprs: u64,
    static_lds_bytes: u64,
    private_bytes: u64,
    vgpr_spills: u64,
    sgpr_spills: u64,
    waves_per_simd: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let root = crate::workspace_root();
    let slots: Vec<&'static Slot> = match &args.slot {
        Some(name) => vec![slot_by_name(name)?],
        None => SLOTS.iter().collect(),
    };
    let out = root.join(&args.out);
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let compiler = Compiler::find(!args.no_install)?;
    println!("compiling {} slots with {}", slots.len(), compiler.version());

    let objects = build_all(&root, &compiler, &slots, &out)?;
    print_table(&objects);
    let manifest = Manifest {
        compiler: compiler.version().to_owned(),
        flags: flags("<slot>", true),
        source_sha256: source_hash(&root.join(SOURCE_FOLDER))?,
        objects,
    };
    if args.slot.is_none() {
        let path = out.join("manifest.json");
        fs::write(&path, serde_json::to_vec_pretty(&manifest)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (slot, row) in &manifest.objects {
        for kernel in &row.kernels {
            ensure!(
                kernel.private_bytes == 0 && kernel.vgpr_spills == 0 && kernel.sgpr_spills == 0,
                "{slot}: {} spills registers ({} bytes of scratch)",
                kernel.name,
                kernel.private_bytes
            );
        }
    }
    println!("{} code objects in {}", manifest.objects.len(), out.display());
    Ok(())
}

/// Whether the objects of a folder were made from the sources as they are now.
pub fn is_current(root: &Path, folder: &Path) -> bool {
    let manifest =
        fs::read(folder.join("manifest.json")).ok().and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok());
    manifest
        .is_some_and(|manifest| source_hash(&root.join(SOURCE_FOLDER)).is_ok_and(|now| now == manifest.source_sha256))
}

/// Two compilers at a time: that is what the smallest machine we build on has cores for.
fn build_all(
    root: &Path,
    compiler: &Compiler,
    slots: &[&'static Slot],
    out: &Path,
) -> Result<BTreeMap<String, ObjectRow>> {
    let bar = ProgressBar::new(slots.len() as u64).with_style(
        ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let queue = Mutex::new(slots.iter());
    let done = Mutex::new(BTreeMap::new());
    let next = || queue.lock().ok()?.next().copied();
    let work = || -> Result<()> {
        while let Some(slot) = next() {
            bar.set_message(slot.name);
            let row = build(root, compiler, slot, out).with_context(|| format!("slot {}", slot.name))?;
            if let Ok(mut done) = done.lock() {
                done.insert(slot.name.to_owned(), row);
            }
            bar.inc(1);
        }
        Ok(())
    };
    let results = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().unwrap_or_else(|_| bail!("a build thread panicked")))
    });
    bar.finish_and_clear();
    results.into_iter().collect::<Result<()>>()?;
    done.into_inner().context("a build thread panicked")
}

fn flags(arch: &str, dot: bool) -> Vec<String> {
    [
        "-x",
        "hip",
        "--cuda-device-only",
        "--no-gpu-bundle-output",
        "-O3",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-nogpuinc",
        "-nogpulib",
        "-fuse-cuid=none",
        "-mcode-object-version=5",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("-DHIPPIHX_DOT={}", i32::from(dot)), format!("--offload-arch={arch}")])
    .collect()
}

fn build(root: &Path, compiler: &Compiler, slot: &'static Slot, out: &Path) -> Result<ObjectRow> {
    let file = format!("hippihx_{}.hsaco", slot.name);
    // Written under another name and moved, so that nobody ever reads half an object.
    let unfinished = out.join(format!(".{file}.{}", std::process::id()));
    let done = Command::new(compiler.path())
        .current_dir(root.join(SOURCE_FOLDER))
        .args(flags(slot.name, slot.dot))
        .args([SOURCE, "-o"])
        .arg(&unfinished)
        .output()
        .with_context(|| format!("cannot start {}", compiler.path().display()))?;
    if !done.status.success() {
        let _ = fs::remove_file(&unfinished);
        bail!("the compiler failed ({}):\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    let image = fs::read(&unfinished)?;
    fs::rename(&unfinished, out.join(&file))?;
    let object = code_object::inspect(&image)?;
    object.admit(slot)?;
    Ok(ObjectRow { file, sha256: hex(&Sha256::digest(&image)), bytes: image.len() as u64, kernels: rows(&object) })
}

fn rows(object: &CodeObject) -> Vec<KernelRow> {
    object.kernels.iter().map(row).collect()
}

fn row(kernel: &Kernel) -> KernelRow {
    KernelRow {
        name: kernel.name.clone(),
        vgprs: kernel.vgprs,
        sgprs: kernel.sgprs,
        static_lds_bytes: kernel.static_lds_bytes,
        private_bytes: kernel.private_bytes,
        vgpr_spills: kernel.vgpr_spills,
        sgpr_spills: kernel.sgpr_spills,
        waves_per_simd: waves_per_simd(kernel),
    }
}

/// Waves of a SIMD that registers and LDS admit, by the figures of a gfx1030 workgroup processor.
fn waves_per_simd(kernel: &Kernel) -> u64 {
    let by_registers = VGPRS_PER_SIMD / kernel.vgprs.max(1).next_multiple_of(VGPR_GRANULE);
    let waves_per_workgroup = kernel.max_workgroup.div_ceil(32);
    let by_lds = match WGP_LDS_BYTES.checked_div(kernel.static_lds_bytes) {
        Some(workgroups) => workgroups * waves_per_workgroup / WGP_SIMDS,
        None => MAX_WAVES,
    };
    by_registers.min(by_lds).min(MAX_WAVES)
}

fn print_table(objects: &BTreeMap<String, ObjectRow>) {
    println!(
        "{:8} {:32} {:>5} {:>5} {:>6} {:>6} {:>10}",
        "slot", "kernel", "VGPRs", "SGPRs", "LDS", "spills", "waves/SIMD"
    );
    for (slot, object) in objects {
        for kernel in &object.kernels {
            println!(
                "{slot:8} {:32} {:>5} {:>5} {:>6} {:>6} {:>10}",
                kernel.name,
                kernel.vgprs,
                kernel.sgprs,
                kernel.static_lds_bytes,
                kernel.vgpr_spills + kernel.sgpr_spills,
                kernel.waves_per_simd
            );
        }
        println!("{slot:8} {:32} {} bytes, sha256 {}", object.file, object.bytes, &object.sha256[..16]);
    }
}

/// Over every file of the device sources, in the order of their names.
fn source_hash(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let bytes = fs::read(&file)?;
        let name = file.strip_prefix(folder)?.to_string_lossy().into_owned();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    Ok(hex(&hash.finalize()))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let source = path.extension().is_some_and(|kind| kind == "h" || kind == "hip");
        if path.is_dir() {
            collect(&path, files)?;
        } else if source {
            files.push(path);
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_are_bound_by_registers_and_by_lds() {
        let kernel =
            |vgprs, static_lds_bytes| Kernel { vgprs, static_lds_bytes, max_workgroup: 128, ..Kernel::default() };
        assert_eq!(waves_per_simd(&kernel(192, 12_384)), 5);
        assert_eq!(waves_per_simd(&kernel(100, 21_504)), 6);
        assert_eq!(waves_per_simd(&kernel(8, 0)), 16);
    }
}
