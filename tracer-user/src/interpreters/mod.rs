//! Functions of interpreted languages: what runs where a stack alone says that an interpreter does.
//!
//! Of a thread that is known the kernel side follows the frames while the thread stands still, at each
//! allocation, and they are a part of the stack. Until a thread is known they are read from here, a
//! moment after the stack was seen: then they are a sample, and one that does not fit the stack is
//! dropped.
//!
//! Not here: how native frames are named (`symbols`), and how a report shows what was found.

pub(crate) use python::read_all;

mod follow;
mod memory;
mod python;

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tracer_common::{
    decode::Functions,
    interpreter::{FunctionsHash, Interpreter, Threads},
};

use self::follow::{Calls, Run, follow};
use self::memory::ProcessMemory;
use self::python::{Codes, Named, Python};
use crate::symbols::{Binder, Bound, ObjectId, ObjectKind};
use crate::target::{
    elf::{Elf, FileOffset, Table},
    process::{Process, Status},
};

/// What a function is called that was thrown away before anybody could read what it is.
pub const FREED: &str = "<freed code>";

/// A function of an interpreted language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name; [`FREED`] when it is not known.
    pub name: Rc<str>,
    /// Its file, where that is known.
    pub file: Option<Rc<str>>,
    /// The line that it is at.
    pub line: Option<u32>,
    /// Is it this function for certain? Not where another may have been in its place.
    pub is_certain: bool,
}

/// What interpreters ran on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreted {
    /// Places in the stack where an interpreter's loop is, with the functions that it ran; both from
    /// the innermost outwards. What many stacks have is kept once.
    pub calls: Vec<(usize, Vec<Rc<Function>>)>,
    /// Was it read when the thread had gone on already? Then it is what fits the stack a moment later.
    pub is_sample: bool,
}

/// A stack that is seen for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its address space.
    pub space: u64,
    /// The process that lives there.
    pub process: &'a Process,
    /// Its thread.
    pub tid: u32,
    /// Its hash, as its record has it.
    pub hash: u64,
    /// Where its frames belong.
    pub stack: &'a [Bound],
    /// Are these all of its frames?
    pub is_whole: bool,
}

/// What was found out about a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What interpreters ran on it, if any did and it is known.
    pub interpreted: Option<Interpreted>,
    /// Threads whose frames the kernel side can follow from here on.
    pub threads: Vec<(u32, Interpreter)>,
    /// Where it finds others that begin.
    pub list: Option<Threads>,
}

/// Threads of which something is kept until their stack comes, which is the next record of theirs: what
/// is left is of stacks that were known.
const MOST_SENT: usize = 4096;

/// Reads what interpreters run.
#[derive(Debug)]
pub struct Interpreters {
    /// The interpreter in each object that was looked into.
    found: FxHashMap<ObjectId, Option<Object>>,
    /// What was read, by address space.
    spaces: FxHashMap<u64, Space>,
    /// What the kernel side has sent of each thread, with the hash of the stack.
    sent: FxHashMap<u32, (u64, Run)>,
    /// What stands for functions that cannot be read.
    freed: Rc<Function>,
}

impl Default for Interpreters {
    fn default() -> Self {
        let freed = Function { name: FREED.into(), file: None, line: None, is_certain: false };
        Self {
            found: FxHashMap::default(),
            spaces: FxHashMap::default(),
            sent: FxHashMap::default(),
            freed: freed.into(),
        }
    }
}

#[derive(Debug)]
struct Object {
    python: Python,
    elf: Elf,
    loops: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Space {
    memory: ProcessMemory,
    codes: Codes,
    /// What the kernel side was told of each thread.
    told: FxHashMap<u32, Interpreter>,
}

impl Interpreters {
    /// Keeps what an interpreter ran until the stack comes that it ran on.
    pub fn keep(&mut self, functions: &Functions<'_>) {
        let run = Run { functions: functions.iter().collect(), is_cut: functions.is_cut };
        if self.sent.len() >= MOST_SENT {
            self.sent.clear();
        }
        self.sent.insert(functions.tid, (functions.hash, run));
    }

    /// The word that stands in a stack's hash for what an interpreter ran on it.
    pub fn word(&self, tid: u32, hash: u64) -> Option<u64> {
        let (_, run) = self.sent.get(&tid).filter(|(sent, _)| *sent == hash)?;
        let hash =
            run.functions.iter().fold(FunctionsHash::new(), |hash, sent| hash.with(sent.function));
        Some(hash.finish())
    }

    /// What interpreters ran on this stack.
    pub fn look(&mut self, seen: &Seen<'_>, binder: &Binder) -> Found {
        self.find(seen, binder).unwrap_or_default()
    }

    /// Threads of this process, which lives in this address space, that run an interpreter: the kernel
    /// side can follow their frames before a stack of theirs was seen. `code` is where the objects are
    /// that may have an interpreter.
    pub fn survey(
        &mut self,
        space: u64,
        process: &Process,
        code: &[Bound],
        binder: &Binder,
    ) -> Found {
        let mut survey = || {
            let Self { found, spaces, .. } = self;
            look_into(found, code, binder);
            let (object, bias) = interpreter(found, code)?;
            let Space { memory, told, .. } = entry(spaces, space, process)?;
            let status = process.status().ok()?;
            let alone = (status.n_threads == 1).then_some(status.inner_pid());
            let states = object.python.threads(memory, space, bias, alone)?;
            let threads = running(process, &states);
            told.extend(threads.iter().copied());
            let list = list(&object.python, memory, (space, bias), &status);
            Some(Found { interpreted: None, threads, list })
        };
        survey().unwrap_or_default()
    }

    fn find(&mut self, seen: &Seen<'_>, binder: &Binder) -> Option<Found> {
        let Self { found, spaces, sent, freed } = self;
        let Seen { space, process, tid, stack, .. } = *seen;
        look_into(found, stack, binder);
        let (object, bias) = interpreter(found, stack)?;
        let Space { memory, codes, told } = entry(spaces, space, process)?;
        let loops = loops(found, stack);
        let mut name = |sent| match object.python.name(memory, bias, sent, codes) {
            Named::Function(function) => Some(function),
            Named::MadeUp => None,
            Named::Gone => Some(freed.clone()),
        };
        let mut name = |calls: Calls, is_sample| {
            let call = |(place, call): (&usize, Vec<_>)| {
                (*place, call.into_iter().filter_map(&mut name).collect())
            };
            Some(Interpreted { calls: loops.iter().zip(calls).map(call).collect(), is_sample })
        };
        if let Some((_, run)) = sent.remove(&tid).filter(|(sent, _)| *sent == seen.hash) {
            let calls = run.calls();
            let fits = match calls.len().cmp(&loops.len()) {
                Ordering::Equal => true,
                Ordering::Less => run.is_cut,
                Ordering::Greater => !seen.is_whole,
            };
            if fits {
                return Some(Found { interpreted: name(calls, false), ..Found::default() });
            }
        } else if loops.is_empty() && told.contains_key(&tid) {
            return None;
        }
        // The thread is not known, or not any more.
        let status = Status::read(tid).ok().filter(|status| status.tgid == process.pid)?;
        let id = status.inner_pid();
        let alone = (status.n_threads == 1).then_some(id);
        let states = object.python.threads(memory, space, bias, alone)?;
        let list = list(&object.python, memory, (space, bias), &status);
        let mut threads = if told.is_empty() { running(process, &states) } else { Vec::new() };
        let (_, own) = *states.iter().find(|(known, _)| *known == u64::from(id))?;
        threads.push((tid, own));
        told.extend(threads.iter().copied());
        let run = if loops.is_empty() { None } else { follow(memory, &own) };
        let calls = run.map(|run| run.calls()).filter(|calls| calls.len() == loops.len());
        Some(Found { interpreted: calls.and_then(|calls| name(calls, true)), threads, list })
    }

    /// The address space is no more.
    pub fn close(&mut self, space: u64) {
        if let Some(space) = self.spaces.remove(&space) {
            for tid in space.told.keys() {
                self.sent.remove(tid);
            }
        }
    }
}

/// What is known of an address space.
fn entry<'a>(
    spaces: &'a mut FxHashMap<u64, Space>,
    space: u64,
    process: &Process,
) -> Option<&'a mut Space> {
    match spaces.entry(space) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(unknown) => {
            let memory = ProcessMemory(process.memory().ok()?);
            let (codes, told) = (Codes::default(), FxHashMap::default());
            Some(unknown.insert(Space { memory, codes, told }))
        }
    }
}

/// Where the threads of a process are listed, if their ids there are what they are called here.
fn list(
    python: &Python,
    memory: &ProcessMemory,
    (space, bias): (u64, u64),
    status: &Status,
) -> Option<Threads> {
    if status.ns_pids.len() == 1 { python.list(memory, space, bias) } else { None }
}

/// The threads that a process has now and its interpreter knows, by their ids here.
fn running(process: &Process, states: &[(u64, Interpreter)]) -> Vec<(u32, Interpreter)> {
    let known = |tid| {
        let id = u64::from(Status::read(tid).ok()?.inner_pid());
        states.iter().find(|(known, _)| *known == id).map(|(_, thread)| (tid, *thread))
    };
    process.threads().into_iter().filter_map(known).collect()
}

/// Finds the interpreters on a stack.
fn look_into(found: &mut FxHashMap<ObjectId, Option<Object>>, stack: &[Bound], binder: &Binder) {
    for id in stack.iter().filter_map(|bound| bound.object) {
        found.entry(id).or_insert_with(|| Object::of(id, binder));
    }
}

/// The first interpreter on a stack, and how far its object is from its own addresses.
fn interpreter<'a>(
    found: &'a FxHashMap<ObjectId, Option<Object>>,
    stack: &[Bound],
) -> Option<(&'a Object, u64)> {
    stack.iter().find_map(|bound| {
        let object = found.get(&bound.object?)?.as_ref()?;
        let addr = object.elf.object_addr(FileOffset(bound.offset))?;
        Some((object, bound.address.wrapping_sub(addr.0)))
    })
}

/// The places in a stack where an interpreter's loop is.
fn loops(found: &FxHashMap<ObjectId, Option<Object>>, stack: &[Bound]) -> Vec<usize> {
    let is_loop = |bound: &Bound| {
        let object = found.get(&bound.object?)?.as_ref()?;
        let addr = object.elf.object_addr(FileOffset(bound.offset))?;
        object.loops.iter().any(|range| range.contains(&addr.0)).then_some(())
    };
    let places = stack.iter().enumerate();
    places.filter(|(_, bound)| is_loop(bound).is_some()).map(|(place, _)| place).collect()
}

impl Object {
    fn of(id: ObjectId, binder: &Binder) -> Option<Self> {
        let ObjectKind::File(Some(file)) = &binder.object(id)?.kind else { return None };
        let elf = Elf::open(file).ok()?;
        let python = Python::of(&elf)?;
        let mut loops = Vec::new();
        for table in [Table::Dynamic, Table::Full] {
            let functions = elf.functions(table, python::is_loop).unwrap_or_default();
            loops.extend(functions.iter().flat_map(|function| elf.parts(function)));
        }
        Some(Self { python, elf, loops })
    }
}
