//! What the depth of a stack costs: the same pair under few frames and under many.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::memleak::Memleak;
use super::pairs::{Pairs, median};
use super::quiet;
use crate::cmd::{CommandExt as _, Workspace, command};

const FEW: u32 = 10;
const MANY: u32 = 100;
const ROUNDS: usize = 3;

/// Follows the chain of frame pointers word by word, as small programs do.
const FRAME_POINTERS: &str = r#"
    $fp = reg("bp");
    $hash = (uint64)0;
    $n = 0;
    while ($n < 127) {
        if ($fp == 0) { break; }
        $hash = ($hash ^ *(uint64*)($fp + 8)) * 2654435769;
        $fp = *(uint64*)$fp;
        $n++;
    }
    @[$hash] = count();"#;
/// Has the kernel follow it: `bpf_get_stackid`.
const BY_THE_KERNEL: &str = "@[ustack(perf, 127)] = count();";

/// Prints a table.
pub(super) fn print(workspace: &Workspace, memleak: Option<&Memleak>, dir: &Path) -> Result<()> {
    let with = Pairs::build(workspace, dir, true)?;
    let without = Pairs::build(workspace, dir, false)?;
    let session = dir.join("session-frames");
    let outlive = |pid| quiet(workspace, &session, pid);
    println!("\n| what a frame costs | ns per pair, {FEW} frames more | {MANY} | each frame |");
    println!("|---|---|---|---|");
    print_row("outlive, code without frame pointers", &without, outlive)?;
    print_row("outlive, code with frame pointers", &with, outlive)?;
    if let Some(memleak) = memleak {
        print_row("memleak, `bpf_get_stackid`", &with, |pid| memleak.attach(pid))?;
    }
    if command("bpftrace").arg("--version").works() {
        let by_hand = |pid| bpftrace(FRAME_POINTERS, pid);
        print_row("bpftrace, frame pointers word by word", &with, by_hand)?;
        let by_the_kernel = |pid| bpftrace(BY_THE_KERNEL, pid);
        print_row("bpftrace, `bpf_get_stackid`", &with, by_the_kernel)?;
    } else {
        println!("\nbpftrace: not on PATH.");
    }
    Ok(())
}

/// Takes a stack at each entry of malloc, and no more.
fn bpftrace(body: &str, pid: u32) -> Command {
    let mut bpftrace = command("bpftrace");
    let program = format!("uprobe:libc:malloc /pid == {pid}/ {{ {body} }}");
    bpftrace.args(["-p", &pid.to_string(), "-e", &program]);
    bpftrace
}

fn print_row(name: &str, pairs: &Pairs, tracer: impl Fn(u32) -> Command) -> Result<()> {
    let (few, many) = (pairs.under(FEW), pairs.under(MANY));
    let (mut at_few, mut at_many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_few.push(few.traced(&tracer)?);
        at_many.push(many.traced(&tracer)?);
    }
    let (few, many) = (median(&mut at_few), median(&mut at_many));
    let each = (many - few) / f64::from(MANY - FEW);
    println!("| {name} | {few:.0} | {many:.0} | {each:.1} |");
    Ok(())
}
