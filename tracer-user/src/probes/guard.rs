//! A process that watches over the processes that are stopped for their probes.
//!
//! The kernel programs stop a process, the tool continues it. Should the tool be killed in
//! between, or hang, nobody would; so a second process, in a session of its own, reads the same
//! map. It continues whoever waits too long, and everybody when the tool is gone.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use aya::maps::{HashMap, Map, MapData};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal, kill},
        time::TimeValLike as _,
    },
    time::{ClockId, clock_gettime},
    unistd::{Pid, getppid, setsid},
};
use tracer_common::decode::Hold;

use crate::target::process::{Status, has_stopped_thread};

/// Longest that a process stays stopped.
pub const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// Pause between two looks.
const TICK_MS: u16 = 200;
/// The same while the tool dies.
const ALONE_MS: u16 = 5;

/// The word that makes the tool this process instead.
pub const WORD: &str = "hold-guard";

/// The other process, as long as the tool lives.
pub struct Guard {
    // Its standard input, which is closed when this is dropped or when the tool dies.
    child: Child,
}

impl Guard {
    /// Starts it for this map.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(held: BorrowedFd<'_>) -> io::Result<Self> {
        let held = held.try_clone_to_owned()?;
        let number = held.as_raw_fd();
        let mut command = Command::new("/proc/self/exe");
        command.arg(WORD).arg(number.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let inherit = move || {
            // SAFETY: clears the flag of a descriptor that stays open until the exec.
            match unsafe { libc::fcntl(number, libc::F_SETFD, 0) } {
                0 => setsid().map(drop).map_err(io::Error::from),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: two system calls, which are safe between fork and exec; nothing is allocated.
        unsafe { command.pre_exec(inherit) };
        Ok(Self { child: command.spawn()? })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut input) = self.child.stdin.take() {
            // Nobody can be stopped any more: it need not wait for this process's end.
            let _ = input.write_all(b"\n");
        }
        let _ = self.child.wait();
    }
}

/// What the other process does: continues who is held too long, until it is told that nobody will
/// be any more, or until the tool has ended; then everybody.
///
/// # Errors
/// When the number is not that of the map.
pub fn watch(number: RawFd) -> anyhow::Result<()> {
    // Ctrl-C and the like are for the tool.
    SigSet::all().thread_block()?;
    anyhow::ensure!(number > 2, "{WORD} is for outlive itself");
    // SAFETY: the descriptor was passed for this purpose and belongs to nobody else here; should
    // it be something else, the kernel says so below.
    let held = unsafe { OwnedFd::from_raw_fd(number) };
    let mut held = HashMap::<_, u64, u64>::try_from(Map::HashMap(MapData::from_fd(held)?))?;
    let tool = getppid();
    let mut input = io::stdin();
    let (mut is_alone, mut is_over) = (false, false);
    while !is_over {
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let pause = if is_alone { ALONE_MS } else { TICK_MS };
        if poll(&mut fds, PollTimeout::from(pause)).is_ok_and(|n| n > 0) {
            is_over = input.read(&mut [0]).is_ok_and(|n_read| n_read > 0);
            is_alone = !is_over;
            thread::sleep(Duration::from_millis(ALONE_MS.into()));
        }
        // A tool that was killed may take seconds to end: threads of it wait for the kernel to
        // remove breakpoints, and the programs stop processes for as long. Nobody looks after
        // those.
        let tool_id = u32::try_from(tool.as_raw())?;
        is_alone |= Status::read(tool_id).is_ok_and(|now| now.is_over());
        is_over |= getppid() != tool;
        let longest = u64::try_from(LONGEST_HOLD.as_nanos())?;
        let limit = monotonic_now().saturating_sub(longest);
        let waiting: Vec<u64> = held
            .iter()
            .filter_map(Result::ok)
            .filter(|(key, since)| {
                *since < limit || (is_alone || is_over) && stands_still(Hold(*key).process())
            })
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            continue_process(Hold(key).process());
            // Gone already when the tool was faster.
            let _ = held.remove(&key);
        }
        // Who is about to stop is continued when they have.
        is_over &= held.keys().next().is_none();
    }
    Ok(())
}

/// Has the signal come that stops it? One that continues it must not come before. To who has ended
/// none comes.
fn stands_still(process: u32) -> bool {
    let has_come = |now: Status| now.is_stopped() || now.stop_pending || now.is_over();
    Status::read(process).map_or(true, has_come) || has_stopped_thread(process)
}

/// The clock by which the kernel programs tell since when a process waits, in nanoseconds.
pub(super) fn monotonic_now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.num_nanoseconds());
    u64::try_from(now).unwrap_or(0)
}

/// Lets a stopped process go on, unless somebody else wants it to stand still. That it is gone is
/// no error.
pub(super) fn continue_process(process: u32) {
    let Ok(pid @ 1..) = i32::try_from(process) else { return };
    let pid = Pid::from_raw(pid);
    // Who stands still takes no further stop; it waits, and is forgotten when they go on.
    let stays = Status::read(process).is_ok_and(|now| now.is_stopped() && now.stop_asked);
    let _ = kill(pid, Signal::SIGCONT);
    if stays {
        let _ = kill(pid, Signal::SIGSTOP);
    }
}
