//! How long it takes to watch a process that maps many objects, whose unwind tables are compiled then.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::attach;
use crate::cmd::{CommandExt as _, Workspace, command};

/// Objects of the process, beside those of the C library.
const N_OBJECTS: usize = 300;
/// Measurements with the files in memory.
const ROUNDS: usize = 3;
/// How long the process is watched.
const WATCHED: Duration = Duration::from_secs(1);
/// Between two looks at the tool's memory.
const LOOK: Duration = Duration::from_millis(5);

/// Prints a table in Markdown.
pub(super) fn print(workspace: &Workspace, dir: &Path) -> Result<()> {
    let target = Mapping::start(workspace, dir)?;
    let outlive = workspace.target_dir.join("release/outlive");
    let said = command(outlive).args(["doctor", "-p", &target.0.id().to_string()]).text()?;
    let tables = said.lines().find_map(|line| line.split_once("  tables "));
    let (_, tables) = tables.with_context(|| format!("doctor says nothing of tables: {said}"))?;
    println!("\n| {} | s, without the second of watching | memory of the tool |", tables.trim());
    println!("|---|---|---|");
    // Mapped pages stay; what the tool reads of a file beside them does not.
    command("sync").run()?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")?;
    for round in 0..=ROUNDS {
        let session = dir.join("session-attach");
        let (took, kib) = watched(attach(workspace, &session, target.0.id()))?;
        let name = if round == 0 { "files not in memory" } else { "again" };
        println!("| {name} | {:.2} | {} MiB |", took.as_secs_f64(), kib / 1024);
    }
    Ok(())
}

/// Time of the whole tool beside the watching, and the most memory that was seen of it, in KiB.
fn watched(mut attach: Command) -> Result<(Duration, u64)> {
    attach.args(["-q", "--duration", &format!("{}s", WATCHED.as_secs())]).stdout(Stdio::null());
    let began = Instant::now();
    let mut tool = attach.spawn().context("cannot start outlive")?;
    let mut most = 0;
    let status = loop {
        most = most.max(memory(tool.id()).unwrap_or(0));
        match tool.try_wait()? {
            Some(status) => break status,
            None => sleep(LOOK),
        }
    };
    let took = began.elapsed();
    ensure!(status.success(), "outlive attach: {status}");
    ensure!(0 < most, "the tool's memory was not seen");
    Ok((took.saturating_sub(WATCHED), most))
}

/// The most memory that this process had so far, in KiB.
fn memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// A process with many objects.
struct Mapping(Child);

impl Mapping {
    fn start(workspace: &Workspace, dir: &Path) -> Result<Self> {
        let source = |name: &str| workspace.root.join("xtask/src/bench").join(name);
        let [object, program] = [dir.join("object.so"), dir.join("maps")];
        let flags = ["-O2", "-fPIC", "-shared", "-o"];
        command("cc").args(flags).args([&object, &source("object.c")]).run()?;
        command("cc").arg("-o").args([&program, &source("maps.c")]).arg("-ldl").run()?;
        let objects: Vec<PathBuf> =
            (0..N_OBJECTS).map(|number| dir.join(format!("object-{number}.so"))).collect();
        for copy in &objects {
            fs::copy(&object, copy).with_context(|| copy.display().to_string())?;
        }
        let mut process = command(program).args(objects).stdout(Stdio::piped()).spawn()?;
        let stdout = process.stdout.take().context("stdout is a pipe")?;
        let mapping = Self(process);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.trim_end() == "ready", "the objects could not be mapped");
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
