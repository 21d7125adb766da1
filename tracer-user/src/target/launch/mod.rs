//! Starts a program and holds it until probes are in place.
//!
//! The program is traced with ptrace from its `exec` up to its first own instruction. Each
//! time it has mapped code from a file it stands still, so that an allocator is probed
//! before a constructor can call it. Then it is let go and nothing of ptrace remains.
//!
//! ptrace belongs to the thread that started the program: everything here happens on the
//! calling thread, which is blocked meanwhile. Should the tool die while it holds the
//! program, the program, which has done nothing yet, is killed.
//!
//! A program that gains rights when it is executed, by a set-user-id bit or capabilities of its
//! file, gains them here too when the tool's user is root. Where it is the tool's file that holds
//! the capabilities, such a program is refused, and killed before it has done anything.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Class;
use super::mappings::FileId;
use super::process::{Process, ProcessError};

mod loader;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

/// Why a program could not be started, or not be held.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program.
    #[error("no program {program} was found; give its path, or check PATH")]
    NotFound {
        /// Its name, as asked for.
        program: String,
    },
    /// The kernel would not run it.
    #[error("{program} cannot be run: {source}; check that it is a program and may be executed")]
    Exec {
        /// Its name, as asked for.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// It ended before its first own instruction.
    #[error(
        "{program} ended before it began ({status}); run it without outlive to see its own message"
    )]
    Ended {
        /// Its name, as asked for.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// It cannot be traced.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A step of ptrace was refused.
    #[error("{program} cannot be held ({step}: {source}); is ptrace allowed in this container?")]
    Trace {
        /// Its name, as asked for.
        program: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program does not say where it begins.
    #[error("{program} has no entry point in its auxiliary vector; it cannot be held")]
    NoEntry {
        /// Its name, as asked for.
        program: String,
    },
}

impl LaunchError {
    /// Whose fault it is.
    pub const fn class(&self) -> Class {
        match self {
            Self::NotFound { .. } | Self::Exec { .. } | Self::Ended { .. } => Class::Target,
            Self::Process(error) => error.class(),
            Self::Trace { .. } | Self::NoEntry { .. } => Class::Environment,
        }
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process, with the pipes that were asked for. Must be waited for.
    pub child: Child,
    /// The same process, as a target.
    pub process: Process,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its loader maps what it needs.
    Loading,
    /// Its next instruction is its first own one.
    Entry,
}

/// A program that has been loaded and has not begun. Killed when dropped.
#[derive(Debug)]
pub struct Held {
    program: OsString,
    /// Taken when it is let go, or when it ended.
    child: Option<Child>,
    pid: Pid,
}

/// What the held program stopped for.
enum Stop {
    /// At the entry or the return of a system call.
    Syscall,
    /// It replaced its image.
    Exec,
    /// It made a copy of itself, which is traced as well.
    Fork,
    /// A signal is about to be delivered.
    Signal(i32),
}

impl Held {
    /// Starts the program and stops it before its first instruction, its loader's included.
    ///
    /// # Errors
    /// When it cannot be found, executed or traced.
    pub fn start(mut command: Command) -> Result<Self, LaunchError> {
        let program = command.get_program().to_owned();
        let ask = || {
            // A signal would stop the traced child before its exec, for which `spawn` waits.
            // Only the one that the exec itself sends may come.
            let mut signals = SigSet::all();
            signals.remove(Signal::SIGTRAP);
            signals.thread_block()?;
            Ok(ptrace::traceme()?)
        };
        // SAFETY: two system calls, which are safe between fork and exec; nothing is allocated.
        unsafe { command.pre_exec(ask) };
        let child = command.spawn().map_err(|source| {
            let program = program.to_string_lossy().into_owned();
            match source.kind() {
                io::ErrorKind::NotFound => LaunchError::NotFound { program },
                _ => LaunchError::Exec { program, source },
            }
        })?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let mut held = Self { program, child: Some(child), pid };
        // The stop of the exec itself.
        held.wait()?;
        held.unblock_signals()?;
        let options = ptrace::Options::PTRACE_O_EXITKILL
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_TRACEFORK;
        ptrace::setoptions(pid, options).map_err(|errno| held.refused("options", errno))?;
        Ok(held)
    }

    /// Lets the program's loader work and calls `probe` when new code may be there: once at
    /// the start, whenever code of a file was mapped, and at the program's entry. Then the
    /// program runs.
    ///
    /// # Errors
    /// What `probe` said, or why the program did not get to its entry. It is killed then.
    pub fn run_to_entry<E: From<LaunchError>>(
        mut self,
        mut probe: impl FnMut(&Process, Stage) -> Result<(), E>,
    ) -> Result<Running, E> {
        let mut process = self.process()?;
        let mut entry = self.entry(&process)?;
        probe(&process, Stage::Loading)?;
        let mut signal = 0;
        loop {
            self.resume(libc::PTRACE_SYSCALL, signal)?;
            signal = 0;
            match self.wait()? {
                Stop::Syscall => {
                    let registers = self.registers()?;
                    if machine::has_mapped_code(&registers) {
                        self.look_for_program(&process, &mut entry)?;
                        probe(&process, Stage::Loading)?;
                    }
                }
                Stop::Exec => {
                    // Another image in the same process: its entry is elsewhere.
                    process = self.process()?;
                    entry = self.entry(&process)?;
                    probe(&process, Stage::Loading)?;
                }
                Stop::Fork => self.let_copy_go(&entry)?,
                Stop::Signal(libc::SIGTRAP) if self.is_at(&entry)? => break,
                // Nobody is there yet who could continue it.
                Stop::Signal(libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {}
                Stop::Signal(number) => signal = number,
            }
        }
        self.unplant(&entry)?;
        probe(&process, Stage::Entry)?;
        self.resume(libc::PTRACE_DETACH, 0)?;
        let child = self.child.take();
        child
            .map(|child| Running { child, process })
            .ok_or_else(|| self.refused("detach", nix::Error::ESRCH).into())
    }

    fn process(&self) -> Result<Process, LaunchError> {
        Ok(Process::open_started(self.pid.as_raw().cast_unsigned())?)
    }

    /// Waits for the next stop.
    fn wait(&mut self) -> Result<Stop, LaunchError> {
        loop {
            let mut status = 0;
            // Not nix's: it has no word for real-time signals.
            // SAFETY: `status` is a place for the answer.
            let waited = unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, 0) };
            if waited < 0 {
                match nix::Error::last() {
                    nix::Error::EINTR => continue,
                    errno => return Err(self.refused("wait", errno)),
                }
            }
            if libc::WIFSTOPPED(status) {
                const SYSCALL: i32 = libc::SIGTRAP | 0x80;
                return Ok(match (libc::WSTOPSIG(status), status >> 16) {
                    (SYSCALL, _) => Stop::Syscall,
                    (_, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
                    (_, libc::PTRACE_EVENT_FORK) => Stop::Fork,
                    (number, _) => Stop::Signal(number),
                });
            }
            // Ended, and by this wait gone: nothing is left to kill.
            self.child = None;
            let status = ExitStatus::from_raw(status);
            return Err(LaunchError::Ended { program: self.name(), status });
        }
    }

    fn resume(&self, request: libc::c_uint, signal: i32) -> Result<(), LaunchError> {
        // Not nix's: it has no word for real-time signals.
        // SAFETY: neither request reads or writes our memory.
        let answer =
            unsafe { libc::ptrace(request, self.pid.as_raw(), 0, libc::c_long::from(signal)) };
        match answer {
            -1 if nix::Error::last() == nix::Error::ESRCH => Ok(()), // Killed; `wait` tells.
            -1 => Err(self.refused("continue", nix::Error::last())),
            _ => Ok(()),
        }
    }

    /// What `spawn` promises a program: no signal is blocked.
    fn unblock_signals(&self) -> Result<(), LaunchError> {
        let none: u64 = 0;
        // SAFETY: reads eight bytes, which is the size of the kernel's signal set, at `none`.
        let answer = unsafe {
            libc::ptrace(
                libc::PTRACE_SETSIGMASK,
                self.pid.as_raw(),
                size_of::<u64>(),
                &raw const none,
            )
        };
        if answer < 0 { Err(self.refused("signal mask", nix::Error::last())) } else { Ok(()) }
    }

    /// A constructor forked: the copy has our breakpoint and must not run into it.
    fn let_copy_go(&self, entry: &Entry) -> Result<(), LaunchError> {
        let refused = |errno| self.refused("let a forked copy go", errno);
        let copy = ptrace::getevent(self.pid).map_err(refused)?;
        let copy = Pid::from_raw(i32::try_from(copy).map_err(|_| refused(nix::Error::ERANGE))?);
        // It begins with a stop. Should it be killed meanwhile, nothing is left to do.
        match waitpid(copy, Some(WaitPidFlag::__WALL)).map_err(refused)? {
            WaitStatus::Stopped(..) => {}
            _ => return Ok(()),
        }
        if let Entry::Known(Breakpoint { addr, word }) = *entry {
            ptrace::write(copy, addr as ptrace::AddressType, word).map_err(refused)?;
        }
        ptrace::detach(copy, None).map_err(refused)
    }

    /// Where the image begins that was just executed: at its entry is a breakpoint from here on.
    fn entry(&self, process: &Process) -> Result<Entry, LaunchError> {
        let addr = process.auxv(libc::AT_ENTRY)?;
        let addr = addr.ok_or_else(|| LaunchError::NoEntry { program: self.name() })?;
        match loader::started(process, addr)? {
            Some(loader) => Ok(Entry::BehindLoader(loader)),
            None => self.plant(addr).map(Entry::Known),
        }
    }

    /// Code was mapped: by a loader that was started itself, perhaps the program's.
    fn look_for_program(&self, process: &Process, entry: &mut Entry) -> Result<(), LaunchError> {
        if let Entry::BehindLoader(loader) = *entry
            && let Some(addr) = loader::entry_of_program(process, loader)?
        {
            *entry = Entry::Known(self.plant(addr)?);
        }
        Ok(())
    }

    /// Puts a breakpoint at the program's entry.
    fn plant(&self, addr: u64) -> Result<Breakpoint, LaunchError> {
        let word = ptrace::read(self.pid, addr as ptrace::AddressType);
        let word = word.map_err(|errno| self.refused("read at the entry", errno))?;
        self.write(addr, machine::with_breakpoint(word))?;
        Ok(Breakpoint { addr, word })
    }

    /// Takes the breakpoint away, before whose instruction the program then stands.
    fn unplant(&self, entry: &Entry) -> Result<(), LaunchError> {
        let Entry::Known(breakpoint) = entry else { return Ok(()) };
        self.write(breakpoint.addr, breakpoint.word)?;
        let registers = machine::before_breakpoint(self.registers()?, breakpoint.addr);
        ptrace::setregs(self.pid, registers).map_err(|errno| self.refused("set registers", errno))
    }

    fn is_at(&self, entry: &Entry) -> Result<bool, LaunchError> {
        let Entry::Known(breakpoint) = entry else { return Ok(false) };
        Ok(machine::is_behind_breakpoint(&self.registers()?, breakpoint.addr))
    }

    fn registers(&self) -> Result<libc::user_regs_struct, LaunchError> {
        ptrace::getregs(self.pid).map_err(|errno| self.refused("get registers", errno))
    }

    fn write(&self, addr: u64, word: libc::c_long) -> Result<(), LaunchError> {
        ptrace::write(self.pid, addr as ptrace::AddressType, word)
            .map_err(|errno| self.refused("write at the entry", errno))
    }

    fn refused(&self, step: &'static str, errno: nix::Error) -> LaunchError {
        LaunchError::Trace { program: self.name(), step, source: errno.into() }
    }

    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; there is nobody to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where a program begins.
enum Entry {
    /// Where there is a breakpoint.
    Known(Breakpoint),
    /// In what the loader of this file is going to map.
    BehindLoader(FileId),
}

/// A breakpoint, and the word that it covers.
struct Breakpoint {
    addr: u64,
    word: libc::c_long,
}

#[cfg(test)]
mod tests;
