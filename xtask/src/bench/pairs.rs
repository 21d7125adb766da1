//! The loop that is measured: pairs of malloc and free on one thread, under some frames.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cmd::{CommandExt as _, Workspace, command, shown};

/// Length of one measurement.
const SECONDS: &str = "1";
/// Every tracer is attached within this time.
const TO_ATTACH: Duration = Duration::from_secs(3);

/// A build of the loop, and how deep it is to be.
pub(super) struct Pairs {
    program: PathBuf,
    depth: u32,
}

impl Pairs {
    /// Builds it into `dir`, with frame pointers or as distributions build programs.
    pub(super) fn build(workspace: &Workspace, dir: &Path, keeps_frames: bool) -> Result<Self> {
        let (name, flag) = if keeps_frames {
            ("pairs", "-fno-omit-frame-pointer")
        } else {
            ("pairs-without-frame-pointers", "-fomit-frame-pointer")
        };
        let program = dir.join(name);
        command("cc")
            .args(["-O1", "-fno-builtin", flag, "-o"])
            .args([&program, &workspace.root.join("xtask/src/bench/pairs.c")])
            .run()?;
        Ok(Self { program, depth: 0 })
    }

    /// The same, under this many frames more.
    pub(super) fn under(&self, depth: u32) -> Self {
        Self { program: self.program.clone(), depth }
    }

    /// Nanoseconds of the thread per pair while nobody looks.
    pub(super) fn bare(&self) -> Result<f64> {
        Running::start(self)?.measure()
    }

    /// Nanoseconds of the thread per pair while the tracer that `tracer` makes watches it.
    pub(super) fn traced(&self, tracer: impl FnOnce(u32) -> Command) -> Result<f64> {
        self.traced_into(tracer, Stdio::null())
    }

    /// As [`Pairs::traced`], with the tracer's messages kept in a file.
    pub(super) fn logged(
        &self,
        tracer: impl FnOnce(u32) -> Command,
        messages: &Path,
    ) -> Result<f64> {
        let log = File::create(messages).with_context(|| messages.display().to_string())?;
        self.traced_into(tracer, Stdio::from(log))
    }

    fn traced_into(&self, tracer: impl FnOnce(u32) -> Command, messages: Stdio) -> Result<f64> {
        let mut running = Running::start(self)?;
        let mut command = tracer(running.child.id());
        command.stdout(Stdio::null()).stderr(messages);
        let child = command.spawn().with_context(|| shown(&command))?;
        let mut tracer = Ended { child, shown: shown(&command) };
        sleep(TO_ATTACH);
        let early = tracer.child.try_wait()?;
        ensure!(early.is_none(), "the tracer ended early: {}", tracer.shown);
        let ns = running.measure();
        drop(tracer);
        ns
    }
}

/// The middle one of several measurements.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The loop, waiting for its turn.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(pairs: &Pairs) -> Result<Self> {
        let mut command = Command::new(&pairs.program);
        command.arg(SECONDS).arg(pairs.depth.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| shown(&command))?;
        let stdin = child.stdin.take().context("stdin is a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let mut running = Self { child, stdin, stdout };
        ensure!(running.line()? == "ready", "the loop did not start");
        Ok(running)
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

impl Drop for Running {
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
