//! CPython, 3.11 to 3.14.
//!
//! Nothing is stopped and nothing is written: what is read may be in the middle of a change, so that
//! nothing is believed before it was checked. Not here: what the frames are used for.

mod code;
mod layout;
mod walk;

use std::rc::Rc;

use rustc_hash::FxHashMap;
use tracer_common::interpreter::{Interpreter, Sent, Threads};

use self::code::{Code, Parts};
use self::layout::{HEAD, Layout};
use super::Function;
use super::memory::Memory;
use crate::target::elf::{Elf, ObjectAddr};

/// An object with an interpreter in it.
#[derive(Debug)]
pub(super) struct Python {
    layout: Layout,
    runtime: ObjectAddr,
    types: Types<ObjectAddr>,
}

/// The types of what is read: by them something else in the place of an object is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Types<A> {
    code: A,
    text: A,
    bytes: A,
}

impl Types<ObjectAddr> {
    /// Where the process has them.
    fn at(self, bias: u64) -> Types<u64> {
        let at = |addr: ObjectAddr| addr.0.wrapping_add(bias);
        Types { code: at(self.code), text: at(self.text), bytes: at(self.bytes) }
    }
}

/// Code objects that were read, by their address.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: FxHashMap<u64, Known>,
    /// Bytes of all of them.
    size: usize,
}

#[derive(Debug)]
struct Known {
    parts: Parts,
    code: Code,
    /// Was another one in its place with the same fingerprint?
    is_reused: bool,
    /// The function at each line of it that was asked for, and whether it was this one for certain.
    at_line: FxHashMap<(Option<u32>, bool), Rc<Function>>,
}

/// What is found where a function's code object should be.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// It says what the function is called.
    Function(Rc<Function>),
    /// Code of the interpreter's own.
    MadeUp,
    /// Nothing: it was thrown away.
    Gone,
}

/// Bytes of code objects that are kept, and what one takes beside its text: a program of ten thousand
/// functions has some ten megabytes.
const MOST_KEPT: usize = 64 << 20;
const EACH: usize = 512;

impl Python {
    /// The interpreter in this object. `None` when there is none, or none that can be read.
    pub(super) fn of(elf: &Elf) -> Option<Self> {
        let [runtime, version, code, text, bytes] = elf.variables([
            "_PyRuntime",
            "Py_Version",
            "PyCode_Type",
            "PyUnicode_Type",
            "PyBytes_Type",
        ]);
        let runtime = runtime?;
        let types = Types { code: code?, text: text?, bytes: bytes? };
        let version = version.and_then(|addr| elf.initial(addr)).map(u64::from_ne_bytes);
        // Where all of it begins as zero the file has no bytes of it, and nothing tells offsets.
        let head: [u8; HEAD] = elf.initial(runtime).unwrap_or([0; HEAD]);
        let layout = Layout::of(version?, &head)?;
        Some(Self { layout, runtime, types })
    }

    /// How the frames of each thread of a process are followed, by the id that the thread has in its
    /// own pid namespace. `bias` is what is added to the object's addresses to get the process's.
    ///
    /// `alone` is the id of the only thread of the process, if it has one: then a single state is its
    /// own, whatever id is in it. A process that was forked may have its parent's there.
    pub(super) fn threads(
        &self,
        memory: &impl Memory,
        space: u64,
        bias: u64,
        alone: Option<u32>,
    ) -> Option<Vec<(u64, Interpreter)>> {
        let runtime = self.runtime.0.wrapping_add(bias);
        let threads = walk::threads(memory, &self.layout, runtime)?;
        let alone = alone.filter(|_| threads.len() == 1).map(u64::from);
        let interpreter = |state: walk::ThreadState| {
            let interpreter = self.layout.interpreter(space, state.addr, state.id);
            (alone.unwrap_or(state.id), interpreter)
        };
        Some(threads.into_iter().map(interpreter).collect())
    }

    /// Where the threads of a process are listed.
    pub(super) fn list(&self, memory: &impl Memory, space: u64, bias: u64) -> Option<Threads> {
        let runtime = self.runtime.0.wrapping_add(bias);
        let first = walk::first_thread(memory, &self.layout, runtime)?;
        let model = self.layout.interpreter(space, 0, 0);
        let Layout { thread_next, native_id, .. } = self.layout;
        Some(Threads { first, next: thread_next, id: native_id, head: model.head, model })
    }

    /// What this function is called.
    pub(super) fn name(
        &self,
        memory: &impl Memory,
        bias: u64,
        function: Sent,
        codes: &mut Codes,
    ) -> Named {
        self.named(memory, bias, function, codes).unwrap_or(Named::Gone)
    }

    fn named(
        &self,
        memory: &impl Memory,
        bias: u64,
        Sent { function, fingerprint }: Sent,
        codes: &mut Codes,
    ) -> Option<Named> {
        let layout = &self.layout;
        let types = self.types.at(bias);
        let parts = Parts::read(memory, layout, &types, function.code)?;
        if fingerprint != 0 && fingerprint != parts.fingerprint() {
            return None;
        }
        let distance = parts.distance(memory, layout, function)?;
        let known = codes.get(memory, layout, &types, function.code, parts)?;
        let Known { code, at_line, is_reused, .. } = known;
        let line = code.line(distance);
        if line.is_none() && parts.is_made_up() {
            return Some(Named::MadeUp);
        }
        let is_certain = fingerprint != 0 && !*is_reused;
        let make = || {
            let (name, file) = (code.name.clone(), Some(code.file.clone()));
            Function { name, file, line, is_certain }.into()
        };
        Some(Named::Function(at_line.entry((line, is_certain)).or_insert_with(make).clone()))
    }
}

/// Everything that is read of a process which has these bytes from its first address on, and at the
/// first one its runtime. The functions are of those at these addresses.
pub(crate) fn read_all(version: u64, bytes: &[u8], functions: [Sent; 2]) {
    let head = &bytes[..bytes.len().min(HEAD)];
    let Some(layout) = Layout::of(version, head) else { return };
    let first = ObjectAddr(0);
    let types = Types { code: first, text: first, bytes: first };
    let python = Python { layout, runtime: first, types };
    for alone in [None, Some(1)] {
        let threads = python.threads(&bytes, 1, 0, alone).unwrap_or_default();
        assert!(threads.len() <= walk::MOST, "more threads than are read");
    }
    let _ = python.list(&bytes, 1, 0);
    let mut codes = Codes::default();
    for function in functions {
        let _ = python.name(&bytes, 0, function, &mut codes);
    }
    assert!(codes.size <= MOST_KEPT, "more is kept than should be");
}

impl Codes {
    /// The code object at `addr`, which has these parts.
    fn get(
        &mut self,
        memory: &impl Memory,
        layout: &Layout,
        types: &Types<u64>,
        addr: u64,
        parts: Parts,
    ) -> Option<&mut Known> {
        if self.known.get(&addr).is_none_or(|known| known.parts != parts) {
            let code = Code::read(memory, layout, types, &parts)?;
            // Its text was its own if it was there all the time.
            Parts::read(memory, layout, types, addr).filter(|again| *again == parts)?;
            let size = EACH + code.size();
            if self.size + size > MOST_KEPT {
                *self = Self::default();
            }
            // What it replaces is counted until all of them are dropped.
            self.size += size;
            let is_reused = self.known.get(&addr).is_some_and(|known| {
                known.parts.fingerprint() == parts.fingerprint()
                    && (known.is_reused || known.code != code)
            });
            let at_line = FxHashMap::default();
            self.known.insert(addr, Known { parts, code, is_reused, at_line });
        }
        self.known.get_mut(&addr)
    }
}

/// Is the function of this name the interpreter's loop, or a part of it that a compiler made a
/// function?
pub(super) fn is_loop(name: &str) -> bool {
    let rest = name.strip_prefix("_PyEval_EvalFrameDefault");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
