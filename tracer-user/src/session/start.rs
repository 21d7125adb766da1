//! Programs that the tool starts: held until their probes are in place, ended when told.

use std::{
    ffi::OsString,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{self, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::unix::pipe,
    runtime::Runtime,
};

use super::{TraceOptions, Tracer, drive::Drive, ending::Interrupts};
use crate::target::{
    launch::{Held, Stage},
    process::Process,
};

/// Where a program's standard streams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// Where the tool's own go.
    Inherited,
    /// Output and errors come to the tool.
    Output,
    /// The tool writes its input and reads its output.
    Conversation,
}

/// Longest that a program is given to end by itself.
const FAREWELL: Duration = Duration::from_secs(5);

/// A program that was started here. Dropping it ends the program, with the process group
/// that it leads.
pub(super) struct Child {
    child: process::Child,
    ended: Option<ExitStatus>,
    /// Does it lead a process group of its own?
    leads_group: bool,
}

/// Starts a program under trace. Its first own instruction runs when this is done.
///
/// # Errors
/// When it cannot be started or traced; it does not run then.
pub(super) fn start(
    words: &[OsString],
    streams: Streams,
    options: &TraceOptions,
) -> anyhow::Result<(Tracer, Child)> {
    let [program, args @ ..] = words else { bail!("no program was given") };
    let mut command = Command::new(program);
    command.args(args);
    match streams {
        Streams::Inherited => {}
        Streams::Output => {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.process_group(0);
        }
        Streams::Conversation => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.process_group(0);
        }
    }
    let held = Held::start(command)?;
    let mut tracer = None;
    let running = held.run_to_entry(|process, stage| {
        let tracer = match &mut tracer {
            Some(tracer) => tracer,
            None => tracer.insert(Tracer::load(Process::open_started(process.pid)?, options)?),
        };
        tracer.attach_at_start()?;
        if stage == Stage::Entry { tracer.begins_now() } else { Ok(()) }
    })?;
    let tracer = tracer.context("the program was never seen to stop")?;
    let leads_group = streams != Streams::Inherited;
    let child = Child { child: running.child, ended: None, leads_group };
    tracer.has_allocator()?;
    tracer.warn_of_missing();
    Ok((tracer, child))
}

/// The runtime of a session. One thread: the tool is to take as little from the target's
/// machine as it can. From here on a request to stop is answered when the session comes to it, and
/// does not end the tool: made before anything is attached.
pub(super) fn runtime() -> anyhow::Result<(Runtime, Interrupts)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the tool's event loop")?;
    let entered = runtime.enter();
    let interrupts = Interrupts::listen().context("cannot listen for signals")?;
    drop(entered);
    Ok((runtime, interrupts))
}

/// A conversation in lines over these two ends.
pub(super) fn lines(stdin: OwnedFd, stdout: OwnedFd) -> anyhow::Result<Drive> {
    let stdin = pipe::Sender::from_owned_fd(stdin).context("cannot write to the target")?;
    let stdout = pipe::Receiver::from_owned_fd(stdout).context("cannot read the target")?;
    Ok(Drive::Lines { stdin, stdout: BufReader::new(stdout).lines() })
}

impl Child {
    /// Both output streams, of a program that was started with [`Streams::Output`].
    pub(super) fn take_output(&mut self) -> Option<[OwnedFd; 2]> {
        let stderr = self.child.stderr.take()?;
        let stdout = self.child.stdout.take()?;
        Some([stdout.into(), stderr.into()])
    }

    /// Input and output, of a program that was started with [`Streams::Conversation`].
    pub(super) fn take_conversation(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        let stdin = self.child.stdin.take()?;
        let stdout = self.child.stdout.take()?;
        Some((stdin.into(), stdout.into()))
    }

    /// Waits for its end and answers how it ended.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        self.ended
    }

    /// Lets the program go on by itself.
    pub(super) fn release(self) {
        std::mem::forget(self);
    }

    fn signal(&self, signal: Signal) {
        let Ok(pid) = i32::try_from(self.child.id()) else { return };
        // A group has the number of the process that leads it. That it is gone is no error.
        let _ = kill(Pid::from_raw(if self.leads_group { -pid } else { pid }), signal);
    }
}

impl Drop for Child {
    /// Asks the program to end, and ends it when it has not done so in time. Its group is meant as
    /// well, so that a wrapper does not leave the program behind.
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.signal(Signal::SIGKILL);
        self.wait();
    }
}
