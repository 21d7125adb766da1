//! What interpreters ran when a stack was first seen, and its place in the stack.

use rustc_hash::FxHashMap;

use crate::{
    interpreters::{Function, Interpreters, Sample},
    report::model::Frame,
    symbols::{Binder, Bound},
    target::process::Process,
};

/// One sample for each stack that had an interpreter on it.
#[derive(Default)]
pub(super) struct Interpreted {
    interpreters: Interpreters,
    samples: FxHashMap<u64, Sample>,
}

impl Interpreted {
    /// A stack of this thread was seen for the first time.
    pub(super) fn learn(
        &mut self,
        hash: u64,
        (space, process, tid): (u64, &Process, u32),
        stack: &[Bound],
        binder: &Binder,
    ) {
        if let Some(sample) = self.interpreters.sample(space, process, tid, stack, binder) {
            self.samples.insert(hash, sample);
        }
    }

    /// The stack will not be named any more.
    pub(super) fn forget(&mut self, hash: u64) {
        self.samples.remove(&hash);
    }

    /// The address space is no more.
    pub(super) fn close(&mut self, space: u64) {
        self.interpreters.close(space);
    }

    /// The frames of this stack, with the interpreter's replaced by the functions that it ran.
    pub(super) fn merged(&self, hash: u64, frames: Vec<Frame>) -> Vec<Frame> {
        let Some(sample) = self.samples.get(&hash) else { return frames };
        let names = frames.iter().map(|frame| frame.function.as_deref());
        let Some(placed) = sample.placed(names) else { return frames };
        let merge = |(frame, functions): (&Frame, &[Function])| match functions {
            [] => vec![frame.clone()],
            functions => functions.iter().map(|function| interpreted(frame, function)).collect(),
        };
        frames.iter().zip(placed).flat_map(merge).collect()
    }
}

/// A function that ran in this frame.
fn interpreted(frame: &Frame, function: &Function) -> Frame {
    Frame {
        function: Some(function.name.clone()),
        object: frame.object.clone(),
        offset: frame.offset,
        address: frame.address.clone(),
        file: Some(function.file.clone()),
        line: function.line,
        inlined: false,
        sampled: true,
    }
}
