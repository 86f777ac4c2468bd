//! Lists what a code object holds and what of it cannot be executed: `cargo run --example inspect OBJECT`.

use hippihx_emulator::Program;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: inspect OBJECT")?;
    let program = Program::load(&std::fs::read(path)?)?;
    for kernel in program.kernels() {
        println!(
            "{}: {} VGPRs, {} bytes of LDS, {} bytes of arguments, {} bytes of scratch a lane",
            kernel.name(),
            kernel.vgprs(),
            kernel.static_lds_bytes(),
            kernel.kernarg_bytes(),
            kernel.scratch_bytes()
        );
    }
    println!("{} instructions", program.disassembly().count());
    println!("undecodable words: {:x?}", program.undecodable().collect::<Vec<_>>());
    println!("without an executor: {:?}", program.unsupported());
    Ok(())
}
