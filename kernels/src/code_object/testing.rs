//! Builds small code objects for tests, so that each rule can be broken alone.

use rmp::encode;

use super::{Descriptor, Kernel, KernelArg};
use crate::catalogue::OPS;
use crate::launch::kernels_for_op;
use crate::slot::Slot;

const TEXT: u64 = 0x1000;
const DESCRIPTORS: u64 = 0x2000;

/// An object to be: what it says, and nothing derived from it.
pub(crate) struct Builder {
    pub flags: u32,
    pub target: String,
    pub version: (u64, u64),
    pub kernels: Vec<Kernel>,
}

/// An object with every kernel that a slot's ready ops need.
pub(crate) fn good(slot: &Slot) -> Builder {
    let ops = OPS.iter().filter(|op| op.has_body && (slot.dot || !op.dot));
    let kernels = ops.flat_map(kernels_for_op).map(|spec| Kernel {
        name: spec.name.to_owned(),
        symbol: format!("{}.kd", spec.name),
        kernarg_bytes: u64::from(spec.kernarg_bytes),
        static_lds_bytes: u64::from(spec.static_lds_bytes),
        wavefront_size: 32,
        max_workgroup: 128,
        args: spec
            .args
            .iter()
            .map(|arg| KernelArg {
                offset: u64::from(arg.offset),
                size: u64::from(arg.kind.bytes()),
                value_kind: arg.kind.value_kind().to_owned(),
            })
            .collect(),
        descriptor: Descriptor {
            kernarg_bytes: spec.kernarg_bytes,
            properties: 1 << 10,
            entry: TEXT,
            ..Descriptor::default()
        },
        ..Kernel::default()
    });
    Builder {
        flags: slot.mach,
        target: format!("amdgcn-amd-amdhsa--{}", slot.name),
        version: (1, 2),
        kernels: kernels.collect(),
    }
}

impl Builder {
    pub(crate) fn kernel(&mut self, name: &str) -> &mut Kernel {
        self.kernels.iter_mut().find(|kernel| kernel.name == name).expect("a kernel of the catalogue")
    }

    pub(crate) fn hidden_argument(&mut self, name: &str) {
        let kernel = self.kernel(name);
        let offset = kernel.kernarg_bytes;
        kernel.args.push(KernelArg { offset, size: 4, value_kind: "hidden_block_count_x".to_owned() });
    }

    /// The file: header, program headers, note, symbols, descriptors, 256 bytes of code, section headers.
    pub(crate) fn build(&self) -> Vec<u8> {
        let note = self.note();
        let mut strings = vec![0_u8];
        let mut symbols = vec![0_u8; 24];
        let mut descriptors = Vec::new();
        for kernel in &self.kernels {
            let address = DESCRIPTORS + descriptors.len() as u64;
            symbols.extend_from_slice(&(strings.len() as u32).to_le_bytes());
            symbols.extend_from_slice(&[0x11, 0, 2, 0]);
            symbols.extend_from_slice(&address.to_le_bytes());
            symbols.extend_from_slice(&64_u64.to_le_bytes());
            strings.extend_from_slice(kernel.symbol.as_bytes());
            strings.push(0);
            descriptors.extend_from_slice(&descriptor(&kernel.descriptor, address));
        }
        let names = b"\0.dynsym\0.dynstr\0";

        let mut file = vec![0_u8; 64 + 3 * 56];
        let mut place = |bytes: &[u8], align: usize| {
            file.resize(file.len().next_multiple_of(align), 0);
            let at = file.len() as u64;
            file.extend_from_slice(bytes);
            (at, bytes.len() as u64)
        };
        let note = place(&note, 4);
        let symbols = place(&symbols, 8);
        let strings = place(&strings, 1);
        let names = place(names, 1);
        let code = place(&[0_u8; 256], 256);
        let descriptors = place(&descriptors, 64);
        let mut sections = vec![0_u8; 64];
        sections.extend_from_slice(&section(1, 11, symbols, 2, 24));
        sections.extend_from_slice(&section(9, 3, strings, 0, 0));
        sections.extend_from_slice(&section(0, 3, names, 0, 0));
        let sections = place(&sections, 8).0;
        for (index, header) in
            [segment(4, 4, note, note.0), segment(1, 5, code, TEXT), segment(1, 4, descriptors, DESCRIPTORS)]
                .iter()
                .enumerate()
        {
            file[64 + index * 56..][..56].copy_from_slice(header);
        }
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 64]);
        file[16..24].copy_from_slice(&[3, 0, 224, 0, 1, 0, 0, 0]);
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[40..48].copy_from_slice(&sections.to_le_bytes());
        file[48..52].copy_from_slice(&self.flags.to_le_bytes());
        file[52..64].copy_from_slice(&[64, 0, 56, 0, 3, 0, 64, 0, 4, 0, 3, 0]);
        file
    }

    fn note(&self) -> Vec<u8> {
        let mut desc = Vec::new();
        let out = &mut desc;
        let text = |out: &mut Vec<u8>, text: &str| encode::write_str(out, text).expect("a Vec takes all");
        let number = |out: &mut Vec<u8>, number: u64| {
            encode::write_uint(out, number).expect("a Vec takes all");
        };
        encode::write_map_len(out, 3).expect("a Vec takes all");
        text(out, "amdhsa.kernels");
        encode::write_array_len(out, self.kernels.len() as u32).expect("a Vec takes all");
        for kernel in &self.kernels {
            encode::write_map_len(out, 12).expect("a Vec takes all");
            text(out, ".name");
            text(out, &kernel.name);
            text(out, ".symbol");
            text(out, &kernel.symbol);
            text(out, ".uses_dynamic_stack");
            encode::write_bool(out, false).expect("a Vec takes all");
            for (key, value) in [
                (".kernarg_segment_size", kernel.kernarg_bytes),
                (".group_segment_fixed_size", kernel.static_lds_bytes),
                (".private_segment_fixed_size", kernel.private_bytes),
                (".wavefront_size", kernel.wavefront_size),
                (".max_flat_workgroup_size", kernel.max_workgroup),
                (".vgpr_count", kernel.vgprs),
                (".sgpr_count", kernel.sgprs),
                (".vgpr_spill_count", kernel.vgpr_spills),
            ] {
                text(out, key);
                number(out, value);
            }
            text(out, ".args");
            encode::write_array_len(out, kernel.args.len() as u32).expect("a Vec takes all");
            for arg in &kernel.args {
                encode::write_map_len(out, 3).expect("a Vec takes all");
                text(out, ".offset");
                number(out, arg.offset);
                text(out, ".size");
                number(out, arg.size);
                text(out, ".value_kind");
                text(out, &arg.value_kind);
            }
        }
        text(out, "amdhsa.target");
        text(out, &self.target);
        text(out, "amdhsa.version");
        encode::write_array_len(out, 2).expect("a Vec takes all");
        number(out, self.version.0);
        number(out, self.version.1);

        let mut note = Vec::new();
        for word in [7, desc.len() as u32, 32] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        note.extend_from_slice(b"AMDGPU\0\0");
        note.extend_from_slice(&desc);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }
}

fn descriptor(from: &Descriptor, address: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0..4].copy_from_slice(&from.static_lds_bytes.to_le_bytes());
    bytes[4..8].copy_from_slice(&from.private_bytes.to_le_bytes());
    bytes[8..12].copy_from_slice(&from.kernarg_bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&from.entry.wrapping_sub(address).to_le_bytes());
    bytes[56..58].copy_from_slice(&from.properties.to_le_bytes());
    bytes
}

fn section(name: u32, kind: u32, (offset, size): (u64, u64), link: u32, entry: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0..4].copy_from_slice(&name.to_le_bytes());
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[24..32].copy_from_slice(&offset.to_le_bytes());
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    bytes[40..44].copy_from_slice(&link.to_le_bytes());
    bytes[56..64].copy_from_slice(&entry.to_le_bytes());
    bytes
}

fn segment(kind: u32, flags: u32, (offset, size): (u64, u64), address: u64) -> [u8; 56] {
    let mut bytes = [0; 56];
    bytes[0..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&address.to_le_bytes());
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    bytes[40..48].copy_from_slice(&size.to_le_bytes());
    bytes[48..56].copy_from_slice(&4_u64.to_le_bytes());
    bytes
}
