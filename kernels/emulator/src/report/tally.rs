//! Counters of one thread, added up at the end.

use super::{Class, ClassCount, Finding, FindingKind, RangeTraffic, Report, TraceLine};
use crate::exec::lds::Race;
use crate::exec::machine::LANES;
use crate::memory::{Memory, Touched};
use crate::program::Program;

/// Distinct findings that are kept; more are only a sign that something is very wrong.
const MAX_FINDINGS: usize = 256;

#[derive(Debug)]
pub(crate) struct Tally {
    /// Where the machine is: instruction index, workgroup, wave.
    pub at: u32,
    pub workgroup: [u32; 3],
    pub wave: u32,
    pub instructions: [u64; Class::ALL.len()],
    pub lanes: [u64; Class::ALL.len()],
    ranges: Vec<(u64, u64)>,
    lds_bytes: u64,
    scratch_bytes: u64,
    lds_accesses: u64,
    bank_conflicts: u64,
    lines: u64,
    /// Instruction index and what about it; the pc is filled in by the report.
    findings: Vec<(u32, Finding)>,
    pub trace: Vec<TraceLine>,
}

impl Tally {
    pub(crate) fn new(ranges: usize) -> Self {
        Self {
            at: 0,
            workgroup: [0; 3],
            wave: 0,
            instructions: [0; Class::ALL.len()],
            lanes: [0; Class::ALL.len()],
            ranges: vec![(0, 0); ranges],
            lds_bytes: 0,
            scratch_bytes: 0,
            lds_accesses: 0,
            bank_conflicts: 0,
            lines: 0,
            findings: Vec::new(),
            trace: Vec::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn load(&mut self, range: usize, bytes: u64) {
        self.ranges[range].0 += bytes;
    }

    #[inline(always)]
    pub(crate) fn store(&mut self, range: usize, bytes: u64) {
        self.ranges[range].1 += bytes;
    }

    #[inline(always)]
    pub(crate) fn scratch(&mut self, bytes: u64) {
        self.scratch_bytes += bytes;
    }

    #[inline(always)]
    pub(crate) fn lds_access(&mut self, conflicts: u64, bytes: u64) {
        self.lds_accesses += 1;
        self.bank_conflicts += conflicts;
        self.lds_bytes += bytes;
    }

    /// Lines of 128 bytes that the active lanes' accesses touch. Neighbours mostly ask for the same, so only changes count
    /// against what was seen in this instruction.
    #[inline]
    pub(crate) fn lines(&mut self, addresses: &[u64; LANES], exec: u32, bytes: usize) {
        let (mut seen, mut n) = ([u64::MAX; 2 * LANES], 0);
        for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
            let (first, last) = (addresses[lane] >> 7, addresses[lane].wrapping_add(bytes as u64 - 1) >> 7);
            for line in [first, last] {
                if n == 0 || seen[n - 1] != line && !seen[..n].contains(&line) {
                    seen[n] = line;
                    n += 1;
                }
            }
        }
        self.lines += n as u64;
    }

    #[cold]
    fn find(&mut self, kind: FindingKind, lane: u32) {
        let same = |known: &FindingKind| match (known, &kind) {
            (FindingKind::UndefinedRegister { .. }, _) => *known == kind,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
        let at = self.at;
        if let Some((_, found)) = self.findings.iter_mut().find(|(index, found)| *index == at && same(&found.kind)) {
            found.times += 1;
        } else if self.findings.len() < MAX_FINDINGS {
            let (workgroup, wave) = (self.workgroup, self.wave);
            self.findings.push((at, Finding { kind, pc: 0, text: String::new(), workgroup, wave, lane, times: 1 }));
        }
    }

    pub(crate) fn undefined_register(&mut self, register: u32, vector: bool, lane: u32) {
        self.find(FindingKind::UndefinedRegister { vector, register }, lane);
    }

    pub(crate) fn unwritten_lds(&mut self, offset: u64, lane: u32) {
        self.find(FindingKind::UnwrittenLds { offset }, lane);
    }

    pub(crate) fn unwritten_memory(&mut self, range: usize, address: u64, lane: u32) {
        self.find(FindingKind::UnwrittenMemory { range, address }, lane);
    }

    /// The other's write is an instruction index until the report turns it into a pc.
    pub(crate) fn race(&mut self, race: Race, lane: u32) {
        self.find(FindingKind::LdsRace { offset: race.offset, other_write: race.other_write.map(u64::from) }, lane);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.instructions, &other.instructions);
        add(&mut self.lanes, &other.lanes);
        for (to, from) in self.ranges.iter_mut().zip(&other.ranges) {
            *to = (to.0 + from.0, to.1 + from.1);
        }
        self.lds_bytes += other.lds_bytes;
        self.scratch_bytes += other.scratch_bytes;
        self.lds_accesses += other.lds_accesses;
        self.bank_conflicts += other.bank_conflicts;
        self.lines += other.lines;
        for (at, finding) in other.findings {
            (self.at, self.workgroup, self.wave) = (at, finding.workgroup, finding.wave);
            let times = finding.times;
            self.find(finding.kind, finding.lane);
            let known =
                self.findings.iter_mut().find(|(index, found)| *index == at && same_kind(&found.kind, &finding.kind));
            if let Some((_, known)) = known {
                known.times += times - 1;
            }
        }
        self.trace.extend(other.trace);
    }

    pub(crate) fn report(
        mut self,
        kernel: &str,
        (workgroups, waves): (u64, u64),
        program: &Program,
        memory: &Memory<'_>,
        touched: Option<&Touched>,
    ) -> Report {
        self.findings.sort_by_key(|(at, _)| *at);
        let findings = self.findings.into_iter().map(|(at, mut finding)| {
            (finding.pc, finding.text) = (program.address_of(at), program.text_of(at));
            if let FindingKind::LdsRace { other_write: Some(index), .. } = &mut finding.kind {
                *index = program.address_of(*index as u32);
            }
            finding
        });
        let ranges = memory.ranges().iter().zip(&self.ranges).enumerate().map(|(n, (range, &(loaded, stored)))| {
            let unique = touched.map(|touched| touched.counts(n));
            RangeTraffic {
                name: range.name.clone(),
                address: range.address,
                len: range.len,
                loaded,
                stored,
                unique_loaded: unique.map(|u| u.0),
                unique_stored: unique.map(|u| u.1),
            }
        });
        Report {
            kernel: kernel.to_owned(),
            workgroups,
            waves,
            instructions: Class::ALL
                .iter()
                .map(|&class| ClassCount {
                    class,
                    instructions: self.instructions[class as usize],
                    lanes: if class.is_vector() { self.lanes[class as usize] } else { 0 },
                })
                .collect(),
            ranges: ranges.collect(),
            lds_bytes: self.lds_bytes,
            scratch_bytes: self.scratch_bytes,
            lds_accesses: self.lds_accesses,
            bank_conflicts: self.bank_conflicts,
            lines: self.lines,
            findings: findings.collect(),
            trace: self.trace,
        }
    }
}

fn same_kind(a: &FindingKind, b: &FindingKind) -> bool {
    match a {
        FindingKind::UndefinedRegister { .. } => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
