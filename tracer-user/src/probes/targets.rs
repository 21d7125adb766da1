//! Which processes are targets, and which of them wait to be continued.

use std::{
    io,
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::ExitStatus,
    time::Duration,
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError},
};
use tracer_common::{
    decode::Hold,
    event::FIRST_SPACE,
    state::{FIRST_END, FIRST_HOLDS, HAS_ENDED, N_BIRTHS, NEXT_SPACE},
};

use super::{
    ProbeError, Probes, attach,
    guard::{self, Guard},
    undisturbed::Undisturbed,
};

const TARGETS: &str = "TARGETS";
const STATE: &str = "STATE";
const HELD: &str = "HELD";

/// `BPF_NOEXIST`: do not replace an entry.
const ONLY_NEW: u64 = 1;

/// What became of a process that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continued {
    /// It waited until now.
    InTime {
        /// For so long.
        waited: Duration,
    },
    /// It had waited too long and was continued before.
    TooLate,
}

/// Makes this process the first target.
pub(super) fn begin(ebpf: &mut Ebpf, pid: u32) -> Result<(), ProbeError> {
    state(ebpf)?.set(NEXT_SPACE, FIRST_SPACE + 1, 0).map_err(ask)?;
    table::<u32, u64>(ebpf, TARGETS)?.insert(pid, FIRST_SPACE, 0).map_err(ask)
}

/// Starts the process that watches over the targets.
pub(super) fn guard(ebpf: &Ebpf) -> Result<Guard, ProbeError> {
    let Some(Map::HashMap(held)) = ebpf.map(HELD) else {
        return Err(ProbeError::Absent { name: HELD });
    };
    Guard::start(held.fd().as_fd()).map_err(|error| ProbeError::Ask { what: "guard", error })
}

impl Probes {
    /// Makes a process a target that ran before it was followed. Answers whether it was not one
    /// already.
    ///
    /// # Errors
    /// When the kernel has no room for it.
    pub fn adopt(&mut self, pid: u32, space: u64) -> Result<bool, ProbeError> {
        match table::<u32, u64>(&mut self.loaded.ebpf, TARGETS)?.insert(pid, space, ONLY_NEW) {
            Ok(()) => Ok(true),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Ok(false)
            }
            Err(error) => Err(ask(error)),
        }
    }

    /// Takes every breakpoint of a process away, because they are of no use any more. It stays a
    /// target. Done in the background: each takes the kernel some time.
    pub fn abandon(&mut self, pid: u32) {
        if let Some(attached) = self.attached.remove(&pid) {
            std::thread::spawn(|| attach::remove(attached));
        }
    }

    /// As [`Probes::abandon`], but they are gone when this returns: the kernel runs what is set by
    /// the old breakpoints of a process at its new ones too.
    pub fn clear(&mut self, pid: u32) {
        if let Some(attached) = self.attached.remove(&pid) {
            attach::remove(attached);
        }
    }

    /// A process has ended and is no target any more.
    pub fn forget(&mut self, pid: u32) {
        self.abandon(pid);
        if let Ok(mut targets) = table::<u32, u64>(&mut self.loaded.ebpf, TARGETS) {
            // It may have been another's number meanwhile, or never have been there.
            let _ = targets.remove(&pid);
        }
    }

    /// Processes of targets that were made and have not run yet.
    pub fn n_unborn(&mut self) -> u64 {
        // Nobody is waited for in vain where the kernel does not say.
        state(&mut self.loaded.ebpf)
            .and_then(|state| state.get(&N_BIRTHS, 0).map_err(ask))
            .unwrap_or(0)
    }

    /// How the first target ended. To be asked when it has; `None` when the kernel does not say.
    pub fn end_of_first(&mut self) -> Option<ExitStatus> {
        let state = state(&mut self.loaded.ebpf).ok()?;
        let end = state.get(&FIRST_END, 0).ok().filter(|end| end & HAS_ENDED != 0)?;
        let word = end as u32;
        Some(ExitStatus::from_raw(word.cast_signed()))
    }

    /// Lets the programs stop the first target too, which they do not while it is being started.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn hold_first(&mut self) -> Result<(), ProbeError> {
        state(&mut self.loaded.ebpf)?.set(FIRST_HOLDS, 1, 0).map_err(ask)
    }

    /// Lets a process go on that is held, perhaps by several of its threads, and answers since
    /// when. One that was let go before is left alone: it may stand still for another reason.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn release(&mut self, process: u32, holds: &[Hold]) -> Result<Continued, ProbeError> {
        let mut held = table::<u64, u64>(&mut self.loaded.ebpf, HELD)?;
        let since = holds.iter().filter_map(|hold| held.get(&hold.0, 0).ok()).min();
        let Some(since) = since else { return Ok(Continued::TooLate) };
        guard::continue_process(process);
        // After the signal: should this process die in between, the guard sends another.
        for hold in holds {
            let _ = held.remove(&hold.0);
        }
        let waited = guard::monotonic_now().saturating_sub(since);
        Ok(Continued::InTime { waited: Duration::from_nanos(waited) })
    }
}

pub(super) fn table<'a, K: aya::Pod, V: aya::Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<Undisturbed<HashMap<&'a mut MapData, K, V>>, ProbeError> {
    let map = ebpf.map_mut(name).ok_or(ProbeError::Absent { name })?;
    HashMap::try_from(map).map(Undisturbed::new).map_err(ask)
}

pub(super) fn state(ebpf: &mut Ebpf) -> Result<Undisturbed<Array<&mut MapData, u64>>, ProbeError> {
    let map = ebpf.map_mut(STATE).ok_or(ProbeError::Absent { name: STATE })?;
    Array::try_from(map).map(Undisturbed::new).map_err(ask)
}

pub(super) fn ask(error: MapError) -> ProbeError {
    ProbeError::Ask { what: "targets", error: io::Error::other(error) }
}
