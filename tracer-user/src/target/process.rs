//! One process, held by a pidfd so that a reused pid is never taken for it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

use super::Class;
use super::access::{self, Access};
use super::mappings::{self, Mappings};

mod status;

pub use self::status::Status;

/// Why a process cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Nothing has this pid.
    #[error("no process has the pid {pid}; check it with `ps`")]
    NoSuchProcess {
        /// The number that was asked for.
        pid: u32,
    },
    /// It has no memory of its own.
    #[error("process {pid} ({name}) is a kernel thread, which has no heap; name a program's pid")]
    KernelThread {
        /// The pid.
        pid: u32,
        /// Its command name.
        name: String,
    },
    /// It has ended and waits for its parent.
    #[error("process {pid} ({name}) has ended and only waits for its parent; name a running one")]
    Zombie {
        /// The pid.
        pid: u32,
        /// Its command name.
        name: String,
    },
    /// A 32-bit program.
    #[error("process {pid} runs the 32-bit program {exe}; outlive traces 64-bit programs only")]
    Bits32 {
        /// The pid.
        pid: u32,
        /// Its executable.
        exe: String,
    },
    /// Somebody else's process.
    #[error(
        "process {pid} belongs to user {owner} or holds rights of its own, and may not be \
         inspected by this user; run outlive as root (where root may not either, a security module \
         or a container forbids it)"
    )]
    Denied {
        /// The pid.
        pid: u32,
        /// Numeric id of its owner.
        owner: u32,
    },
    /// The pid is outlive's own.
    #[error("process {pid} is outlive itself; name the pid of another process")]
    Ourselves {
        /// The pid.
        pid: u32,
    },
    /// It ended while it was looked at.
    #[error("process {pid} ended while it was being looked at; start it again")]
    Ended {
        /// The pid.
        pid: u32,
    },
    /// The kernel did not answer.
    #[error("process {pid}: {what} cannot be read ({source}); is /proc mounted?")]
    Unreadable {
        /// The pid.
        pid: u32,
        /// The file, or the system call.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ProcessError {
    /// Whose fault it is.
    pub const fn class(&self) -> Class {
        match self {
            Self::NoSuchProcess { .. } | Self::Zombie { .. } | Self::Ended { .. } => Class::Target,
            Self::KernelThread { .. } | Self::Bits32 { .. } => Class::Environment,
            Self::Denied { .. } | Self::Unreadable { .. } => Class::Environment,
            Self::Ourselves { .. } => Class::Usage,
        }
    }
}

/// What of a process does not change while it lives, and a handle on it.
#[derive(Debug)]
pub struct Process {
    /// The process's id: that of its first thread.
    pub pid: u32,
    /// The thread's id that was asked for, when it was not the process's.
    pub asked_for_thread: Option<u32>,
    /// When it started, in clock ticks since boot. With the pid it names one process.
    pub start_time: u64,
    /// Path of its executable, as the kernel shows it.
    pub exe: PathBuf,
    /// Its arguments, the program's name first. Bytes of its own choosing.
    pub cmdline: Vec<OsString>,
    /// Effective user id of its owner.
    pub uid: u32,
    pidfd: OwnedFd,
}

impl Process {
    /// Opens the process that `id` belongs to; the id of one of its threads will do.
    ///
    /// # Errors
    /// When it cannot be a target, for one of the reasons of [`ProcessError`].
    pub fn open(id: u32) -> Result<Self, ProcessError> {
        Self::open_for(Access::Attach, id)
    }

    /// The same for a process that this one has started.
    ///
    /// # Errors
    /// As [`Process::open`].
    pub fn open_started(id: u32) -> Result<Self, ProcessError> {
        Self::open_for(Access::Started, id)
    }

    fn open_for(access: Access, id: u32) -> Result<Self, ProcessError> {
        let status = Status::read(id)?;
        let pid = status.tgid;
        if pid == std::process::id() {
            return Err(ProcessError::Ourselves { pid });
        }
        let pidfd = pidfd_open(pid)?;
        // Read again now that the pidfd holds the process: the pid cannot change hands.
        let status = Status::read(pid)?;
        let name = status.name.clone();
        match status.state {
            'Z' | 'X' => return Err(ProcessError::Zombie { pid, name }),
            _ if status.is_kernel_thread() => return Err(ProcessError::KernelThread { pid, name }),
            _ => {}
        }
        let uid = status.uid;
        let link = fs::read_link(format!("/proc/{pid}/exe"));
        let exe = link.map_err(|source| unreadable(pid, uid, "its executable", source))?;
        let process = Self {
            pid,
            asked_for_thread: (id != pid).then_some(id),
            start_time: start_time(pid)?,
            cmdline: cmdline(&read(pid, uid, "cmdline")?),
            exe,
            uid,
            pidfd,
        };
        process.check_access(access)?;
        process.check_class()?;
        process.check_alive()?;
        Ok(process)
    }

    /// Refuses what the tool's user could not trace by themselves. To be asked again when the
    /// process has replaced its program, which may have given it rights.
    ///
    /// # Errors
    /// [`ProcessError::Denied`] when they could not.
    pub fn check_access(&self, access: Access) -> Result<(), ProcessError> {
        match access::user_may(access, self.pid) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ProcessError::Denied { pid: self.pid, owner: self.uid }),
            Err(source) => Err(unreadable(self.pid, self.uid, "its access rights", source)),
        }
    }

    /// Refuses 32-bit programs: their executable says what they are.
    fn check_class(&self) -> Result<(), ProcessError> {
        use std::io::Read as _;

        let path = format!("/proc/{}/exe", self.pid);
        let mut head = [0; 5];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
        read.map_err(|source| unreadable(self.pid, self.uid, "its executable", source))?;
        if head == *b"\x7fELF\x01" {
            let exe = self.exe.display().to_string();
            return Err(ProcessError::Bits32 { pid: self.pid, exe });
        }
        Ok(())
    }

    /// Is it still there, not a zombie?
    ///
    /// # Errors
    /// [`ProcessError::Ended`] when it is not.
    pub fn check_alive(&self) -> Result<(), ProcessError> {
        if self.has_ended() { Err(ProcessError::Ended { pid: self.pid }) } else { Ok(()) }
    }

    /// Has the whole process ended?
    pub fn has_ended(&self) -> bool {
        self.wait_exit(Duration::ZERO)
    }

    /// Waits until the process has ended, `timeout` at the most. Did it?
    pub fn wait_exit(&self, timeout: Duration) -> bool {
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let mut poll =
            libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one initialised pollfd, and the count says one.
        let n_ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        n_ready == 1 && poll.revents & libc::POLLIN != 0
    }

    /// Path of the executable that it runs now, which an `exec` replaces.
    pub fn executes(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// The number under which `/proc` shows its memory: its id, or that of another thread when the
    /// first one has ended and others go on.
    pub fn shown_as(&self) -> u32 {
        let has_memory = |id: &u32| fs::read_link(format!("/proc/{id}/exe")).is_ok();
        if has_memory(&self.pid) {
            return self.pid;
        }
        threads(self.pid).find(has_memory).unwrap_or(self.pid)
    }

    /// What it maps now.
    ///
    /// # Errors
    /// When it has ended, or may not be inspected.
    pub fn mappings(&self) -> Result<Mappings, ProcessError> {
        let read = |id| Ok(mappings::parse(&read(id, self.uid, "maps")?));
        let mappings = read(self.pid)?;
        if mappings.list.is_empty() {
            self.check_alive()?;
            return read(self.shown_as());
        }
        Ok(mappings)
    }

    /// Its memory, to be read at its addresses.
    ///
    /// # Errors
    /// When it has ended, or may not be inspected.
    pub fn memory(&self) -> Result<fs::File, ProcessError> {
        let file = fs::File::open(format!("/proc/{}/mem", self.shown_as()));
        file.map_err(|source| unreadable(self.pid, self.uid, "its memory", source))
    }

    /// The ids of its threads. Empty when it has ended.
    pub fn threads(&self) -> Vec<u32> {
        threads(self.pid).collect()
    }

    /// What changes while it lives: state, threads, memory, seccomp.
    ///
    /// # Errors
    /// When it has ended.
    pub fn status(&self) -> Result<Status, ProcessError> {
        self.check_alive()?;
        Status::read(self.pid)
    }

    /// A value of its auxiliary vector, such as `AT_ENTRY`.
    ///
    /// # Errors
    /// When it has ended, or may not be inspected.
    pub fn auxv(&self, key: u64) -> Result<Option<u64>, ProcessError> {
        Ok(auxiliary(&read(self.pid, self.uid, "auxv")?, key))
    }
}

/// The value of this key in an auxiliary vector.
pub(crate) fn auxiliary(bytes: &[u8], key: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    let mut pairs = bytes.chunks_exact(16).map(|pair| pair.split_at(8));
    pairs.find(|(name, _)| word(name) == Some(key)).and_then(|(_, value)| word(value))
}

impl AsFd for Process {
    /// The pidfd; readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// The release of the running kernel, such as `6.12.5-amd64`.
///
/// # Errors
/// What `uname` says.
pub fn kernel_release() -> io::Result<OsString> {
    let bytes = fs::read("/proc/sys/kernel/osrelease")?;
    Ok(OsString::from_vec(bytes.trim_ascii_end().to_vec()))
}

/// The processes that `ancestor` has made, with those that they have, each with its parent.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn descendants(ancestor: u32) -> io::Result<Vec<(u32, u32)>> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        // Whoever ends meanwhile is nobody's child.
        .filter_map(|pid| Some((pid, Status::read(pid).ok()?.parent)))
        .collect();
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut family = vec![ancestor];
    while let Some(parent) = family.pop() {
        for (pid, _) in parents.iter().filter(|(_, of)| *of == parent) {
            found.push((*pid, parent));
            family.push(*pid);
        }
    }
    Ok(found)
}

/// Does a thread of this process stand still?
pub fn has_stopped_thread(pid: u32) -> bool {
    threads(pid).any(|thread| Status::read(thread).is_ok_and(|now| now.is_stopped()))
}

fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A descriptor that is readable when the whole process has ended.
///
/// # Errors
/// When there is no such process, or the kernel refuses.
pub fn pidfd_open(pid: u32) -> Result<OwnedFd, ProcessError> {
    let flags: libc::c_uint = 0;
    // SAFETY: two integers; the kernel checks both.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), flags) };
    if let Ok(fd) = i32::try_from(fd)
        && fd >= 0
    {
        // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match io::Error::last_os_error() {
        error if is_gone(&error) => Err(ProcessError::NoSuchProcess { pid }),
        source => Err(ProcessError::Unreadable { pid, what: "pidfd_open".to_owned(), source }),
    }
}

fn read(pid: u32, uid: u32, file: &str) -> Result<Vec<u8>, ProcessError> {
    fs::read(format!("/proc/{pid}/{file}")).map_err(|source| unreadable(pid, uid, file, source))
}

fn unreadable(pid: u32, owner: u32, what: &str, source: io::Error) -> ProcessError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ProcessError::Denied { pid, owner },
        _ if is_gone(&source) => ProcessError::Ended { pid },
        _ => ProcessError::Unreadable { pid, what: what.to_owned(), source },
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn start_time(pid: u32) -> Result<u64, ProcessError> {
    let unreadable = |source| ProcessError::Unreadable { pid, what: "stat".to_owned(), source };
    let bytes = fs::read(format!("/proc/{pid}/stat")).map_err(|source| match source {
        source if is_gone(&source) => ProcessError::Ended { pid },
        source => unreadable(source),
    })?;
    started(&bytes).ok_or_else(|| unreadable(io::ErrorKind::InvalidData.into()))
}

/// Field 22 of `stat`, counted behind the command name, which may hold anything.
pub(crate) fn started(stat: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(stat);
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

pub(crate) fn cmdline(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|arg| OsStr::from_bytes(arg).to_owned()).collect()
}

#[cfg(test)]
mod tests;
