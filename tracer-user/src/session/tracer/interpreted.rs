//! The functions of interpreters, and their place in the stacks.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tracer_common::decode::Functions;

use super::Tracer;
use crate::{
    interpreters::{Found, Function, Interpreted, Interpreters, Seen},
    probes::Probes,
    report::model::Frame,
    symbols::{Binder, Bound},
    target::{mappings::Mapping, process::Process},
};

/// Is it the code that CPython makes of each function for `perf`, with the name that it has written down?
/// It says the same as the function, without a line.
fn is_written_down(frame: &Frame) -> bool {
    is_made(frame) && frame.file.is_some() && frame.line.is_none()
}

/// Is it code that no file has?
fn is_made(frame: &Frame) -> bool {
    frame.object.is_none() && !frame.interpreted
}

/// What interpreters ran, by stack.
#[derive(Default)]
pub(super) struct Scripts {
    interpreters: Interpreters,
    by_stack: FxHashMap<u64, Interpreted>,
}

impl Scripts {
    /// Keeps what the kernel side has sent ahead of a stack.
    pub(super) fn keep(&mut self, functions: &Functions<'_>) {
        self.interpreters.keep(functions);
    }

    /// The word that stands in the hash of a stack of this thread for what was sent ahead.
    pub(super) fn word(&self, tid: u32, hash: u64) -> Option<u64> {
        self.interpreters.word(tid, hash)
    }

    /// A stack was seen for the first time and is called `hash` from here on. Answers what the
    /// kernel side is to know.
    pub(super) fn learn(&mut self, hash: u64, seen: &Seen<'_>, binder: &Binder) -> Found {
        let mut found = self.interpreters.look(seen, binder);
        if let Some(interpreted) = found.interpreted.take() {
            self.by_stack.insert(hash, interpreted);
        }
        found
    }

    /// A process is traced from here on that may run an interpreter already. Answers what the kernel
    /// side is to know.
    pub(super) fn survey(&mut self, space: u64, process: &Process, binder: &mut Binder) -> Found {
        let Ok(mappings) = process.mappings() else { return Found::default() };
        let may_have_one = |mapping: &&Mapping| {
            let path = Path::new(&mapping.path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_named = name.contains("python") || path == process.exe;
            is_named && mapping.is_executable() && mapping.has_file()
        };
        // A return address is bound by what lies before it.
        let starts = mappings.list.iter().filter(may_have_one).map(|mapping| mapping.start + 1);
        let code: Vec<Bound> = starts.map(|addr| binder.bind(space, process, addr)).collect();
        self.interpreters.survey(space, process, &code, binder)
    }

    /// The stack will not be named any more.
    pub(super) fn forget(&mut self, hash: u64) {
        self.by_stack.remove(&hash);
    }

    /// The address space is no more.
    pub(super) fn close(&mut self, space: u64) {
        self.interpreters.close(space);
    }

    /// The frames of this stack, of which `native` are those of each return address: an interpreter's
    /// loop is replaced by the functions that it ran. `shared` are those that other stacks have.
    pub(super) fn merged(
        &self,
        hash: u64,
        mut native: Vec<Vec<Arc<Frame>>>,
        shared: &mut FxHashSet<Arc<Frame>>,
    ) -> Vec<Arc<Frame>> {
        let Some(interpreted) = self.by_stack.get(&hash) else { return native.concat() };
        if interpreted.is_sample && native.iter().flatten().any(|frame| is_written_down(frame)) {
            return native.concat();
        }
        for (place, functions) in &interpreted.calls {
            let Some(frames) = native.get_mut(*place) else { continue };
            if functions.is_empty() {
                continue;
            }
            // The last one is the loop, those before it were inlined into it.
            if let Some(loop_itself) = frames.pop() {
                for function in functions {
                    let frame = ran(&loop_itself, function, interpreted.is_sample);
                    let frame = shared.get(&frame).cloned().unwrap_or_else(|| Arc::new(frame));
                    shared.insert(frame.clone());
                    frames.push(frame);
                }
            }
            // The interpreter calls its loop, or the code that it has made of the function does, whose
            // name may not be written down yet.
            if let Some(frames) = native.get_mut(*place + 1) {
                frames.retain(|frame| !is_made(frame));
            }
        }
        native.concat()
    }
}

impl Tracer {
    /// Has the interpreters of a process followed that was there before it is traced.
    pub(super) fn survey(&mut self, space: u64, process: &Process) {
        let found = self.scripts.survey(space, process, &mut self.binder);
        tell(&mut self.probes, &found);
    }
}

/// Tells the kernel side whom to follow. Where there is no room, functions are a sample.
pub(super) fn tell(probes: &mut Probes, found: &Found) {
    let told = found.list.iter().try_for_each(|list| probes.give_threads(list));
    if let Err(error) = told.and_then(|()| probes.give_interpreters(&found.threads)) {
        log::debug!("{error}");
    }
}

/// A function that ran in this frame. It has no place in the object, but in its own file.
fn ran(frame: &Frame, function: &Function, is_sample: bool) -> Frame {
    Frame {
        function: Some(function.name.to_string()),
        object: frame.object.clone(),
        offset: None,
        address: frame.address.clone(),
        file: function.file.as_ref().map(ToString::to_string),
        line: function.line,
        inlined: false,
        interpreted: true,
        sampled: is_sample || !function.is_certain,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn frame(function: &str) -> Frame {
        Frame {
            function: Some(function.to_owned()),
            object: Some("/usr/bin/python3".to_owned()),
            offset: Some(0x10),
            ..Frame::default()
        }
    }

    fn function(name: &str, line: u32) -> Rc<Function> {
        let (name, file) = (name.into(), Some("/app/a.py".into()));
        Function { name, file, line: Some(line), is_certain: true }.into()
    }

    fn merged(is_sample: bool, hash: u64, native: Vec<Vec<Arc<Frame>>>) -> Vec<Arc<Frame>> {
        scripts(is_sample).merged(hash, native, &mut FxHashSet::default())
    }

    fn scripts(is_sample: bool) -> Scripts {
        let inner = vec![function("leak", 3), function("handle", 7)];
        let calls = vec![(1, inner), (3, vec![function("<module>", 9)])];
        let mut scripts = Scripts::default();
        scripts.by_stack.insert(5, Interpreted { calls, is_sample });
        scripts
    }

    fn native() -> Vec<Vec<Arc<Frame>>> {
        let names = [&["new"][..], &["inlined", "loop"], &["callback"], &["loop"], &["main"]];
        names.iter().map(|names| names.iter().map(|name| frame(name).into()).collect()).collect()
    }

    fn names(frames: &[Arc<Frame>]) -> Vec<&str> {
        frames.iter().filter_map(|frame| frame.function.as_deref()).collect()
    }

    #[test]
    fn functions_take_the_place_of_the_loop_that_ran_them() {
        let functions = merged(false, 5, native());
        assert_eq!(
            names(&functions),
            ["new", "inlined", "leak", "handle", "callback", "<module>", "main"]
        );
        let expected = Frame {
            offset: None,
            interpreted: true,
            file: Some("/app/a.py".to_owned()),
            line: Some(3),
            ..frame("leak")
        };
        assert_eq!(*functions[2], expected);
        assert!(merged(true, 5, native())[2].sampled);
    }

    #[test]
    fn stacks_with_the_same_functions_share_them() {
        let (scripts, mut shared) = (scripts(false), FxHashSet::default());
        let one = scripts.merged(5, native(), &mut shared);
        let other = scripts.merged(5, native(), &mut shared);
        assert!(Arc::ptr_eq(&one[2], &other[2]));
        assert!(!Arc::ptr_eq(&one[2], &other[3]));
    }

    #[test]
    fn a_stack_without_an_interpreter_stays_as_it_is() {
        assert_eq!(merged(false, 6, native()), native().concat());
    }

    #[test]
    fn names_that_the_target_has_written_down_are_better_than_a_sample_and_else_not_said_twice() {
        let made = |function: Option<&str>| Frame {
            function: function.map(str::to_owned),
            file: function.map(|_| "/app/a.py".to_owned()),
            ..Frame::default()
        };
        for function in [Some("handle"), None] {
            let mut native = native();
            native[2] = vec![made(function).into()];
            let whole = native.concat();
            if function.is_some() {
                assert_eq!(merged(true, 5, native.clone()), whole);
            }
            let functions = merged(false, 5, native);
            assert_eq!(names(&functions), ["new", "inlined", "leak", "handle", "<module>", "main"]);
            assert_eq!(functions.len(), 6, "{functions:?}");
        }
    }

    #[test]
    fn a_place_outside_the_stack_changes_nothing() {
        let native = vec![vec![frame("new").into()]];
        assert_eq!(merged(false, 5, native.clone()), native.concat());
    }
}
