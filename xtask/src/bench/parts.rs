//! Where the time of a traced pair goes: what each program takes by the kernel's own measure,
//! and the rest, which is traps.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::attach;
use super::pairs::Pairs;
use crate::cmd::Workspace;

/// The programs of a pair, in the order of the path, and what they do.
const PROGRAMS: [(&str, &str); 3] = [
    ("alloc_enter", "entry of malloc: find the thread's slot, walk and hash the stack"),
    ("alloc_return", "return of malloc: check that the call is the outermost, write the record"),
    ("free_enter", "entry of free: check that it is the outermost, write the record"),
];

/// Measures once more with the kernel's clock running, and prints a table.
pub(super) fn print(workspace: &Workspace, pairs: &Pairs, dir: &Path) -> Result<()> {
    let messages = dir.join("parts.log");
    let session = dir.join("session-parts");
    let traced = |pid| {
        let mut attach = attach(workspace, &session, pid);
        attach.arg("-v");
        attach
    };
    let pair = pairs.logged(traced, &messages)?;
    let text = fs::read_to_string(&messages).with_context(|| messages.display().to_string())?;
    println!("\n| part of a pair, while the kernel measures each run | ns |");
    println!("|---|---|");
    let mut rest = pair;
    for (name, what) in PROGRAMS {
        let ns = each(&text, name).with_context(|| format!("nothing of {name} in {text:?}"))?;
        println!("| `{name}`: {what} | {ns:.0} |");
        rest -= ns;
    }
    ensure!(rest > 0.0, "the programs took {pair} ns and more: {text:?}");
    println!("| three traps, malloc and free themselves, the clock | {rest:.0} |");
    println!("| whole pair | {pair:.0} |");
    Ok(())
}

/// Nanoseconds of one run, from `outlive: NAME ran N times, M ns each`.
fn each(messages: &str, name: &str) -> Option<f64> {
    let line = messages.lines().find(|line| line.starts_with(&format!("outlive: {name} ran ")))?;
    let (_, ns) = line.split_once(" times, ")?;
    ns.strip_suffix(" ns each")?.parse().ok()
}
