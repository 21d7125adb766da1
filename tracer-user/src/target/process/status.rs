//! `/proc/<pid>/status`.

use std::{fs, io};

use super::{ProcessError, is_gone};

/// `/proc/<pid>/status`, in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Command name.
    pub name: String,
    /// State letter: `R`, `S`, `D`, `T` (stopped), `t` (stopped by a tracer), `Z`, `X`, `I`.
    pub state: char,
    /// Id of the process that the thread belongs to.
    pub tgid: u32,
    /// Id of its parent.
    pub parent: u32,
    /// Effective user id.
    pub uid: u32,
    /// Is a SIGSTOP on its way to the thread, or to its process?
    pub stop_pending: bool,
    /// Is one on its way to its process, whichever thread takes it?
    pub stop_asked: bool,
    /// Id in each nested pid namespace, outermost first.
    pub ns_pids: Vec<u32>,
    /// Resident memory in bytes; `None` for what has no memory.
    pub rss_bytes: Option<u64>,
    /// Threads.
    pub n_threads: u32,
    /// Process that traces it with ptrace, such as a debugger; `None` also when that one lives
    /// in a pid namespace that cannot be seen from here.
    pub tracer: Option<u32>,
    /// Seccomp: 0 off, 1 strict, 2 filter.
    pub seccomp: u32,
    /// `Kthread: 1`, of kernels that say so (6.8 and later).
    kernel_thread: Option<bool>,
    has_memory: bool,
}

impl Status {
    /// Is it stopped, by a signal or by a tracer?
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Has it ended?
    pub const fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Its id in the innermost pid namespace that it is in: what it calls itself.
    pub fn inner_pid(&self) -> u32 {
        self.ns_pids.last().copied().unwrap_or(self.tgid)
    }

    pub(super) const fn is_kernel_thread(&self) -> bool {
        match self.kernel_thread {
            Some(answer) => answer,
            None => !self.has_memory,
        }
    }

    /// That of the process or thread `id` now.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(id: u32) -> Result<Self, ProcessError> {
        match fs::read(format!("/proc/{id}/status")) {
            Ok(bytes) => Self::parse(&bytes).ok_or_else(|| ProcessError::Unreadable {
                pid: id,
                what: "status".to_owned(),
                source: io::ErrorKind::InvalidData.into(),
            }),
            Err(error) if is_gone(&error) => Err(ProcessError::NoSuchProcess { pid: id }),
            Err(source) => {
                Err(ProcessError::Unreadable { pid: id, what: "status".to_owned(), source })
            }
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let field = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
        };
        let number = |key: &str| field(key).and_then(|value| value.parse().ok());
        let rss: Option<u64> =
            field("VmRSS").and_then(|value| value.strip_suffix(" kB")?.trim().parse().ok());
        let stop_in = |key: &str| {
            field(key)
                .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                .is_some_and(|mask| mask >> (libc::SIGSTOP - 1) & 1 == 1)
        };
        Some(Self {
            name: field("Name")?.to_owned(),
            state: field("State")?.chars().next()?,
            tgid: number("Tgid")?,
            parent: number("PPid").unwrap_or(0),
            stop_pending: stop_in("SigPnd") || stop_in("ShdPnd"),
            stop_asked: stop_in("ShdPnd"),
            uid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            ns_pids: field("NSpid")
                .map(|ids| ids.split_whitespace().filter_map(|id| id.parse().ok()).collect())
                .unwrap_or_default(),
            rss_bytes: rss.and_then(|kib| kib.checked_mul(1024)),
            n_threads: number("Threads").unwrap_or(1),
            tracer: number("TracerPid").filter(|pid| *pid != 0),
            seccomp: number("Seccomp").unwrap_or(0),
            kernel_thread: number("Kthread").map(|flag| flag == 1),
            has_memory: field("VmSize").is_some(),
        })
    }
}
