//! An instruction as the executor wants it: operands resolved, the function that runs it at hand.

use super::machine::{Exec, Machine};
use super::trap::{Flow, Trap};
use crate::isa::decode::{Decoded, Encoding, Extra, aligned, bits};
use crate::isa::row::{Dst, Kind};
use crate::report::Class;

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Src {
    Vector(u8),
    /// An index into the scalar file: 0 to 105, VCC 106, TTMP, M0 124, EXEC 126.
    Scalar(u8),
    /// Low and high word.
    Constant(u32, u32),
    /// 251 VCCZ, 252 EXECZ, 253 SCC.
    Condition(u8),
}

/// What a second word asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    None,
    Dpp16 { ctrl: u16, row_mask: u8, bank_mask: u8, bound_ctrl: bool, fetch_inactive: bool },
    Dpp8 { lanes: u32, fetch_inactive: bool },
    Sdwa { dst_sel: u8, dst_unused: u8, src_sel: [u8; 2], sext: [bool; 2] },
}

/// Registers for the checks: which are read and written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Uses {
    vector_reads: [u8; 10],
    n_reads: u8,
    pub first_write: u8,
    pub n_writes: u8,
    pub scalar_reads: u128,
    pub scalar_writes: u128,
}

impl Uses {
    pub(crate) fn reads(&self) -> &[u8] {
        &self.vector_reads[..usize::from(self.n_reads)]
    }

    fn read_vector(&mut self, first: u8, n: u32) {
        for k in 0..n {
            if let Some(slot) = self.vector_reads.get_mut(usize::from(self.n_reads)) {
                *slot = first.wrapping_add(k as u8);
                self.n_reads += 1;
            }
        }
    }

    fn read(&mut self, source: Src, n: u32) {
        match source {
            Src::Vector(register) => self.read_vector(register, n),
            Src::Scalar(register) => self.scalar_reads |= scalar_bits(u32::from(register), n),
            _ => {}
        }
    }
}

/// General scalar registers and VCC; the others always hold something.
fn scalar_bits(first: u32, n: u32) -> u128 {
    (first..first + n).filter(|&r| r < 108).fold(0, |all, r| all | 1 << r)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Inst {
    pub exec: Exec,
    pub class: Class,
    /// First register of the destination, vector or scalar.
    pub dst: u8,
    /// A second, scalar destination, or the scalar address of GLOBAL (125: none).
    pub sdst: u8,
    pub src: [Src; 3],
    pub abs: u8,
    pub neg: u8,
    pub neg_hi: u8,
    pub op_sel: u8,
    pub op_sel_hi: u8,
    pub clamp: bool,
    pub omod: u8,
    pub tail: Tail,
    /// SIMM16, memory offset or inline constant.
    pub imm: i32,
    pub imm2: i32,
    /// Memory: address register, data registers.
    pub addr: u8,
    pub data: u8,
    pub data2: u8,
    /// Memory: return the old value, or MUBUF's OFFEN (bit 1) and IDXEN (bit 2).
    pub bits: u8,
    /// The instruction after this one, and where a branch goes; `u32::MAX` is nowhere.
    pub next: u32,
    pub target: u32,
    pub uses: Uses,
}

impl Inst {
    /// Registers of the destination as a usize index.
    #[inline]
    pub(crate) fn d(&self) -> usize {
        usize::from(self.dst)
    }
}

/// Runs for what decodes but has no executor.
pub(super) fn unsupported(_: &mut Machine<'_>, _: &Inst) -> Result<Flow, Box<Trap>> {
    Err(Box::new(Trap::Unsupported))
}

/// Stands where no instruction decodes.
pub(super) fn undecodable(_: &mut Machine<'_>, _: &Inst) -> Result<Flow, Box<Trap>> {
    Err(Box::new(Trap::Undecodable))
}

const fn blank(exec: Exec) -> Inst {
    Inst {
        exec,
        class: Class::Other,
        dst: 0,
        sdst: 0,
        src: [Src::Constant(0, 0); 3],
        abs: 0,
        neg: 0,
        neg_hi: 0,
        op_sel: 0,
        op_sel_hi: 0,
        clamp: false,
        omod: 0,
        tail: Tail::None,
        imm: 0,
        imm2: 0,
        addr: 0,
        data: 0,
        data2: 0,
        bits: 0,
        next: u32::MAX,
        target: u32::MAX,
        uses: Uses {
            vector_reads: [0; 10],
            n_reads: 0,
            first_write: 0,
            n_writes: 0,
            scalar_reads: 0,
            scalar_writes: 0,
        },
    }
}

/// The stand-in for words that do not decode.
pub(crate) const UNDECODABLE: Inst = blank(undecodable);

/// Resolves operands and picks the executor. Branch targets are the caller's to fill.
pub(crate) fn lower(decoded: &Decoded) -> Inst {
    let row = decoded.row;
    let mut inst = blank(super::lookup(decoded).unwrap_or(unsupported));
    inst.class = super::class_of(decoded);
    inst.dst = decoded.destination() as u8;
    if decoded.scalar_destination() {
        inst.dst = aligned(decoded.destination(), row.dst.width()) as u8;
    }
    inst.imm = i32::from(decoded.simm16());
    let (codes, n) = decoded.sources();
    for k in 0..n {
        let code = aligned(codes[k], row.src[k].width());
        inst.src[k] = source(code, row.src[k], decoded.literal);
    }
    let [first, second, _] = decoded.words;
    match decoded.encoding {
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc => {
            inst.sdst = 106;
            tail(&mut inst, decoded);
            if decoded.has_inline_constant() {
                inst.imm = decoded.literal.unwrap_or(0) as i32;
            }
        }
        Encoding::Vop3 => {
            inst.clamp = bits(first, 15, 1) == 1;
            (inst.neg, inst.omod) = (bits(second, 29, 3) as u8, bits(second, 27, 2) as u8);
            if row.has('b') {
                inst.sdst = decoded.second_destination() as u8;
            } else {
                (inst.abs, inst.op_sel) = (bits(first, 8, 3) as u8, bits(first, 11, 4) as u8);
            }
        }
        Encoding::Vop3p => {
            inst.clamp = bits(first, 15, 1) == 1;
            (inst.neg_hi, inst.op_sel) = (bits(first, 8, 3) as u8, bits(first, 11, 3) as u8);
            inst.neg = bits(second, 29, 3) as u8;
            inst.op_sel_hi = (bits(second, 27, 2) | bits(first, 14, 1) << 2) as u8;
        }
        Encoding::Smem => {
            inst.addr = aligned(bits(first, 0, 6) * 2, row.src.first().map_or(2, |base| base.width())) as u8;
            inst.imm = (second << 11) as i32 >> 11;
            inst.sdst = bits(second, 25, 7) as u8;
        }
        Encoding::Ds => {
            (inst.imm, inst.imm2) = (bits(first, 0, 8) as i32, bits(first, 8, 8) as i32);
            if !row.has('2') {
                inst.imm = bits(first, 0, 16) as i32;
            }
            inst.addr = second as u8;
            (inst.data, inst.data2) = ((second >> 8) as u8, (second >> 16) as u8);
            inst.bits = bits(first, 17, 1) as u8;
        }
        Encoding::Flat | Encoding::Global | Encoding::Scratch => {
            inst.imm = (first << 20) as i32 >> 20;
            if decoded.encoding == Encoding::Flat {
                inst.imm = bits(first, 0, 11) as i32;
            }
            (inst.addr, inst.data) = (second as u8, (second >> 8) as u8);
            inst.sdst = aligned(bits(second, 16, 7), 2) as u8;
            inst.bits = bits(first, 16, 1) as u8;
        }
        Encoding::Mubuf => {
            inst.imm = bits(first, 0, 12) as i32;
            inst.addr = second as u8;
            inst.data = (second >> 8) as u8;
            inst.sdst = (bits(second, 16, 5) * 4) as u8;
            inst.src[0] = source(bits(second, 24, 8), Kind::B32, None);
            inst.bits = (bits(first, 12, 2) << 1 | bits(first, 14, 1)) as u8;
        }
        _ => {}
    }
    if row.name.starts_with("v_cmpx_") {
        inst.bits = 1;
    }
    if row.name == "s_setreg_imm32_b32" {
        inst.imm2 = decoded.literal.unwrap_or(0) as i32;
    }
    uses(&mut inst, decoded);
    inst
}

/// A source from its nine-bit code.
fn source(code: u32, kind: Kind, literal: Option<u32>) -> Src {
    match code {
        256.. => Src::Vector(code as u8),
        // SGPR_NULL reads as zero.
        125 => Src::Constant(0, 0),
        0..=127 => Src::Scalar(code as u8),
        251..=253 => Src::Condition(code as u8),
        255 => {
            let value = literal.unwrap_or(0);
            match kind {
                Kind::F64 => Src::Constant(0, value),
                _ => Src::Constant(value, 0),
            }
        }
        // Apertures of LDS and private memory, high word; and their limits.
        235 => Src::Constant(0, super::machine::SHARED_APERTURE),
        236 => Src::Constant(u32::MAX, super::machine::SHARED_APERTURE),
        237 => Src::Constant(0, super::machine::PRIVATE_APERTURE),
        238 => Src::Constant(u32::MAX, super::machine::PRIVATE_APERTURE),
        128..=208 => {
            let value = if code <= 192 { code as i32 - 128 } else { 192 - code as i32 };
            Src::Constant(value as u32, if value < 0 { u32::MAX } else { 0 })
        }
        240..=248 => float_constant((code - 240) as usize, kind),
        _ => Src::Constant(0, 0),
    }
}

fn float_constant(index: usize, kind: Kind) -> Src {
    const F16: [u32; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
    const F64: [u64; 9] = [
        0x3fe0_0000_0000_0000,
        0xbfe0_0000_0000_0000,
        0x3ff0_0000_0000_0000,
        0xbff0_0000_0000_0000,
        0x4000_0000_0000_0000,
        0xc000_0000_0000_0000,
        0x4010_0000_0000_0000,
        0xc010_0000_0000_0000,
        0x3fc4_5f30_6dc9_c882,
    ];
    const F32: [u32; 9] = [
        0x3f00_0000,
        0xbf00_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x4000_0000,
        0xc000_0000,
        0x4080_0000,
        0xc080_0000,
        0x3e22_f983,
    ];
    match kind {
        Kind::F16 | Kind::B16 | Kind::F16x2 => Src::Constant(F16[index], 0),
        Kind::F64 | Kind::B64 => Src::Constant(F64[index] as u32, (F64[index] >> 32) as u32),
        _ => Src::Constant(F32[index], 0),
    }
}

fn tail(inst: &mut Inst, decoded: &Decoded) {
    let second = decoded.words[1];
    match decoded.extra {
        Extra::None => {}
        Extra::Dpp16 => {
            inst.tail = Tail::Dpp16 {
                ctrl: bits(second, 8, 9) as u16,
                row_mask: bits(second, 28, 4) as u8,
                bank_mask: bits(second, 24, 4) as u8,
                bound_ctrl: bits(second, 19, 1) == 1,
                fetch_inactive: bits(second, 18, 1) == 1,
            };
            inst.neg = (bits(second, 20, 1) | bits(second, 22, 1) << 1) as u8;
            inst.abs = (bits(second, 21, 1) | bits(second, 23, 1) << 1) as u8;
        }
        Extra::Dpp8 { fetch_inactive } => inst.tail = Tail::Dpp8 { lanes: second >> 8, fetch_inactive },
        Extra::Sdwa => {
            let compare = decoded.encoding == Encoding::Vopc;
            inst.tail = Tail::Sdwa {
                dst_sel: if compare { 6 } else { bits(second, 8, 3) as u8 },
                dst_unused: if compare { 0 } else { bits(second, 11, 2) as u8 },
                src_sel: [bits(second, 16, 3) as u8, bits(second, 24, 3) as u8],
                sext: [bits(second, 19, 1) == 1, bits(second, 27, 1) == 1],
            };
            if !compare {
                inst.clamp = bits(second, 13, 1) == 1;
                inst.omod = bits(second, 14, 2) as u8;
            }
            inst.neg = (bits(second, 20, 1) | bits(second, 28, 1) << 1) as u8;
            inst.abs = (bits(second, 21, 1) | bits(second, 29, 1) << 1) as u8;
        }
    }
}

/// Which registers the checks look at.
fn uses(inst: &mut Inst, decoded: &Decoded) {
    let row = decoded.row;
    let mut uses = Uses::default();
    let vector_memory = matches!(
        decoded.encoding,
        Encoding::Ds | Encoding::Flat | Encoding::Global | Encoding::Scratch | Encoding::Mubuf
    );
    match decoded.encoding {
        Encoding::Ds => {
            let address = !row.has('n') && !row.src.is_empty();
            uses.read_vector(inst.addr, u32::from(address));
            for (k, kind) in row.src.iter().skip(usize::from(address)).enumerate() {
                uses.read_vector(if k == 0 { inst.data } else { inst.data2 }, kind.width());
            }
        }
        Encoding::Flat | Encoding::Global => {
            let scalar = decoded.encoding == Encoding::Global && inst.sdst != 125;
            uses.read_vector(inst.addr, if scalar { 1 } else { 2 });
            if scalar {
                uses.scalar_reads |= scalar_bits(u32::from(inst.sdst), 2);
            }
            uses.read_vector(inst.data, row.src.first().map_or(0, |k| k.width()));
        }
        Encoding::Mubuf => {
            uses.read_vector(inst.addr, (inst.bits >> 1 & 1) as u32 + (inst.bits >> 2 & 1) as u32);
            uses.scalar_reads |= scalar_bits(u32::from(inst.sdst), 4);
            uses.read(inst.src[0], 1);
            uses.read_vector(inst.data, row.src.first().map_or(0, |k| k.width()));
        }
        Encoding::Smem => {
            if let Some(base) = row.src.first() {
                uses.scalar_reads |= scalar_bits(u32::from(inst.addr), base.width());
            }
        }
        Encoding::Sopk if ["s_cmpk", "s_addk", "s_mulk", "s_setreg_b32"].iter().any(|p| row.name.starts_with(p)) => {
            uses.scalar_reads |= scalar_bits(u32::from(inst.dst), 1);
        }
        // Lanes of these registers may be undefined on purpose; the executor looks at the one that it reads.
        _ if matches!(row.name, "v_readlane_b32" | "v_readfirstlane_b32") => {
            uses.read(inst.src[1], 1);
        }
        _ => {
            for (k, kind) in row.src.iter().enumerate() {
                uses.read(inst.src[k], kind.width());
            }
            let accumulates =
                ["v_fmac_", "v_pk_fmac", "v_dot2c_", "v_dot4c_", "v_swap"].iter().any(|p| row.name.starts_with(p));
            if accumulates {
                uses.read_vector(inst.dst, 1);
            }
            if row.name.starts_with("v_div_fmas") {
                uses.scalar_reads |= scalar_bits(106, 1);
            }
        }
    }
    if decoded.scalar_destination() {
        uses.scalar_writes |= scalar_bits(u32::from(inst.dst), row.dst.width());
    } else if row.dst != Dst::None
        && row.name != "v_writelane_b32"
        && !(vector_memory && row.has('a') && inst.bits & 1 == 0)
    {
        uses.first_write = inst.dst;
        uses.n_writes = row.dst.width() as u8;
    }
    if row.has('b') || row.name.contains("_co_") {
        uses.scalar_writes |= scalar_bits(u32::from(inst.sdst), 1);
    }
    inst.uses = uses;
}
