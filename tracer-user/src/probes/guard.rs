//! A process that watches over the targets, in case the tool is killed.
//!
//! The kernel programs stop a process, the tool continues it. Should the tool be killed in
//! between, or hang, nobody would; so a second process, in a session of its own, reads the same
//! map. It continues whoever waits too long, and everybody when the tool is gone. Then it takes out
//! the breakpoints that the tool could not.

use std::{
    fs::File,
    io,
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
        socket::{AddressFamily, SockFlag, SockType, socketpair},
        time::TimeValLike as _,
    },
    time::{ClockId, clock_gettime},
    unistd::{Pid, getppid, setsid},
};
use tracer_common::decode::Hold;

use super::{
    leftovers::{Leftovers, News, Told, tell_over},
    undisturbed::Undisturbed,
};
use crate::target::process::{Status, has_stopped_thread, pidfd_open};

/// Longest that a process stays stopped.
pub const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// Pause between two looks.
const TICK_MS: u16 = 200;
/// The same while the tool dies.
const ALONE_MS: u16 = 5;

/// The word that makes the tool this process instead.
pub const WORD: &str = "target-guard";

/// The other process, as long as the tool lives.
pub struct Guard {
    child: Child,
    // The other end is its standard input. Closed when this is dropped or when the tool dies.
    socket: OwnedFd,
    told: Told,
}

impl Guard {
    /// Starts it for this map.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(held: BorrowedFd<'_>) -> io::Result<Self> {
        let held = held.try_clone_to_owned()?;
        let number = held.as_raw_fd();
        let (socket, input) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(WORD).arg(number.to_string());
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        let inherit = move || {
            // SAFETY: clears the flag of a descriptor that stays open until the exec.
            match unsafe { libc::fcntl(number, libc::F_SETFD, 0) } {
                0 => setsid().map(drop).map_err(io::Error::from),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: two system calls, which are safe between fork and exec; nothing is allocated.
        unsafe { command.pre_exec(inherit) };
        Ok(Self { child: command.spawn()?, socket, told: Told::default() })
    }

    /// Tells it of sites that are about to get a probe.
    ///
    /// # Errors
    /// When it is gone: then nobody would take breakpoints out should the tool be killed.
    pub fn tell(&mut self, file: &File, offsets: impl Iterator<Item = u64>) -> io::Result<()> {
        self.told.tell(&self.socket, file, offsets)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Nobody can be stopped any more, and no breakpoint is left: it need not wait for this
        // process's end.
        let _ = tell_over(&self.socket);
        let _ = self.child.wait();
    }
}

/// What the other process does: continues who is held too long, until it is told that nobody will
/// be any more, or until the tool has ended; then everybody, and takes out what breakpoints the
/// tool left.
///
/// # Errors
/// When the number is not that of the map, or when breakpoints cannot be taken out.
pub fn watch(number: RawFd) -> anyhow::Result<()> {
    // Ctrl-C and the like are for the tool.
    SigSet::all().thread_block()?;
    anyhow::ensure!(number > 2, "{WORD} is for outlive itself");
    // SAFETY: the descriptor was passed for this purpose and belongs to nobody else here; should
    // it be something else, the kernel says so below.
    let held = unsafe { OwnedFd::from_raw_fd(number) };
    let held = HashMap::<_, u64, u64>::try_from(Map::HashMap(MapData::from_fd(held)?))?;
    // It sleeps nearly always, and works for microseconds.
    let mut held = Undisturbed::new(held);
    let tool = getppid();
    let tool_id = u32::try_from(tool.as_raw())?;
    // None when it has ended already.
    let tool_end = pidfd_open(tool_id).ok().filter(|_| getppid() == tool);
    let input = io::stdin();
    let mut leftovers = Leftovers::default();
    let (mut is_alone, mut is_told, mut is_over) = (false, false, false);
    while !is_over {
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let pause = if is_alone { ALONE_MS } else { TICK_MS };
        if poll(&mut fds, PollTimeout::from(pause)).is_ok_and(|n| n > 0) {
            match leftovers.receive(&input) {
                Ok(News::Sites) => continue,
                Ok(News::Over) => is_told = true,
                Ok(News::Closed) => is_alone = true,
                // Sites that did not arrive are not seen to; nothing else depends on them.
                Err(_) => {}
            }
            thread::sleep(Duration::from_millis(ALONE_MS.into()));
        }
        is_over = is_told;
        // A tool that was killed may take seconds to end: threads of it wait for the kernel to
        // remove breakpoints, and the programs stop processes for as long. Nobody looks after
        // those.
        is_alone |= Status::read(tool_id).is_ok_and(|now| now.is_over());
        // Not when it has another parent: that comes once each of its threads is on its way out, and
        // the last of them may still have the programs' links to close.
        is_over |= tool_end.as_ref().is_none_or(has_ended);
        if is_over {
            let_programs_end();
        }
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
    drop(held);
    if is_told {
        return Ok(());
    }
    // Only what none of its threads can be removing any more is a leftover.
    if let Some(tool_end) = tool_end {
        let mut fds = [PollFd::new(tool_end.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE)?;
    }
    Ok(leftovers.take_out()?)
}

/// Has the process ended, with all of its threads?
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// Waits for programs that began before their links were closed, which may stop a process yet: they
/// are readers of RCU.
fn let_programs_end() {
    // SAFETY: takes numbers. It waits for every reader of RCU, on every processor.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if status != 0 {
        // Kernels with processors of their own for real-time work refuse it.
        thread::sleep(Duration::from_millis(TICK_MS.into()));
    }
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
