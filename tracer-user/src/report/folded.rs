//! Folded stacks, as every flamegraph program reads them: `root;…;caller bytes`, one line a
//! stack, sorted. Names are escaped as [`super::escape::folded`] says, recursion is collapsed as
//! the rows of tables are.

use std::collections::BTreeMap;

use super::model::{Session, Stack, StackEnd};
use super::{escape, group, names};

/// What grew, in bytes.
pub fn render(session: &Session) -> String {
    text(&grown(session))
}

/// Folded stack → bytes gained, of the stacks that gained; equal stacks are one.
pub(super) fn grown(session: &Session) -> BTreeMap<String, u64> {
    fold(session, |stack| u64::try_from(stack.bytes).unwrap_or(0))
}

/// Folded stack → bytes lost, of the stacks that lost.
pub(super) fn shrunk(session: &Session) -> BTreeMap<String, u64> {
    fold(session, |stack| stack.bytes.min(0).unsigned_abs())
}

fn fold(session: &Session, bytes_of: impl Fn(&Stack) -> u64) -> BTreeMap<String, u64> {
    let mut folded = BTreeMap::new();
    for stack in &session.stacks {
        let bytes = bytes_of(stack);
        if 0 < bytes {
            let sum: &mut u64 = folded.entry(path(stack)).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    folded
}

fn path(stack: &Stack) -> String {
    match stack.frames.as_slice() {
        [] => names::LOST.to_owned(),
        frames => {
            let begin = match stack.end {
                Some(StackEnd::Broken) => Some(names::BROKEN),
                Some(StackEnd::DepthLimit) => Some(names::DEPTH_LIMIT),
                Some(StackEnd::Whole) | None => None,
            };
            let names = group::collapsed(frames).into_iter().rev();
            let names = names.map(|frame| escape::folded(&names::alone(frame)));
            begin.map(str::to_owned).into_iter().chain(names).collect::<Vec<_>>().join(";")
        }
    }
}

fn text(folded: &BTreeMap<String, u64>) -> String {
    folded.iter().map(|(path, bytes)| format!("{path} {bytes}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_outermost_frame_comes_first_and_lines_are_sorted() {
        let session =
            sample::session(&[(200, &["put", "serve", "main"]), (100, &["open", "serve", "main"])]);
        assert_eq!(render(&session), "main;serve;open 100\nmain;serve;put 200\n");
    }

    #[test]
    fn what_shrank_is_apart_and_never_negative() {
        let session = sample::session(&[
            (200, &["c", "main"]),
            (100, &["a", "main"]),
            (-150, &["b", "main"]),
        ]);
        assert_eq!(render(&session), "main;a 100\nmain;c 200\n");
        assert_eq!(text(&shrunk(&session)), "main;b 150\n");
    }

    #[test]
    fn names_cannot_break_a_line() {
        let session = sample::session(&[(6400, &["ns;leak here 42", "main"])]);
        assert_eq!(render(&session), "main;ns:leak here_42 6400\n");
    }

    #[test]
    fn recursion_of_any_depth_is_one_line() {
        let session = sample::session(&[
            (1, &["f", "main"]),
            (2, &["f", "f", "f", "main"]),
            (4, &["f", "g", "f", "g", "main"]),
        ]);
        assert_eq!(render(&session), "main;f 3\nmain;g;f 4\n");
    }

    #[test]
    fn equal_stacks_of_two_allocators_are_one_line() {
        let session = sample::session(&[(3, &["f"]), (4, &["f"]), (1, &[]), (2, &[])]);
        assert_eq!(render(&session), "[stack lost] 3\nf 7\n");
    }

    #[test]
    fn a_stack_that_is_not_whole_does_not_look_whole() {
        let mut session = sample::session(&[(3, &["f"]), (4, &["f"]), (5, &["f"])]);
        session.stacks[1].end = Some(StackEnd::Broken);
        session.stacks[2].end = Some(StackEnd::DepthLimit);
        assert_eq!(render(&session), "[broken stack];f 4\n[depth limit];f 5\nf 3\n");
    }

    #[test]
    fn huge_figures_do_not_overflow() {
        let half = i64::MAX;
        let session = sample::session(&[
            (half, &["f"]),
            (half, &["f"]),
            (half, &["f"]),
            (-i64::MAX - 1, &["g"]),
        ]);
        assert_eq!(render(&session), format!("f {}\n", u64::MAX));
        assert_eq!(text(&shrunk(&session)), format!("g {}\n", 1_u64 << 63));
    }

    #[test]
    fn nothing_grown_is_no_line() {
        assert_eq!(render(&sample::clean()), "");
    }
}
