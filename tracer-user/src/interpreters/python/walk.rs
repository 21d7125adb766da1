//! From the runtime to its threads.

use super::layout::Layout;
use crate::interpreters::memory::Memory;

/// Interpreters and threads that are looked at: lists that are changed while they are read may lead
/// in a circle.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
/// Of a process.
pub(super) const MOST: usize = MOST_INTERPRETERS * MOST_THREADS;

/// What Python knows of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadState {
    /// Where it lies.
    pub(super) addr: u64,
    /// What the kernel calls the thread in its own pid namespace, or called the one that made it.
    pub(super) id: u64,
}

/// Address of the pointer to the first thread of a runtime's first interpreter, which is the last of its
/// list.
pub(super) fn first_thread(memory: &impl Memory, layout: &Layout, runtime: u64) -> Option<u64> {
    let mut interpreter = memory.word(runtime.checked_add(layout.interpreters_head)?)?;
    for _ in 0..MOST_INTERPRETERS {
        let next = memory.word(interpreter.checked_add(layout.interpreter_next)?)?;
        if next == 0 {
            return interpreter.checked_add(layout.threads_head);
        }
        interpreter = next;
    }
    None
}

/// The threads of a runtime. `None` when they cannot be read.
pub(super) fn threads(
    memory: &impl Memory,
    layout: &Layout,
    runtime: u64,
) -> Option<Vec<ThreadState>> {
    let mut threads = Vec::new();
    let mut interpreter = memory.word(runtime.checked_add(layout.interpreters_head)?)?;
    for _ in 0..MOST_INTERPRETERS {
        if interpreter == 0 {
            return Some(threads);
        }
        let mut addr = memory.word(interpreter.checked_add(layout.threads_head)?)?;
        while addr != 0 {
            if threads.len() == MOST_THREADS {
                return None;
            }
            let id = memory.word(addr.checked_add(layout.native_id)?)?;
            threads.push(ThreadState { addr, id });
            addr = memory.word(addr.checked_add(layout.thread_next)?)?;
        }
        interpreter = memory.word(interpreter.checked_add(layout.interpreter_next)?)?;
    }
    None
}

#[cfg(test)]
mod tests;
