//! The threads whose interpreters the kernel side follows.

use aya::Pod;
use tracer_common::interpreter::{Interpreter, Threads};
use tracer_common::state::INTERPRETED;

use super::{
    ProbeError, Probes,
    targets::{ask, state, table},
};

const INTERPRETERS: &str = "INTERPRETERS";
const THREADS: &str = "THREADS";

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
        let mut map = table::<u32, Entry<Interpreter>>(&mut self.loaded.ebpf, INTERPRETERS)?;
        for (tid, interpreter) in threads {
            map.insert(tid, Entry(*interpreter), 0).map_err(ask)?;
        }
        drop(map);
        self.follow_interpreters()
    }

    /// Has threads of this address space found that begin from here on.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn give_threads(&mut self, threads: &Threads) -> Result<(), ProbeError> {
        table::<u64, Entry<Threads>>(&mut self.loaded.ebpf, THREADS)?
            .insert(threads.model.space, Entry(*threads), 0)
            .map_err(ask)?;
        self.follow_interpreters()
    }

    fn follow_interpreters(&mut self) -> Result<(), ProbeError> {
        state(&mut self.loaded.ebpf)?.set(INTERPRETED, 1, 0).map_err(ask)
    }
}
