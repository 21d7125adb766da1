//! Names of the functions in an object's file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf as ElfSource, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};

use super::demangle::Demangler;
use super::linkage::{Symbols, is_mangled};
use super::split::{Missing, Places};
use super::{
    Bound, Frame, Object, ObjectKind, debug_files, debug_info, mini_debug, nameless, strings,
};
use crate::target::elf::{Elf, FileOffset, ObjectAddr};
use crate::target::objects::path_of;

/// The frames at these places of the object; `None` when it is no ELF file.
pub(super) fn lookup(object: &Object, bounds: &[Bound]) -> Option<Vec<(Bound, Vec<Frame>)>> {
    let file = match &object.kind {
        ObjectKind::File(file) => file.as_ref()?,
        ObjectKind::Kernel | ObjectKind::Anonymous => return None,
    };
    let elf = Elf::open(file).ok()?;
    let addrs: Vec<Option<ObjectAddr>> =
        bounds.iter().map(|bound| elf.object_addr(FileOffset(bound.offset))).collect();
    let asked: Vec<u64> = addrs.iter().flatten().map(|addr| addr.0).collect();

    let mut found = found_in(&elf, file, object, &asked).into_iter();
    let named = bounds.iter().zip(addrs).map(|(bound, addr)| {
        let mut frame = nameless(*bound, Some(object));
        let mut frames = Vec::new();
        if let Some(addr) = addr {
            frame.offset = addr.0;
            frames = found.next().unwrap_or_default();
        }
        for found in &mut frames {
            found.object.clone_from(&frame.object);
            found.offset = frame.offset;
            found.address = frame.address;
        }
        if frames.is_empty() {
            frames.push(frame);
        }
        (*bound, frames)
    });
    Some(named.collect())
}

/// The functions at each of these addresses, innermost first, without their place. What one
/// source does not name is asked of the next: the debug file, which says most, the object
/// itself, the small table within it.
fn found_in(elf: &Elf, file: &File, object: &Object, addrs: &[u64]) -> Vec<Vec<Frame>> {
    let mut found = vec![Vec::new(); addrs.len()];
    let folders = debug_files::folders(object);
    let open = |path: &Path| debug_files::at(object, path);
    let places = Places { object: Path::new(&object.name), open: &open, folders: &folders };
    let mut demangler = Demangler::default();
    let mut ask = |file: &File| {
        let left: Vec<usize> = (0..addrs.len()).filter(|at| found[*at].is_empty()).collect();
        let asked: Vec<u64> = left.iter().map(|at| addrs[*at]).collect();
        if !asked.is_empty() {
            let (frames, missing) = found_at(file, &places, &asked, &mut demangler);
            for (at, frames) in left.into_iter().zip(frames) {
                found[at] = frames;
            }
            tell(object, &missing);
        }
    };
    if !has_debug_info(elf)
        && let Some(debug) = debug_files::find(elf, object)
    {
        ask(&debug);
    }
    ask(file);
    if let Some(table) = mini_debug::unpack(elf) {
        ask(&table);
    }
    found
}

/// Says once of an object that files are missing.
fn tell(object: &Object, missing: &Missing) {
    if 0 < missing.count && !object.is_told.replace(true) {
        log::warn!(
            "what was inlined in {} has no names: its debug information is missing in {} and {} \
             other files",
            object.name.escape_debug(),
            missing.example.to_string_lossy().escape_debug(),
            missing.count - 1
        );
    }
}

/// `.zdebug_info` is what old compilers called a compressed one.
fn has_debug_info(elf: &Elf) -> bool {
    [".debug_info", ".zdebug_info"].iter().any(|name| elf.has_section(name))
}

/// The functions at each of these addresses, as this file knows them; empty where it knows none.
/// Files of debug information that would have told more are missing.
pub(crate) fn found_at(
    file: &File,
    places: &Places<'_>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> (Vec<Vec<Frame>>, Missing) {
    let mut answers: Vec<Answer> = vec![Answer::Refused; addrs.len()];
    let left = |answers: &[Answer]| {
        let refused = |at: &usize| matches!(answers[*at], Answer::Refused);
        (0..addrs.len()).filter(refused).collect::<Vec<_>>()
    };
    // First with debug information, which may be broken where the symbols are not. Where there is
    // none, the symbolizer would look for a debug file by itself, and ask nobody who may read it.
    let elf = Elf::open(file);
    let is_safe = elf.as_ref().is_ok_and(|elf| strings::may_be_read(elf, file));
    let symbols = Symbols::of(elf.as_ref().ok(), addrs);
    let mut missing = Missing::default();
    if let Some(elf) = elf.as_ref().ok().filter(|_| is_safe)
        && let Some(more) = debug_info::found_at(elf, places, &symbols, addrs, demangler)
    {
        missing = more.missing;
        for (answer, frames) in answers.iter_mut().zip(more.frames) {
            if !frames.is_empty() {
                *answer = Answer::Frames(frames);
            }
        }
    }
    for debug_syms in [true, false].into_iter().filter(|_| is_safe) {
        if debug_syms && !elf.as_ref().is_ok_and(has_debug_info) {
            continue;
        }
        let at = left(&answers);
        let asked: Vec<u64> = at.iter().map(|at| addrs[*at]).collect();
        if asked.is_empty() {
            break;
        }
        let source = Asked { path: &path_of(file), folders: places.folders, debug_syms };
        let said = symbolized(&source, &symbols, &asked, demangler).unwrap_or_default();
        for (at, answer) in at.into_iter().zip(said) {
            answers[at] = answer;
        }
    }
    // The symbolizer wants names that are text. Those that are none are still better than nothing.
    for at in left(&answers) {
        let name = symbols.at(addrs[at]).filter(|name| !name.is_empty());
        let name = name.map(|name| demangler.name(&String::from_utf8_lossy(name)));
        let name = name.map(|name| frame(name, None, false));
        answers[at] = Answer::Frames(name.into_iter().collect());
    }
    let frames = |answer| match answer {
        Answer::Frames(frames) => frames,
        Answer::Refused => Vec::new(),
    };
    (answers.into_iter().map(frames).collect(), missing)
}

/// What the symbolizer says of an address.
#[derive(Clone)]
enum Answer {
    /// Its functions; none when there is none.
    Frames(Vec<Frame>),
    /// Something that it should have read is broken.
    Refused,
}

/// What the symbolizer is to read.
struct Asked<'a> {
    path: &'a Path,
    folders: &'a [PathBuf],
    /// Debug information, or symbols alone?
    debug_syms: bool,
}

/// `None` when the file cannot be understood at all.
fn symbolized(
    asked: &Asked<'_>,
    symbols: &Symbols<'_>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> Option<Vec<Answer>> {
    let mut source = ElfSource::new(asked.path);
    source.debug_syms = asked.debug_syms;
    let source = Source::Elf(source);
    // The file is the target's: bytes in it that make the symbolizer panic must not cost the
    // measurement.
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let builder = Symbolizer::builder().set_debug_dirs(Some(asked.folders));
        let symbolizer = builder.enable_demangling(false).build();
        let found = symbolizer.symbolize(&source, Input::VirtOffset(addrs)).ok()?;
        let answer = |(symbol, addr): (Symbolized<'_>, &u64)| match symbol {
            // A function that the debug information does not name may have a symbol.
            Symbolized::Sym(symbol) if symbol.name.is_empty() => Answer::Refused,
            Symbolized::Sym(symbol) => {
                let is_bare = asked.debug_syms && !is_mangled(&symbol.name);
                let whole = is_bare.then(|| symbols.whole(*addr, &symbol.name, demangler));
                Answer::Frames(frames_of(symbol, whole.flatten(), demangler))
            }
            Symbolized::Unknown(Reason::IgnoredError) => Answer::Refused,
            Symbolized::Unknown(_) => Answer::Frames(Vec::new()),
        };
        Some(found.into_iter().zip(addrs).map(answer).collect())
    }));
    answer.ok().flatten()
}

/// The frames of this symbol, whose outermost function is known to have this name.
fn frames_of(symbol: Sym<'_>, outermost: Option<String>, demangler: &mut Demangler) -> Vec<Frame> {
    // A symbol without a size reaches as far as the next one, if one believes in it. One that is too
    // short by a function is a wrong name; none is only a missing one. Debug information of a
    // function in several pieces, as compilers cut out what is seldom run, states neither size nor
    // start, and holds for its pieces alone.
    let is_in_pieces = symbol.addr == 0;
    if symbol.size.is_none() && symbol.offset > 0 && !is_in_pieces {
        return Vec::new();
    }
    let Sym { name, code_info, inlined, .. } = symbol;
    let mut frames: Vec<Frame> = Vec::with_capacity(inlined.len() + 1);
    for function in inlined.iter().rev() {
        let name = demangler.name(&function.name);
        frames.push(frame(name, function.code_info.as_ref(), true));
    }
    let name = outermost.unwrap_or_else(|| demangler.name(&name));
    frames.push(frame(name, code_info.as_deref(), false));
    frames
}

fn frame(name: String, at: Option<&CodeInfo<'_>>, inlined: bool) -> Frame {
    Frame {
        function: Some(name),
        object: None,
        offset: 0,
        address: 0,
        file: at.map(|at| at.to_path().to_string_lossy().into_owned()),
        line: at.and_then(|at| at.line),
        inlined,
    }
}
