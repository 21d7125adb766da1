//! One virtual machine: started, watched on its console, ended.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::cmd::{CommandExt as _, command};

const QEMU: &str = "qemu-system-x86_64";
/// What a kernel says when nothing good will come any more.
const LOST: &[&str] = &[
    "Kernel panic",
    "BUG: ",
    "Oops",
    "soft lockup",
    "hard LOCKUP",
    "self-detected stall",
    "blocked for more than",
];

/// How a machine ended.
pub(super) struct End {
    /// Tests in order, and whether they passed.
    pub(super) verdicts: Vec<(String, bool)>,
    /// Why it did not come to its own end.
    pub(super) cut_short: Option<String>,
}

/// Is there an emulator?
pub(super) fn is_there() -> bool {
    command(QEMU).arg("--version").works()
}

/// Boots and waits for the end, at most `limit`. What the console says is shown behind `name`.
///
/// Both processors take turns on one thread of the emulator: with a thread for each, one was seen
/// to run code that the other had changed a moment ago, which is an oops of the kernel.
pub(super) fn boot(name: &str, kernel: &Path, initrd: &Path, limit: Duration) -> Result<End> {
    let mut qemu = command(QEMU)
        .args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "2048"])
        .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", "console=ttyS0 loglevel=4 panic=-1"])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {QEMU}"))?;
    let console = qemu.stdout.take().context("stdout is a pipe")?;
    let (send, lines) = channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if send.send(line).is_err() {
                return;
            }
        }
    });

    let deadline = Instant::now() + limit;
    let mut verdicts = Vec::new();
    let cut_short = loop {
        let line = match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => break Some(format!("not done within {limit:?}")),
            Err(RecvTimeoutError::Disconnected) => {
                break Some("the machine ended early".to_owned());
            }
        };
        println!("{name}: {}", plain(&line));
        match verdict(&line) {
            Some(Verdict::End) => break None,
            Some(Verdict::Test(name, passed)) => verdicts.push((name.to_owned(), passed)),
            None => {}
        }
        if let Some(lost) = LOST.iter().find(|lost| line.contains(**lost)) {
            break Some(format!("the kernel says \"{lost}\""));
        }
    };
    // It may be switching itself off at this moment, which is as good.
    let _ = qemu.kill();
    qemu.wait().with_context(|| format!("cannot wait for {QEMU}"))?;
    drop(lines);
    // It ends with the console, whose other end is gone.
    let _ = reader.join();
    Ok(End { verdicts, cut_short })
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    Test(&'a str, bool),
    End,
}

fn verdict(line: &str) -> Option<Verdict<'_>> {
    let (_, verdict) = line.split_once("VERDICT ")?;
    match verdict.split_once(' ') {
        Some(("passed", name)) => Some(Verdict::Test(name, true)),
        Some(("failed", name)) => Some(Verdict::Test(name, false)),
        _ => (verdict == "end").then_some(Verdict::End),
    }
}

/// The line without what a console would act on.
fn plain(line: &str) -> String {
    line.chars().filter(|char| !char.is_control() || *char == '\t').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_wherever_the_console_puts_them() {
        let test = Verdict::Test("a::b", true);
        assert_eq!(verdict("VERDICT passed a::b"), Some(test));
        assert_eq!(verdict("\x1b[0mVERDICT failed a"), Some(Verdict::Test("a", false)));
        assert_eq!(verdict("VERDICT end"), Some(Verdict::End));
        assert_eq!(verdict("VERDICT en"), None);
        assert_eq!(verdict("test a ... ok"), None);
    }
}
