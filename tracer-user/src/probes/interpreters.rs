//! The threads whose interpreters the kernel side follows.

use aya::{Pod, maps::HashMap};
use tracer_common::interpreter::{Interpreter, Threads};

use super::{ProbeError, Probes, undisturbed::Undisturbed};

const INTERPRETERS: &str = "INTERPRETERS";
const THREADS: &str = "THREADS";
/// Place in the programs' `STATE`: set once there is anything to follow.
const INTERPRETED: u32 = 4;

/// As the kernel side has it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry<T>(T);

// SAFETY: numbers only, and no padding between them.
unsafe impl Pod for Entry<Interpreter> {}
// SAFETY: as above.
unsafe impl Pod for Entry<Threads> {}

impl Probes {
    /// Has the frames of these threads followed from here on.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn give_interpreters(&mut self, threads: &[(u32, Interpreter)]) -> Result<(), ProbeError> {
        if threads.is_empty() {
            return Ok(());
        }
        let absent = ProbeError::Absent { name: INTERPRETERS };
        let map = self.loaded.ebpf.map_mut(INTERPRETERS).ok_or(absent)?;
        let map: HashMap<_, u32, Entry<Interpreter>> =
            HashMap::try_from(map).map_err(super::targets::ask)?;
        let mut map = Undisturbed::new(map);
        for (tid, interpreter) in threads {
            map.insert(tid, Entry(*interpreter), 0).map_err(super::targets::ask)?;
        }
        drop(map);
        self.follow_interpreters()
    }

    /// Has threads of this address space found that begin from here on.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn give_threads(&mut self, threads: &Threads) -> Result<(), ProbeError> {
        let absent = ProbeError::Absent { name: THREADS };
        let map = self.loaded.ebpf.map_mut(THREADS).ok_or(absent)?;
        let map: HashMap<_, u64, Entry<Threads>> =
            HashMap::try_from(map).map_err(super::targets::ask)?;
        let mut map = Undisturbed::new(map);
        map.insert(threads.model.space, Entry(*threads), 0).map_err(super::targets::ask)?;
        drop(map);
        self.follow_interpreters()
    }

    fn follow_interpreters(&mut self) -> Result<(), ProbeError> {
        let mut state = super::targets::state(&mut self.loaded.ebpf)?;
        state.set(INTERPRETED, 1, 0).map_err(super::targets::ask)
    }
}
