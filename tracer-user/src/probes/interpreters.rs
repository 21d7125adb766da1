//! The threads whose interpreters the kernel side follows.

use aya::{Pod, maps::HashMap};
use tracer_common::interpreter::Interpreter;

use super::{ProbeError, Probes};

const INTERPRETERS: &str = "INTERPRETERS";

/// As the kernel side has it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry(Interpreter);

// SAFETY: numbers only, and no padding between them.
unsafe impl Pod for Entry {}

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
        let mut map: HashMap<_, u32, Entry> =
            HashMap::try_from(map).map_err(super::targets::ask)?;
        for (tid, interpreter) in threads {
            map.insert(tid, Entry(*interpreter), 0).map_err(super::targets::ask)?;
        }
        Ok(())
    }
}
