//! From instruction words to a table row. Fields stay in the words; [`Decoded`] names them.

use super::row::{Dst, Row};
use super::{scalar, vmem, vop3, vop12, vopc};

/// Which bit layout the words have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Sop1,
    Sop2,
    Sopk,
    Sopc,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
}

/// What stands in the second word of a short vector instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    Sdwa,
    Dpp16,
    Dpp8 { fetch_inactive: bool },
}

/// A recognised instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded {
    pub encoding: Encoding,
    pub row: &'static Row,
    pub words: [u32; 3],
    /// 32-bit words, the literal included.
    pub len: usize,
    pub extra: Extra,
    pub literal: Option<u32>,
}

/// `len` bits of `word` from bit `at` on.
pub(crate) fn bits(word: u32, at: u32, len: u32) -> u32 {
    (word >> at) & ((1 << len) - 1)
}

/// The first of `width` scalar registers: general ones and TTMP begin at a multiple of 2, or of 4 for four and more. What the
/// hardware makes of others is not documented; LLVM ignores the low bits, and so does this.
pub(crate) fn aligned(code: u32, width: u32) -> u32 {
    match (code, width) {
        (0..=105 | 108..=123, 2) => code & !1,
        (0..=105 | 108..=123, 3..) => code & !3,
        _ => code,
    }
}

fn find(table: &'static [Row], op: u32) -> Option<&'static Row> {
    table.binary_search_by_key(&op, |row| u32::from(row.op)).ok().map(|at| &table[at])
}

/// Rows without a VOP3 form stand at the end of their table, so it is not sorted as a whole.
fn find_short(op: u32) -> Option<&'static Row> {
    vop12::VOP12.iter().find(|row| u32::from(row.op) == op)
}

const LITERAL: u32 = 255;

/// The first instruction of `words`, or `None` where there is none for gfx1030 to gfx1036.
pub(crate) fn decode(words: &[u32]) -> Option<Decoded> {
    let first = *words.first()?;
    let second = words.get(1).copied();
    let mut all = [0; 3];
    for (to, from) in all.iter_mut().zip(words) {
        *to = *from;
    }
    let (encoding, row, base) = match first >> 26 {
        0b100000..=0b101111 => (scalar_encoding(first)?, scalar_row(first)?, 1),
        0b111101 => (Encoding::Smem, find(scalar::SMEM, bits(first, 18, 8))?, 2),
        0b000000..=0b011111 => short_vector(first)?,
        0b110101 => (Encoding::Vop3, vop3_row(bits(first, 16, 10))?, 2),
        0b110011 if bits(first, 23, 3) == 0 => (Encoding::Vop3p, find(vop3::VOP3P, bits(first, 16, 7))?, 2),
        0b110110 => (Encoding::Ds, find(vmem::DS, bits(first, 18, 8))?, 2),
        0b110111 => {
            let row = find(vmem::VMEM, bits(first, 18, 7)).filter(|row| !row.has('m'))?;
            let encoding = match bits(first, 14, 2) {
                0 if !row.has('f') => Encoding::Flat,
                1 if !row.has('f') && !row.has('a') => Encoding::Scratch,
                2 => Encoding::Global,
                _ => return None,
            };
            (encoding, row, 2)
        }
        0b111000 => {
            let row = find(vmem::VMEM, bits(first, 18, 8)).filter(|row| !row.has('f'))?;
            (Encoding::Mubuf, row, 2)
        }
        _ => return None,
    };
    if base == 2 && second.is_none() {
        return None;
    }
    let mut decoded = Decoded { encoding, row, words: all, len: base, extra: Extra::None, literal: None };
    decoded.take_tail(words)?;
    super::validity::check(&decoded).then_some(decoded)
}

fn scalar_encoding(first: u32) -> Option<Encoding> {
    Some(match first >> 23 {
        0b1_0111_1101 => Encoding::Sop1,
        0b1_0111_1110 => Encoding::Sopc,
        0b1_0111_1111 => Encoding::Sopp,
        _ if first >> 28 == 0b1011 => Encoding::Sopk,
        _ => Encoding::Sop2,
    })
}

fn scalar_row(first: u32) -> Option<&'static Row> {
    match scalar_encoding(first)? {
        Encoding::Sop1 => find(scalar::SOP1, bits(first, 8, 8)),
        Encoding::Sopc => find(scalar::SOPC, bits(first, 16, 7)),
        Encoding::Sopp => find(scalar::SOPP, bits(first, 16, 7)),
        Encoding::Sopk => find(scalar::SOPK, bits(first, 23, 5)),
        _ => find(scalar::SOP2, bits(first, 23, 7)),
    }
}

fn short_vector(first: u32) -> Option<(Encoding, &'static Row, usize)> {
    Some(match first >> 25 {
        0b0111111 => (Encoding::Vop1, find_short(0x180 + bits(first, 9, 8))?, 1),
        0b0111110 => (Encoding::Vopc, find(vopc::VOPC, bits(first, 17, 8))?, 1),
        op => (Encoding::Vop2, find_short(0x100 + op)?, 1),
    })
}

fn vop3_row(op: u32) -> Option<&'static Row> {
    if op < 0x100 {
        find(vopc::VOPC, op)
    } else {
        find(vop3::VOP3, op).or_else(|| find_short(op).filter(|row| !row.has('e')))
    }
}

impl Decoded {
    /// The second word of a short instruction, or the literal.
    fn take_tail(&mut self, words: &[u32]) -> Option<()> {
        let first = self.words[0];
        let wants = match self.encoding {
            // v_nop reads nothing, whatever its source field holds.
            Encoding::Vop1 if self.row.src.is_empty() => false,
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc => {
                self.extra = match first & 0x1ff {
                    249 => Extra::Sdwa,
                    250 => Extra::Dpp16,
                    233 => Extra::Dpp8 { fetch_inactive: false },
                    234 => Extra::Dpp8 { fetch_inactive: true },
                    _ => Extra::None,
                };
                if self.extra != Extra::None {
                    words.get(1)?;
                    self.len += 1;
                }
                first & 0x1ff == LITERAL || self.has_inline_constant()
            }
            Encoding::Sop1 => bits(first, 0, 8) == LITERAL && !self.row.src.is_empty(),
            Encoding::Sop2 | Encoding::Sopc => bits(first, 0, 8) == LITERAL || bits(first, 8, 8) == LITERAL,
            Encoding::Sopk => self.row.name == "s_setreg_imm32_b32",
            Encoding::Vop3 | Encoding::Vop3p => (0..self.row.src.len()).any(|n| self.vop3_source(n) == LITERAL),
            Encoding::Mubuf => self.words[1] >> 24 == LITERAL && (self.row.dst.width() > 0 || !self.row.src.is_empty()),
            _ => false,
        };
        if wants {
            self.literal = Some(*words.get(self.len)?);
            self.len += 1;
        }
        Some(())
    }

    /// Whether the instruction holds a constant of its own in the literal's place (v_fmamk and v_fmaak).
    pub(crate) fn has_inline_constant(&self) -> bool {
        self.encoding == Encoding::Vop2
            && (self.row.name.starts_with("v_fmamk") || self.row.name.starts_with("v_fmaak"))
    }

    /// The nine-bit code of source `n` of VOP3 or VOP3P.
    pub(crate) fn vop3_source(&self, n: usize) -> u32 {
        bits(self.words[1], 9 * n as u32, 9)
    }

    /// Nine-bit codes of the sources: 256 and up are vector registers.
    pub(crate) fn sources(&self) -> ([u32; 3], usize) {
        let [first, second, _] = self.words;
        let n = self.row.src.len();
        let sdwa_source = |code: u32, scalar: u32| if scalar == 1 { code } else { 256 + code };
        let src0 = match self.extra {
            Extra::None => first & 0x1ff,
            Extra::Sdwa => sdwa_source(second & 0xff, bits(second, 23, 1)),
            Extra::Dpp16 | Extra::Dpp8 { .. } => 256 + (second & 0xff),
        };
        let src1 = match self.extra {
            Extra::Sdwa => sdwa_source(bits(first, 9, 8), bits(second, 31, 1)),
            _ => 256 + bits(first, 9, 8),
        };
        match self.encoding {
            Encoding::Sop1 => ([first & 0xff, 0, 0], n),
            Encoding::Sop2 | Encoding::Sopc => ([first & 0xff, bits(first, 8, 8), 0], n),
            Encoding::Vop1 => ([src0, 0, 0], n),
            // v_cndmask and the carries read VCC (106).
            Encoding::Vop2 | Encoding::Vopc => ([src0, src1, 106], n),
            Encoding::Vop3 | Encoding::Vop3p => ([self.vop3_source(0), self.vop3_source(1), self.vop3_source(2)], n),
            _ => ([0; 3], 0),
        }
    }

    /// The destination's register number (vector or scalar by the row).
    pub(crate) fn destination(&self) -> u32 {
        let [first, second, _] = self.words;
        match self.encoding {
            Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopk => bits(first, 16, 7),
            Encoding::Smem => bits(first, 6, 7),
            Encoding::Vop1 | Encoding::Vop2 => bits(first, 17, 8),
            Encoding::Vopc => match self.extra {
                Extra::Sdwa if bits(second, 15, 1) == 1 => bits(second, 8, 7),
                _ => 106,
            },
            Encoding::Vop3 | Encoding::Vop3p => first & 0xff,
            Encoding::Ds | Encoding::Flat | Encoding::Global | Encoding::Scratch => bits(second, 24, 8),
            Encoding::Mubuf => bits(second, 8, 8),
            Encoding::Sopc | Encoding::Sopp => 0,
        }
    }

    /// The scalar register of a second destination: VCC in the short forms.
    pub(crate) fn second_destination(&self) -> u32 {
        if self.encoding == Encoding::Vop3 { bits(self.words[0], 8, 7) } else { 106 }
    }

    /// Whether `destination` is a scalar register.
    pub(crate) fn scalar_destination(&self) -> bool {
        matches!(self.row.dst, Dst::S1 | Dst::S2 | Dst::S4 | Dst::S8 | Dst::S16 | Dst::Mask)
    }

    /// The 16 bits at the end of a SOPK or SOPP word.
    pub(crate) fn simm16(&self) -> i16 {
        self.words[0] as u16 as i16
    }
}
