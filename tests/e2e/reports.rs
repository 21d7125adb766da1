//! What is written: files, pictures, the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use outlive_tests::build::Build;
use outlive_tests::measure::{MEASURED, Measured, measure};
use outlive_tests::tool::Tool;
use outlive_tests::truth::Amount;
use outlive_tests::workload::Program;

crate::tests![
    [Bpf, C] a_clean_program_passes_with_a_picture_that_says_so,
    [Bpf, C] a_program_that_never_allocates_is_not_called_clean,
    [Bpf, C] what_grew_and_what_shrank_are_told_apart,
    [Bpf, C, LargeMemory] blocks_of_several_gibibytes_are_exact,
    [Bpf, C] a_session_folder_is_private_and_whole,
    [Bpf, C] every_format_can_be_made_from_a_session,
    [Bpf, C] a_report_can_be_grouped,
    [Bpf, Cpp] output_to_a_pipe_is_plain_and_fits_eighty_columns,
    [Bpf, C] colour_can_be_asked_for,
];

fn program(file: &str) -> Program {
    Program::new(Build::c(file).build())
}

#[track_caller]
fn read(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// The texts of a picture, which must be well-formed.
#[track_caller]
fn texts_of_svg(text: &str) -> Vec<String> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options)
        .unwrap_or_else(|err| panic!("not well-formed: {err}\n{text}"));
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let named = |node: &roxmltree::Node<'_, '_>| node.has_tag_name("text") || is_title(node);
    document
        .descendants()
        .filter(|node| named(node) || is_title(node))
        .filter_map(|node| node.text().map(str::to_owned))
        .collect()
}

fn is_title(node: &roxmltree::Node<'_, '_>) -> bool {
    node.tag_name().name() == "title" || node.tag_name().name() == "text"
}

fn a_clean_program_passes_with_a_picture_that_says_so() {
    let measured = measure(&program("clean.c"));
    measured.expect_exact();
    let texts = texts_of_svg(&read(&measured.run.folder(), "growth.svg"));
    let says_so = |text: &String| text.to_lowercase().contains("no growth");
    assert!(texts.iter().any(says_so), "{texts:?}");
}

fn a_program_that_never_allocates_is_not_called_clean() {
    let measured = measure(&program("idle.c"));
    assert_eq!(measured.session.total(), Amount::default());
    assert_eq!(measured.session.verdict, "inconclusive", "{}", measured.story());
    measured.run.expect_code(3);
    texts_of_svg(&read(&measured.run.folder(), "growth.svg"));
}

fn what_grew_and_what_shrank_are_told_apart() {
    let measured = measure(&program("ups_and_downs.c"));
    measured.expect_exact();
    let folder = measured.run.folder();
    let batches = i64::try_from(MEASURED).unwrap();
    assert_eq!(measured.session.total().bytes, 150 * batches);

    let folded = read(&folder, "growth.folded");
    let width: i64 = folded
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap())
        .inspect(|width| assert!(*width > 0, "{folded}"))
        .sum();
    assert_eq!(width, 300 * batches, "{folded}");
    assert!(!folded.contains("shrinks"), "{folded}");
    let grew = texts_of_svg(&read(&folder, "growth.svg")).join("\n");
    assert!(grew.contains("gains_100") && grew.contains("gains_200"), "{grew}");
    assert!(!grew.contains("shrinks"), "{grew}");
    let shrank = texts_of_svg(&read(&folder, "shrink.svg")).join("\n");
    assert!(shrank.contains("shrinks") && !shrank.contains("gains"), "{shrank}");
}

fn blocks_of_several_gibibytes_are_exact() {
    let measured = measure(&program("huge.c"));
    measured.expect_exact();
    assert_eq!(measured.session.total().bytes, 21_474_836_480);
    texts_of_svg(&read(&measured.run.folder(), "growth.svg"));
}

#[track_caller]
fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .unwrap_or_else(|err| panic!("{}: {err}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

fn a_session_folder_is_private_and_whole() {
    let measured = measure(&program("keep.c"));
    let folder = measured.run.folder();
    assert_eq!(mode(&folder), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for name in ["session.json", "growth.svg", "growth.folded", "summary.md"] {
        assert!(names.iter().any(|other| other == name), "{name} is missing in {names:?}");
    }
    assert_eq!(measured.session.schema, "outlive.session/1");
    assert!(measured.session.command.iter().any(|word| word == "--lines"));
    let frame = measured
        .session
        .stacks
        .iter()
        .flat_map(|stack| &stack.frames)
        .find(|frame| frame.function.as_deref() == Some("leaky"));
    let frame = frame.unwrap_or_else(|| panic!("no frame leaky; {}", measured.story()));
    assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("keep.c")), "{frame:?}");
    assert!(frame.line.is_some_and(|line| line > 1), "{frame:?}");
    assert!(read(&folder, "summary.md").contains("leaky"));
    assert!(measured.run.stdout.contains("leaky"), "{}", measured.story());
}

fn every_format_can_be_made_from_a_session() {
    let measured = measure(&program("keep.c"));
    let folder = measured.run.folder();
    for format in ["svg", "json", "markdown", "folded"] {
        let run = Tool::new(["report"]).args([folder.as_os_str()]).args(["--format", format]).run();
        run.expect_code(0);
        assert!(run.stdout.contains("leaky"), "{format}: {}", run.story());
    }
}

fn a_report_can_be_grouped() {
    let measured = measure(&program("keep.c"));
    let folder = measured.run.folder();
    let report = |options: &[&str]| {
        Tool::new(["report"]).args([folder.as_os_str()]).args(options.iter().copied()).run()
    };
    let run = report(&["--group-by", "function"]);
    run.expect_code(0);
    assert!(run.stdout.contains("Functions that grew most:"), "{}", run.story());
    assert!(run.stdout.contains("  leaky  keep.c:"), "{}", run.story());
    let run = report(&["--group-by", "object", "--format", "markdown"]);
    run.expect_code(0);
    let rows = run.stdout.lines().filter(|line| line.contains("/keep` |"));
    let total = format!("| {} |", measured.session.total().bytes);
    assert!(rows.clone().any(|row| row.contains(&total)), "{}", run.story());
    let run = report(&["--group-by", "object", "--format", "json"]);
    run.expect_error(2, &["--group-by", "text and markdown"]);
}

#[track_caller]
fn expect_plain(measured: &Measured) {
    let run = &measured.run;
    for (name, text) in [("stdout", &run.stdout), ("stderr", &run.stderr)] {
        assert!(!text.contains('\u{1b}'), "escape sequence on {name}: {}", run.story());
        assert!(!text.contains('\r'), "a progress bar on {name}: {}", run.story());
    }
}

fn output_to_a_pipe_is_plain_and_fits_eighty_columns() {
    let measured = measure(&Program::new(Build::cpp("new_delete.cpp").build()));
    expect_plain(&measured);
    // A path is not broken: it could not be copied any more.
    let long =
        measured.run.stdout.lines().find(|line| line.chars().count() > 80 && !line.contains('/'));
    assert_eq!(long, None, "{}", measured.run.story());
}

fn colour_can_be_asked_for() {
    let run =
        Tool::new(["test", "--lines", "--color", "always", "--warmup", "1", "--batches", "3"])
            .with_folder()
            .args(["--"])
            .args([program("keep.c").path])
            .run();
    run.expect_code(1);
    assert!(run.stdout.contains('\u{1b}'), "{}", run.story());
}
