//! Builds the kernel programs and tells the library where their object lies, as
//! `env!("OUTLIVE_BPF_OBJECT")`.
//!
//! `aya-build` would do it with a rustup nightly only; this also runs the compiler that
//! `cargo xtask setup` unpacked. The flags are aya-build's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

/// An object that was built elsewhere, for who packages outlive without a BPF toolchain.
const PREBUILT: &str = "OUTLIVE_BPF_OBJECT_PREBUILT";
/// Written by `cargo xtask setup` into the target directory: `key=value` lines, paths
/// relative to the file.
const TOOLCHAIN_FILE: &str = "bpf-toolchain/toolchain.env";
const BPF_TARGET: &str = "bpfel-unknown-none";
const OBJECT: &str = "outlive-ebpf";

fn main() -> ExitCode {
    match object() {
        Ok(object) => {
            println!("cargo:rustc-env=OUTLIVE_BPF_OBJECT={}", object.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn object() -> Result<PathBuf, String> {
    println!("cargo:rerun-if-env-changed={PREBUILT}");
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(prebuilt) = env::var_os(PREBUILT) {
        let prebuilt = PathBuf::from(prebuilt);
        println!("cargo:rerun-if-changed={}", prebuilt.display());
        return prebuilt.canonicalize().map_err(|err| {
            format!("{PREBUILT}={}: {err}; name the object's file", prebuilt.display())
        });
    }
    let root = dir("CARGO_MANIFEST_DIR")?.join("..");
    for input in [
        "Cargo.toml",
        "tracer-common/Cargo.toml",
        "tracer-common/src",
        "tracer-ebpf/Cargo.toml",
        "tracer-ebpf/Cargo.lock",
        "tracer-ebpf/src",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(input).display());
    }
    let out_dir = dir("OUT_DIR")?;
    let toolchain = Toolchain::find(&out_dir, &root)?;
    let target_dir = out_dir.join("bpf");
    let mut cargo = toolchain.cargo()?;
    // The two cargos would wait for each other's lock if they shared a target directory.
    cargo
        .args(["build", "--release", "--locked", "--target", BPF_TARGET, "--target-dir"])
        .arg(&target_dir)
        .current_dir(root.join("tracer-ebpf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = cargo.status().map_err(|err| format!("cannot run {cargo:?}: {err}"))?;
    if !status.success() {
        return Err(format!("the kernel programs do not build ({status}): {cargo:?}"));
    }
    let object = target_dir.join(BPF_TARGET).join("release").join(OBJECT);
    if object.is_file() { Ok(object) } else { Err(format!("{}: not built", object.display())) }
}

/// How to build for the BPF target.
enum Toolchain {
    /// A rustup toolchain that compiles `core` from its sources.
    Rustup { name: String },
    /// A compiler with a prebuilt `core`, unpacked into the target directory.
    Unpacked { rustc: PathBuf, library_path: OsString, linker_dir: PathBuf },
}

impl Toolchain {
    fn find(out_dir: &Path, root: &Path) -> Result<Self, String> {
        // Whatever chose the target directory (a variable, an option, a configuration file),
        // OUT_DIR lies in it.
        let file = out_dir
            .ancestors()
            .map(|dir| dir.join(TOOLCHAIN_FILE))
            .chain([root.join("target").join(TOOLCHAIN_FILE)])
            .find(|file| file.is_file())
            .ok_or("the BPF toolchain is not there yet: run `cargo xtask setup` once")?;
        println!("cargo:rerun-if-changed={}", file.display());
        Self::read(&file).ok_or_else(|| {
            format!("{}: incomplete; delete it and run `cargo xtask setup`", file.display())
        })
    }

    fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let dir = file.parent()?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.split_once('=').filter(|(k, _)| *k == key))
                .map(|l| l.1)
        };
        if let Some(name) = value("rustup") {
            return Some(Self::Rustup { name: name.to_owned() });
        }
        let library_path =
            env::join_paths(value("library_path")?.split(':').map(|path| dir.join(path)));
        Some(Self::Unpacked {
            rustc: dir.join(value("rustc")?),
            library_path: library_path.ok()?,
            linker_dir: dir.join(value("linker_dir")?),
        })
    }

    /// Cargo with the environment that builds the kernel programs, without a subcommand's
    /// own arguments.
    fn cargo(&self) -> Result<Command, String> {
        let mut command = match self {
            Self::Rustup { name } => {
                let mut command = Command::new("rustup");
                command.args(["run", name, "cargo", "-Zbuild-std=core"]);
                command.env_remove("RUSTC");
                command
            }
            Self::Unpacked { rustc, library_path, linker_dir } => {
                let path = env::var_os("PATH").unwrap_or_default();
                let path = env::join_paths(
                    [linker_dir.clone()].into_iter().chain(env::split_paths(&path)),
                )
                .map_err(|err| format!("PATH: {err}"))?;
                let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
                command
                    .env("RUSTC", rustc)
                    .env("LD_LIBRARY_PATH", library_path)
                    .env("PATH", path)
                    // aya-ebpf uses `asm_experimental_arch`, a released compiler allows it so.
                    .env("RUSTC_BOOTSTRAP", "1");
                command
            }
        };
        // What the outer cargo was told is about another target and another compiler.
        for (key, _) in env::vars_os() {
            let name = key.to_string_lossy();
            let about_host = ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_CFG_", "CARGO_FEATURE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if about_host || name.starts_with("RUSTC_W") || name == "RUSTUP_TOOLCHAIN" {
                command.env_remove(&key);
            }
        }
        command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").env_remove("RUSTDOC");
        let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|err| err.to_string())?;
        let flags = [
            format!("--cfg=bpf_target_arch=\"{arch}\""),
            "-Cdebuginfo=2".to_owned(),
            "-Clink-arg=--btf".to_owned(),
            // 32-bit jumps and arithmetic; every supported kernel has them.
            "-Ctarget-cpu=v3".to_owned(),
        ];
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        Ok(command)
    }
}

fn dir(key: &str) -> Result<PathBuf, String> {
    env::var_os(key).map(PathBuf::from).ok_or_else(|| format!("{key} is not set; cargo sets it"))
}
