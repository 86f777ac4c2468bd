//! Code objects on disk: only under the configured folders, and by no link that leads out of them.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hippihx_kernels::{Slot, Status};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::errors::Failure;

/// A code object read whole.
#[derive(Debug)]
pub struct KernelFile {
    pub image: Arc<[u8]>,
    /// Its path, for people.
    pub source: String,
}

/// The slot's object from the first configured folder.
///
/// # Errors
/// ERR_CODE_OBJECT with the path that was tried.
pub fn of_slot(folders: &[PathBuf], slot: &Slot) -> Result<KernelFile, Failure> {
    let folder = folders.first().ok_or_else(|| unreadable(Path::new(""), "no folder is configured"))?;
    read_beneath(folder, Path::new(&format!("hippihx_{}.hsaco", slot.name)))
}

/// A file that a caller names: absolute under one of the folders, or relative to the first that has it.
///
/// # Errors
/// ERR_CODE_OBJECT for a file outside the folders, or one that cannot be read.
pub fn named(folders: &[PathBuf], path: &Path) -> Result<KernelFile, Failure> {
    if path.is_relative() {
        let mut last = unreadable(path, "no folder is configured");
        for folder in folders {
            match read_beneath(folder, path) {
                Ok(file) => return Ok(file),
                Err(error) => last = error,
            }
        }
        return Err(last);
    }
    match folders.iter().find_map(|folder| Some((folder, path.strip_prefix(folder).ok()?))) {
        Some((folder, rest)) => read_beneath(folder, rest),
        None => {
            let list: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Err(unreadable(path, &format!("it is under none of the configured folders ({})", list.join(", "))))
        }
    }
}

fn read_beneath(folder: &Path, file: &Path) -> Result<KernelFile, Failure> {
    let path = folder.join(file);
    let refused = |why: std::io::Error| unreadable(&path, &why.to_string());
    if file.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(unreadable(&path, "only plain names below the folder are taken"));
    }
    let directory = openat(CWD, folder, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())
        .map_err(|errno| refused(errno.into()))?;
    // The kernel walks the path and refuses whatever leads out, so nothing can be swapped between a check and the open.
    let opened = openat2(
        &directory,
        file,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(|errno| refused(errno.into()))?;
    let mut opened = File::from(opened);
    let metadata = opened.metadata().map_err(refused)?;
    if !metadata.is_file() {
        return Err(unreadable(&path, "it is no regular file"));
    }
    if metadata.len() > hippihx_proto::MAX_MESSAGE_BYTES as u64 {
        return Err(unreadable(
            &path,
            &format!("it has {} bytes, at most {} are taken", metadata.len(), hippihx_proto::MAX_MESSAGE_BYTES),
        ));
    }
    let mut image = Vec::with_capacity(metadata.len() as usize);
    opened.by_ref().take(hippihx_proto::MAX_MESSAGE_BYTES as u64).read_to_end(&mut image).map_err(refused)?;
    Ok(KernelFile { image: image.into(), source: path.display().to_string() })
}

fn unreadable(path: &Path, why: &str) -> Failure {
    let sentence = format!("cannot take the code object {}: {why}", path.display());
    Failure::V1 { status: Status::CodeObject, field: "path", sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_folders_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a.hsaco"), folder.to_string_lossy().as_bytes()).unwrap();
        }
        std::os::unix::fs::symlink(outside.join("a.hsaco"), inside.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../out/a.hsaco", inside.join("relative")).unwrap();
        std::os::unix::fs::symlink("a.hsaco", inside.join("within")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("folder")).unwrap();
        let folders = [inside.clone()];
        for good in [Path::new("a.hsaco"), Path::new("within"), &inside.join("a.hsaco")] {
            assert_eq!(
                named(&folders, good).unwrap().image.as_ref(),
                inside.to_string_lossy().as_bytes(),
                "{}",
                good.display()
            );
        }
        for bad in ["absolute", "relative", "folder/a.hsaco", "../out/a.hsaco", "missing", "", "."] {
            assert_eq!(named(&folders, Path::new(bad)).unwrap_err().v1(), Some(Status::CodeObject), "{bad}");
        }
        for bad in [outside.join("a.hsaco"), inside.join("../out/a.hsaco"), inside.join("absolute")] {
            assert_eq!(named(&folders, &bad).unwrap_err().v1(), Some(Status::CodeObject), "{}", bad.display());
        }
    }
}
