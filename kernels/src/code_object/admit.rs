//! Level two, the catalogue: does the object hold what a ready op of this slot needs, exactly.

use super::{CodeObject, EF_AMDGPU_MACH_MASK, Kernel, ObjectError};
use crate::catalogue::{OPS, Op};
use crate::launch::{KernelSpec, kernel_by_name, kernels_for_op};
use crate::slot::Slot;

/// Metadata versions: code object 3, 4 and 5 (6 says what 5 says).
const VERSIONS: [(u64, u64); 3] = [(1, 0), (1, 1), (1, 2)];
/// LDS of one workgroup at most, in bytes.
pub const MAX_LDS_BYTES: u64 = 64 * 1024;

impl CodeObject {
    /// Checks the object against a slot and the catalogue.
    ///
    /// # Errors
    /// ERR_FOREIGN_ISA for another slot's object; ERR_CODE_OBJECT naming the kernel, the field, what was expected and found.
    pub fn admit(&self, slot: &'static Slot) -> Result<(), ObjectError> {
        let found = self.flags & EF_AMDGPU_MACH_MASK;
        if found != slot.mach {
            return Err(ObjectError::ForeignIsa { found, slot });
        }
        let base = self.target.strip_prefix("amdgcn-amd-amdhsa--").map(|arch| arch.split(':').next().unwrap_or(arch));
        if base != Some(slot.name) {
            return Err(ObjectError::Target { found: self.target.clone(), slot });
        }
        if !VERSIONS.contains(&self.version) {
            return Err(ObjectError::Version { found: self.version });
        }
        for op in OPS.iter().filter(|op| op.has_body && (slot.dot || !op.dot)) {
            for spec in kernels_for_op(op) {
                self.agrees(op, spec)?;
            }
        }
        if !slot.dot {
            let is_dot = |kernel: &&Kernel| kernel_by_name(&kernel.name).is_some_and(|spec| spec.dot);
            if let Some(kernel) = self.kernels.iter().find(is_dot) {
                return Err(ObjectError::DotKernel { kernel: kernel.name.clone(), slot });
            }
        }
        Ok(())
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    fn agrees(&self, op: &'static Op, spec: &KernelSpec) -> Result<(), ObjectError> {
        let missing = || ObjectError::Missing { kernel: spec.name.to_owned(), op: op.name };
        let kernel = self.kernel(spec.name).ok_or_else(missing)?;
        let (said, descriptor) = (|field: &str| field.to_owned(), &kernel.descriptor);
        let differs = |field: String, found: String, expected: String| {
            Err(ObjectError::Kernel { kernel: spec.name.to_owned(), field, expected, found })
        };
        let symbol = format!("{}.kd", spec.name);
        if kernel.symbol != symbol {
            return differs(said("its symbol"), kernel.symbol.clone(), symbol);
        }
        for (index, arg) in kernel.args.iter().enumerate() {
            let Some(expected) = spec.args.get(index) else {
                return differs(format!("argument {index}"), arg.value_kind.clone(), said("no further argument"));
            };
            let of = |what: &str| format!("{what} of argument {}", expected.name);
            if arg.value_kind != expected.kind.value_kind() {
                return differs(of("the kind"), arg.value_kind.clone(), said(expected.kind.value_kind()));
            }
            if arg.offset != u64::from(expected.offset) {
                return differs(of("the offset"), arg.offset.to_string(), expected.offset.to_string());
            }
            if arg.size != u64::from(expected.kind.bytes()) {
                return differs(of("the size"), arg.size.to_string(), expected.kind.bytes().to_string());
            }
        }
        if kernel.args.len() != spec.args.len() {
            return differs(
                said("the number of arguments"),
                kernel.args.len().to_string(),
                spec.args.len().to_string(),
            );
        }
        for (field, found) in [
            ("the kernarg size in the metadata", kernel.kernarg_bytes),
            ("the kernarg size in the descriptor", u64::from(descriptor.kernarg_bytes)),
        ] {
            if found != u64::from(spec.kernarg_bytes) {
                return differs(said(field), found.to_string(), spec.kernarg_bytes.to_string());
            }
        }
        if spec.dot && !descriptor.wave32() {
            return differs(said("the wavefront in the descriptor"), said("64"), said("32"));
        }
        if spec.dot && kernel.wavefront_size != 32 {
            return differs(said("the wavefront in the metadata"), kernel.wavefront_size.to_string(), said("32"));
        }
        let allowed = MAX_LDS_BYTES.min(u64::from(spec.static_lds_bytes));
        for (field, found) in [
            ("the static LDS in the metadata", kernel.static_lds_bytes),
            ("the static LDS in the descriptor", u64::from(descriptor.static_lds_bytes)),
        ] {
            if found > allowed {
                return differs(said(field), format!("{found} bytes"), format!("at most {allowed}"));
            }
        }
        let block = spec.block.iter().map(|extent| u64::from(*extent)).product::<u64>();
        if kernel.max_workgroup < block {
            return differs(
                said("the largest workgroup"),
                kernel.max_workgroup.to_string(),
                format!("at least {block}"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Builder, good};
    use super::super::{ObjectError, inspect};
    use crate::slot::{SLOTS, slot_by_name};
    use crate::status::Status;

    /// One thing broken in an object that is good otherwise: status and a word of the sentence.
    fn refused(arch: &str, change: impl FnOnce(&mut Builder)) -> (Status, String) {
        let slot = slot_by_name(arch).unwrap();
        let mut builder = good(slot);
        change(&mut builder);
        let error: ObjectError = inspect(&builder.build()).and_then(|object| object.admit(slot)).unwrap_err();
        (error.status(), error.to_string())
    }

    #[test]
    fn a_good_object_passes_on_its_own_slot_alone() {
        for own in &SLOTS {
            let object = inspect(&good(own).build()).unwrap();
            for other in &SLOTS {
                let status = object.admit(other).map_err(|error| error.status());
                assert_eq!(
                    status,
                    if own == other { Ok(()) } else { Err(Status::ForeignIsa) },
                    "{} on {}",
                    own.name,
                    other.name
                );
            }
        }
    }

    #[test]
    fn each_rule_refuses_by_name() {
        const DECODE: &str = "hippihx_fa_fdot2_decode_d128";
        let cases: [(&str, (Status, String)); 16] = [
            ("gfx1100", refused("gfx1030", |b| b.target = "amdgcn-amd-amdhsa--gfx1100".to_owned())),
            ("9.9", refused("gfx1030", |b| b.version = (9, 9))),
            (DECODE, refused("gfx1030", |b| b.kernels.retain(|k| k.name != DECODE))),
            ("symbol", refused("gfx1030", |b| b.kernel(DECODE).symbol = "other.kd".to_owned())),
            ("hidden_block_count_x", refused("gfx1030", |b| b.hidden_argument(DECODE))),
            ("k_cache", refused("gfx1030", |b| b.kernel(DECODE).args[1].offset = 12)),
            ("k_cache", refused("gfx1030", |b| b.kernel(DECODE).args[1].size = 4)),
            ("kind", refused("gfx1030", |b| b.kernel(DECODE).args[1].value_kind = "by_value".to_owned())),
            ("number of arguments", refused("gfx1030", |b| drop(b.kernel(DECODE).args.pop()))),
            ("in the metadata is 232", refused("gfx1030", |b| b.kernel(DECODE).kernarg_bytes = 232)),
            ("in the descriptor is 232", refused("gfx1030", |b| b.kernel(DECODE).descriptor.kernarg_bytes = 232)),
            ("wavefront in the descriptor", refused("gfx1030", |b| b.kernel(DECODE).descriptor.properties = 0)),
            ("wavefront in the metadata", refused("gfx1030", |b| b.kernel(DECODE).wavefront_size = 64)),
            ("65792 bytes", refused("gfx1030", |b| b.kernel(DECODE).static_lds_bytes = 65_792)),
            ("largest workgroup", refused("gfx1030", |b| b.kernel(DECODE).max_workgroup = 64)),
            ("entry", refused("gfx1030", |b| b.kernel(DECODE).descriptor.entry = 1 << 40)),
        ];
        for (word, (status, text)) in &cases {
            assert!(text.contains(word), "{text} has no {word}");
            assert_eq!(*status, if *word == "gfx1100" { Status::ForeignIsa } else { Status::CodeObject }, "{text}");
        }
    }

    #[test]
    fn a_dot_kernel_on_gfx900_is_refused() {
        let dot = good(slot_by_name("gfx1030").unwrap()).kernels;
        let (status, text) = refused("gfx900", |b| b.kernels = dot);
        assert_eq!(status, Status::CodeObject);
        assert!(text.contains("DOT kernel"), "{text}");
    }

    #[test]
    fn every_cut_of_a_good_object_is_refused_or_whole() {
        let slot = &SLOTS[0];
        let image = good(slot).build();
        let whole = inspect(&image).unwrap();
        for length in 0..image.len() {
            // What is cut off may be padding, but never part of what was parsed.
            if let Ok(object) = inspect(&image[..length]) {
                assert_eq!(object, whole);
            }
        }
    }
}
