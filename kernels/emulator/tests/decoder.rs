//! The decoder against LLVM's disassembler: every instruction of compiled objects, and words drawn field by field.
//!
//! Where LLVM refuses, so must the decoder; where LLVM prints an operand that it marks as invalid or warns about (a constant
//! as a compare's destination, a DPP control that does not exist), refusing is right as well. Two
//! kinds of operands are compared by mnemonic only: messages of s_sendmsg, and the counters of s_waitcnt_depctr and
//! s_version, which LLVM names. Graphics instructions (images, exports, interpolation, typed buffers) are refused here.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use hippihx_emulator::{Program, disassemble};

/// s_nop 0x1234 ends a case; llvm-mc never prints it by itself.
const MARK: u32 = 0xbf80_1234;
/// Words behind a case, so that an instruction that takes up the following words cannot swallow the mark.
const FILL: u32 = 0xbf80_4321;

/// What LLVM makes of the first instruction of each case: its text, or `None` where it refuses.
fn llvm(cases: &[[u32; 3]]) -> Vec<Option<String>> {
    let mut child = Command::new("llvm-mc-19")
        .args(["-arch=amdgcn", "-mcpu=gfx1030", "-disassemble"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("llvm-mc-19 is needed for this test: install llvm-19");
    // Brackets keep a refused word from shifting what follows it.
    let block = |words: &[u32]| {
        let bytes: Vec<String> =
            words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:#04x}")).collect();
        format!("[{}]\n", bytes.join(" "))
    };
    let mut input = String::new();
    for case in cases {
        input.push_str(&block(&[case[0], case[1], case[2], FILL, FILL]));
        input.push_str(&block(&[MARK]));
    }
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let (stdout, stderr) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr));
    // A refusal of a case's first word is a warning at the first byte of its line; every second line is a mark.
    let mut refused = vec![false; cases.len()];
    for line in stderr.lines() {
        let mut parts = line.split(':');
        if let (Some("<stdin>"), Some(row), Some("2")) = (parts.next(), parts.next(), parts.next())
            && line.contains("invalid instruction encoding")
        {
            refused[row.parse::<usize>().unwrap() / 2] = true;
        }
    }
    let mut found: Vec<Vec<&str>> = vec![Vec::new()];
    for line in stdout.lines().map(str::trim).filter(|line| !line.is_empty() && *line != ".text") {
        if line.starts_with("s_nop 0x1234") {
            found.push(Vec::new());
        } else {
            found.last_mut().unwrap().push(line);
        }
    }
    // It ends with 1 after refusals, and by a signal when it crashed.
    assert!(out.status.code().is_some(), "llvm-mc-19 crashed: {}", &stderr[stderr.len().saturating_sub(2000)..]);
    assert_eq!(found.len(), cases.len() + 1, "every case ends with its mark");
    let first = |n: usize| {
        found[n].first().filter(|text| !refused[n] && !text.starts_with("v_illegal")).map(|t| (*t).to_owned())
    };
    (0..cases.len()).map(first).collect()
}

/// LLVM accepted it, with reservations.
fn doubtful(text: &str) -> bool {
    let constant_result = ["v_cmp_", "v_readfirstlane", "v_readlane"].iter().any(|start| text.starts_with(start))
        && text.split_whitespace().nth(1).is_some_and(|op| op.starts_with("src_"));
    text.contains("/*") || text.contains("; Warning") || text.contains("// Warning") || constant_result
}

fn graphics(text: &str) -> bool {
    ["image_", "tbuffer_", "exp ", "v_interp"].iter().any(|start| text.starts_with(start))
}

fn by_name_only(text: &str) -> bool {
    ["s_sendmsg", "s_waitcnt_depctr", "s_version"].iter().any(|start| text.starts_with(start))
}

#[derive(Default)]
struct Tally {
    same: usize,
    refused: usize,
    doubtful: usize,
    graphics: usize,
    wrong: BTreeMap<String, String>,
}

fn compare(cases: &[[u32; 3]], tally: &mut Tally) {
    for (case, theirs) in cases.iter().zip(llvm(cases)) {
        let ours = disassemble(case).map(|(text, _)| text);
        match (theirs, ours) {
            (None, None) => tally.refused += 1,
            (Some(theirs), _) if doubtful(&theirs) => tally.doubtful += 1,
            (Some(theirs), None) if graphics(&theirs) => tally.graphics += 1,
            (Some(theirs), Some(ours)) if theirs == ours => tally.same += 1,
            (Some(theirs), Some(ours))
                if by_name_only(&theirs) && ours.split(' ').next() == theirs.split(' ').next() =>
            {
                tally.same += 1;
            }
            (theirs, ours) => {
                let name =
                    theirs.as_deref().or(ours.as_deref()).unwrap_or_default().split(' ').next().unwrap_or_default();
                tally.wrong.insert(name.to_owned(), format!("{case:08x?}: LLVM {theirs:?}, here {ours:?}"));
            }
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> (64 - n)) as u32
    }

    /// Zero three times in four: rare fields make most words invalid if they are always set.
    fn rare(&mut self, n: u32) -> u32 {
        if self.bits(2) == 0 { self.bits(n) } else { 0 }
    }

    fn scalar_source(&mut self) -> u32 {
        const SPECIAL: [u32; 16] = [106, 107, 108, 124, 125, 126, 127, 235, 239, 251, 252, 253, 254, 255, 209, 249];
        match self.bits(3) {
            0 => SPECIAL[self.bits(4) as usize],
            1 => 128 + self.bits(6),
            2 => 192 + self.bits(4),
            3 => 240 + self.bits(3),
            4 => self.bits(8),
            _ => self.bits(7) % 106,
        }
    }

    fn source(&mut self) -> u32 {
        if self.bits(1) == 0 { 256 + self.bits(8) } else { self.scalar_source() }
    }

    /// A source of an instruction whose next word is not drawn for SDWA.
    fn short_source(&mut self) -> u32 {
        match self.source() {
            249 => 250,
            code => code,
        }
    }

    /// An s_nop with some argument.
    fn harmless(&mut self) -> u32 {
        0xbf80_0000 | self.bits(12)
    }

    /// Words of some encoding.
    fn case(&mut self) -> [u32; 3] {
        // What follows a short instruction is a literal or the next instruction; LLVM crashes on some random ones.
        let mut second = self.harmless();
        let first = match self.bits(4) {
            0 => 0xbe80_0000 | self.bits(7) << 16 | self.bits(8) << 8 | self.scalar_source(),
            1 => 2 << 30 | self.bits(7) << 23 | self.bits(7) << 16 | self.scalar_source() << 8 | self.scalar_source(),
            2 => 0xb000_0000 | self.bits(5) << 23 | self.bits(7) << 16 | self.bits(16),
            3 if self.bits(1) == 0 => {
                0xbf00_0000 | self.bits(7) << 16 | self.scalar_source() << 8 | self.scalar_source()
            }
            3 => 0xbf80_0000 | self.bits(7) << 16 | self.rare(16),
            4 => {
                let offset_register = if self.bits(1) == 0 { 125 } else { self.bits(7) };
                second = offset_register << 25 | self.rare(4) << 21 | self.rare(21);
                let op = if self.bits(1) == 0 { self.bits(4) } else { self.bits(8) };
                0xf400_0000 | op << 18 | self.rare(5) << 13 | self.bits(7) << 6 | self.bits(6)
            }
            5 => 0x7e00_0000 | self.bits(8) << 17 | self.bits(8) << 9 | self.short_source(),
            6 => self.bits(6) << 25 | self.bits(8) << 17 | self.bits(8) << 9 | self.short_source(),
            7 => 0x7c00_0000 | self.bits(8) << 17 | self.bits(8) << 9 | self.short_source(),
            8 | 9 => {
                let short = [0x7e00_0000, 0x7c00_0000, self.bits(6) << 25][self.bits(8) as usize % 3];
                let code = [249, 250, 233, 234][self.bits(2) as usize];
                second = self.tail(code);
                short | self.bits(8) << 17 | self.bits(8) << 9 | code
            }
            10 | 11 => {
                let third = if self.bits(1) == 0 { 0 } else { self.source() };
                second = self.source() | self.source() << 9 | third << 18 | self.rare(2) << 27 | self.rare(3) << 29;
                0xd400_0000
                    | self.bits(10) << 16
                    | self.rare(1) << 15
                    | self.rare(4) << 11
                    | self.rare(3) << 8
                    | self.bits(8)
            }
            12 => {
                let third = if self.bits(1) == 0 { 0 } else { self.source() };
                second = self.source() | self.source() << 9 | third << 18 | self.bits(2) << 27 | self.rare(3) << 29;
                let signs = self.rare(3) << 8 | self.rare(3) << 11;
                0xcc00_0000 | self.bits(6) << 16 | self.rare(1) << 15 | self.bits(1) << 14 | signs | self.bits(8)
            }
            13 => {
                second = self.bits(8) | self.rare(8) << 8 | self.rare(8) << 16 | self.rare(8) << 24;
                0xd800_0000 | self.bits(8) << 18 | self.rare(2) << 16 | self.rare(16)
            }
            14 => {
                let scalar_address = if self.bits(1) == 0 { 0x7d } else { self.bits(7) };
                second =
                    self.bits(8) | self.rare(8) << 8 | scalar_address << 16 | self.rare(1) << 23 | self.rare(8) << 24;
                0xdc00_0000
                    | self.bits(7) << 18
                    | self.rare(2) << 16
                    | self.bits(2) << 14
                    | self.rare(2) << 12
                    | self.rare(12)
            }
            _ => {
                second = self.bits(24) & !(3 << 22) | self.rare(2) << 22 | self.scalar_source() << 24;
                0xe000_0000 | self.bits(8) << 18 | self.rare(3) << 14 | self.bits(2) << 12 | self.rare(12)
            }
        };
        [first, second, self.harmless()]
    }

    /// A second word of SDWA (code 249) or DPP, with fields in range more often than chance has them. A selection of 7 and
    /// an UNUSED of 3 are never drawn: they mean nothing, and LLVM crashes on them or prints another.
    fn tail(&mut self, code: u32) -> u32 {
        if code != 249 {
            let control = if self.bits(1) == 0 { self.bits(8) } else { 0x100 | self.bits(7) };
            return self.bits(8) | control << 8 | self.rare(6) << 18 | self.bits(8) << 24;
        }
        let select = [8, 16, 24].map(|_| self.bits(3) % 7);
        let [result, first, second] = select;
        let unused = self.rare(2) % 3;
        let signs = self.rare(5) << 19 | self.rare(5) << 27;
        self.bits(8) | result << 8 | unused << 11 | self.rare(3) << 13 | first << 16 | second << 24 | signs
    }
}

/// 60,000 words, or as many as HIPPIHX_DECODER_WORDS says; the long form is a million and more.
#[test]
fn words_drawn_field_by_field() {
    let total = std::env::var("HIPPIHX_DECODER_WORDS").map_or(60_000, |n| n.parse().expect("a number of words"));
    let seed = std::env::var("HIPPIHX_DECODER_SEED").map_or(1, |n| n.parse().expect("a seed"));
    let (mut random, mut tally, mut done) = (Random(seed), Tally::default(), 0);
    while done < total {
        let cases: Vec<[u32; 3]> = (0..50_000.min(total - done)).map(|_| random.case()).collect();
        compare(&cases, &mut tally);
        done += cases.len();
    }
    let Tally { same, refused, doubtful, graphics, wrong } = tally;
    println!("{done} words: {same} the same, {refused} refused by both, {doubtful} doubtful, {graphics} of graphics");
    assert!(wrong.is_empty(), "{} kinds differ:\n{}", wrong.len(), wrong.into_values().collect::<Vec<_>>().join("\n"));
    // The draw must reach what it is for.
    assert!(same * 3 > done, "only {same} of {done} words were instructions");
}

#[test]
fn every_instruction_of_compiled_objects() {
    let mut objects: Vec<(String, Vec<u8>)> = vec![("probe family.hip".into(), common::build("family.hip"))];
    let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../hip/hippihx.hip");
    objects.push(("hippihx.hip".into(), common::build_file(&kernels, &["-DHIPPIHX_DOT=1"])));
    for (name, object) in objects {
        let program = Program::load(&object).unwrap();
        assert_eq!(program.undecodable().collect::<Vec<_>>(), Vec::<u64>::new(), "{name}");
        assert_eq!(program.unsupported(), Vec::<&str>::new(), "{name}");
        let words: Vec<[u32; 3]> = program.instruction_words().collect();
        assert!(words.len() > 500);
        let mut tally = Tally::default();
        for part in words.chunks(50_000) {
            compare(part, &mut tally);
        }
        assert!(tally.wrong.is_empty(), "{name}: {:#?}", tally.wrong);
        assert_eq!((tally.same, tally.refused, tally.doubtful), (words.len(), 0, 0), "{name}");
    }
}
