//! Feeds every reader of bytes of others what nobody would write, for a time.
//!
//! What libFuzzer finds on its way stays in the target directory, for the next run to begin with;
//! an input that fails is named, and belongs into fuzz/corpus once the fault is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cmd::{CommandExt as _, Workspace, command};
use crate::setup;

/// Memory of a target at the most, in megabytes; and for one input, seconds.
const LIMITS: &[&str] = &["-rss_limit_mb=1024", "-timeout=10"];
/// Lines of a target's output that are shown when it fails.
const SHOWN: usize = 20;

/// Builds every target and runs those that are named, or all of them, for this time each.
pub(crate) fn run(workspace: &Workspace, seconds: u64, names: &[String]) -> Result<ExitCode> {
    let mut installed = workspace.cargo();
    installed.args(["fuzz", "--version"]).stderr(Stdio::null());
    ensure!(installed.works(), "cargo-fuzz is missing: cargo install cargo-fuzz --locked");
    // An object that was built elsewhere is as good: no target loads it.
    if std::env::var_os("OUTLIVE_BPF_OBJECT_PREBUILT").is_none() {
        setup::run(workspace)?;
    }
    let corpus = workspace.root.join("fuzz/corpus");
    let known = targets(&corpus)?;
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("no target {name:?}; there are {}", known.join(", "));
    }
    let target_dir = workspace.target_dir.join("fuzz");
    // Address checks would halve the speed, and our readers have no unsafe code.
    let mut build = workspace.cargo();
    build.args(["fuzz", "build", "--sanitizer=none", "--target-dir"]).arg(&target_dir).run()?;

    let mut code = ExitCode::SUCCESS;
    for name in known.iter().filter(|name| names.is_empty() || names.contains(name)) {
        let target = Target {
            name,
            program: target_dir.join("x86_64-unknown-linux-gnu/release").join(name),
            begins_with: corpus.join(name),
            work: target_dir.join("runs").join(name),
        };
        if !target.run(Duration::from_secs(seconds))? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// The targets, of which each has a folder in the corpus.
fn targets(corpus: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(corpus).with_context(|| corpus.display().to_string())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

struct Target<'a> {
    name: &'a str,
    program: PathBuf,
    begins_with: PathBuf,
    /// What it finds.
    work: PathBuf,
}

impl Target<'_> {
    /// Prints one line, and what it said last where it failed. Answers whether it did not.
    fn run(&self, time: Duration) -> Result<bool> {
        let found = self.work.join("found");
        let failed = self.work.join("failed");
        for folder in [&found, &failed] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let mut target = command(&self.program);
        target
            .args([&found, &self.begins_with])
            .args(LIMITS)
            .arg(format!("-max_total_time={}", time.as_secs()))
            .arg(format!("-artifact_prefix={}/", failed.display()))
            .current_dir(&self.work)
            .stdout(Stdio::null());
        let output = target.output().with_context(|| self.program.display().to_string())?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let log = self.work.join("log");
        fs::write(&log, messages.as_bytes()).with_context(|| log.display().to_string())?;
        let done = messages.lines().rev().find_map(|line| line.strip_prefix("Done "));
        match done.filter(|_| output.status.success()) {
            Some(done) => println!("{}: {done}", self.name),
            None => {
                println!("{}: FAILED ({}), see {}", self.name, output.status, log.display());
                let lines: Vec<&str> = messages.lines().collect();
                for line in &lines[lines.len().saturating_sub(SHOWN)..] {
                    println!("    {line}");
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}
