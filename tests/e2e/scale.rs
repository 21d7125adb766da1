//! Large targets, and events in numbers.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use outlive_tests::build::Build;
use outlive_tests::measure::{
    MEASURED, measure, measure_running, measure_running_with, measure_with,
};
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::session::Frame;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::Tool;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] many_threads_and_many_mappings,
    [Bpf, C] more_mappings_than_the_kernel_side_takes_are_said,
    [Bpf, C] a_leak_among_many_pairs_is_exact,
    [Bpf, C] a_leak_in_thousands_of_stacks_is_exact_in_each,
    [Bpf, C] tens_of_thousands_of_stacks_are_not_mixed_up,
    [Bpf, C] two_hundred_thousand_functions_are_named_in_bounded_memory,
    [Bpf, C] a_large_library_that_is_opened_stops_nothing,
    [Bpf, C] a_terminal_is_told_that_stacks_are_named,
    [Bpf, C] blocks_that_change_processors_by_the_million_leave_nothing,
];

fn many_threads_and_many_mappings() {
    let scratch = Scratch::new();
    let library = Build::library("c/lib_leaky.c", "libleaky.so").build();
    let mut program = Program::new(Build::c("crowd.c").flag("-ldl").build());
    for number in 0..60 {
        let copy = scratch.join(&format!("lib{number}.so"));
        copy_program(&library, &copy);
        program = program.arg(copy.display().to_string());
    }
    let workload = Workload::start(&program);
    assert!(workload.threads().len() > 500);
    let maps = fs::read_to_string(format!("/proc/{}/maps", workload.pid())).unwrap();
    assert!(maps.lines().count() > 600, "{} mappings", maps.lines().count());
    measure_running(&workload).expect_exact();
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}

fn more_mappings_than_the_kernel_side_takes_are_said() {
    let workload = Workload::start(&Program::new(Build::c("many_mappings.c").build()));
    let measured = measure_running(&workload);
    measured.expect_exact();
    let notices = &measured.session.notices;
    assert!(notices.iter().any(|it| it.name == "unwind-tables-full"), "{}", measured.story());
    let broken = &measured.session.stack_quality.broken;
    assert_eq!(broken.stacks, 0, "{}", measured.story());
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}

fn a_leak_among_many_pairs_is_exact() {
    measure(&Program::new(Build::c("needle.c").build())).expect_exact();
}

fn a_leak_in_thousands_of_stacks_is_exact_in_each() {
    let measured = measure(&Program::new(Build::c("many_stacks.c").build()).arg("13"));
    measured.expect_exact();
    let stacks = &measured.session.stacks;
    assert_eq!(stacks.len(), 1 << 13);
    for stack in stacks {
        let batches = i64::try_from(MEASURED).unwrap();
        assert_eq!((stack.bytes, stack.blocks), (16 * batches, batches));
        let begins = |frame: &Frame, name: &str| {
            frame.function.as_deref().is_some_and(|function| function.starts_with(name))
        };
        assert!(begins(&stack.frames[0], "deepest"), "{:?}", stack.frames);
        assert!(begins(&stack.frames[17], "left_16"), "{:?}", stack.frames);
    }
    let folded = fs::read_to_string(measured.run.folder().join("growth.folded")).unwrap();
    // By function: the last choice is between two calls of one.
    assert_eq!(folded.lines().count(), 1 << 12);
}

/// Sums by the first and second choice on the way, each of which all stacks behind it add up to.
fn tens_of_thousands_of_stacks_are_not_mixed_up() {
    let measured = measure(&Program::new(Build::c("many_stacks.c").build()).arg("15"));
    measured.expect_exact();
    assert_eq!(measured.session.stacks.len(), 1 << 15);
    let total = (16 << 15) * i64::try_from(MEASURED).unwrap();
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for stack in &measured.session.stacks {
        assert_eq!(stack.end, "whole");
        let path: Vec<_> =
            stack.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        // The two levels above lead the same way in all of them.
        for depth in [1, 2, 3] {
            *sums.entry(path[15 - depth..15].join("<")).or_default() += stack.bytes;
        }
    }
    assert_eq!(sums.len(), 2 + 4 + 8, "{sums:?}");
    for (path, sum) in &sums {
        let depth = path.split('<').count();
        assert_eq!(*sum, total >> depth, "{path}: {sums:?}");
    }
}

/// The most memory that a process has in its life, which this waits for the end of.
fn peak_memory(pid: i32) -> u64 {
    let mut peak = 0;
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        // A process that has ended has no such line.
        let Some(line) = line else { return peak };
        peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn two_hundred_thousand_functions_are_named_in_bounded_memory() {
    let workload = Workload::start(&Program::new(Build::c("many_functions.c").build()));
    let mut peak = 0;
    let measured = measure_running_with(&workload, |tool| peak = peak_memory(tool.pid()));
    measured.expect_exact();
    let [stack] = &measured.session.stacks[..] else { panic!("{}", measured.story()) };
    let names = stack.frames.iter().filter_map(|frame| frame.function.as_deref());
    let names: Vec<_> = names.take(3).collect();
    assert_eq!(names, ["leaves", "f_123456", "batch"], "{}", measured.story());
    assert_eq!(stack.end, "whole");
    assert!((1..500 << 20).contains(&peak), "{peak} bytes");
}

/// While another thread allocates flat out.
fn a_large_library_that_is_opened_stops_nothing() {
    let library = Build::library("c/lib_many_functions.c", "libmany.so").flag("-O1").build();
    let program = Build::c("opened_large.c").flag("-ldl").build();
    let program = Program::new(program).arg(library.display().to_string());
    let program = program.arg("200000").arg("2");
    for options in [&[][..], &["--no-hold"]] {
        let measured = measure_with(options, &program);
        // The loader allocates too.
        measured.expect_exact_sites();
        let stacks = &measured.session.stacks;
        let through = |name: &str| {
            let has = |frame: &Frame| frame.function.as_deref() == Some(name);
            stacks.iter().find(|stack| stack.frames.iter().any(has))
        };
        let stack = through("f_123456").unwrap_or_else(|| panic!("{}", measured.story()));
        assert_eq!(stack.end, "whole", "{}", measured.story());
    }
}

fn a_terminal_is_told_that_stacks_are_named() {
    let program = Build::c("many_stacks.c").build();
    // A terminal of its own, whatever this test is run from.
    let terminal = ["sh", "-c", "script -qec \"$*\" /dev/null", "sh"];
    let tool = Tool::under(&terminal, ["test", "--lines", "--warmup", "1", "--batches", "3"]);
    let run = tool.with_folder().args(["--"]).args([program]).args(["10"]).run();
    run.expect_code(1);
    assert!(run.stdout.contains("naming 1024 stacks"), "{}", run.story());
}

/// Made on one processor and freed on another: a free that was read before its allocation would
/// be an unmatched one, and leave a block.
fn blocks_that_change_processors_by_the_million_leave_nothing() {
    let program = Program::new(Build::c("handed_over.c").flag("-DITEMS=250000").build());
    let measured = measure(&program);
    measured.expect_exact_or_lost();
    let batches = measured.session.measured_batches();
    let unmatched: u64 = batches.map(|batch| batch.unmatched_frees).sum();
    assert_eq!(unmatched, 0, "{}", measured.story());
}
