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
//! A program started this way gains no rights from a set-user-id bit.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Class;
use super::process::{Process, ProcessError};

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
        // SAFETY: one system call, which is safe between fork and exec; it allocates nothing.
        unsafe { command.pre_exec(|| ptrace::traceme().map_err(io::Error::from)) };
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
        let options = ptrace::Options::PTRACE_O_EXITKILL
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACEEXEC;
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
        mut probe: impl FnMut(&Process) -> Result<(), E>,
    ) -> Result<Running, E> {
        let mut process = self.process()?;
        let mut entry = self.plant(&process)?;
        probe(&process)?;
        let mut signal = 0;
        loop {
            self.resume(libc::PTRACE_SYSCALL, signal)?;
            signal = 0;
            match self.wait()? {
                Stop::Syscall => {
                    let registers = self.registers()?;
                    if machine::has_mapped_code(&registers) {
                        probe(&process)?;
                    }
                }
                Stop::Exec => {
                    // Another image in the same process: its entry is elsewhere.
                    process = self.process()?;
                    entry = self.plant(&process)?;
                    probe(&process)?;
                }
                Stop::Signal(libc::SIGTRAP) if self.is_at(&entry)? => break,
                // Nobody is there yet who could continue it.
                Stop::Signal(libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {}
                Stop::Signal(number) => signal = number,
            }
        }
        self.unplant(&entry)?;
        probe(&process)?;
        self.resume(libc::PTRACE_DETACH, 0)?;
        let child = self.child.take();
        child
            .map(|child| Running { child, process })
            .ok_or_else(|| self.refused("detach", nix::Error::ESRCH).into())
    }

    fn process(&self) -> Result<Process, LaunchError> {
        Ok(Process::open(self.pid.as_raw().cast_unsigned())?)
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

    /// Puts a breakpoint at the program's entry.
    fn plant(&self, process: &Process) -> Result<Breakpoint, LaunchError> {
        let addr = process.auxv(libc::AT_ENTRY)?;
        let addr = addr.ok_or_else(|| LaunchError::NoEntry { program: self.name() })?;
        let word = ptrace::read(self.pid, addr as ptrace::AddressType);
        let word = word.map_err(|errno| self.refused("read at the entry", errno))?;
        self.write(addr, machine::with_breakpoint(word))?;
        Ok(Breakpoint { addr, word })
    }

    /// Takes the breakpoint away, before whose instruction the program then stands.
    fn unplant(&self, breakpoint: &Breakpoint) -> Result<(), LaunchError> {
        self.write(breakpoint.addr, breakpoint.word)?;
        let registers = machine::before_breakpoint(self.registers()?, breakpoint.addr);
        ptrace::setregs(self.pid, registers).map_err(|errno| self.refused("set registers", errno))
    }

    fn is_at(&self, breakpoint: &Breakpoint) -> Result<bool, LaunchError> {
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

/// A breakpoint, and the word that it covers.
struct Breakpoint {
    addr: u64,
    word: libc::c_long,
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::target::allocators::Allocators;

    fn held(program: &str, args: &[&str]) -> Result<Held, LaunchError> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Held::start(command)
    }

    #[test]
    fn a_program_begins_only_when_its_allocator_was_seen() {
        let mut allocators = Allocators::default();
        let mut families = Vec::new();
        let running = held("echo", &["hello"])
            .expect("echo starts")
            .run_to_entry(|process| -> Result<(), LaunchError> {
                for object in allocators.find_new(process)? {
                    families.push(object.family_name);
                }
                Ok(())
            })
            .expect("echo runs");
        let output = running.child.wait_with_output().expect("echo ends");
        assert!(output.status.success());
        assert_eq!(output.stdout, b"hello\n");
        assert!(families.iter().any(|name| name.starts_with("libc.so")), "{families:?}");
        assert!(running.process.has_ended());
    }

    #[test]
    fn no_trace_of_it_remains() {
        let running = held("cat", &["/proc/self/status"])
            .expect("cat starts")
            .run_to_entry(|_| Ok::<(), LaunchError>(()))
            .expect("cat runs");
        let output = running.child.wait_with_output().expect("cat ends");
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let error = held("/no/such/program", &[]).expect_err("it is not there");
        assert!(matches!(error, LaunchError::NotFound { .. }), "{error}");
        let error = held("/etc/passwd", &[]).expect_err("it is no program");
        assert!(matches!(error, LaunchError::Exec { .. }), "{error}");
        assert_eq!(error.class(), Class::Target);
    }

    #[test]
    fn a_probe_that_fails_ends_the_program() {
        let held = held("sleep", &["1000"]).expect("sleep starts");
        let pid = held.pid.as_raw().cast_unsigned();
        let error = held
            .run_to_entry(|_| Err::<(), _>(LaunchError::NoEntry { program: "sleep".to_owned() }));
        assert!(matches!(error, Err(LaunchError::NoEntry { .. })));
        assert!(matches!(Process::open(pid), Err(ProcessError::NoSuchProcess { .. })));
    }

    #[test]
    fn a_signal_that_comes_meanwhile_is_delivered() {
        let held = held("sleep", &["1000"]).expect("sleep starts");
        let pid = held.pid;
        let error = held.run_to_entry(|_| {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
            Ok::<(), LaunchError>(())
        });
        match error {
            Err(LaunchError::Ended { status, .. }) => {
                assert_eq!(status.signal(), Some(libc::SIGTERM));
            }
            other => panic!("{other:?}"),
        }
    }
}
