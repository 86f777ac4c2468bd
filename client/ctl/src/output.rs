//! What people and programs get to read.

use std::io::{IsTerminal, Write};

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde_json::Value;

/// Whether colours are wanted: a terminal, and no NO_COLOR.
pub fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub fn json(value: &Value) {
    line(&format!("{value:#}"));
}

/// Prints a line; a reader that has gone away (`| head`) is no error.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A table without lines, fit for terminals and for `awk`.
pub fn table(header: &[&str]) -> Table {
    let mut table = plain();
    let bold = colours();
    table.set_header(header.iter().map(|title| {
        let cell = Cell::new(title);
        if bold { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    table
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// A table of names and what belongs to them.
pub fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = plain();
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    table.trim_fmt()
}

/// Bytes for people, exact below a KiB.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Microseconds for people.
pub fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..120_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => {
            let minutes = us / 60_000_000;
            format!("{} h {} min", minutes / 60, minutes % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!((bytes(1023), bytes(1024), bytes(1 << 40)), ("1023 B".into(), "1.0 KiB".into(), "1.0 TiB".into()));
        assert_eq!(
            (duration(999), duration(1500), duration(7_200_000_000)),
            ("999 µs".into(), "1.5 ms".into(), "2 h 0 min".into())
        );
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }

    #[test]
    fn facts_line_up() {
        let text = facts([("slot", "gfx1030".to_owned()), ("generation", "1".to_owned())]);
        let columns: Vec<_> = text.lines().map(|line| line.rfind(' ')).collect();
        assert_eq!(columns.len(), 2, "{text}");
        assert!(columns[0].is_some() && columns[0] == columns[1], "{text}");
    }
}
