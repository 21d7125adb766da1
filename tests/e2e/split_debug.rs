//! Programs whose debug information the compiler left in files beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outlive_tests::build::Build;
use outlive_tests::measure::{Measured, measure, measure_running};
use outlive_tests::rootfs::{PROGRAM, fill, inside};
use outlive_tests::scratch::Scratch;
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] what_was_inlined_is_named_from_the_file_that_the_compiler_left,
    [Bpf, C, LlvmDwp] what_was_inlined_is_named_from_a_package,
    [Bpf, C, Namespaces] the_file_is_read_in_the_root_of_the_target,
    [Bpf, C, Namespaces] the_package_is_read_in_the_root_of_the_target,
    [Bpf, C] a_program_in_memory_has_its_debug_information_elsewhere,
];

const FORMS: [&str; 2] = ["-gdwarf-4", "-gdwarf-5"];

/// The program, built with its debug information beside it, and where that is.
fn build(folder: &Path, form: &str) -> (PathBuf, PathBuf) {
    let program = Build::c("inlined.c").flag("-gsplit-dwarf").flag(form).build_in(folder);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let part: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|at| at == "dwo")).collect();
    let [part] = &part[..] else { panic!("what the compiler left: {part:?}") };
    (program, part.clone())
}

fn package(tool: &str, program: &Path, to: &Path) {
    let done = Command::new(tool).arg("-e").arg(program).arg("-o").arg(to).output().unwrap();
    assert!(done.status.success(), "{tool}: {}", String::from_utf8_lossy(&done.stderr));
}

/// `leaky` is on the stack, with its own line and that of its call.
#[track_caller]
fn expect_inlined(measured: &Measured) {
    measured.expect_exact();
    let stack = &measured.session.stacks[0];
    let frames: Vec<_> = stack.frames.iter().take(3).collect();
    let functions: Vec<_> = frames.iter().map(|frame| frame.function.as_deref()).collect();
    let story = || measured.story();
    assert_eq!(functions, [Some("leaky"), Some("around"), Some("batch")], "{}", story());
    assert_eq!(frames.iter().map(|frame| frame.inlined).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(
        frames.iter().map(|frame| frame.line).collect::<Vec<_>>(),
        [Some(7), Some(9), Some(14)]
    );
    for frame in frames {
        assert!(
            frame.file.as_deref().is_some_and(|file| file.ends_with("c/inlined.c")),
            "{}",
            story()
        );
    }
    assert!(!measured.run.stderr.contains("debug information"), "{}", story());
}

/// The names of symbols, and once why there are no more.
#[track_caller]
fn expect_plain(measured: &Measured) {
    let story = || measured.story();
    let leaky = measured.truth["leaky"];
    assert_eq!((measured.session.total(), measured.session.lost()), (leaky, 0), "{}", story());
    assert_eq!(measured.session.growth_in("around"), leaky, "{}", story());
    assert_eq!(measured.session.growth_in("leaky"), Amount::default(), "{}", story());
    let said = measured.run.stderr.lines().filter(|line| line.contains("what was inlined in"));
    assert_eq!(said.count(), 1, "{}", story());
}

fn what_was_inlined_is_named_from_the_file_that_the_compiler_left() {
    for form in FORMS {
        let scratch = Scratch::new();
        let (program, part) = build(scratch.path(), form);
        expect_inlined(&measure(&Program::new(&program)));
        fs::remove_file(part).unwrap();
        expect_plain(&measure(&Program::new(&program)));
    }
}

fn what_was_inlined_is_named_from_a_package() {
    // Binutils' tool packs no later version.
    for (tool, form) in [("dwp", FORMS[0]), ("llvm-dwp", FORMS[0]), ("llvm-dwp", FORMS[1])] {
        let scratch = Scratch::new();
        let (program, part) = build(scratch.path(), form);
        package(tool, &program, &scratch.join("inlined.dwp"));
        fs::remove_file(part).unwrap();
        expect_inlined(&measure(&Program::new(&program)));
    }
}

fn the_file_is_read_in_the_root_of_the_target() {
    let scratch = Scratch::new();
    let (program, part) = build(scratch.path(), FORMS[1]);
    let root = scratch.join("root");
    fill(&root, &program);
    let below_root = root.join(part.strip_prefix("/").unwrap());
    fs::create_dir_all(below_root.parent().unwrap()).unwrap();
    fs::rename(part, below_root).unwrap();
    let workload = Workload::start_under(&inside(&root, ""), &Program::new(PROGRAM));
    expect_inlined(&measure_running(&workload));
}

fn the_package_is_read_in_the_root_of_the_target() {
    let scratch = Scratch::new();
    let (program, part) = build(scratch.path(), FORMS[0]);
    let root = scratch.join("root");
    fill(&root, &program);
    package("dwp", &program, &root.join("program.dwp"));
    fs::remove_file(part).unwrap();
    let workload = Workload::start_under(&inside(&root, ""), &Program::new(PROGRAM));
    expect_inlined(&measure_running(&workload));
}

fn a_program_in_memory_has_its_debug_information_elsewhere() {
    let scratch = Scratch::new();
    let (program, _) = build(scratch.path(), FORMS[1]);
    let program = program.display().to_string();
    let workload = Workload::start(&Program::new(Build::c("from_memory.c").build()).arg(program));
    expect_inlined(&measure_running(&workload));
}
