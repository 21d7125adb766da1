//! Following an interpreter's frames from this side: the same steps as the kernel side's, while the
//! thread goes on.

use tracer_common::interpreter::{
    Function, Interpreter, MAX_FRAME, MAX_FUNCTIONS, NOT_BEHIND, Sent,
};

use super::memory::{Fields, Memory};

/// The frames of a thread, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) functions: Vec<Sent>,
    /// Are there more?
    pub(super) is_cut: bool,
}

/// The functions that run, by the call of the interpreter's loop that runs them; the innermost call
/// first, and in each the innermost function first.
pub(super) type Calls = Vec<Vec<Sent>>;

impl Run {
    /// The frames by calls. The last one may be a part, when there are more.
    pub(super) fn calls(&self) -> Calls {
        let mut calls = Vec::new();
        let mut call = Vec::new();
        for sent in &self.functions {
            if sent.function.code != 0 {
                call.push(*sent);
            }
            if sent.function.ends_call() {
                calls.push(std::mem::take(&mut call));
            }
        }
        // Without more, what is left was not called by the loop: it is being made.
        if self.is_cut && !call.is_empty() {
            calls.push(call);
        }
        // Behind the outermost there may be one frame that was there before any call.
        while calls.last().is_some_and(Vec::is_empty) {
            calls.pop();
        }
        calls
    }
}

/// The frames that a thread has now. `None` when they changed while they were read, or could not be.
///
/// They are read twice. The instruction of the innermost frame may differ, since a thread that runs
/// is never at the same one.
pub(super) fn follow(memory: &impl Memory, interpreter: &Interpreter) -> Option<Run> {
    let first = follow_once(memory, interpreter)?;
    let again = follow_once(memory, interpreter)?;
    let settled = |run: &Run| {
        let mut functions = run.functions.clone();
        if let Some(innermost) = functions.first_mut() {
            innermost.function.place &= 1;
        }
        (functions, run.is_cut)
    };
    (settled(&first) == settled(&again)).then_some(first)
}

fn follow_once(memory: &impl Memory, interpreter: &Interpreter) -> Option<Run> {
    if memory.word(interpreter.owner_at)? != interpreter.owner {
        return None;
    }
    let mut at = memory.word(interpreter.head)?;
    if interpreter.behind != NOT_BEHIND {
        at = memory.word(at.checked_add(interpreter.behind.into())?)?;
    }
    let mut run = Run::default();
    while at != 0 {
        if run.functions.len() == MAX_FUNCTIONS {
            run.is_cut = true;
            break;
        }
        let mut bytes = [0; MAX_FRAME];
        let bytes = &mut bytes[..(interpreter.len as usize).min(MAX_FRAME)];
        memory.read(at, bytes)?;
        let fields = Fields(bytes);
        let copy = match interpreter.copy {
            0 => 0,
            offset => (fields.half(offset as usize)? & 0xffff) as u16,
        };
        let function = Function::new(
            fields.word(interpreter.code as usize)?,
            fields.word(interpreter.instruction as usize)?,
            copy,
            fields.byte(interpreter.mark as usize)?,
            interpreter.mark_from,
        );
        // A sample is not certain, whatever its code objects were.
        run.functions.push(Sent { function, fingerprint: 0 });
        at = fields.word(interpreter.previous as usize)?;
    }
    Some(run)
}

#[cfg(test)]
mod tests;
