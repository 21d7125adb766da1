//! Large targets, and events in numbers.

use std::fs;

use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_running};
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::text::changed_code_bytes;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] many_threads_and_many_mappings,
    [Bpf, C] a_leak_among_many_pairs_is_exact,
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

fn a_leak_among_many_pairs_is_exact() {
    measure(&Program::new(Build::c("needle.c").build())).expect_exact();
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
