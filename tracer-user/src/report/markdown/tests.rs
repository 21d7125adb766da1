use super::*;
use crate::report::{GroupBy, golden, sample};

const OPTIONS: Options = Options { top: 10, width: 80, color: false, group_by: GroupBy::Stack };

#[test]
fn growth_is_summed_up() {
    golden::check("markdown/growth.md", &render(&sample::leaking(), &OPTIONS));
}

#[test]
fn a_pass_is_summed_up() {
    golden::check("markdown/pass.md", &render(&sample::clean(), &OPTIONS));
}

#[test]
fn losses_and_odd_names_are_summed_up() {
    golden::check("markdown/odd-names.md", &render(&sample::nasty(), &OPTIONS));
}

#[test]
fn every_row_has_the_columns_of_its_head() {
    for session in [sample::leaking(), sample::nasty(), sample::huge()] {
        let text = render(&session, &OPTIONS);
        let mut columns = None;
        for line in text.lines() {
            let n = line.replace("\\|", "").matches('|').count();
            match line.starts_with('|') {
                true => assert_eq!(*columns.get_or_insert(n), n, "{line}"),
                false => columns = None,
            }
        }
    }
}

#[test]
fn of_a_long_session_only_the_last_batches_are_listed() {
    let mut session = sample::clean();
    session.batches = (0..5000).map(|index| sample::batch(index, 0)).collect();
    let text = render(&session, &OPTIONS);
    assert!(text.contains("\n4976 earlier batches in `session.json`.\n"), "{text}");
    assert!(text.contains("\n| 4999 |") && !text.contains("\n| 4975 |"));
}

#[test]
fn the_command_can_be_typed_again() {
    assert_eq!(shell_word("-p"), "-p");
    assert_eq!(shell_word("it's a|b"), "'it'\\''s a|b'");
    assert_eq!(shell_word(""), "''");
    assert!(render(&sample::nasty(), &OPTIONS).contains("sh -c 'echo '\\''a b'\\'' | `x`\\x1b'"));
}

#[test]
fn a_tree_is_summed_up() {
    golden::check("markdown/tree.md", &render(&sample::tree(), &OPTIONS));
}

#[test]
fn rows_of_one_name_are_told_apart() {
    let mut session = sample::session(&[
        (500, &["malloc", "alloc", "open", "serve", "main"]),
        (400, &["malloc", "alloc", "read", "serve", "main"]),
    ]);
    let text = render(&session, &OPTIONS);
    assert!(text.contains("\n| `alloc <- open` | 500 | 100 |  |\n"), "{text}");
    assert!(text.contains("\n| `alloc <- read` | 400 | 100 |  |\n"), "{text}");
    // A source tells enough.
    for (line, stack) in (7..).zip(&mut session.stacks) {
        let frame = Arc::make_mut(&mut stack.frames[1]);
        (frame.file, frame.line) = (Some("a.c".to_owned()), Some(line));
    }
    let text = render(&session, &OPTIONS);
    assert!(text.contains("\n| `alloc` | 500 | 100 | `a.c:7` |\n"), "{text}");
}
