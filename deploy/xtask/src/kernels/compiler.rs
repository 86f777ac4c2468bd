//! Finds a clang that builds every slot, or installs one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The oldest clang that knows gfx1151 and gfx1200.
const OLDEST: u32 = 19;
/// What is installed where nothing is found.
const PACKAGES: [&str; 2] = ["clang-19", "lld-19"];

#[derive(Debug)]
pub struct Compiler {
    path: PathBuf,
    version: String,
}

impl Compiler {
    /// ROCm's own compiler, then any clang that is new enough, then, where it may, Debian's clang-19.
    pub fn find(may_install: bool) -> Result<Compiler> {
        let candidates = candidates();
        if let Some(found) = candidates.iter().find_map(|path| Compiler::probe(path)) {
            return Ok(found);
        }
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        let need = format!(
            "a clang {OLDEST} or newer with lld and the amdgcn target is needed; looked for {}",
            looked.join(", ")
        );
        if !may_install {
            bail!("{need}");
        }
        install().with_context(|| format!("{need}; and it could not be installed"))?;
        Compiler::probe(Path::new("clang-19")).context("clang-19 was installed but does not answer")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line that it says of itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn probe(path: &Path) -> Option<Compiler> {
        let said = Command::new(path).arg("--version").output().ok().filter(|out| out.status.success())?;
        let version = String::from_utf8_lossy(&said.stdout).lines().next()?.trim().to_owned();
        let targets = Command::new(path).arg("--print-targets").output().ok()?;
        let amdgcn = String::from_utf8_lossy(&targets.stdout).contains("amdgcn");
        (major(&version)? >= OLDEST && amdgcn).then(|| Compiler { path: path.to_owned(), version })
    }
}

fn candidates() -> Vec<PathBuf> {
    let rocm = std::env::var_os("ROCM_PATH").map_or_else(|| PathBuf::from("/opt/rocm"), PathBuf::from);
    let mut list = vec![rocm.join("bin/amdclang++"), rocm.join("llvm/bin/clang++")];
    list.extend((OLDEST..OLDEST + 6).map(|version| PathBuf::from(format!("clang-{version}"))));
    list.push(PathBuf::from("clang"));
    list
}

/// The number behind "clang version" or "AMD clang version".
fn major(version: &str) -> Option<u32> {
    version.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

fn install() -> Result<()> {
    println!("no compiler found; installing {}", PACKAGES.join(" and "));
    for args in
        [vec!["update", "-qq"], [vec!["install", "-y", "-qq", "--no-install-recommends"], PACKAGES.to_vec()].concat()]
    {
        let status = Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(&args)
            .status()
            .context("there is no apt-get on this system")?;
        if !status.success() {
            bail!("apt-get {} failed ({status}); it needs root", args.join(" "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_compilers_say_them() {
        assert_eq!(major("Debian clang version 19.1.7 (3~deb12u1)"), Some(19));
        assert_eq!(major("AMD clang version 22.0.0git (roc-7.14)"), Some(22));
        assert_eq!(major("gcc (Debian 12.2.0) 12.2.0"), None);
    }
}
