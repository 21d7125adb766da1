//! Debian's Rust compiler with a prebuilt `core` for BPF, unpacked where it disturbs nobody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::BPF_LINKER;
use crate::cmd::{CommandExt as _, Workspace, command, is_root};

/// The compiler, its standard library for this machine and for BPF, its LLVM, its linter.
const PACKAGES: &[&str] = &[
    "rustc-web",
    "libstd-rust-web-dev",
    "libstd-rust-web-dev-bpf",
    "libstd-rust-web-1.96",
    "libllvm22",
    "rust-web-clippy",
];
/// Taken from the system always: a C library of another version than the running loader's
/// would not start.
const NEVER_UNPACKED: &[&str] = &["libc6", "libgcc-s1", "libcrypt1", "gcc-12-base", "gcc-14-base"];
const RUSTC: &str = "root/usr/bin/rustc";
const LIBRARIES: &[&str] = &["root/usr/lib/x86_64-linux-gnu", "root/lib/x86_64-linux-gnu"];
const LINKER_DIR: &str = "cargo/bin";

/// A directory that holds it, or will.
pub(crate) struct Unpacked {
    dir: PathBuf,
}

impl Unpacked {
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    /// The lines that the build script reads.
    pub(super) fn as_lines(&self) -> String {
        format!("rustc={RUSTC}\nlibrary_path={}\nlinker_dir={LINKER_DIR}\n", LIBRARIES.join(":"))
    }

    /// Does it build a program for BPF? Tried in full, it takes a tenth of a second.
    pub(super) fn works(&self) -> bool {
        let source = self.dir.join("proof.rs");
        let program = "#![no_std]\n#![no_main]\n\
            #[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n\
            #[unsafe(no_mangle)] #[unsafe(link_section = \"uprobe\")] fn f() -> u32 { 0 }\n";
        self.dir.join(LINKER_DIR).join("bpf-linker").is_file()
            && fs::write(&source, program).is_ok()
            && self
                .tool("rustc")
                .args(["--edition=2024", "--crate-type=bin", "--target=bpfel-unknown-none"])
                .args(["-Cpanic=abort", "-Copt-level=3", "-Clinker=bpf-linker", "-o"])
                .args([self.dir.join("proof.o"), source])
                .works()
    }

    /// Downloads and unpacks what is missing. Needs the network.
    pub(super) fn fetch(&self) -> Result<()> {
        ensure!(command("apt-get").arg("--version").works(), "this is not a Debian system");
        update_lists_if_missing()?;
        let debs = self.dir.join("debs");
        fs::create_dir_all(&debs).with_context(|| debs.display().to_string())?;
        self.unpack(PACKAGES)?;
        // A bare machine lacks what LLVM is linked with.
        if self.missing_libraries()?.is_some() {
            let packages = llvm_needs()?;
            self.unpack(&packages.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        if let Some(missing) = self.missing_libraries()? {
            bail!("the unpacked compiler misses {missing}");
        }
        if !self.dir.join(LINKER_DIR).join("bpf-linker").is_file() {
            println!("Building {BPF_LINKER}: about a minute");
            command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["install", BPF_LINKER, "--locked", "--quiet", "--root"])
                .arg(self.dir.join("cargo"))
                .env_remove("CARGO_TARGET_DIR")
                .run()?;
        }
        fs::remove_dir_all(&debs).with_context(|| debs.display().to_string())?;
        ensure!(self.works(), "the unpacked compiler in {} does not build", self.dir.display());
        Ok(())
    }

    /// A program of the unpacked compiler, with the environment that it needs.
    fn tool(&self, name: &str) -> Command {
        let mut tool = command(self.dir.join("root/usr/bin").join(name));
        self.set_environment(&mut tool);
        tool
    }

    /// Clippy over the kernel programs, by this compiler's own linter; the caller adds
    /// arguments.
    pub(crate) fn clippy(&self, workspace: &Workspace) -> Command {
        let mut clippy = self.tool("cargo-clippy");
        clippy
            .arg("clippy")
            .env("CARGO", workspace.cargo().get_program())
            .env("RUSTC", self.dir.join(RUSTC))
            .env("RUSTC_BOOTSTRAP", "1");
        clippy
    }

    fn set_environment(&self, command: &mut Command) {
        let libraries: Vec<_> = LIBRARIES.iter().map(|library| self.dir.join(library)).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [self.dir.join(LINKER_DIR)].into_iter().chain(std::env::split_paths(&path));
        // A directory with a colon in its name cannot be in either variable: the compiler is
        // then not found, which `works` reports.
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap_or_default());
        command.env("PATH", std::env::join_paths(path).unwrap_or_default());
    }

    fn unpack(&self, packages: &[&str]) -> Result<()> {
        let debs = self.dir.join("debs");
        println!("Downloading {}", packages.join(" "));
        download(&debs, packages)?;
        for deb in fs::read_dir(&debs)? {
            let deb = deb?.path();
            command("dpkg").arg("-x").arg(&deb).arg(self.dir.join("root")).run()?;
            fs::remove_file(&deb)?;
        }
        Ok(())
    }

    /// Libraries that the loader does not find, if any.
    fn missing_libraries(&self) -> Result<Option<String>> {
        let mut ldd = command("ldd");
        ldd.arg(self.dir.join(RUSTC));
        self.set_environment(&mut ldd);
        let text = ldd.text()?;
        let missing: Vec<_> = text
            .lines()
            .filter(|line| line.ends_with("not found"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        Ok(if missing.is_empty() { None } else { Some(missing.join(", ")) })
    }
}

fn download(into: &Path, packages: &[&str]) -> Result<()> {
    let mut apt = command("apt-get");
    apt.args(["download", "-qq"]).args(packages).current_dir(into);
    if apt.text().is_ok() {
        return Ok(());
    }
    // Lists that are older than the archive name files that are gone.
    if is_root()? {
        update_lists()?;
    }
    apt.text().map(drop).with_context(|| {
        format!(
            "this system's package sources lack some of {}: Debian 12 and later have them, \
             Ubuntu does not",
            packages.join(", ")
        )
    })
}

fn update_lists_if_missing() -> Result<()> {
    if command("apt-cache").args(["show", PACKAGES[0]]).works() {
        return Ok(());
    }
    ensure!(is_root()?, "apt knows no {}: run `apt-get update` as root first", PACKAGES[0]);
    update_lists()
}

fn update_lists() -> Result<()> {
    command("apt-get").args(["update", "-qq"]).run()
}

/// The packages that LLVM depends on, and those that they depend on.
fn llvm_needs() -> Result<Vec<String>> {
    let text = command("apt-cache")
        .args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"])
        .args(["--no-breaks", "--no-replaces", "--no-enhances", "libllvm22"])
        .text()?;
    let names = text.lines().filter(|line| !line.starts_with([' ', '<', '|']));
    let names = names.filter(|name| *name != "libllvm22" && !NEVER_UNPACKED.contains(name));
    Ok(names.map(str::to_owned).collect())
}
