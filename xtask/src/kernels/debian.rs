//! Kernels from Debian's suites, without a change to the system's own package lists.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::apt::Apt;
use crate::cmd::{CommandExt as _, command};

/// The cloud kernel of a suite, downloaded and unpacked once.
pub(super) fn image(dir: &Path, suite: &str, version: &str) -> Result<PathBuf> {
    if let Some(image) = unpacked(dir) {
        println!("{}", image.display());
        return Ok(image);
    }
    let apt = Apt::new(dir, suite)?;
    apt.call("apt-get").args(["update", "-qq"]).text()?;
    let package = package(&apt, version)?;
    println!("downloading {package} from {suite}");
    apt.call("apt-get").args(["download", "-qq", &package]).current_dir(dir).text()?;
    let deb = debs(dir)?.pop().with_context(|| format!("no package in {}", dir.display()))?;
    // Whole or not at all: a broken download is not taken for a kernel the next time.
    let partial = dir.join("root.partial");
    command("dpkg").arg("-x").arg(&deb).arg(&partial).run()?;
    fs::rename(&partial, dir.join("root")).with_context(|| partial.display().to_string())?;
    fs::remove_file(&deb).with_context(|| deb.display().to_string())?;
    unpacked(dir).with_context(|| format!("{package} holds no kernel image"))
}

/// Where a program lies that the machines need.
pub(super) fn on_path(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
        .with_context(|| format!("{program} is not on PATH"))
}

fn debs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect())
}

/// The image lies in /boot, since Debian 14 among the modules.
fn unpacked(dir: &Path) -> Option<PathBuf> {
    let modules = fs::read_dir(dir.join("root/usr/lib/modules")).into_iter().flatten();
    let among_modules = modules.filter_map(|entry| Some(entry.ok()?.path().join("vmlinuz")));
    let boot = fs::read_dir(dir.join("root/boot")).into_iter().flatten();
    let in_boot = boot.filter_map(|entry| Some(entry.ok()?.path()));
    among_modules
        .chain(in_boot)
        .find(|path| path.is_file() && path.to_string_lossy().contains("/vmlinuz"))
}

/// The package with the image of the suite's current cloud kernel.
fn package(apt: &Apt, version: &str) -> Result<String> {
    let depends = apt.call("apt-cache").args(["depends", "linux-image-cloud-amd64"]).text()?;
    let image = depends
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-") && *word != "linux-image-cloud-amd64")
        .context("linux-image-cloud-amd64 depends on no image")?;
    ensure!(
        image.contains(&format!("-{version}.")),
        "the suite's kernel is now {image}, not {version}: change the table in \
         xtask/src/kernels.rs"
    );
    let depends = apt.call("apt-cache").args(["depends", image]).text()?;
    let binary = depends.split_whitespace().find(|word| word.starts_with("linux-binary-"));
    Ok(binary.unwrap_or(image).to_owned())
}
