//! `hippihxctl emulate`: runs a kernel of a code object without a card and prints what it did.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use hippihx_emulator::{Arguments, Checks, Dispatch, Options, Program, TraceOf};

/// Execute a kernel of a gfx1030 code object on this machine's CPU, with bounds checks, counters and findings.
#[derive(Debug, Args)]
pub struct Emulate {
    /// The .hsaco.
    object: PathBuf,
    /// Name of the kernel; without it the object's kernels are listed.
    kernel: Option<String>,
    /// Arguments in order: u32:N i32:N u64:N i64:N f32:X f64:X in:PATH zeros:BYTES normal16:N normal32:N out:BYTES null.
    args: Vec<String>,
    /// Workgroups: X, X,Y or X,Y,Z.
    #[arg(long, default_value = "1")]
    grid: String,
    /// Work-items of a workgroup.
    #[arg(long, default_value = "64")]
    block: String,
    /// LDS bytes of a workgroup, where the kernel does not declare them.
    #[arg(long, default_value_t = 0)]
    lds: u32,
    /// Threads; 0 is one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Bounds checks only.
    #[arg(long)]
    fast: bool,
    /// Trace this wave of the workgroup that --trace-workgroup names.
    #[arg(long)]
    trace: Option<u32>,
    /// Workgroup of the traced wave.
    #[arg(long, default_value = "0,0,0")]
    trace_workgroup: String,
    /// Instructions to trace at most.
    #[arg(long, default_value_t = 200)]
    trace_limit: usize,
    /// Write each output buffer to FOLDER/argN.bin.
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
}

/// Prints the report. A fault of the kernel is an error.
pub fn run(options: &Emulate) -> Result<()> {
    let bytes = std::fs::read(&options.object).with_context(|| format!("cannot read {}", options.object.display()))?;
    let program = Program::load(&bytes).with_context(|| options.object.display().to_string())?;
    let Some(kernel) = &options.kernel else {
        for kernel in program.kernels() {
            println!(
                "{}: {} bytes of arguments, {} VGPRs, {} bytes of LDS",
                kernel.name(),
                kernel.kernarg_bytes(),
                kernel.vgprs(),
                kernel.static_lds_bytes()
            );
        }
        return Ok(());
    };
    let arguments = Arguments::parse(&options.args)?;
    let dispatch = Dispatch {
        kernel,
        grid: triple(&options.grid, 1)?,
        block: triple(&options.block, 1)?,
        lds_bytes: options.lds,
        kernarg: arguments.kernarg(),
    };
    let workgroup = triple(&options.trace_workgroup, 0)?;
    let run = Options {
        threads: options.threads,
        checks: if options.fast { Checks::NONE } else { Checks::ALL },
        trace: options.trace.map(|wave| TraceOf { workgroup, wave, limit: options.trace_limit }),
        ..Options::default()
    };
    let report = program.run(&dispatch, &arguments.memory()?, &run)?;
    print!("{report}");
    if let Some(folder) = &options.save {
        for (name, bytes) in arguments.outputs() {
            let path = folder.join(format!("{name}.bin"));
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// One to three numbers; the missing ones are `rest`.
fn triple(text: &str, rest: u32) -> Result<[u32; 3]> {
    let mut out = [rest; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        bail!("'{text}' has {} numbers; X, X,Y or X,Y,Z is meant", parts.len());
    }
    for (to, part) in out.iter_mut().zip(parts) {
        *to = part.trim().parse().with_context(|| format!("'{part}' in '{text}' is no number"))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_three_numbers() {
        assert_eq!(triple("4", 1).unwrap(), [4, 1, 1]);
        assert_eq!(triple("4,2", 0).unwrap(), [4, 2, 0]);
        assert_eq!(triple("4, 2, 3", 1).unwrap(), [4, 2, 3]);
        assert!(triple("4,2,3,1", 1).is_err());
        assert!(triple("4,x", 1).is_err());
    }
}
