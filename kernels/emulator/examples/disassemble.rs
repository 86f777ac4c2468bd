//! Prints the instruction that each line of hexadecimal words begins with, or `-`: `cargo run --example disassemble < WORDS`.

use std::io::{BufRead, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Result<Vec<u32>, _> = line.split_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
        match hippihx_emulator::disassemble(&words?) {
            Some((text, len)) => writeln!(out, "{len} {text}")?,
            None => writeln!(out, "-")?,
        }
    }
    Ok(())
}
