//! Description, memory and loading.

use std::os::fd::AsFd;
use std::sync::Arc;

use hippihxd::device::{DeviceError, Export};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Applied, Check, Outcome, Subject, ensure};

pub(super) const CHECKS: &[Check] = &[
    ("the description fits the slot", description),
    ("allocated memory is zeroed, large enough and apart", allocate),
    ("freed memory is free again", free),
    ("more than there is is out of memory, and changes nothing", exhaust),
    ("an export shows the same bytes", export),
    ("imported shared memory shows the peer's bytes", import),
    ("a good code object loads more than once", load),
    ("what is no code object is refused", refuse_images),
];

fn description(subject: &Subject<'_>) -> Outcome {
    let description = subject.device.describe();
    let arch = description.arch.split(':').next().unwrap_or("");
    ensure!(arch == subject.slot, "arch {:?} is not the slot {}", description.arch, subject.slot);
    ensure!(matches!(description.kind, "fake" | "hip"), "kind {:?}", description.kind);
    ensure!(matches!(description.wavefront_size, 32 | 64), "wavefront of {}", description.wavefront_size);
    ensure!(description.lds_per_workgroup_bytes >= 32 << 10, "LDS {}", description.lds_per_workgroup_bytes);
    ensure!(
        description.ordering == "events" || description.ordering.starts_with("host"),
        "ordering {:?}",
        description.ordering
    );
    let memory = subject.device.memory_info()?;
    ensure!(memory.total > 0 && memory.free <= memory.total, "{memory:?}");
    Ok(Applied::Yes)
}

fn allocate(subject: &Subject<'_>) -> Outcome {
    let sizes = [1_u64, 255, 4096, 100_000, 1 << 20];
    let mut ranges = Vec::new();
    let mut held = Vec::new();
    for size in sizes {
        let memory = subject.device.allocate(size)?;
        ensure!(memory.size() >= size, "asked for {size}, got {}", memory.size());
        ensure!(memory.address() != 0 && memory.address() % 256 == 0, "address {:#x}", memory.address());
        let mut bytes = vec![1_u8; memory.size() as usize];
        subject.reach.read(memory.as_ref(), 0, &mut bytes)?;
        ensure!(bytes.iter().all(|byte| *byte == 0), "{size} bytes are not all zero");
        ranges.push(memory.address()..memory.address() + memory.size());
        held.push(memory);
    }
    ranges.sort_by_key(|range| range.start);
    ensure!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "ranges overlap: {ranges:x?}");
    Ok(Applied::Yes)
}

fn free(subject: &Subject<'_>) -> Outcome {
    const SIZE: u64 = 8 << 20;
    let before = subject.device.memory_info()?.free;
    let memory = subject.device.allocate(SIZE)?;
    let again = Arc::clone(&memory);
    let during = subject.device.memory_info()?.free;
    ensure!(during + SIZE <= before, "{before} free before and {during} after {SIZE} were allocated");
    drop(memory);
    let held = subject.device.memory_info()?.free;
    ensure!(held == during, "{held} free while a reference is left, {during} before");
    drop(again);
    let after = subject.device.memory_info()?.free;
    ensure!(after == before, "{before} free before and {after} after");
    Ok(Applied::Yes)
}

fn exhaust(subject: &Subject<'_>) -> Outcome {
    let before = subject.device.memory_info()?;
    for asked in [before.total + 4096, 1 << 62, u64::MAX] {
        match subject.device.allocate(asked) {
            Err(DeviceError::OutOfMemory { asked: named, .. }) => ensure!(named == asked, "named {named} for {asked}"),
            other => return Err(format!("{asked} bytes gave {other:?}").into()),
        }
    }
    ensure!(subject.device.allocate(0).is_err(), "0 bytes were allocated");
    let after = subject.device.memory_info()?;
    ensure!(after.free == before.free, "{} free before and {} after", before.free, after.free);
    subject.device.allocate(4096)?;
    Ok(Applied::Yes)
}

fn export(subject: &Subject<'_>) -> Outcome {
    let memory = subject.device.allocate(4096)?;
    if let Export::HipIpc(first) = memory.export()? {
        let Export::HipIpc(second) = memory.export()? else { return Err("exported two kinds of handle".into()) };
        ensure!(first == second, "two exports of one allocation differ");
    }
    let pattern: Vec<u8> = (0..4096_u32).map(|i| (i * 7 % 251) as u8).collect();
    subject.reach.write(memory.as_ref(), 0, &pattern)?;
    let mut seen = vec![0_u8; 4096];
    subject.reach.read(memory.as_ref(), 0, &mut seen)?;
    ensure!(seen == pattern, "read other bytes than were written");
    Ok(Applied::Yes)
}

fn import(subject: &Subject<'_>) -> Outcome {
    if !subject.takes_memfds {
        return Ok(Applied::No("the device takes no memfds"));
    }
    use std::os::unix::fs::FileExt;
    let io = |error: std::io::Error| error.to_string();
    // Not a whole number of pages: the size is the memfd's, byte for byte.
    let size = 3 * 4096 + 256;
    let fd = memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(|e| io(e.into()))?;
    ftruncate(&fd, size).map_err(|e| io(e.into()))?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(|e| io(e.into()))?;
    let peer = std::fs::File::from(fd.try_clone().map_err(io)?);
    peer.write_all_at(b"of the peer", 5000).map_err(io)?;
    let memory = subject.device.import_shared(fd, size)?;
    ensure!(memory.size() == size, "{} bytes of {size}", memory.size());
    let mut seen = [0_u8; 11];
    subject.reach.read(memory.as_ref(), 5000, &mut seen)?;
    ensure!(&seen == b"of the peer", "{seen:?}");
    subject.reach.write(memory.as_ref(), size - 4, b"back")?;
    let mut back = [0_u8; 4];
    peer.read_exact_at(&mut back, size - 4).map_err(io)?;
    ensure!(&back == b"back", "{back:?}");
    // The peer's descriptor stays its own.
    drop(memory);
    rustix::fs::fstat(peer.as_fd()).map_err(|e| io(e.into()))?;
    Ok(Applied::Yes)
}

fn load(subject: &Subject<'_>) -> Outcome {
    let first = subject.device.load(Arc::clone(&subject.image))?;
    let second = subject.device.load(Arc::clone(&subject.image))?;
    drop(first);
    drop(second);
    Ok(Applied::Yes)
}

fn refuse_images(subject: &Subject<'_>) -> Outcome {
    let half = &subject.image[..subject.image.len() / 2];
    for (what, image) in [("no bytes", &[][..]), ("text", b"not an ELF at all, and short"), ("half an object", half)] {
        match subject.device.load(Arc::from(image)) {
            Err(DeviceError::CodeObject(_)) => {}
            other => return Err(format!("{what} gave {other:?}").into()),
        }
    }
    Ok(Applied::Yes)
}
