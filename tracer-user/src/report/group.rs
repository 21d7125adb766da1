//! Rows of a table: what grew, by stack, by function or by object. Each byte is in one row, so the
//! rows of each grouping have the same sum.
//!
//! Recursion is collapsed: a stack that went three times through the same functions and one that
//! went through them once are one cause.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::model::{Frame, Stack};
use super::names;

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// Stacks with the same calls.
    #[default]
    Stack,
    /// Stacks that the same function names, wherever in it they allocate.
    Function,
    /// Stacks that a function of the same file names.
    Object,
}

impl GroupBy {
    /// What a row stands for, in the plural, as a heading begins.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Stack => "Stacks",
            Self::Function => "Functions",
            Self::Object => "Objects",
        }
    }

    /// What a row stands for.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Function => "function",
            Self::Object => "object",
        }
    }
}

/// Of code that lies in no file.
const GENERATED: &str = "[generated code]";

/// Longest cycle of functions that counts as recursion.
const LONGEST_CYCLE: usize = 8;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// What it is called.
    pub(super) name: Cow<'a, str>,
    /// Source file, where all of it is of one.
    pub(super) file: Option<&'a str>,
    /// Line in it, where all of it is at one.
    pub(super) line: Option<u32>,
    /// Bytes gained.
    pub(super) bytes: i64,
    /// Blocks gained.
    pub(super) blocks: i64,
    /// Bytes gained in each measured batch.
    pub(super) per_batch: Vec<i64>,
    /// Of the first of its stacks.
    pub(super) frames: &'a [Arc<Frame>],
}

/// The rows that gained, most gained first.
pub(super) fn grown(stacks: &[Stack], by: GroupBy) -> Vec<Row<'_>> {
    let mut rows = match by {
        GroupBy::Stack => {
            let mut numbers = Numbers::default();
            let keys = stacks.iter().map(|stack| {
                let frames = collapsed(&stack.frames).into_iter();
                frames.map(|frame| numbers.of(Place::of(frame))).collect::<Vec<u32>>()
            });
            gather(stacks, keys.zip(stacks.iter().map(|stack| (&stack.family, stack.end))))
        }
        GroupBy::Function => gather(
            stacks,
            stacks.iter().map(|stack| {
                let best = names::best(&stack.frames);
                let object = best.and_then(|frame| frame.object.as_deref());
                (best.map_or(Cow::Borrowed(names::LOST), names::alone), object)
            }),
        ),
        GroupBy::Object => {
            let objects = stacks.iter().map(|stack| object(&stack.frames));
            let mut rows = gather(stacks, objects);
            for row in &mut rows {
                (row.name, row.file, row.line) = (Cow::Borrowed(object(row.frames)), None, None);
            }
            rows
        }
    };
    rows.retain(|row| 0 < row.bytes);
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.blocks)));
    rows
}

/// One row for each key.
fn gather<'a, K: Eq + Hash>(stacks: &'a [Stack], keys: impl Iterator<Item = K>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for (stack, key) in stacks.iter().zip(keys) {
        let more = Row::of(stack);
        let place = *places.entry(key).or_insert(rows.len());
        match rows.get_mut(place) {
            Some(row) => row.add(&more),
            None => rows.push(more),
        }
    }
    rows
}

impl<'a> Row<'a> {
    fn of(stack: &'a Stack) -> Self {
        let best = names::best(&stack.frames);
        Self {
            name: names::of_stack(&stack.frames),
            file: best.and_then(|frame| frame.file.as_deref()),
            line: best.and_then(|frame| frame.line),
            bytes: stack.bytes,
            blocks: stack.blocks,
            per_batch: stack.per_batch.clone(),
            frames: &stack.frames,
        }
    }

    fn add(&mut self, more: &Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.blocks = self.blocks.saturating_add(more.blocks);
        for (sum, more) in self.per_batch.iter_mut().zip(&more.per_batch) {
            *sum = sum.saturating_add(*more);
        }
        // One place for all, or none that is right.
        if self.file != more.file {
            self.file = None;
        }
        if self.line != more.line {
            self.line = None;
        }
    }
}

/// The object whose function names the stack.
fn object(frames: &[Arc<Frame>]) -> &str {
    match names::best(frames) {
        None => names::LOST,
        Some(Frame { object: Some(object), .. }) if !object.is_empty() => object,
        Some(Frame { function: Some(_), .. }) => GENERATED,
        Some(_) => names::UNKNOWN,
    }
}

/// What makes two frames the same: everything but the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place<'a> {
    function: Option<&'a str>,
    object: Option<&'a str>,
    offset: Option<u64>,
    file: Option<&'a str>,
    line: Option<u32>,
    inlined: bool,
    interpreted: bool,
    sampled: bool,
}

impl<'a> Place<'a> {
    pub(super) fn of(frame: &'a Frame) -> Self {
        let Frame { function, object, offset, file, line, inlined, interpreted, sampled, .. } =
            frame;
        let (function, object) = (function.as_deref(), object.as_deref());
        Self {
            function,
            object,
            offset: *offset,
            file: file.as_deref(),
            line: *line,
            inlined: *inlined,
            interpreted: *interpreted,
            sampled: *sampled,
        }
    }
}

/// A number for each place: a stack of numbers is a tenth of one of places.
#[derive(Default)]
pub(super) struct Numbers<'a>(HashMap<Place<'a>, u32>);

impl<'a> Numbers<'a> {
    pub(super) fn of(&mut self, place: Place<'a>) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(place).or_insert(next)
    }
}

/// The frames without those of a function, or of a cycle of functions, that called itself: of
/// each such run the innermost turn is left, where the memory was asked for.
pub(super) fn collapsed(frames: &[Arc<Frame>]) -> Vec<&Frame> {
    let is_same = |one: &&Frame, other: &&Frame| {
        let same = one.function == other.function && one.object == other.object;
        // Functions of scripts are told apart by where they begin, or, where that is not known, by
        // their file.
        let same = same
            && match (&one.object, one.interpreted) {
                (None, _) => (&one.file, one.line) == (&other.file, other.line),
                (_, true) => other.interpreted && one.file == other.file,
                (_, false) => !other.interpreted,
            };
        // Two places without a name may be two functions.
        same && (one.function.is_some()
            || one.offset == other.offset && one.address == other.address)
    };
    let mut left: Vec<&Frame> = Vec::new();
    for frame in frames {
        left.push(&**frame);
        let repeated = (1..=LONGEST_CYCLE.min(left.len() / 2)).find(|cycle| {
            let (before, last) = left.split_at(left.len() - cycle);
            let before = &before[before.len() - cycle..];
            before.iter().zip(last).all(|(one, other)| is_same(one, other))
        });
        if let Some(cycle) = repeated {
            left.truncate(left.len() - cycle);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use proptest::prelude::*;

    fn names_of(functions: &[&str]) -> Vec<String> {
        let session = sample::session(&[(1, functions)]);
        let frames = &session.stacks[0].frames;
        collapsed(frames).into_iter().map(|frame| names::of(frame).into_owned()).collect()
    }

    #[test]
    fn recursion_is_collapsed() {
        assert_eq!(names_of(&["f", "f", "f", "main"]), ["f", "main"]);
        assert_eq!(names_of(&["leaf", "f", "f", "main"]), ["leaf", "f", "main"]);
        assert_eq!(names_of(&["f", "g", "f", "g", "f", "g", "main"]), ["f", "g", "main"]);
        assert_eq!(
            names_of(&["a", "b", "c", "a", "b", "c", "b", "main"]),
            ["a", "b", "c", "b", "main"]
        );
        assert_eq!(names_of(&["f", "main", "f", "start"]), ["f", "main", "f", "start"]);
        assert_eq!(names_of(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_turn_that_allocates_is_left() {
        let session = sample::session(&[(1, &["f", "f", "f", "main"])]);
        let frames = &session.stacks[0].frames;
        assert_eq!(collapsed(frames)[0], &*frames[0]);
    }

    #[test]
    fn functions_that_an_interpreter_ran_are_told_apart_by_their_files() {
        let mut session = sample::session(&[(1, &["f", "f", "f", "f", "main"])]);
        let frames = &mut session.stacks[0].frames[..4];
        for ((line, file), frame) in [(3, "a.py"), (7, "a.py"), (7, "b.py")].iter().zip(frames) {
            let frame = Arc::make_mut(frame);
            (frame.file, frame.line) = (Some((*file).to_owned()), Some(*line));
            (frame.interpreted, frame.object) = (true, Some("/usr/bin/python3".to_owned()));
        }
        let left = collapsed(&session.stacks[0].frames);
        let lines: Vec<_> = left.iter().map(|frame| (frame.file.as_deref(), frame.line)).collect();
        assert_eq!(lines[..2], [(Some("a.py"), Some(3)), (Some("b.py"), Some(7))]);
        assert_eq!(left.len(), 4, "{left:?}");
    }

    fn figures(rows: &[Row<'_>]) -> Vec<(String, i64)> {
        rows.iter().map(|row| (row.name.clone().into_owned(), row.bytes)).collect()
    }

    fn row(name: &str, bytes: i64) -> (String, i64) {
        (name.to_owned(), bytes)
    }

    #[test]
    fn depth_of_recursion_makes_no_other_stack() {
        let mut session = sample::session(&[
            (100, &["walk", "main"]),
            (200, &["walk", "walk", "walk", "main"]),
            (40, &["walk", "other", "main"]),
        ]);
        // A call is at one place, however deep.
        for frame in session.stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
            let frame = Arc::make_mut(frame);
            (frame.offset, frame.line) = (None, None);
        }
        let rows = grown(&session.stacks, GroupBy::Stack);
        assert_eq!(figures(&rows), [row("walk", 300), row("walk", 40)]);
        assert_eq!(rows[0].per_batch, [75; 4]);
        let rows = grown(&session.stacks, GroupBy::Function);
        assert_eq!(figures(&rows), [row("walk", 340)]);
    }

    #[test]
    fn a_row_of_several_lines_names_none() {
        let mut session = sample::session(&[(100, &["f", "main"]), (50, &["f", "main"])]);
        for (line, stack) in (7..).zip(&mut session.stacks) {
            let frame = Arc::make_mut(&mut stack.frames[0]);
            (frame.file, frame.line) = (Some("f.c".to_owned()), Some(line));
        }
        let rows = grown(&session.stacks, GroupBy::Stack);
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [Some(7), Some(8)]);
        let rows = grown(&session.stacks, GroupBy::Function);
        assert_eq!((rows.len(), rows[0].file, rows[0].line), (1, Some("f.c"), None));
    }

    #[test]
    fn functions_of_scripts_that_have_no_name_are_apart() {
        let mut session = sample::session(&[(100, &["f", "f", "main"]), (50, &["f", "main"])]);
        let frames = session.stacks.iter_mut().flat_map(|stack| &mut stack.frames);
        for (line, frame) in (7..).zip(frames) {
            let frame = Arc::make_mut(frame);
            (frame.object, frame.file, frame.line) = (None, Some("a.js".to_owned()), Some(line));
        }
        assert_eq!(collapsed(&session.stacks[0].frames).len(), 3);
        let rows = grown(&session.stacks, GroupBy::Function);
        assert_eq!(figures(&rows), [row("f", 100), row("f", 50)]);
    }

    #[test]
    fn objects_are_those_of_the_naming_functions() {
        let mut session = sample::session(&[
            (100, &["malloc", "decode", "main"]),
            (50, &["encode", "main"]),
            (30, &["script"]),
            (20, &[]),
            (-60, &["gives", "main"]),
        ]);
        for frame in session.stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
            Arc::make_mut(frame).object = Some("/opt/app".to_owned());
        }
        let decode = Arc::make_mut(&mut session.stacks[0].frames[1]);
        decode.object = Some("/lib/libdecode.so".to_owned());
        Arc::make_mut(&mut session.stacks[2].frames[0]).object = None;
        let rows = grown(&session.stacks, GroupBy::Object);
        assert_eq!(
            figures(&rows),
            [row("/lib/libdecode.so", 100), row("[generated code]", 30), row("[stack lost]", 20)]
        );
    }

    proptest! {
        #[test]
        fn every_grouping_has_the_same_sum(stacks in proptest::collection::vec(
            (1_i64..1000, proptest::collection::vec("[abc]|malloc", 0..12)), 0..20))
        {
            let stacks: Vec<(i64, Vec<&str>)> = stacks.iter()
                .map(|(bytes, names)| (*bytes, names.iter().map(String::as_str).collect()))
                .collect();
            let stacks: Vec<_> = stacks.iter().map(|(bytes, names)| (*bytes, names.as_slice())).collect();
            let session = sample::session(&stacks);
            let total: i64 = stacks.iter().map(|(bytes, _)| bytes).sum();
            for by in [GroupBy::Stack, GroupBy::Function, GroupBy::Object] {
                let rows = grown(&session.stacks, by);
                prop_assert_eq!(rows.iter().map(|row| row.bytes).sum::<i64>(), total);
            }
        }

        #[test]
        fn nothing_that_is_collapsed_repeats(names in proptest::collection::vec("[abc]", 0..40)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let left = names_of(&names);
            for cycle in 1..=LONGEST_CYCLE {
                for pair in left.windows(2 * cycle) {
                    prop_assert_ne!(&pair[..cycle], &pair[cycle..]);
                }
            }
            let left: Vec<&str> = left.iter().map(String::as_str).collect();
            prop_assert_eq!(names_of(&left), left.clone());
            prop_assert_eq!(left.first(), names.first());
        }
    }
}
