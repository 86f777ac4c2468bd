//! Million lane-instructions a second on one core, for loops of different kinds: `cargo run --release --example speed OBJECT`,
//! where OBJECT is tests/probes/speed.hip compiled for gfx1030.

use std::time::Instant;

use hippihx_emulator::{Access, Buffer, Checks, Contents, Dispatch, Memory, Options, Program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: speed OBJECT")?;
    let program = Program::load(&std::fs::read(path)?)?;
    let names: Vec<String> = program.kernels().iter().map(|kernel| kernel.name().to_owned()).collect();
    println!("{:<12}{:>16}{:>22}{:>22}", "kernel", "instructions", "Mlane/s, no checks", "Mlane/s, all checks");
    for name in &names {
        let mut speeds = Vec::new();
        let mut instructions = 0;
        for checks in [Checks::NONE, Checks::ALL] {
            let data = Buffer::from_f32s((0..1024).map(|i| 1.0 + i as f32 / 1024.0));
            let out = Buffer::zeroed(4096);
            let mut memory = Memory::new();
            memory.bind("data", 0x10_0000, &data, Access::Read, Contents::Initialised)?;
            memory.bind("out", 0x20_0000, &out, Access::ReadWrite, Contents::Unwritten)?;
            let mut kernarg = 0x10_0000_u64.to_le_bytes().to_vec();
            kernarg.extend(0x20_0000_u64.to_le_bytes());
            kernarg.extend(2000_u32.to_le_bytes());
            let dispatch =
                Dispatch { kernel: name, grid: [40, 1, 1], block: [128, 1, 1], lds_bytes: 0, kernarg: &kernarg };
            let options = Options { threads: 1, checks, ..Options::default() };
            // The best of several: other work on the machine only makes it slower.
            let mut best = 0.0_f64;
            for _ in 0..5 {
                let start = Instant::now();
                let report = program.run(&dispatch, &memory, &options)?;
                best = best.max(report.lanes() as f64 / start.elapsed().as_secs_f64() / 1e6);
                instructions = report.total();
            }
            speeds.push(best);
        }
        println!("{name:<12}{instructions:>16}{:>22.0}{:>22.0}", speeds[0], speeds[1]);
    }
    Ok(())
}
