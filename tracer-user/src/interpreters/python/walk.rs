//! From a thread to its frames.

use super::layout::{Current, Entry, FRAME, Layout};
use crate::interpreters::memory::{Fields, Memory};

/// Interpreters and threads that are looked at: lists that are changed while they are read may lead
/// in a circle.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
/// Frames of one thread: beyond, nothing is said of the stack.
const MOST_FRAMES: usize = 1024;

/// A frame as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawFrame {
    /// Address of its code object.
    pub(super) code: u64,
    /// Address of the instruction that it is at.
    pub(super) instruction: u64,
    /// Whose copy of the instructions that is, where threads have their own.
    pub(super) bytecode_index: Option<u32>,
}

/// The frames of a thread, by the call of the interpreter's loop that runs them; the innermost call
/// first, and in each the innermost frame first.
pub(super) type Calls = Vec<Vec<RawFrame>>;

/// The state of the thread that the kernel calls `id` in the process's own pid namespace.
///
/// `alone` says that it is the only thread of its process: then a single state is its own, whatever
/// id is in it. A process that was forked may have the id of its parent there.
pub(super) fn thread(
    memory: &impl Memory,
    layout: &Layout,
    runtime: u64,
    id: u32,
    alone: bool,
) -> Option<u64> {
    let mut only = None;
    let mut n_threads = 0;
    let mut interpreter = memory.word(runtime.checked_add(layout.interpreters_head)?)?;
    for _ in 0..MOST_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut thread = memory.word(interpreter.checked_add(layout.threads_head)?)?;
        while thread != 0 {
            if n_threads == MOST_THREADS {
                return None;
            }
            n_threads += 1;
            let native_id = memory.word(thread.checked_add(layout.native_id)?)?;
            if native_id == u64::from(id) {
                return Some(thread);
            }
            only = Some(thread);
            thread = memory.word(thread.checked_add(layout.thread_next)?)?;
        }
        interpreter = memory.word(interpreter.checked_add(layout.interpreter_next)?)?;
    }
    only.filter(|_| alone && n_threads == 1)
}

/// The frames of the thread with this state. `None` when they changed while they were read.
///
/// They are read twice. The instruction of the innermost frame may differ, since a thread that runs
/// is never at the same one.
pub(super) fn calls(memory: &impl Memory, layout: &Layout, thread: u64) -> Option<Calls> {
    let first = calls_once(memory, layout, thread)?;
    let again = calls_once(memory, layout, thread)?;
    are_same(&first, &again).then_some(first)
}

fn are_same(one: &Calls, other: &Calls) -> bool {
    let flat = |calls: &Calls| {
        let number = |(number, call): (usize, &Vec<RawFrame>)| {
            call.iter().map(|frame| (number, *frame)).collect::<Vec<_>>()
        };
        let mut frames: Vec<_> = calls.iter().enumerate().flat_map(number).collect();
        if let Some((_, innermost)) = frames.first_mut() {
            innermost.instruction = 0;
        }
        frames
    };
    one.len() == other.len() && flat(one) == flat(other)
}

fn calls_once(memory: &impl Memory, layout: &Layout, thread: u64) -> Option<Calls> {
    let mut at = match layout.current {
        Current::At(offset) => memory.word(thread.checked_add(offset)?)?,
        Current::Behind(offset, within) => {
            let behind = memory.word(thread.checked_add(offset)?)?;
            memory.word(behind.checked_add(within)?)?
        }
    };
    let mut calls = Vec::new();
    let mut call = Vec::new();
    for _ in 0..MOST_FRAMES {
        if at == 0 {
            // What is left was not called by the loop: a frame is being made.
            return Some(calls);
        }
        let bytes: [u8; FRAME] = memory.bytes(at)?;
        let fields = Fields(&bytes);
        let frame = RawFrame {
            // The lowest bits say how the reference is counted.
            code: fields.word(layout.frame.code)? & !7,
            instruction: fields.word(layout.frame.instruction)?,
            bytecode_index: match layout.frame.bytecode_index {
                Some(offset) => Some(fields.half(offset)?),
                None => None,
            },
        };
        let is_outermost = match layout.frame.entry {
            Entry::Flag(offset) => {
                call.push(frame);
                fields.byte(offset)? != 0
            }
            Entry::Owner { owner, first } => {
                let is_function = fields.byte(owner)? < first;
                if is_function {
                    call.push(frame);
                }
                !is_function
            }
        };
        if is_outermost {
            calls.push(std::mem::take(&mut call));
        }
        at = fields.word(layout.frame.previous)?;
    }
    None
}

#[cfg(test)]
mod tests;
