//! What tracing costs: a loop that only allocates and frees, bare and traced.
//!
//! The ratio of two measurements of one run is what can be compared between machines; the
//! nanoseconds cannot. No time is a failure here.

mod frames;
mod memleak;
mod objects;
mod pairs;
mod parts;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use self::pairs::{Pairs, median};
use crate::cmd::{CommandExt as _, Workspace, command, is_root};
use crate::setup;

const ROUNDS: usize = 5;

/// Prints a table in Markdown.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    ensure!(is_root()?, "tracing needs root: `sudo -E env PATH=$PATH cargo xtask bench`");
    setup::run(workspace)?;
    workspace.cargo().args(["build", "--release", "--locked", "--package", "outlive"]).run()?;
    let dir = workspace.target_dir.join("bench");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let shallow = Pairs::build(workspace, &dir, true)?;
    let memleak = memleak::find(&dir)?;

    let mut bare = Vec::new();
    let mut outlive = Vec::new();
    let mut peer = Vec::new();
    let mut n_lost = 0;
    // Taking turns spreads what else the machine does over all of them.
    for round in 0..ROUNDS {
        bare.push(shallow.bare()?);
        let session = dir.join(format!("session-{round}"));
        outlive.push(shallow.traced(|pid| quiet(workspace, &session, pid))?);
        n_lost += lost(&session)?;
        if let Some(memleak) = &memleak {
            peer.push(shallow.traced(|pid| memleak.attach(pid))?);
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
    parts::print(workspace, &shallow, &dir)?;
    frames::print(workspace, memleak.as_ref(), &dir)?;
    objects::print(workspace, &dir)?;
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

/// As [`attach`], without a word.
fn quiet(workspace: &Workspace, session: &Path, pid: u32) -> Command {
    let mut attach = attach(workspace, session, pid);
    attach.arg("-q");
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

fn print_row(name: &str, values: &mut [f64], reference: f64) {
    let middle = median(values);
    if let [least, .., most] = values {
        let ratio = middle / reference;
        println!("| {name} | {middle:.0} ({least:.0} to {most:.0}) | {ratio:.1} |");
    }
}
