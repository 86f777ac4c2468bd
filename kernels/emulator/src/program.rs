//! A loaded code object, decoded once.

use crate::exec::inst::{Inst, UNDECODABLE, lower};
use crate::isa::decode::{Decoded, decode};
use crate::object::{Descriptor, HiddenKind, Image, KernelMetadata, LoadError};

/// A kernel that can be dispatched.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) descriptor: Descriptor,
    pub(crate) entry: u32,
    pub(crate) descriptor_address: u64,
    pub(crate) kernarg_bytes: u64,
    pub(crate) hidden: Vec<(u64, u64, HiddenKind)>,
    pub(crate) max_workgroup: Option<u64>,
}

impl Kernel {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the kernel-argument segment, hidden arguments included.
    pub fn kernarg_bytes(&self) -> u64 {
        self.kernarg_bytes
    }

    /// Bytes of LDS that the kernel declares.
    pub fn static_lds_bytes(&self) -> u32 {
        self.descriptor.group_bytes
    }

    /// Scratch bytes a lane.
    pub fn scratch_bytes(&self) -> u32 {
        self.descriptor.private_bytes
    }

    /// Vector registers a lane, as allocated.
    pub fn vgprs(&self) -> u32 {
        self.descriptor.vgprs
    }
}

/// Machine code and kernels of one code object. Shared freely between threads.
#[derive(Debug)]
pub struct Program {
    image: Image,
    insts: Vec<Inst>,
    /// Beside each instruction: its address and what it was decoded from.
    places: Vec<(u64, Option<Decoded>)>,
    /// Instruction index by address / 4.
    index: Vec<u32>,
    kernels: Vec<Kernel>,
}

impl Program {
    /// Parses and decodes a code object for gfx1030 to gfx1036.
    ///
    /// # Errors
    /// [`LoadError`] for anything that is no such object, or whose kernels are not wave32. Words that do not decode are no
    /// error here: they may be padding or data. Executing one is a fault; [`Self::undecodable`] lists them.
    pub fn load(bytes: &[u8]) -> Result<Self, LoadError> {
        let image = Image::parse(bytes)?;
        let metadata = crate::object::parse_metadata(&image.metadata)?;
        let mut program = Self {
            index: vec![u32::MAX; image.bytes.len().div_ceil(4)],
            image,
            insts: Vec::new(),
            places: Vec::new(),
            kernels: Vec::new(),
        };
        program.decode_all();
        program.link();
        for kernel in metadata {
            let kernel = program.kernel_from(kernel)?;
            program.kernels.push(kernel);
        }
        Ok(program)
    }

    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Address and text of every instruction, in order.
    pub fn disassembly(&self) -> impl Iterator<Item = (u64, String)> {
        (0..self.insts.len() as u32).map(|index| (self.address_of(index), self.text_of(index)))
    }

    /// The words of every instruction, those behind it where it has fewer than three zero.
    pub fn instruction_words(&self) -> impl Iterator<Item = [u32; 3]> {
        self.places.iter().map(|(_, decoded)| {
            let mut words = [0; 3];
            if let Some(decoded) = decoded {
                words[..decoded.len].copy_from_slice(&decoded.words[..decoded.len]);
            }
            words
        })
    }

    /// Addresses of words in executable sections that are no instruction.
    pub fn undecodable(&self) -> impl Iterator<Item = u64> {
        self.places.iter().filter(|(_, decoded)| decoded.is_none()).map(|&(address, _)| address)
    }

    /// Instructions that decode but that nothing here can execute, by name.
    pub fn unsupported(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self
            .places
            .iter()
            .filter_map(|(_, decoded)| decoded.as_ref())
            .filter(|decoded| !crate::exec::is_supported(decoded))
            .map(|decoded| decoded.row.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn word(&self, address: u64) -> Option<u32> {
        let at = usize::try_from(address).ok()?;
        let bytes = self.image.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn decode_all(&mut self) {
        for (start, size) in self.image.code.clone() {
            let end = start.saturating_add(size).min(self.image.bytes.len() as u64);
            let mut at = start;
            while at.checked_add(4).is_some_and(|next| next <= end) && at.is_multiple_of(4) {
                // Up to three words, none of which reaches into the next function.
                let next_function = self.image.functions.partition_point(|&f| f <= at);
                let limit = self.image.functions.get(next_function).copied().unwrap_or(end).min(end);
                let words: Vec<u32> =
                    (0..3).filter(|k| at + 4 * k + 4 <= limit).map_while(|k| self.word(at + 4 * k)).collect();
                let decoded = decode(&words);
                self.index[(at / 4) as usize] = self.insts.len() as u32;
                self.insts.push(decoded.as_ref().map_or(UNDECODABLE, lower));
                self.places.push((at, decoded));
                at += 4 * decoded.map_or(1, |d| d.len as u64);
            }
        }
    }

    /// Fills in where each instruction goes on.
    fn link(&mut self) {
        for n in 0..self.insts.len() {
            let (address, decoded) = &self.places[n];
            let len = decoded.as_ref().map_or(1, |d| d.len) as u64;
            let next = address + 4 * len;
            let target = next.wrapping_add_signed(i64::from(self.insts[n].imm) * 4);
            let is_branch =
                decoded.as_ref().is_some_and(|d| d.row.name.contains("branch") || d.row.name == "s_call_b64");
            self.insts[n].next = self.index_at(next).unwrap_or(u32::MAX);
            if is_branch {
                self.insts[n].target = self.index_at(target).unwrap_or(u32::MAX);
            }
        }
    }

    fn kernel_from(&self, metadata: KernelMetadata) -> Result<Kernel, LoadError> {
        let name = metadata.name;
        let bad = |problem: String| LoadError::Kernel { kernel: name.clone(), problem };
        let address = self
            .image
            .symbol(&metadata.symbol)
            .ok_or_else(|| bad(format!("its descriptor symbol '{}' is missing", metadata.symbol)))?;
        let bytes = usize::try_from(address)
            .ok()
            .and_then(|at| self.image.bytes.get(at..at.checked_add(Descriptor::BYTES)?))
            .and_then(|bytes| <&[u8; Descriptor::BYTES]>::try_from(bytes).ok())
            .ok_or_else(|| bad("its descriptor lies outside the image".to_owned()))?;
        let descriptor = Descriptor::parse(bytes);
        if !descriptor.wave32 {
            return Err(bad("it wants wavefronts of 64 lanes; only wave32 is executed".to_owned()));
        }
        let entry = address
            .checked_add_signed(descriptor.entry_offset)
            .and_then(|entry| self.index_at(entry))
            .ok_or_else(|| bad("its entry is no instruction".to_owned()))?;
        Ok(Kernel {
            descriptor,
            entry,
            descriptor_address: address,
            kernarg_bytes: metadata.kernarg_bytes.max(u64::from(descriptor.kernarg_bytes)),
            hidden: metadata.hidden,
            max_workgroup: metadata.max_flat_workgroup,
            name,
        })
    }

    pub(crate) fn insts(&self) -> &[Inst] {
        &self.insts
    }

    /// The instruction that begins at this address of the image.
    pub(crate) fn index_at(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        self.index.get(usize::try_from(address / 4).ok()?).copied().filter(|&index| index != u32::MAX)
    }

    /// Address within the image, 0 for no instruction.
    pub(crate) fn address_of(&self, index: u32) -> u64 {
        self.places.get(index as usize).map_or(0, |&(address, _)| address)
    }

    pub(crate) fn text_of(&self, index: u32) -> String {
        match self.places.get(index as usize) {
            Some((_, Some(decoded))) => crate::isa::text::render(decoded),
            Some((address, None)) => format!(".long {:#010x}", self.word(*address).unwrap_or(0)),
            None => "past the end of the code".to_owned(),
        }
    }

    pub(crate) fn bytes_of(&self, index: u32) -> Vec<u8> {
        let Some((address, decoded)) = self.places.get(index as usize) else { return Vec::new() };
        let len = decoded.as_ref().map_or(1, |d| d.len) as u64;
        (0..len).filter_map(|k| self.word(address + 4 * k)).flat_map(u32::to_le_bytes).collect()
    }

    /// The image as loaded at `base`, relocated.
    pub(crate) fn image_at(&self, base: u64) -> Vec<u8> {
        let mut bytes = self.image.bytes.clone();
        for &(offset, addend) in &self.image.relative {
            let at = offset as usize;
            bytes[at..at + 8].copy_from_slice(&base.wrapping_add_signed(addend).to_le_bytes());
        }
        bytes
    }
}
