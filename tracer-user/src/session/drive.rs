//! Making one batch of work happen, and knowing when it is done.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::{
    io::{AsyncWriteExt as _, BufReader, Lines},
    net::unix::pipe,
};

/// How batches are driven.
pub(super) enum Drive {
    /// A command is one batch.
    Command {
        /// Its words, the program first.
        words: Vec<OsString>,
        /// The target, which the command is told.
        pid: u32,
    },
    /// The target runs a batch for each line that it reads, and says when it is done.
    Lines {
        /// Its standard input.
        stdin: pipe::Sender,
        /// Its standard output.
        stdout: Lines<BufReader<pipe::Receiver>>,
    },
}

/// Why a batch did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The command could not be started.
    #[error("cannot start the batch command {program}: {error}")]
    Start {
        /// Its first word.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The command did not succeed.
    #[error("the batch command {program} {}", ended(*status))]
    Failed {
        /// Its first word.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The target closed its standard output, or its input.
    #[error("the target stopped talking: it printed no line that starts with {awaited}")]
    Silent {
        /// The line that was awaited.
        awaited: &'static str,
    },
    /// It took too long.
    #[error("{what} took longer than {limit}; give it more with --timeout, or look why it hangs")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// The limit, as it is typed.
        limit: String,
    },
    /// The service's output ended before it said that it is ready.
    #[error("the service ended, or closed its output, before a line matched {pattern}")]
    NeverReady {
        /// The pattern.
        pattern: String,
    },
    /// The target is gone.
    #[error("the target ended{how}{too_early}")]
    TargetEnded {
        /// How, if it is known, with a leading blank.
        how: String,
        /// What it had not done by then, with a leading blank; empty once batches ran.
        too_early: &'static str,
    },
}

/// How a process ended, in words that follow its name.
pub(super) fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("was ended by {signal}"),
            Err(_) => format!("was ended by signal {number}"),
        },
        (None, None) => "ended".to_owned(),
    }
}

impl Drive {
    /// Waits until a target that is driven by lines says that it is ready. A command has
    /// nothing to wait for.
    ///
    /// # Errors
    /// When the target stops talking.
    pub(super) async fn ready(&mut self) -> Result<(), DriveError> {
        match self {
            Self::Command { .. } => Ok(()),
            Self::Lines { stdout, .. } => await_line(stdout, "READY").await,
        }
    }

    /// Runs one batch.
    ///
    /// # Errors
    /// When the command fails or the target stops talking.
    pub(super) async fn batch(&mut self, index: u32) -> Result<(), DriveError> {
        match self {
            Self::Command { words, pid } => command(words, *pid, index).await,
            Self::Lines { stdin, stdout } => {
                stdin.write_all(b"\n").await.map_err(|_| DriveError::Silent { awaited: "DONE" })?;
                await_line(stdout, "DONE").await
            }
        }
    }
}

async fn await_line(
    stdout: &mut Lines<BufReader<pipe::Receiver>>,
    awaited: &'static str,
) -> Result<(), DriveError> {
    // A line that is no text is not the one that is awaited, but no reason to stop either.
    loop {
        match stdout.next_line().await {
            Ok(Some(line)) if line.starts_with(awaited) => return Ok(()),
            Ok(Some(line)) => log::info!("the target prints: {}", line.escape_debug()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Ok(None) | Err(_) => return Err(DriveError::Silent { awaited }),
        }
    }
}

async fn command(words: &[OsString], pid: u32, index: u32) -> Result<(), DriveError> {
    let (program, args) = match words {
        [program, args @ ..] => (program.clone(), args),
        [] => (OsString::new(), &[][..]),
    };
    let name = || program.to_string_lossy().into_owned();
    // Standard output is for results; what the command prints is a message.
    let stdout = io::stderr();
    let stdout = std::os::fd::AsFd::as_fd(&stdout).try_clone_to_owned();
    let stdout = stdout.map_err(|error| DriveError::Start { program: name(), error })?;
    let mut child = tokio::process::Command::new(&program)
        .args(args)
        .env("OUTLIVE_PID", pid.to_string())
        .env("OUTLIVE_BATCH", index.to_string())
        .stdin(std::process::Stdio::null())
        .stdout(stdout)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| DriveError::Start { program: name(), error })?;
    let group = Group(child.id());
    let status =
        child.wait().await.map_err(|error| DriveError::Start { program: name(), error })?;
    std::mem::forget(group);
    if status.success() { Ok(()) } else { Err(DriveError::Failed { program: name(), status }) }
}

/// A command's process group, ended when the command is given up on.
struct Group(Option<u32>);

/// Longest that the end of a killed command is waited for.
const LAST_BREATH: Duration = Duration::from_secs(2);

impl Drop for Group {
    /// Waits for the command's end. One that has only just begun holds copies of the tool's descriptors
    /// until it executes its program. Closing the last one of a probe takes the probe out of the target,
    /// which the kernel does not do for a process that is being killed: the tool's must be the last.
    fn drop(&mut self) {
        let Some(id) = self.0.and_then(|id| i32::try_from(id).ok()) else { return };
        let leader = Pid::from_raw(id);
        let _ = killpg(leader, Signal::SIGKILL);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let deadline = Instant::now() + LAST_BREATH;
        while waitid(Id::Pid(leader), flags) == Ok(WaitStatus::StillAlive)
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
