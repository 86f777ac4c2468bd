//! Level two, the ELF: every table and every offset inside the file, the metadata note, and the kernels' descriptors.

use object::LittleEndian;
use object::elf::{FileHeader64, NoteType, PF_X, PT_LOAD, SHT_NOBITS};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use super::header::{amdgpu_header, flags};
use super::{CodeObject, Descriptor, Kernel, ObjectError, metadata};

type Elf = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// NT_AMDGPU_METADATA, of the owner "AMDGPU".
const NT_AMDGPU_METADATA: NoteType = NoteType(32);

/// Parses a code object whole, for whatever slot.
///
/// # Errors
/// ERR_CODE_OBJECT, naming the part and what is wrong with it.
pub fn inspect(image: &[u8]) -> Result<CodeObject, ObjectError> {
    let flags = flags(amdgpu_header(image)?);
    let elf = Elf::parse(image).map_err(|error| malformed("the header", error))?;
    let sections = elf.sections(LE, image).map_err(|error| malformed("the section table", error))?;
    for section in sections.iter() {
        if section.sh_type(LE) != SHT_NOBITS {
            section.data(LE, image).map_err(|error| malformed("a section", error))?;
        }
        sections.section_name(LE, section).map_err(|error| malformed("a section's name", error))?;
    }
    let segments = elf.program_headers(LE, image).map_err(|error| malformed("the program header table", error))?;
    for segment in segments {
        segment.data(LE, image).map_err(|()| ObjectError::Elf {
            part: "a program header",
            what: format!(
                "reaches from {:#x} for {:#x} bytes, outside the file",
                segment.p_offset(LE),
                segment.p_filesz(LE)
            ),
        })?;
    }

    let mut note = None;
    for segment in segments {
        let Some(mut notes) = segment.notes(LE, image).map_err(|error| malformed("a note segment", error))? else {
            continue;
        };
        while let Some(found) = notes.next().map_err(|error| malformed("a note", error))? {
            if found.n_type(LE) == NT_AMDGPU_METADATA && found.name() == b"AMDGPU" {
                note.get_or_insert(found.desc());
            }
        }
    }
    let note = note.ok_or_else(|| ObjectError::Metadata("there is none (NT_AMDGPU_METADATA of AMDGPU)".to_owned()))?;
    let metadata::Metadata { target, version, mut kernels } = metadata::parse(note)?;

    let symbols = sections
        .symbols(LE, image, object::elf::SHT_DYNSYM)
        .map_err(|error| malformed("the dynamic symbol table", error))?;
    let mut by_name = std::collections::HashMap::with_capacity(symbols.len().min(image.len() / 24));
    for symbol in symbols.iter() {
        let name = symbol.name(LE, symbols.strings()).map_err(|error| malformed("a symbol's name", error))?;
        by_name.insert(name, symbol.st_value(LE));
    }
    for kernel in &mut kernels {
        let address = by_name.get(kernel.symbol.as_bytes()).copied().ok_or_else(|| ObjectError::Kernel {
            kernel: kernel.name.clone(),
            field: "its descriptor".to_owned(),
            expected: format!("symbol {}", kernel.symbol),
            found: "missing".to_owned(),
        })?;
        kernel.descriptor = descriptor(image, segments, kernel, address)?;
    }
    Ok(CodeObject { flags, target, version, kernels })
}

fn descriptor(
    image: &[u8],
    segments: &[object::elf::ProgramHeader64<LittleEndian>],
    kernel: &Kernel,
    address: u64,
) -> Result<Descriptor, ObjectError> {
    let refuse = |field: &str, found: String, expected: &str| ObjectError::Kernel {
        kernel: kernel.name.clone(),
        field: field.to_owned(),
        expected: expected.to_owned(),
        found,
    };
    let outside = || refuse("its descriptor's address", format!("{address:#x}"), "64 bytes inside a loaded segment");
    let bytes =
        loaded(image, segments, address).and_then(|(bytes, _)| bytes.first_chunk::<64>()).ok_or_else(outside)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let step = u64::from(word(16)) | u64::from(word(20)) << 32;
    // A signed distance from the descriptor; addresses wrap as the hardware's do.
    let entry = address.wrapping_add(step);
    let code = loaded(image, segments, entry)
        .filter(|(bytes, execute)| *execute && bytes.len() >= 4 && entry.is_multiple_of(256));
    if code.is_none() {
        return Err(refuse("its entry", format!("{entry:#x}"), "a 256-byte aligned address of executable code"));
    }
    Ok(Descriptor {
        address,
        entry,
        static_lds_bytes: word(0),
        private_bytes: word(4),
        kernarg_bytes: word(8),
        rsrc3: word(44),
        rsrc1: word(48),
        rsrc2: word(52),
        properties: u16::from_le_bytes([bytes[56], bytes[57]]),
    })
}

/// The file's bytes from a virtual address to the end of its segment, and whether they may be executed.
fn loaded<'a>(
    image: &'a [u8],
    segments: &[object::elf::ProgramHeader64<LittleEndian>],
    address: u64,
) -> Option<(&'a [u8], bool)> {
    segments.iter().filter(|segment| segment.p_type(LE) == PT_LOAD).find_map(|segment| {
        let inside = usize::try_from(address.checked_sub(segment.p_vaddr(LE))?).ok()?;
        let bytes = segment.data(LE, image).ok()?.get(inside..)?;
        (!bytes.is_empty()).then_some((bytes, segment.p_flags(LE).0 & PF_X.0 != 0))
    })
}

fn malformed(part: &'static str, error: object::Error) -> ObjectError {
    ObjectError::Elf { part, what: format!("does not parse: {error}") }
}
