//! What tracing costs: a loop that only allocates and frees, bare and traced.
//!
//! The ratio of two measurements of one run is what can be compared between machines; the
//! nanoseconds cannot. No time is a failure here.

mod memleak;
mod parts;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cmd::{CommandExt as _, Workspace, command, is_root, shown};
use crate::setup;

const ROUNDS: usize = 5;
/// Length of one measurement.
const SECONDS: &str = "1";
/// Both tracers are attached within this time.
const TO_ATTACH: Duration = Duration::from_secs(3);

/// Prints a table in Markdown.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    ensure!(is_root()?, "tracing needs root: `sudo -E env PATH=$PATH cargo xtask bench`");
    setup::run(workspace)?;
    workspace.cargo().args(["build", "--release", "--locked", "--package", "outlive"]).run()?;
    let dir = workspace.target_dir.join("bench");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let loop_program = dir.join("pairs");
    command("cc")
        .args(["-O1", "-fno-builtin", "-fno-omit-frame-pointer", "-o"])
        .args([&loop_program, &workspace.root.join("xtask/src/bench/pairs.c")])
        .run()?;
    let memleak = memleak::find(&dir)?;

    let mut bare = Vec::new();
    let mut outlive = Vec::new();
    let mut peer = Vec::new();
    let mut n_lost = 0;
    // Taking turns spreads what else the machine does over all of them.
    for round in 0..ROUNDS {
        bare.push(measure(&loop_program, |_| None, Stdio::null())?);
        let session = dir.join(format!("session-{round}"));
        let traced = |pid| {
            let mut attach = attach(workspace, &session, pid);
            attach.arg("-q");
            Some(attach)
        };
        outlive.push(measure(&loop_program, traced, Stdio::null())?);
        n_lost += lost(&session)?;
        if let Some(memleak) = &memleak {
            let traced = |pid: u32| {
                let mut attach = memleak.command();
                attach.args(["-p", &pid.to_string(), "3600"]);
                Some(attach)
            };
            peer.push(measure(&loop_program, traced, Stdio::null())?);
        }
    }
    println!(
        "\n| malloc and free of 64 bytes, one thread | ns per pair (median, range) | against bare |"
    );
    println!("|---|---|---|");
    let reference = median(&mut bare);
    print_row("bare", &mut bare, reference);
    print_row("outlive attach", &mut outlive, reference);
    if memleak.is_some() {
        print_row("memleak of libbpf-tools", &mut peer, reference);
        let ratio = median(&mut outlive) / median(&mut peer);
        println!(
            "\nA pair under outlive takes {ratio:.2} of the time that it takes under memleak."
        );
    } else {
        println!("\nmemleak of libbpf-tools: not on PATH and not to be had from Debian here.");
    }
    // A tracer is fast that looks away.
    println!("\noutlive lost {n_lost} records.");
    parts::print(workspace, &loop_program, &dir)?;
    Ok(ExitCode::SUCCESS)
}

/// The tool, watching a process in one long batch.
fn attach(workspace: &Workspace, session: &Path, pid: u32) -> Command {
    // What an earlier run left, if it did.
    let _ = std::fs::remove_dir_all(session);
    let mut attach = command(workspace.target_dir.join("release/outlive"));
    attach.args(["attach", "-i", "10s", "-p", &pid.to_string(), "-o"]).arg(session);
    attach
}

/// Records that a session says it lost.
fn lost(session: &Path) -> Result<u64> {
    let file = session.join("session.json");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let session: serde_json::Value = serde_json::from_str(&text)?;
    let losses = session["losses"].as_object().context("session.json lists losses")?;
    Ok(losses.values().filter_map(serde_json::Value::as_u64).sum())
}

/// Nanoseconds per pair while the tracer that `tracer` makes, if any, watches the loop and
/// sends its messages to `messages`.
fn measure(
    program: &Path,
    tracer: impl FnOnce(u32) -> Option<Command>,
    messages: Stdio,
) -> Result<f64> {
    let mut pairs = Pairs::start(program)?;
    let tracer = match tracer(pairs.child.id()) {
        None => None,
        Some(mut command) => {
            command.stdout(Stdio::null()).stderr(messages);
            let child = command.spawn().with_context(|| shown(&command))?;
            let mut tracer = Ended { child, shown: shown(&command) };
            sleep(TO_ATTACH);
            let early = tracer.child.try_wait()?;
            ensure!(early.is_none(), "the tracer ended early: {}", tracer.shown);
            Some(tracer)
        }
    };
    let ns = pairs.measure();
    drop(tracer);
    ns
}

/// The loop, waiting for its turn.
struct Pairs {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pairs {
    fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg(SECONDS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| shown(&command))?;
        let stdin = child.stdin.take().context("stdin is a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let mut pairs = Self { child, stdin, stdout };
        ensure!(pairs.line()? == "ready", "the loop did not start");
        Ok(pairs)
    }

    fn measure(&mut self) -> Result<f64> {
        self.stdin.write_all(b"\n")?;
        let line = self.line()?;
        line.parse().with_context(|| format!("nanoseconds of the loop: {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        // It has ended already when this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tracer that is asked to end, as by Ctrl-C, and waited for.
struct Ended {
    child: Child,
    shown: String,
}

impl Drop for Ended {
    fn drop(&mut self) {
        command("kill").args(["-INT", &self.child.id().to_string()]).works();
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        eprintln!("killed after ten seconds: {}", self.shown);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_row(name: &str, values: &mut [f64], reference: f64) {
    let middle = median(values);
    if let [least, .., most] = values {
        let ratio = middle / reference;
        println!("| {name} | {middle:.0} ({least:.0} to {most:.0}) | {ratio:.1} |");
    }
}
