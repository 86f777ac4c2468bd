//! The ELF: header, segments as loaded, executable sections, relocations.

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags};

use super::LoadError;

/// Loaded images above this are refused: a kernel library is a few megabytes.
const MAX_IMAGE: u64 = 256 << 20;
const ELFOSABI_AMDGPU_HSA: u8 = 64;
const NT_AMDGPU_METADATA: u32 = 32;
const R_AMDGPU_ABS64: u32 = 3;
const R_AMDGPU_RELATIVE64: u32 = 13;
/// EF_AMDGPU_MACH of gfx1030, gfx1031, gfx1032, gfx1033, gfx1034, gfx1035 and gfx1036, which share one instruction set.
const MACHINES: [u32; 7] = [0x36, 0x37, 0x38, 0x39, 0x3e, 0x3d, 0x45];

/// Segments at their virtual addresses, from address 0.
#[derive(Debug)]
pub(crate) struct Image {
    pub bytes: Vec<u8>,
    /// Executable sections: address and length.
    pub code: Vec<(u64, u64)>,
    /// Where functions begin, so that decoding restarts there.
    pub functions: Vec<u64>,
    /// Words that need the load address added once it is known: place and addend.
    pub relative: Vec<(u64, i64)>,
    symbols: Vec<(String, u64)>,
    pub metadata: Vec<u8>,
}

fn format(problem: impl std::fmt::Display) -> LoadError {
    LoadError::Format(problem.to_string())
}

impl Image {
    pub(crate) fn parse(data: &[u8]) -> Result<Self, LoadError> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(format)?;
        let (header, endian) = (file.elf_header(), file.endian());
        if header.e_machine(endian) != elf::EM_AMDGPU
            || header.e_ident().os_abi.0 != ELFOSABI_AMDGPU_HSA
            || header.e_type(endian) != elf::ET_DYN
            || endian != Endianness::Little
        {
            return Err(format("machine, OS/ABI, type or byte order is another"));
        }
        let mach = header.e_flags(endian).0 & 0xff;
        if !MACHINES.contains(&mach) {
            return Err(LoadError::Machine { mach });
        }
        let mut bytes = Vec::new();
        for segment in file.elf_program_headers() {
            if segment.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            let (at, size) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            let end = at.checked_add(size).filter(|&end| end <= MAX_IMAGE);
            let end = end.ok_or_else(|| format(format_args!("a segment ends beyond {MAX_IMAGE} bytes")))?;
            let content = segment.data(endian, data).map_err(|()| format("a segment lies outside the file"))?;
            if bytes.len() < end as usize {
                bytes.resize(end as usize, 0);
            }
            let content = &content[..content.len().min(size as usize)];
            bytes[at as usize..at as usize + content.len()].copy_from_slice(content);
        }
        let mut image = Self {
            bytes,
            code: code_sections(&file),
            functions: Vec::new(),
            relative: Vec::new(),
            symbols: Vec::new(),
            metadata: metadata_note(&file, data)?,
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.is_definition() && symbol.kind() == object::SymbolKind::Text {
                image.functions.push(symbol.address());
            }
            image.symbols.push((name.to_owned(), symbol.address()));
        }
        image.functions.sort_unstable();
        image.functions.dedup();
        image.relocate(&file)?;
        Ok(image)
    }

    fn relocate(&mut self, file: &ElfFile64<'_, Endianness>) -> Result<(), LoadError> {
        for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let r_type = r_type.0;
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => file
                    .dynamic_symbol_table()
                    .and_then(|table| object::ObjectSymbolTable::symbol_by_index(&table, index).ok())
                    .filter(|symbol| symbol.is_definition())
                    .map(|symbol| symbol.address()),
                _ => Some(0),
            };
            let value = match (r_type, symbol) {
                (R_AMDGPU_RELATIVE64, _) => relocation.addend(),
                (R_AMDGPU_ABS64, Some(symbol)) => relocation.addend().wrapping_add(symbol as i64),
                _ => return Err(LoadError::Relocation { kind: r_type, offset }),
            };
            if offset.checked_add(8).is_none_or(|end| end > self.bytes.len() as u64) {
                return Err(format("a relocation lies outside the image"));
            }
            self.relative.push((offset, value));
        }
        Ok(())
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|(known, _)| known == name).map(|&(_, address)| address)
    }
}

fn code_sections(file: &ElfFile64<'_, Endianness>) -> Vec<(u64, u64)> {
    file.sections()
        .filter(|s| matches!(s.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0))
        .map(|s| (s.address(), s.size()))
        .collect()
}

fn metadata_note(file: &ElfFile64<'_, Endianness>, data: &[u8]) -> Result<Vec<u8>, LoadError> {
    let endian = file.endian();
    for segment in file.elf_program_headers() {
        let Some(mut notes) = segment.notes(endian, data).map_err(format)? else { continue };
        while let Some(note) = notes.next().map_err(format)? {
            if note.name() == b"AMDGPU" && note.n_type(endian).0 == NT_AMDGPU_METADATA {
                return Ok(note.desc().to_vec());
            }
        }
    }
    Err(LoadError::Metadata("the object has none".into()))
}
