//! A report as text for a terminal.

use std::fmt::{Display, Formatter, Result, Write};

use super::{Finding, FindingKind, Report};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "{}: {} workgroups, {} waves, {} instructions",
            self.kernel,
            self.workgroups,
            self.waves,
            self.total()
        )?;
        writeln!(f, "\n{:<16}{:>14}{:>18}", "class", "instructions", "active lanes")?;
        for count in self.instructions.iter().filter(|count| count.instructions > 0) {
            let lanes = if count.class.is_vector() { count.lanes.to_string() } else { String::new() };
            writeln!(f, "{:<16}{:>14}{:>18}", count.class.name(), count.instructions, lanes)?;
        }
        writeln!(
            f,
            "\n{:<16}{:>14}{:>14}{:>14}{:>14}{:>14}",
            "range", "bytes", "loaded", "unique", "stored", "unique"
        )?;
        for range in &self.ranges {
            let unique = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
            writeln!(
                f,
                "{:<16}{:>14}{:>14}{:>14}{:>14}{:>14}",
                range.name,
                range.len,
                range.loaded,
                unique(range.unique_loaded),
                range.stored,
                unique(range.unique_stored)
            )?;
        }
        writeln!(
            f,
            "\nLDS: {} accesses, {} bytes, {} extra cycles for bank conflicts; memory lines of 128 bytes: {}; scratch: {} bytes",
            self.lds_accesses, self.lds_bytes, self.bank_conflicts, self.lines, self.scratch_bytes
        )?;
        if self.findings.is_empty() {
            writeln!(f, "no findings")?;
        }
        for finding in &self.findings {
            writeln!(f, "{}", sentence(finding, self))?;
        }
        for line in &self.trace {
            write!(f, "{:#08x} exec {:08x}  {:<56}", line.pc, line.exec, line.text)?;
            for (register, value) in &line.wrote {
                write!(f, " {register}={value:08x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn sentence(finding: &Finding, report: &Report) -> String {
    let mut out = match finding.kind {
        FindingKind::UndefinedRegister { vector, register } => {
            format!("undefined register {}{register} read", if vector { 'v' } else { 's' })
        }
        FindingKind::UnwrittenLds { offset } => format!("LDS byte {offset} read before it was written"),
        FindingKind::UnwrittenMemory { range, address } => {
            let name = report.ranges.get(range).map_or("?", |r| r.name.as_str());
            format!("'{name}' at {address:#x} loaded before it was stored")
        }
        FindingKind::LdsRace { offset, other_write } => match other_write {
            Some(pc) => format!("LDS byte {offset}: race with the write at pc {pc:#x}, no barrier between"),
            None => format!("LDS byte {offset}: race of this write with a read, no barrier between"),
        },
    };
    let Finding { pc, text, workgroup, wave, lane, times, .. } = finding;
    // Writing to a String cannot fail.
    let _ = write!(out, ": pc {pc:#x} {text}, workgroup {workgroup:?}, wave {wave}, lane {lane}, {times} times");
    out
}
