//! Drives a fuzz target for a number of inputs, or for all targets a few.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use hippihx_fuzz::mutate::{Random, mutate};
use hippihx_fuzz::targets::{Seeds, TARGETS};
use hippihx_kernels::SLOTS;
use hippihx_proto::handoff::{Reply, Request};

#[derive(Debug, Parser)]
struct Args {
    /// Name of the target; all when left out
    target: Option<String>,
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder with built code objects, as further seeds
    #[arg(long, default_value = "kernels/out")]
    objects: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut ran = 0;
    for (name, target, seeds) in
        TARGETS.iter().filter(|(name, ..)| args.target.as_deref().is_none_or(|wanted| wanted == *name))
    {
        let seeds = corpus(*seeds, &args.objects);
        let mut random = Random::new(args.seed);
        let (started, mut bytes) = (Instant::now(), Vec::new());
        for _ in 0..args.inputs {
            bytes.clear();
            bytes.extend_from_slice(&seeds[random.below(seeds.len())]);
            mutate(&mut bytes, &seeds[random.below(seeds.len())], &mut random);
            target(&bytes);
        }
        println!(
            "{name}: {} inputs from {} seeds in {:.1} s, no finding",
            args.inputs,
            seeds.len(),
            started.elapsed().as_secs_f64()
        );
        ran += 1;
    }
    if ran == 0 {
        let names: Vec<_> = TARGETS.iter().map(|(name, ..)| *name).collect();
        eprintln!("there is no such target; there are {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn corpus(seeds: Seeds, objects: &std::path::Path) -> Vec<Vec<u8>> {
    match seeds {
        Seeds::Frames => [
            Request::Hello { session: 7, secret: [9; 16] },
            Request::Put,
            Request::Take { token: 3 },
            Request::Mapped { token: 3 },
        ]
        .iter()
        .map(Request::encode)
        .chain(
            [Reply::Done, Reply::Token(4), Reply::Refused { code: 5, message: "why".to_owned() }]
                .iter()
                .map(Reply::encode),
        )
        .collect(),
        Seeds::Objects => {
            let mut header = vec![0; 64];
            header[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 64]);
            (header[16], header[18], header[48]) = (3, 224, 0x36);
            let mut list = vec![header, b"__CLANG_OFFLOAD_BUNDLE__".repeat(8)];
            // The one without kernels is small; a big one is cut to its tables and its note, so that inputs stay quick.
            for slot in &SLOTS {
                if let Ok(image) = fs::read(objects.join(format!("hippihx_{}.hsaco", slot.name))) {
                    list.push(shrink(image));
                }
            }
            list
        }
    }
}

/// An object with its code taken out: the headers, the note and the section table stay what they are, and come closer.
fn shrink(image: Vec<u8>) -> Vec<u8> {
    const SMALL: usize = 16 * 1024;
    if image.len() <= SMALL {
        return image;
    }
    let mut small = image;
    small.truncate(SMALL);
    // Section headers lay at the end; without them the program headers alone are walked.
    small[40..48].fill(0);
    small[58..64].fill(0);
    small
}
