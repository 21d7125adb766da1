//! Finds or fetches what builds the kernel programs and writes down where it is, for
//! tracer-user's build script.
//!
//! Nothing of the system changes: what is fetched lies under the target directory.

mod debian;
pub(crate) mod packages;
pub(crate) mod pythons;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::cmd::{CommandExt as _, Workspace, command};

/// Prebuilt for the LLVM of both ways: it loads the compiler's own library at run time.
const BPF_LINKER: &str = "bpf-linker@0.10.3";

/// How the kernel programs are built on this machine.
pub(crate) enum Toolchain {
    /// A rustup nightly that has the sources of `core`, and bpf-linker on PATH.
    Rustup,
    /// Debian's compiler, unpacked.
    Debian(debian::Unpacked),
}

/// Makes sure that there is a toolchain and says which.
pub(crate) fn run(workspace: &Workspace) -> Result<Toolchain> {
    let dir = workspace.target_dir.join("bpf-toolchain");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let Some(why_not_rustup) = rustup_lacks() else {
        println!("BPF toolchain: rustup nightly with rust-src, and the bpf-linker on PATH");
        write_file(&dir, "rustup=nightly\n")?;
        return Ok(Toolchain::Rustup);
    };
    let unpacked = debian::Unpacked::at(&dir);
    if unpacked.works() {
        println!("BPF toolchain: ready in {} ({why_not_rustup})", dir.display());
    } else {
        println!("BPF toolchain: Debian's packages, since {why_not_rustup}");
        if let Err(why_not_debian) = unpacked.fetch() {
            bail!(
                "no way to build the kernel programs: {why_not_rustup}, and {why_not_debian:#}. \
                 Install them with `rustup toolchain install nightly --component rust-src` and \
                 `cargo install {BPF_LINKER} --locked`"
            );
        }
        println!("BPF toolchain: ready in {}", dir.display());
    }
    write_file(&dir, &unpacked.as_lines())?;
    Ok(Toolchain::Debian(unpacked))
}

/// What the rustup way is missing here, if anything.
fn rustup_lacks() -> Option<String> {
    let sysroot = command("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]).text();
    let Ok(sysroot) = sysroot else {
        return Some("rustup has no nightly toolchain".to_owned());
    };
    if !Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir() {
        return Some("rustup's nightly has no rust-src".to_owned());
    }
    if !command("bpf-linker").arg("--version").works() {
        return Some("bpf-linker is not on PATH".to_owned());
    }
    None
}

/// Writes the file that the build script reads, unless it says so already: its time stamp
/// would rebuild the object.
fn write_file(dir: &Path, lines: &str) -> Result<()> {
    let file = dir.join("toolchain.env");
    if fs::read_to_string(&file).is_ok_and(|old| old == lines) {
        return Ok(());
    }
    let partial = dir.join("toolchain.env.partial");
    fs::write(&partial, lines).with_context(|| partial.display().to_string())?;
    fs::rename(&partial, &file).with_context(|| file.display().to_string())
}
