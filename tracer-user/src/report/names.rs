//! How a frame is called, and which frame best names a stack: the first one, from the
//! allocator outwards, that is not the machinery through which everybody allocates.

use std::borrow::{Borrow, Cow};

use super::model::Frame;

/// Name of a stack whose frames were lost.
pub const LOST: &str = "[stack lost]";
/// Name of the frame between a signal's handler and what it interrupted, as debuggers call it.
pub const SIGNAL: &str = "<signal handler called>";
/// Stands in front of the outermost frame where there are more, which could not be found.
pub const BROKEN: &str = "[broken stack]";
/// Stands in front of the outermost frame where there are more, which were not taken.
pub const DEPTH_LIMIT: &str = "[depth limit]";
/// Name of a frame of which nothing is known.
pub const UNKNOWN: &str = "[unknown]";

/// Files, by how their names begin, that hold nothing but machinery.
const OBJECTS: &[&str] = &[
    "ld-linux",
    "ld-musl",
    "libasan.so",
    "libc++.so",
    "libc++abi.so",
    "libc-2.",
    "libc.musl",
    "libc.so",
    "libgcc_s.so",
    "libjemalloc",
    "libmimalloc",
    "libpthread",
    "libstdc++.so",
    "libtcmalloc",
];

/// Functions that are machinery wherever they are: allocators linked into the program, and
/// what libraries and programs put around them (OpenSSL, CPython, GLib, GNU programs, Redis).
const FUNCTIONS: &[&str] = &[
    "CRYPTO_malloc",
    "CRYPTO_realloc",
    "CRYPTO_zalloc",
    "PyObject_Calloc",
    "PyObject_Malloc",
    "PyObject_Realloc",
    "_PyObject_Calloc",
    "_PyObject_Malloc",
    "_PyObject_Realloc",
    "aligned_alloc",
    "calloc",
    "cfree",
    "free",
    "g_malloc",
    "g_malloc0",
    "g_realloc",
    "g_strdup",
    "malloc",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "__strdup",
    "__strndup",
    "asprintf",
    "strdup",
    "strndup",
    "valloc",
    "vasprintf",
    "xcalloc",
    "xmalloc",
    "xrealloc",
    "xstrdup",
    "zcalloc",
    "zmalloc",
    "zrealloc",
    "zstrdup",
];

/// Beginnings of names that are machinery: allocation and containers of C++ and Rust, and
/// families of allocation functions.
const PREFIXES: &[&str] = &[
    "<&T as alloc::",
    "<&T as core::",
    "<I as core::",
    "<T as alloc::",
    "<T as core::",
    "<U as core::",
    "<[T] as alloc::",
    "<[T] as core::",
    "<alloc::",
    "<core::",
    "<hashbrown::",
    "<std::",
    "<str as alloc::",
    "PyMem_",
    "_PyMem_",
    "__gnu_cxx::",
    "__libc_",
    "__rdl_",
    "__rg_",
    "__rust_",
    "__rustc::",
    "_rjem_",
    "alloc::",
    "core::",
    "hashbrown::",
    "mi_calloc",
    "mi_heap_",
    "mi_malloc",
    "mi_new",
    "mi_realloc",
    "mi_zalloc",
    "operator new",
    "std::",
    "ztrycalloc",
    "ztrymalloc",
    "ztryrealloc",
];

/// Files, by how their names begin, that run scripts and other generated code.
const RUNTIME_OBJECTS: &[&str] =
    &["libcoreclr.so", "libjvm.so", "libnode.so", "libpython", "python2", "python3"];
/// Programs that do; the beginning of their names would be that of others.
const RUNTIME_PROGRAMS: &[&str] = &["node"];

/// Beginnings of names of functions that run scripts, where they are linked into a program.
const RUNTIME_PREFIXES: &[&str] =
    &["Builtins_", "Py", "_Py", "napi_", "node::", "py_trampoline_evaluator", "v8::", "v8impl::"];

/// Beginnings of names of scripts that come with a runtime.
const RUNTIME_FILES: &[&str] = &["<frozen ", "node:"];

/// Beginnings of names of generated code that is the runtime's, not a script's.
const GLUE_PREFIXES: &[&str] = &[
    "Builtin:",
    "BytecodeHandler:",
    "Interpreter",
    "Stub:",
    "StubRoutines",
    "py_trampoline",
    "vtable chunks",
];

/// The frame's function; without one the object and the place in it; `[unknown]` with neither.
pub fn of(frame: &Frame) -> Cow<'_, str> {
    match (&frame.function, &frame.object) {
        (Some(function), _) if frame.sampled => Cow::Owned(format!("{function} (sampled)")),
        (Some(function), _) if !function.trim().is_empty() => Cow::Borrowed(function),
        (_, Some(object)) if !object.is_empty() => {
            Cow::Owned(format!("{}+0x{:x}", file_name(object), frame.offset.unwrap_or(0)))
        }
        _ => Cow::Borrowed(UNKNOWN),
    }
}

/// As [`of`], where no source file stands beside it: a function of a script with its place, since
/// scripts have many functions of one name, or of none.
pub fn alone(frame: &Frame) -> Cow<'_, str> {
    let name = of(frame);
    if let (true, Some(file)) = (frame.interpreted, &frame.file) {
        // The line is the one that it was at, not where it begins.
        return format!("{name} {}", file_name(file)).into();
    }
    match (&frame.object, &frame.file, frame.line) {
        (None, Some(file), Some(line)) => format!("{name} {}:{line}", file_name(file)).into(),
        (None, Some(file), None) => format!("{name} {}", file_name(file)).into(),
        _ => name,
    }
}

/// The frame that best names a stack whose frames go from the allocator's caller outwards:
/// the first that is no machinery; when all are, the first with a function; else the first.
///
/// A runtime allocates for the script that it runs: where the first is of a runtime, it is the
/// script's function that called it, if that has a name.
pub fn best<F: Borrow<Frame>>(frames: &[F]) -> Option<&Frame> {
    let frames = || frames.iter().map(Borrow::borrow);
    let script = frames().find(|frame| !is_machinery(frame) && !is_runtime(frame));
    script
        .filter(|frame| is_script(frame))
        .or_else(|| frames().find(|frame| !is_machinery(frame)))
        .or_else(|| frames().find(|frame| frame.function.is_some()))
        .or_else(|| frames().next())
}

/// The frames that called the one that names the stack, from it outwards: of those that have a
/// name, what is no machinery, with their places in the stack. Of a script's function they are
/// functions of scripts.
pub(super) fn callers<'a>(frames: &[&'a Frame]) -> Vec<(usize, &'a Frame)> {
    let Some(named) = best(frames) else { return Vec::new() };
    let from = frames.iter().position(|frame| std::ptr::eq(*frame, named)).unwrap_or(0);
    let of_script = is_script(named);
    let says = |(_, frame): &(usize, &Frame)| {
        frame.function.is_some() && !is_machinery(frame) && !(of_script && is_runtime(frame))
    };
    frames.iter().copied().enumerate().skip(from + 1).filter(says).collect()
}

/// How a stack is called in a table.
pub fn of_stack<F: Borrow<Frame>>(frames: &[F]) -> Cow<'_, str> {
    best(frames).map_or(Cow::Borrowed(LOST), of)
}

fn is_machinery(frame: &Frame) -> bool {
    let in_object =
        frame.object.as_deref().is_some_and(|object| begins(file_name(object), OBJECTS));
    let by_name = frame.function.as_deref().is_some_and(|function| {
        let name = without_types(function);
        FUNCTIONS.contains(&name) || begins(name, PREFIXES)
    });
    // A frame without a name says less than its caller.
    in_object || by_name || (frame.function.is_none() && frame.object.is_none())
}

fn is_runtime(frame: &Frame) -> bool {
    let Some(object) = frame.object.as_deref().filter(|_| !frame.interpreted) else {
        let file = frame.file.as_deref().unwrap_or_default();
        let function = frame.function.as_deref().unwrap_or_default();
        return begins(file, RUNTIME_FILES) || begins(function, GLUE_PREFIXES);
    };
    let name = file_name(object);
    begins(name, RUNTIME_OBJECTS)
        || RUNTIME_PROGRAMS.contains(&name)
        || frame
            .function
            .as_deref()
            .is_some_and(|name| begins(without_types(name), RUNTIME_PREFIXES))
}

/// Is it a script's function, run by an interpreter or made into code?
fn is_script(frame: &Frame) -> bool {
    frame.interpreted || frame.object.is_none() && frame.function.is_some()
}

fn begins(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The name alone, without the return type that C++ writes before the name of a template's
/// instance and without the parameters: `void std::f<int>(int)` is `std::f<int>`.
fn without_types(function: &str) -> &str {
    if function.starts_with('<') {
        return function;
    }
    let (mut depth, mut start) = (0_i32, 0);
    for (at, char) in function.char_indices() {
        match char {
            '(' if depth == 0 && !function[start..at].is_empty() => return &function[start..at],
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth -= 1,
            ' ' if depth == 0 && !function[start..at].ends_with("operator") => start = at + 1,
            _ => {}
        }
    }
    &function[start..]
}

#[cfg(test)]
mod tests;
