//! How a frame is called, and which frame best names a stack: the first one, from the
//! allocator outwards, that is not the machinery through which everybody allocates.

mod lists;

use std::borrow::{Borrow, Cow};

use self::lists::{
    FUNCTIONS, GLUE_PREFIXES, INITIALIZERS, OBJECTS, PREFIXES, RUNTIME_FILES, RUNTIME_OBJECTS,
    RUNTIME_PREFIXES, RUNTIME_PROGRAMS, RUST_PREFIXES,
};
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
    let initialized = || initialized(frames);
    let frames = || frames.iter().map(Borrow::borrow);
    let script = frames().find(|frame| !is_machinery(frame) && !is_runtime(frame));
    script
        .filter(|frame| is_script(frame))
        .or_else(|| frames().find(|frame| !is_machinery(frame)))
        .or_else(initialized)
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
    let Some(named) = best(frames) else { return Cow::Borrowed(LOST) };
    match (&named.function, &named.object, initialized(frames)) {
        (None, Some(object), Some(initialized)) if std::ptr::eq(named, initialized) => {
            format!("initialization of {}", file_name(object)).into()
        }
        _ => of(named),
    }
}

/// The function of a library of machinery that is called before the program: the emergency pool of
/// libstdc++ is nobody else's.
fn initialized<F: Borrow<Frame>>(frames: &[F]) -> Option<&Frame> {
    let is_by = |frame: &Frame| {
        frame.function.as_deref().is_some_and(|function| INITIALIZERS.contains(&function))
    };
    let caller = frames.iter().position(|frame| is_by(frame.borrow()))?;
    frames.get(caller.checked_sub(1)?).map(Borrow::borrow)
}

fn is_machinery(frame: &Frame) -> bool {
    let in_object =
        frame.object.as_deref().is_some_and(|object| begins(file_name(object), OBJECTS));
    let by_name = frame.function.as_deref().is_some_and(|function| {
        let name = without_types(function);
        let is_operator = name.ends_with("operator new") || name.ends_with("operator new[]");
        is_operator || FUNCTIONS.contains(&name) || begins(name, PREFIXES) || is_of_rust(name)
    });
    // A frame without a name says less than its caller.
    in_object || by_name || (frame.function.is_none() && frame.object.is_none())
}

/// Is it Rust's `<T as Trait>::f` or `<T>::f`, of a type that is Rust's own or stands for any, and
/// of a trait of Rust's own? `<app::T as core::clone::Clone>::clone` is the application's, and so is
/// `<u8 as app::Trait>::f`.
fn is_of_rust(name: &str) -> bool {
    let Some(inner) = name.strip_prefix('<') else { return false };
    let mut depth = 1_usize;
    let (mut separator, mut previous) = (None, '<');
    for (at, char) in inner.char_indices() {
        match char {
            '<' | '(' | '[' => depth += 1,
            '>' if previous == '-' => {}
            '>' | ')' | ']' if depth == 1 => {
                let (class, of_trait) = match separator {
                    Some(separator) => (&inner[..separator], Some(&inner[separator + 4..at])),
                    None => (&inner[..at], None),
                };
                let class = class.trim_start_matches(['&', '[', '*', '(']);
                let class = class.strip_prefix("mut ").unwrap_or(class);
                let is_any = of_trait.is_some() && !class.contains("::");
                return (is_any || begins(class, RUST_PREFIXES))
                    && of_trait.is_none_or(|of_trait| begins(of_trait, RUST_PREFIXES));
            }
            '>' | ')' | ']' => depth -= 1,
            ' ' if depth == 1 && inner[at..].starts_with(" as ") => separator = Some(at),
            _ => {}
        }
        previous = char;
    }
    false
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
