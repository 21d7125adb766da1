//! Commands that xtask runs, and where it runs them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// The source tree and the directory that cargo builds into.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_dir: PathBuf,
    /// What `cargo metadata` says about every package, dependencies included.
    pub(crate) metadata: serde_json::Value,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        // Cargo sets it for the process too; a binary of another checkout, left in a shared
        // target directory, would name the wrong tree.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.parent().context("xtask lies in the workspace")?.to_path_buf();
        let metadata =
            cargo_in(&root).args(["metadata", "--format-version=1", "--locked"]).text()?;
        let metadata: serde_json::Value =
            serde_json::from_str(&metadata).context("cargo metadata")?;
        let target_dir = metadata["target_directory"].as_str().context("cargo metadata")?.into();
        Ok(Self { root, target_dir, metadata })
    }

    /// Cargo, in the workspace's root.
    pub(crate) fn cargo(&self) -> Command {
        cargo_in(&self.root)
    }
}

fn cargo_in(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).stdin(Stdio::null());
    cargo
}

/// A command that reads nothing.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

/// What every caller wants of a command: its success, or an error that names it.
pub(crate) trait CommandExt {
    /// Runs it with the terminal's output.
    fn run(&mut self) -> Result<()>;
    /// Runs it and returns its standard output.
    fn text(&mut self) -> Result<String>;
    /// Does it run and succeed? Its output is dropped.
    fn works(&mut self) -> bool;
}

impl CommandExt for Command {
    fn run(&mut self) -> Result<()> {
        let status = self.status().with_context(|| format!("cannot run {}", shown(self)))?;
        if !status.success() {
            bail!("{status}: {}", shown(self));
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String> {
        let Output { status, stdout, stderr } =
            self.output().with_context(|| format!("cannot run {}", shown(self)))?;
        if !status.success() {
            let stderr = String::from_utf8_lossy(&stderr);
            bail!("{status}: {}\n{}", shown(self), stderr.trim_end());
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    fn works(&mut self) -> bool {
        self.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    }
}

/// The command as one would type it, without its environment.
pub(crate) fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Is this process root's?
pub(crate) fn is_root() -> Result<bool> {
    Ok(command("id").arg("-u").text()?.trim() == "0")
}
