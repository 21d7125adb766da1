//! Rows of a table that are called the same: what tells them apart, which of stacks is who called.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::{GroupBy, collapsed};
use super::model::Frame;
use super::{escape, names, shorten, widths};

/// A frame that tells a row from others, escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    link: Link,
    name: String,
    place: Option<String>,
    /// Which of the stack's frames it is.
    depth: usize,
    /// Are there others between it and what stands before it?
    is_farther: bool,
}

/// How a mark is joined to what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It is called by.
    Caller,
    /// It calls.
    Called,
    /// It is at this place.
    Place,
    /// It is in this file.
    Object,
}

/// What each row needs to be told from those of the same text: nothing where there are none.
pub(super) fn marks(rows: &[(&str, &[Arc<Frame>])], by: GroupBy) -> Vec<Vec<Mark>> {
    let mut same: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, (text, _)) in rows.iter().enumerate() {
        same.entry(text).or_default().push(place);
    }
    let frames = |place: usize| collapsed(rows[place].1);
    let views: &[View] = match by {
        GroupBy::Stack => &[callers, places, called, everybody, offsets],
        GroupBy::Function => &[object],
        GroupBy::Object => &[],
    };
    let mut marks = vec![Vec::new(); rows.len()];
    for group in same.into_values() {
        let mut left = vec![group];
        for view in views {
            let groups = std::mem::take(&mut left);
            for group in groups.into_iter().filter(|group| 1 < group.len()) {
                let paths = group.into_iter().map(|place| (place, view(&frames(place))));
                split(paths.collect(), 0, &mut marks, &mut left);
            }
        }
    }
    marks
}

/// Steps in which rows may differ.
type View = fn(&[&Frame]) -> Vec<Step>;

/// What a row can be told by; not escaped.
#[derive(Clone, Debug)]
struct Step {
    link: Link,
    name: String,
    place: Option<String>,
    depth: usize,
}

impl Step {
    fn new(link: Link, name: impl Into<String>, depth: usize) -> Self {
        Self { link, name: name.into(), place: None, depth }
    }

    fn at(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }
}

fn callers(frames: &[&Frame]) -> Vec<Step> {
    let callers = names::callers(frames).into_iter();
    callers.map(|(depth, frame)| Step::new(Link::Caller, names::of(frame), depth)).collect()
}

/// Two calls in one function are at two lines.
fn places(frames: &[&Frame]) -> Vec<Step> {
    let place = |frame: &Frame| {
        let file = names::file_name(frame.file.as_deref()?);
        frame.line.map(|line| format!("{file}:{line}"))
    };
    let own = names::best(frames).and_then(place).unwrap_or_default();
    let callers = names::callers(frames)
        .into_iter()
        .map(|(depth, frame)| Step::new(Link::Caller, names::of(frame), depth).at(place(frame)));
    std::iter::once(Step::new(Link::Place, own, 0)).chain(callers).collect()
}

/// What it called of the allocator's machinery.
fn called(frames: &[&Frame]) -> Vec<Step> {
    let inner = frames.iter().enumerate().take(own(frames)).rev();
    inner.map(|(depth, frame)| Step::new(Link::Called, names::of(frame), depth)).collect()
}

/// Who called it, machinery and what has no name included.
fn everybody(frames: &[&Frame]) -> Vec<Step> {
    let outer = frames.iter().enumerate().skip(own(frames) + 1);
    outer.map(|(depth, frame)| Step::new(Link::Caller, names::of(frame), depth)).collect()
}

/// Where no lines are known, two calls are at two places of the object. Of generated code there are
/// none that say anything.
fn offsets(frames: &[&Frame]) -> Vec<Step> {
    let own = own(frames);
    let step = |(depth, frame): (usize, &&Frame)| {
        let place = frame.object.as_ref().zip(frame.offset);
        let place =
            place.map(|(object, offset)| format!("{}+0x{offset:x}", names::file_name(object)));
        match depth.cmp(&own) {
            Ordering::Equal => Step::new(Link::Place, place.unwrap_or_default(), depth),
            Ordering::Less => Step::new(Link::Called, names::of(frame), depth).at(place),
            Ordering::Greater => Step::new(Link::Caller, names::of(frame), depth).at(place),
        }
    };
    let inner = frames.iter().enumerate().take(own).rev().map(step);
    frames.iter().enumerate().skip(own).map(step).chain(inner).collect()
}

/// Which frame names the stack.
fn own(frames: &[&Frame]) -> usize {
    let best = names::best(frames);
    let is_best = |frame: &&Frame| best.is_some_and(|best| std::ptr::eq(best, *frame));
    frames.iter().position(is_best).unwrap_or(0)
}

/// Functions of one name in two libraries.
fn object(frames: &[&Frame]) -> Vec<Step> {
    let Some(best) = names::best(frames) else { return Vec::new() };
    let object = best.object.as_deref().map(names::file_name);
    let object = object.map(|object| Step::new(Link::Object, object, 0));
    let file = best.file.as_deref().map(names::file_name);
    let line = best.line.map_or_else(String::new, |line| format!(":{line}"));
    let file = file.map(|file| Step::new(Link::Place, format!("{file}{line}"), 0));
    object.into_iter().chain(file).collect()
}

/// Marks each row at the first step that not all of them share, and so on with those that still
/// are the same. Those that have no other step are `left`.
fn split(
    rows: Vec<(usize, Vec<Step>)>,
    from: usize,
    marks: &mut [Vec<Mark>],
    left: &mut Vec<Vec<usize>>,
) {
    let longest = rows.iter().map(|(_, path)| path.len()).max().unwrap_or(0);
    let key =
        |path: &[Step], at: usize| path.get(at).map(|step| (step.name.clone(), step.place.clone()));
    let is_shared =
        |at: &usize| rows.iter().all(|(_, path)| key(path, *at) == key(&rows[0].1, *at));
    let Some(at) = (from..longest).find(|at| !is_shared(at)) else {
        left.push(rows.into_iter().map(|(place, _)| place).collect());
        return;
    };
    let mut groups: BTreeMap<_, Vec<(usize, Vec<Step>)>> = BTreeMap::new();
    for (place, path) in rows {
        if let Some(step) = path.get(at).filter(|step| !step.name.is_empty()) {
            let is_farther = path[from..at].iter().any(|other| other.link == step.link);
            mark(&mut marks[place], step, is_farther);
        }
        groups.entry(key(&path, at)).or_default().push((place, path));
    }
    for (_, group) in groups.into_iter().filter(|(_, group)| 1 < group.len()) {
        split(group, at + 1, marks, left);
    }
}

/// Marks are in the order of the stack, each frame once.
fn mark(marks: &mut Vec<Mark>, step: &Step, is_farther: bool) {
    let escaped = |text: &str| escape::terminal(text).into_owned();
    let Step { link, name, place, depth } = step;
    let place = place.as_deref().filter(|place| place != name).map(escaped);
    let mark = Mark { link: *link, name: escaped(name), place, depth: *depth, is_farther };
    match marks.binary_search_by_key(depth, |mark| mark.depth) {
        Ok(known) => marks[known] = Mark { is_farther: marks[known].is_farther, ..mark },
        Err(before) => marks.insert(before, mark),
    }
}

impl Mark {
    fn shown(&self, width: usize) -> String {
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" {place}"));
        let name = shorten::name(&self.name, width) + &place;
        match self.link {
            Link::Caller if self.is_farther => format!("<- ... <- {name}"),
            Link::Caller => format!("<- {name}"),
            Link::Called if self.is_farther => format!("-> ... -> {name}"),
            Link::Called => format!("-> {name}"),
            Link::Place => format!("at {name}"),
            Link::Object => format!("in {name}"),
        }
    }
}

/// The marks in lines of so many columns.
pub(super) fn lines(marks: &[Mark], room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for mark in marks {
        let mut forms = (1..=room).rev().map(|width| mark.shown(width));
        let text = forms.find(|text| widths::of(text) <= room);
        let text = text.unwrap_or_else(|| widths::shorten(&mark.shown(room), room));
        match lines.last_mut() {
            Some(line) if widths::of(line) + 1 + widths::of(&text) <= room => {
                *line = format!("{line} {text}");
            }
            Some(_) | None => lines.push(text),
        }
    }
    lines
}

/// The marks in one line, each name in so many columns.
pub(super) fn line(marks: &[Mark], width: usize) -> String {
    marks.iter().map(|mark| mark.shown(width)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn told(by: GroupBy, stacks: &[(i64, &[&str])], change: fn(usize, &mut Frame)) -> Vec<String> {
        let mut session = sample::session(stacks);
        for (place, stack) in session.stacks.iter_mut().enumerate() {
            for frame in &mut stack.frames {
                change(place, Arc::make_mut(frame));
            }
        }
        let names: Vec<_> = session
            .stacks
            .iter()
            .map(|stack| names::of_stack(&stack.frames).into_owned())
            .collect();
        let frames = session.stacks.iter().map(|stack| stack.frames.as_slice());
        let rows: Vec<_> = names.iter().map(String::as_str).zip(frames).collect();
        let marks = marks(&rows, by);
        let each = names.iter().zip(&marks);
        each.map(|(name, marks)| format!("{name} {}", line(marks, 60)).trim().to_owned()).collect()
    }

    fn same(_: usize, frame: &mut Frame) {
        (frame.file, frame.line) = (None, None);
    }

    #[test]
    fn rows_of_one_name_have_the_caller_that_differs() {
        let stacks: &[(i64, &[&str])] = &[
            (9, &["malloc", "alloc", "open", "serve", "main"]),
            (8, &["malloc", "alloc", "read", "serve", "main"]),
            (7, &["other", "open", "serve", "main"]),
            (6, &["malloc", "alloc", "open", "serve", "test", "main"]),
            (5, &["alloc"]),
        ];
        assert_eq!(
            told(GroupBy::Stack, stacks, same),
            [
                "alloc <- open <- ... <- main",
                "alloc <- read",
                "other",
                "alloc <- open <- ... <- test",
                "alloc",
            ]
        );
    }

    #[test]
    fn machinery_and_places_without_a_name_tell_less_than_names() {
        let stacks: &[(i64, &[&str])] = &[
            (9, &["lib.so+0x10", "lib.so+0x20", "std::sort", "load", "main"]),
            (8, &["lib.so+0x10", "lib.so+0x30", "std::find", "save", "main"]),
        ];
        let names = ["lib.so+0x10 <- load", "lib.so+0x10 <- save"];
        assert_eq!(told(GroupBy::Stack, stacks, same), names);
        let stacks: &[(i64, &[&str])] = &[
            (9, &["lib.so+0x10", "lib.so+0x20", "main"]),
            (8, &["lib.so+0x10", "lib.so+0x30", "main"]),
        ];
        let names = ["lib.so+0x10 <- lib.so+0x20", "lib.so+0x10 <- lib.so+0x30"];
        assert_eq!(told(GroupBy::Stack, stacks, same), names);
    }

    #[test]
    fn two_calls_of_one_function_are_told_by_line_or_place() {
        let stacks: &[(i64, &[&str])] =
            &[(9, &["f", "serve", "main"]), (8, &["f", "serve", "main"])];
        let in_serve = |place: usize, frame: &mut Frame| {
            same(place, frame);
            if frame.function.as_deref() == Some("serve") {
                frame.file = Some("src/serve.c".to_owned());
                frame.line = u32::try_from(place).ok().map(|place| 40 + place);
            }
        };
        let lines = ["f <- serve serve.c:40", "f <- serve serve.c:41"];
        assert_eq!(told(GroupBy::Stack, stacks, in_serve), lines);
        let without_lines = |place: usize, frame: &mut Frame| {
            same(place, frame);
            let is_serve = frame.function.as_deref() == Some("serve");
            frame.offset = Some(0x100 + u64::from(is_serve) * place as u64);
        };
        let offsets = ["f <- serve server+0x100", "f <- serve server+0x101"];
        assert_eq!(told(GroupBy::Stack, stacks, without_lines), offsets);
        assert_eq!(told(GroupBy::Stack, stacks, same), ["f", "f"]);
        let stacks: &[(i64, &[&str])] =
            &[(9, &["f", "serve", "main"]), (8, &["f", "serve", "main"]), (7, &["f", "main"])];
        let offsets = ["f <- serve server+0x100", "f <- serve server+0x101", "f <- main"];
        assert_eq!(told(GroupBy::Stack, stacks, without_lines), offsets);
        let stacks: &[(i64, &[&str])] =
            &[(9, &["f", "std::thread", "main"]), (8, &["f", "core::start", "main"])];
        let machinery = ["f <- std::thread", "f <- core::start"];
        assert_eq!(told(GroupBy::Stack, stacks, same), machinery);
    }

    #[test]
    fn what_it_called_tells_rows_apart_that_nothing_else_does() {
        let stacks: &[(i64, &[&str])] = &[
            (9, &["__libc_alloc", "strdup", "f", "main"]),
            (8, &["std::x", "calloc", "f", "main"]),
        ];
        assert_eq!(told(GroupBy::Stack, stacks, same), ["f -> strdup", "f -> calloc"]);
    }

    #[test]
    fn functions_of_one_name_are_told_by_their_library() {
        let stacks: &[(i64, &[&str])] = &[(9, &["f", "main"]), (8, &["f", "main"])];
        let libraries = |place: usize, frame: &mut Frame| {
            same(place, frame);
            frame.object = Some(format!("/opt/lib{place}.so"));
        };
        let names = ["f in lib0.so", "f in lib1.so"];
        assert_eq!(told(GroupBy::Function, stacks, libraries), names);
    }

    #[test]
    fn what_has_no_room_in_a_line_gets_another_one() {
        let mark = |name: &str, place: Option<&str>| Mark {
            link: Link::Caller,
            name: name.to_owned(),
            place: place.map(str::to_owned),
            depth: 1,
            is_farther: false,
        };
        let marks =
            [mark("app::Server::accept(int)", None), mark("app::serve(long)", Some("main.cc:7"))];
        let both = "<- app::Server::accept(int) <- app::serve(long) main.cc:7";
        assert_eq!(lines(&marks, both.len()), [both]);
        assert_eq!(
            lines(&marks, both.len() - 1),
            ["<- app::Server::accept(int)", "<- app::serve(long) main.cc:7"]
        );
        assert_eq!(lines(&marks, 20), ["<- Server::accept", "<- serve main.cc:7"]);
        for room in 0..60 {
            assert!(lines(&marks, room).iter().all(|line| widths::of(line) <= room), "{room}");
        }
        assert_eq!(lines(&[], 60), [""; 0]);
    }
}
