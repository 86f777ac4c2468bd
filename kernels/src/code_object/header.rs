//! Level one: the 64 bytes of the ELF header.

use super::ObjectError;
use crate::slot::Slot;

/// The machine is the low byte of e_flags; what stands above it (xnack, sramecc) is no part of the slot.
pub const EF_AMDGPU_MACH_MASK: u32 = 0xff;

const EM_AMDGPU: u16 = 224;
const ET_DYN: u16 = 3;
const ELFOSABI_AMDGPU_HSA: u8 = 64;

/// Checks that an image is one raw AMDGPU ELF for this slot, as far as its header says.
///
/// # Errors
/// ERR_CODE_OBJECT for everything that is no such ELF, then ERR_FOREIGN_ISA for another machine.
pub fn check_header(image: &[u8], slot: &'static Slot) -> Result<(), ObjectError> {
    let header = amdgpu_header(image)?;
    let found = flags(header) & EF_AMDGPU_MACH_MASK;
    if found == slot.mach { Ok(()) } else { Err(ObjectError::ForeignIsa { found, slot }) }
}

pub(super) fn flags(header: &[u8; 64]) -> u32 {
    u32::from_le_bytes([header[48], header[49], header[50], header[51]])
}

/// The header of a raw AMDGPU ELF, of whatever machine.
pub(super) fn amdgpu_header(image: &[u8]) -> Result<&[u8; 64], ObjectError> {
    for (magic, format) in [
        (b"CCOB".as_slice(), "a compressed offload bundle (CCOB)"),
        (b"__CLANG_OFFLOAD_BUNDLE__".as_slice(), "a clang offload bundle"),
        (b"\x10\xff\x10\xad".as_slice(), "a clang offload binary"),
    ] {
        if image.starts_with(magic) {
            return Err(ObjectError::Bundle { format });
        }
    }
    let header = image.first_chunk::<64>().ok_or(ObjectError::Short { found: image.len() })?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let refuse = |field, found: String, allowed| Err(ObjectError::Header { field, found, allowed });
    if header[..4] != *b"\x7fELF" {
        return refuse("the magic", format!("{:02x?}", &header[..4]), "7f 45 4c 46 (an ELF)");
    }
    if header[4] != 2 {
        return refuse("the class", header[4].to_string(), "2 (64-bit)");
    }
    if header[5] != 1 {
        return refuse("the data encoding", header[5].to_string(), "1 (little-endian)");
    }
    if header[7] != ELFOSABI_AMDGPU_HSA {
        return refuse("the OS ABI", header[7].to_string(), "64 (AMDGPU HSA)");
    }
    if half(16) != ET_DYN {
        return refuse(
            "the type",
            half(16).to_string(),
            "3 (a linked shared object; a relocatable .o must be linked first)",
        );
    }
    if half(18) != EM_AMDGPU {
        return refuse("the machine class", half(18).to_string(), "224 (AMDGPU)");
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{SLOTS, slot_by_name};
    use crate::status::Status;

    fn header(flags: u32) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 64]);
        image[16..20].copy_from_slice(&[3, 0, 224, 0]);
        image[48..52].copy_from_slice(&flags.to_le_bytes());
        image
    }

    #[test]
    fn only_the_slots_own_number_passes_whatever_stands_above_it() {
        for slot in &SLOTS {
            for mach in 0..=0xff {
                for above in [0, 0x100, 0x300, 0xffff_ff00] {
                    let result = check_header(&header(mach | above), slot);
                    let status = result.as_ref().map_err(ObjectError::status);
                    assert_eq!(status, if mach == slot.mach { Ok(&()) } else { Err(Status::ForeignIsa) });
                }
            }
        }
        let error = check_header(&header(0x53), &SLOTS[0]).unwrap_err().to_string();
        assert!(error.contains("0x53") && error.contains("0x36"), "{error}");
        let error = check_header(&header(0x41), &SLOTS[0]).unwrap_err().to_string();
        assert!(error.contains("gfx1100"), "{error}");
    }

    #[test]
    fn each_field_of_the_header_counts() {
        let slot = slot_by_name("gfx1030").unwrap();
        let good = header(0x36);
        assert_eq!(check_header(&good, slot), Ok(()));
        for (at, byte) in [(0, 0), (3, b'G'), (4, 1), (5, 2), (7, 0), (16, 1), (16, 2), (17, 1), (18, 62), (19, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(check_header(&bad, slot).unwrap_err().status(), Status::CodeObject, "byte {at}");
        }
        for length in 0..64 {
            assert_eq!(check_header(&good[..length], slot).unwrap_err().status(), Status::CodeObject);
        }
    }

    #[test]
    fn a_bundle_is_named_with_the_flags_that_avoid_it() {
        for start in ["CCOB", "__CLANG_OFFLOAD_BUNDLE__"] {
            let mut image = start.as_bytes().to_vec();
            image.resize(200, 0);
            let error = check_header(&image, &SLOTS[0]).unwrap_err();
            assert_eq!(error.status(), Status::CodeObject);
            let text = error.to_string();
            assert!(
                text.contains("bundle")
                    && text.contains("--cuda-device-only")
                    && text.contains("--no-gpu-bundle-output")
            );
        }
    }
}
