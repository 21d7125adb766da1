use super::*;
use crate::report::{GroupBy, golden, sample};

const PLAIN: Options = Options { top: 10, width: 80, color: false, group_by: GroupBy::Stack };

fn plain(session: &Session) -> String {
    render(session, Path::new("/tmp/outlive-4242"), &PLAIN)
}

#[test]
fn what_grew_is_a_table() {
    golden::check("terminal/growth.txt", &plain(&sample::leaking()));
}

#[test]
fn what_passed_is_short() {
    golden::check("terminal/pass.txt", &plain(&sample::clean()));
}

#[test]
fn losses_and_odd_names_are_shown_as_they_are() {
    golden::check("terminal/odd-names.txt", &plain(&sample::nasty()));
}

#[test]
fn colours_are_only_colours() {
    let colored = render(
        &sample::leaking(),
        Path::new("/tmp/outlive-4242"),
        &Options { color: true, ..PLAIN },
    );
    assert!(colored.contains("\x1b[1;31mGROWTH: \x1b[0m"));
    let mut stripped = String::new();
    let mut parts = colored.split("\x1b[");
    stripped.push_str(parts.next().unwrap_or(""));
    for part in parts {
        stripped.push_str(part.split_once('m').expect("the end of a colour").1);
    }
    assert_eq!(stripped, plain(&sample::leaking()));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for session in [sample::leaking(), sample::nasty(), sample::clean(), sample::huge()] {
        for width in [50, 80, 132] {
            let text = render(&session, Path::new("/tmp/x"), &Options { width, ..PLAIN });
            for line in text.lines() {
                assert!(widths::of(line) <= width, "{width} columns: {line}");
            }
        }
    }
}

#[test]
fn a_table_says_what_its_rows_stand_for() {
    let session = sample::session(&[(40, &["malloc", "f", "main"]), (2, &["f", "other"])]);
    for (group_by, heading, head) in [
        (GroupBy::Stack, "Stacks that grew most:\n", "PER BATCH  STACK\n"),
        (GroupBy::Function, "Functions that grew most:\n", "PER BATCH  FUNCTION\n"),
        (GroupBy::Object, "Objects that grew most:\n", "PER BATCH  OBJECT\n"),
    ] {
        let text = render(&session, Path::new("/tmp/x"), &Options { group_by, ..PLAIN });
        assert!(text.starts_with(heading) && text.contains(head), "{text}");
        let n_rows =
            text.lines().filter(|line| line.ends_with(" f") || line.contains(" f ")).count();
        assert_eq!(n_rows, [2, 1, 0][group_by as usize], "{text}");
    }
}

#[test]
fn only_the_top_is_shown_and_said_to_be() {
    let text = render(&sample::leaking(), Path::new("/tmp/x"), &Options { top: 1, ..PLAIN });
    assert!(text.starts_with("Stacks that grew most (1 of 3):\n"), "{text}");
    assert!(!text.contains("Cache"));
}

#[test]
fn all_three_figures_are_shown_when_something_shrank() {
    let session =
        sample::session(&[(200, &["c", "main"]), (100, &["a", "main"]), (-150, &["b", "main"])]);
    assert!(plain(&session).contains("Grown 300 B, shrunk 150 B, net 150 B"));
}

#[test]
fn the_live_form_lists_stacks() {
    let session = sample::leaking();
    let stacks: Vec<_> = session
        .stacks
        .iter()
        .filter(|stack| 0 < stack.bytes)
        .map(|stack| Outstanding {
            bytes: stack.bytes.unsigned_abs(),
            blocks: stack.blocks.unsigned_abs(),
            frames: stack.frames.clone(),
        })
        .chain([Outstanding { bytes: 8, blocks: 1, frames: vec![] }])
        .collect();
    golden::check("terminal/live.txt", &live("11:16:33", &stacks, &PLAIN));
    assert!(live("11:16:33", &[], &PLAIN).contains("Top 0 stacks"));
}

#[test]
fn a_tree_shows_who_runs_and_what_has_ended() {
    golden::check("terminal/tree.txt", &plain(&sample::tree()));
}

#[test]
fn rows_of_one_name_are_told_apart() {
    let long = "app::Service<std::pair<int, int>>::open_for_everybody_who_asks(int)";
    let session = sample::session(&[
        (500, &["malloc", "alloc", "open", "serve", "main"]),
        (400, &["malloc", "alloc", "read", "serve", "main"]),
        (300, &["malloc", "alloc", long, "main"]),
    ]);
    let text = plain(&session);
    let table = text.split_once("Total").expect("a total").0;
    assert_eq!(
        table,
        "Stacks that grew most:
  BYTES  BLOCKS  PER BATCH  STACK
  500 B     100      125 B  alloc <- open
  400 B     100      100 B  alloc <- read
  300 B     100       75 B  alloc
                              <- app::Service<...>::open_for_everybody_who_asks
"
    );
    let by_function = Options { group_by: GroupBy::Function, ..PLAIN };
    assert!(render(&session, Path::new("/tmp/x"), &by_function).contains("  alloc\n"));
}
