//! CPython, 3.11 to 3.14.
//!
//! Nothing is stopped and nothing is written: what is read may be in the middle of a change, so that
//! nothing is believed before it was checked. Not here: what the frames are used for.

mod code;
mod layout;
mod walk;

use rustc_hash::FxHashMap;

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
    code_type: ObjectAddr,
}

/// Code objects that were read, by their address.
#[derive(Debug, Default)]
pub(super) struct Codes(FxHashMap<u64, (Parts, Code)>);

/// Code objects that are kept: some ten megabytes.
const MOST_CODES: usize = 20_000;

/// A thread to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    /// Its id in the innermost pid namespace.
    pub(super) id: u32,
    /// Is it the only one of its process?
    pub(super) alone: bool,
    /// What is added to the object's addresses to get the process's.
    pub(super) bias: u64,
}

impl Python {
    /// The interpreter in this object. `None` when there is none, or none that can be read.
    pub(super) fn of(elf: &Elf) -> Option<Self> {
        let [runtime, code_type, version] =
            elf.variables(["_PyRuntime", "PyCode_Type", "Py_Version"]);
        let (runtime, code_type) = (runtime?, code_type?);
        let version = version.and_then(|addr| elf.initial(addr)).map(u64::from_ne_bytes);
        // Where all of it begins as zero the file has no bytes of it, and nothing tells offsets.
        let head: [u8; HEAD] = elf.initial(runtime).unwrap_or([0; HEAD]);
        let layout = Layout::of(version?, &head)?;
        Some(Self { layout, runtime, code_type })
    }

    /// The functions that this thread is in, by the call of the interpreter's loop that runs them;
    /// innermost first, both calls and functions. `None` when that cannot be read.
    pub(super) fn functions(
        &self,
        memory: &impl Memory,
        thread: Thread,
        codes: &mut Codes,
    ) -> Option<Vec<Vec<Function>>> {
        let layout = &self.layout;
        let runtime = self.runtime.0.wrapping_add(thread.bias);
        let state = walk::thread(memory, layout, runtime, thread.id, thread.alone)?;
        let calls = walk::calls(memory, layout, state)?;
        let code_type = self.code_type.0.wrapping_add(thread.bias);
        let mut functions = Vec::with_capacity(calls.len());
        for call in calls {
            let named = call.iter().map(|frame| self.function(memory, code_type, frame, codes));
            // One that cannot be named would be missing between its neighbours.
            functions.push(named.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect());
        }
        Some(functions)
    }

    /// `Some(None)` for a frame that is no function's.
    fn function(
        &self,
        memory: &impl Memory,
        code_type: u64,
        frame: &walk::RawFrame,
        codes: &mut Codes,
    ) -> Option<Option<Function>> {
        let layout = &self.layout;
        let parts = Parts::read(memory, layout, code_type, frame.code)?;
        let code = codes.get(memory, layout, frame.code, parts)?;
        let line = code.line(parts.distance(memory, layout, frame)?);
        let (name, file) = (code.name.clone(), code.file.clone());
        Some(Some(Function { name, file, line }))
    }
}

impl Codes {
    /// The code object at `addr`, which has these parts.
    fn get(
        &mut self,
        memory: &impl Memory,
        layout: &Layout,
        addr: u64,
        parts: Parts,
    ) -> Option<&Code> {
        if self.0.get(&addr).is_none_or(|(known, _)| *known != parts) {
            let code = Code::read(memory, layout, &parts)?;
            if self.0.len() >= MOST_CODES {
                self.0.clear();
            }
            self.0.insert(addr, (parts, code));
        }
        self.0.get(&addr).map(|(_, code)| code)
    }
}
