//! Versions of Python that Debian 12 does not have, unpacked as root folders for the end-to-end tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::apt::Apt;
use crate::cmd::{CommandExt as _, Workspace, command};

/// Version, and a suite that has it.
const PYTHONS: &[(&str, &str)] = &[("3.13", "trixie"), ("3.14", "sid")];

/// Downloads and unpacks what is missing, each into `pythons/<version>` of the target folder.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    for (version, suite) in PYTHONS {
        let dir = workspace.target_dir.join("pythons").join(version);
        let root = dir.join("root");
        if !root.join(format!("usr/bin/python{version}")).is_file() {
            println!("Python {version} for the tests: downloading it from {suite}");
            unpack(&dir, &root, version, suite)
                .with_context(|| format!("Python {version} of Debian's {suite}"))?;
        }
    }
    println!("Other Pythons for the tests: all there");
    Ok(())
}

fn unpack(dir: &Path, root: &Path, version: &str, suite: &str) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let apt = Apt::new(dir, suite)?;
    apt.call("apt-get").args(["update", "-qq"]).text()?;
    let packages = [
        format!("python{version}-minimal"),
        format!("libpython{version}-minimal"),
        format!("libpython{version}-stdlib"),
        "libc6".to_owned(),
        "libexpat1".to_owned(),
        "zlib1g".to_owned(),
    ];
    apt.call("apt-get").args(["download", "-qq"]).args(packages).current_dir(dir).text()?;
    let partial = dir.join("root.partial");
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            command("dpkg").arg("-x").arg(&path).arg(&partial).run()?;
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    // Debian's base system has these from its installation.
    for link in ["lib", "lib64"] {
        let path = partial.join(link);
        if path.symlink_metadata().is_err() {
            symlink(Path::new("usr").join(link), &path)
                .with_context(|| path.display().to_string())?;
        }
    }
    // Whole or not at all.
    fs::rename(&partial, root).with_context(|| partial.display().to_string())
}
