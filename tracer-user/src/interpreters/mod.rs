//! Functions of interpreted languages: what runs where a stack alone says that an interpreter does.
//!
//! They are read from the target's memory when a stack is first seen, which is a moment after it
//! was: the thread has gone on. So they are a sample, and one that does not fit the stack is dropped.
//!
//! Not here: how native frames are named (`symbols`), and how a report shows what was found.

mod memory;
mod python;

use rustc_hash::FxHashMap;

use self::memory::ProcessMemory;
use self::python::{Codes, Python, Thread};
use crate::symbols::{Binder, Bound, ObjectId, ObjectKind};
use crate::target::{
    elf::{Elf, FileOffset},
    process::{Process, Status},
};

/// A function of an interpreted language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The line that it is at.
    pub line: Option<u32>,
}

/// The functions that a thread was in, by the call of the interpreter's loop that ran them;
/// innermost first, both calls and functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// One list for each call of the loop.
    pub calls: Vec<Vec<Function>>,
}

/// The interpreters' main loops, by the function's name.
const LOOPS: &[&str] = &["_PyEval_EvalFrameDefault"];

/// Where names of functions begin that CPython has written down for `perf`: they are exact, and need
/// no sample.
const EXACT: &str = "py::";

impl Sample {
    /// For each of these frames of a stack, by their functions and innermost first, the functions
    /// that ran in it. `None` when the sample is of another moment than the stack.
    pub fn placed<'a, 's>(
        &'s self,
        stack: impl Iterator<Item = Option<&'a str>>,
    ) -> Option<Vec<&'s [Function]>> {
        let mut calls = self.calls.iter();
        let mut placed = Vec::new();
        for function in stack {
            placed.push(match function {
                Some(name) if name.starts_with(EXACT) => return None,
                Some(name) if is_loop(name) => calls.next()?,
                _ => &[][..],
            });
        }
        calls.next().is_none().then_some(placed)
    }
}

/// Is this function an interpreter's loop, or a part of it that a compiler made a function?
fn is_loop(function: &str) -> bool {
    LOOPS.iter().any(|name| {
        function.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Reads what interpreters run.
#[derive(Debug, Default)]
pub struct Interpreters {
    /// The interpreter in each object that was looked into.
    found: FxHashMap<ObjectId, Option<(Python, Elf)>>,
    /// What was read, by address space.
    spaces: FxHashMap<u64, Space>,
}

#[derive(Debug)]
struct Space {
    memory: ProcessMemory,
    codes: Codes,
}

impl Interpreters {
    /// What the thread `tid` of this process, which lives in this address space, runs now. Its stack
    /// is bound to these places. `None` when no interpreter that can be read is on it, or nothing can
    /// be said.
    pub fn sample(
        &mut self,
        space: u64,
        process: &Process,
        tid: u32,
        stack: &[Bound],
        binder: &Binder,
    ) -> Option<Sample> {
        let Self { found, spaces } = self;
        let (python, bias) = interpreter(found, stack, binder)?;
        let space = match spaces.entry(space) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(unknown) => {
                let memory = ProcessMemory(process.memory().ok()?);
                unknown.insert(Space { memory, codes: Codes::default() })
            }
        };
        let status = Status::read(tid).ok().filter(|status| status.tgid == process.pid)?;
        let thread = Thread { id: status.inner_pid(), alone: status.n_threads == 1, bias };
        let calls = python.functions(&space.memory, thread, &mut space.codes)?;
        Some(Sample { calls })
    }

    /// The address space is no more.
    pub fn close(&mut self, space: u64) {
        self.spaces.remove(&space);
    }
}

/// The first interpreter on a stack, and how far its object is from its own addresses.
fn interpreter<'a>(
    found: &'a mut FxHashMap<ObjectId, Option<(Python, Elf)>>,
    stack: &[Bound],
    binder: &Binder,
) -> Option<(&'a Python, u64)> {
    let on_it = stack.iter().find(|bound| {
        let look = |id| found.entry(id).or_insert_with(|| look_into(id, binder)).is_some();
        bound.object.is_some_and(look)
    })?;
    let (python, elf) = found.get(&on_it.object?)?.as_ref()?;
    let addr = elf.object_addr(FileOffset(on_it.offset))?;
    Some((python, on_it.address.wrapping_sub(addr.0)))
}

fn look_into(id: ObjectId, binder: &Binder) -> Option<(Python, Elf)> {
    let ObjectKind::File(Some(file)) = &binder.object(id)?.kind else { return None };
    let elf = Elf::open(file).ok()?;
    Some((Python::of(&elf)?, elf))
}

#[cfg(test)]
mod tests;
