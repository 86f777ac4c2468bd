//! `hippihxctl inspect`: a file as the daemon would look at it, level by level.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use hippihx_kernels::code_object::{CodeObject, EF_AMDGPU_MACH_MASK, ObjectError, check_header, inspect};
use hippihx_kernels::{LATER_SLOTS, SLOTS, Slot, slot_by_name};
use serde_json::json;

use crate::failure::REFUSED;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A code object, or what is taken for one
    file: PathBuf,
    /// Slot to judge it for; the one of its machine number when not given
    #[arg(long)]
    slot: Option<String>,
}

/// What each level said.
struct Report {
    slot: Option<&'static Slot>,
    /// Level one: the header, for the slot.
    header: Option<Result<(), ObjectError>>,
    /// The parsed file.
    object: Result<CodeObject, ObjectError>,
    /// Level two: the kernels, for the slot.
    admitted: Option<Result<(), ObjectError>>,
    bundle: Vec<BundleEntry>,
}

impl Report {
    fn of(image: &[u8], wanted: Option<&'static Slot>) -> Report {
        let object = inspect(image);
        let own = object.as_ref().ok().and_then(|object| slot_of(object.flags));
        let slot = wanted.or(own);
        Report {
            slot,
            header: slot.map(|slot| check_header(image, slot)),
            admitted: slot.and_then(|slot| object.as_ref().ok().map(|object| object.admit(slot))),
            object,
            bundle: bundle_entries(image),
        }
    }

    /// The first refusal, in the loader's order.
    fn refusal(&self) -> Option<&ObjectError> {
        let header = self.header.as_ref().and_then(|result| result.as_ref().err());
        let admitted = self.admitted.as_ref().and_then(|result| result.as_ref().err());
        header.or(self.object.as_ref().err()).or(admitted)
    }

    fn good(&self) -> bool {
        self.slot.is_some() && self.refusal().is_none()
    }
}

pub fn run(args: &Args, json: bool) -> Result<u8> {
    let wanted = args.slot.as_deref().map(slot_by_name).transpose()?;
    let image = fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let report = Report::of(&image, wanted);
    if json {
        output::json(&value(args, &image, &report));
    } else {
        print(args, &image, &report);
    }
    Ok(if report.good() { 0 } else { REFUSED })
}

fn print(args: &Args, image: &[u8], report: &Report) {
    let verdict = |result: &Option<Result<(), ObjectError>>| match result {
        Some(Ok(())) => "good".to_owned(),
        Some(Err(error)) => format!("{}: {error}", error.status()),
        None => "not judged".to_owned(),
    };
    let mut facts = vec![("file", format!("{} ({})", args.file.display(), output::bytes(image.len() as u64)))];
    if let Ok(object) = &report.object {
        facts.push(("target", object.target.clone()));
        facts.push(("machine", machine(object.flags)));
        facts.push(("metadata", format!("version {}.{}", object.version.0, object.version.1)));
    }
    if let Some(slot) = report.slot {
        facts.push(("slot", slot.name.to_owned()));
        facts.push(("header", verdict(&report.header)));
        if report.object.is_ok() {
            facts.push(("kernels", verdict(&report.admitted)));
        }
    } else if report.object.is_ok() {
        facts.push(("slot", "none: no slot has this machine number".to_owned()));
    }
    if let (Err(error), None | Some(Ok(()))) = (&report.object, &report.header) {
        facts.push(("refused", format!("{}: {error}", error.status())));
    }
    output::line(&output::facts(facts));
    if !report.bundle.is_empty() {
        output::line(
            "\nThis is a bundle of objects for several targets. A daemon loads one raw object; each part could be taken \
             out, but compiling for one target without a bundle gives the same:",
        );
        let mut table = output::table(&["TARGET", "OFFSET", "BYTES"]);
        for entry in &report.bundle {
            table.add_row([
                entry.target.escape_debug().to_string(),
                entry.offset.to_string(),
                entry.nbytes.to_string(),
            ]);
        }
        output::line(&table.trim_fmt());
    }
    if let Ok(object) = &report.object {
        let mut table =
            output::table(&["KERNEL", "VGPRS", "SGPRS", "SPILLS", "LDS", "SCRATCH", "KERNARG", "WAVE", "WORKGROUP"]);
        for kernel in &object.kernels {
            table.add_row([
                kernel.name.escape_debug().to_string(),
                kernel.vgprs.to_string(),
                kernel.sgprs.to_string(),
                kernel.vgpr_spills.saturating_add(kernel.sgpr_spills).to_string(),
                kernel.static_lds_bytes.to_string(),
                kernel.private_bytes.to_string(),
                kernel.kernarg_bytes.to_string(),
                kernel.wavefront_size.to_string(),
                kernel.max_workgroup.to_string(),
            ]);
        }
        output::line(&format!("\n{}", table.trim_fmt()));
    }
}

fn value(args: &Args, image: &[u8], report: &Report) -> serde_json::Value {
    let object = report.object.as_ref().ok();
    let kernels: Vec<_> = object
        .iter()
        .flat_map(|object| &object.kernels)
        .map(|kernel| {
            json!({
                "name": kernel.name, "symbol": kernel.symbol, "vgprs": kernel.vgprs, "sgprs": kernel.sgprs,
                "vgpr_spills": kernel.vgpr_spills, "sgpr_spills": kernel.sgpr_spills,
                "static_lds_bytes": kernel.static_lds_bytes, "private_bytes": kernel.private_bytes,
                "kernarg_bytes": kernel.kernarg_bytes, "wavefront_size": kernel.wavefront_size,
                "max_workgroup": kernel.max_workgroup,
            })
        })
        .collect();
    let bundle: Vec<_> = report
        .bundle
        .iter()
        .map(|entry| json!({ "target": entry.target, "offset": entry.offset, "nbytes": entry.nbytes }))
        .collect();
    let refusal = report.refusal().map(|error| {
        json!({ "reason": error.status().name(), "status": error.status().code(), "message": error.to_string() })
    });
    json!({
        "file": args.file, "size_bytes": image.len(), "slot": report.slot.map(|slot| slot.name), "good": report.good(),
        "target": object.map(|object| &object.target), "machine": object.map(|object| object.flags & EF_AMDGPU_MACH_MASK),
        "refusal": refusal, "kernels": kernels, "bundle": bundle,
    })
}

fn slot_of(flags: u32) -> Option<&'static Slot> {
    SLOTS.iter().find(|slot| slot.mach == flags & EF_AMDGPU_MACH_MASK)
}

fn machine(flags: u32) -> String {
    let number = flags & EF_AMDGPU_MACH_MASK;
    let later = LATER_SLOTS.iter().find(|slot| slot.mach == number);
    match (slot_of(flags), later) {
        (Some(slot), _) => format!("{number:#04x} ({})", slot.name),
        (None, Some(later)) => format!("{number:#04x} ({}: {})", later.name, later.reason),
        (None, None) => format!("{number:#04x} (no slot)"),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct BundleEntry {
    target: String,
    /// Bytes from the start of the file, and how many; as the bundle says it.
    offset: u64,
    nbytes: u64,
}

/// The table of a clang offload bundle; empty for every other file. It is shown, never followed.
fn bundle_entries(image: &[u8]) -> Vec<BundleEntry> {
    const MOST: u64 = 256;
    let mut entries = Vec::new();
    let Some(mut rest) = image.strip_prefix(b"__CLANG_OFFLOAD_BUNDLE__") else { return entries };
    let word = |rest: &mut &[u8]| -> Option<u64> {
        let (bytes, after) = rest.split_first_chunk::<8>()?;
        *rest = after;
        Some(u64::from_le_bytes(*bytes))
    };
    let count = word(&mut rest).unwrap_or(0).min(MOST);
    for _ in 0..count {
        let (Some(offset), Some(nbytes), Some(length)) = (word(&mut rest), word(&mut rest), word(&mut rest)) else {
            break;
        };
        let Some((target, after)) = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
        else {
            break;
        };
        rest = after;
        entries.push(BundleEntry { target: String::from_utf8_lossy(target).into_owned(), offset, nbytes });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> Vec<u8> {
        let mut image = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        image.extend(2_u64.to_le_bytes());
        for (target, offset, nbytes) in
            [("host-x86_64-unknown-linux--", 4096_u64, 0_u64), ("hipv4-amdgcn-amd-amdhsa--gfx1030", 4096, 77)]
        {
            for word in [offset, nbytes, target.len() as u64] {
                image.extend(word.to_le_bytes());
            }
            image.extend(target.as_bytes());
        }
        image
    }

    #[test]
    fn a_bundles_parts_are_listed_and_no_cut_of_it_fails() {
        let image = bundle();
        let entries = bundle_entries(&image);
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[1].target.as_str(), entries[1].nbytes), ("hipv4-amdgcn-amd-amdhsa--gfx1030", 77));
        for length in 0..image.len() {
            assert!(bundle_entries(&image[..length]).len() < 2);
        }
        let mut endless = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        endless.extend([0xff; 64]);
        assert_eq!(bundle_entries(&endless), []);
        assert!(!Report::of(&image, None).good());
    }
}
