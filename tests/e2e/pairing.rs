//! Which call makes a block, which ends it, and which does neither.

use outlive_tests::build::Build;
use outlive_tests::measure::{Measured, measure, measure_running};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] a_block_that_realloc_resized_is_freed_once,
    [Bpf, C] a_block_that_realloc_moved_to_a_mapping_is_freed_once,
    [Bpf, C] realloc_of_nothing_is_one_allocation,
    [Bpf, C] a_failed_realloc_keeps_the_old_block,
    [Bpf, C] the_old_block_of_a_failed_realloc_can_be_freed,
    [Bpf, C] calls_that_fail_make_no_block,
    [Bpf, C] posix_memalign_stores_its_block,
    [Bpf, C] calloc_and_posix_memalign_count_once,
    [Bpf, C] calloc_and_posix_memalign_are_freed_whole,
    [Bpf, C, Musl] calloc_and_posix_memalign_count_once_on_musl,
    [Bpf, C, Musl] calloc_and_posix_memalign_are_freed_whole_on_musl,
    [Bpf, C, Musl] a_c_library_without_the_rarer_functions_is_traced,
    [Bpf, C] an_allocator_of_only_malloc_and_free_is_traced,
    [Bpf, C] an_allocator_with_two_versions_of_malloc_is_traced,
    [Bpf, Cpp] exceptions_pass_through_a_failing_operator_new,
    [Bpf, C] sized_deallocators_that_call_free_free_once,
    [Bpf, C, SizedFree] sized_deallocators_of_the_c_library_free,
    [Bpf, C] names_that_share_an_address_count_once,
    [Bpf, C] blocks_from_before_the_attach_are_unmatched_frees,
];

/// Measures a workload in C and compares it with its own account.
#[track_caller]
fn exact(file: &str, mode: &str) -> Measured {
    let measured = measure(&Program::new(Build::c(file).build()).arg(mode));
    measured.expect_exact();
    measured
}

#[track_caller]
fn expect_no_unmatched_frees(measured: &Measured) {
    let unmatched: u64 =
        measured.session.measured_batches().map(|batch| batch.unmatched_frees).sum();
    assert_eq!(unmatched, 0, "unmatched frees; {}", measured.story());
}

fn a_block_that_realloc_resized_is_freed_once() {
    expect_no_unmatched_frees(&exact("realloc_pairs.c", "small"));
}

fn a_block_that_realloc_moved_to_a_mapping_is_freed_once() {
    expect_no_unmatched_frees(&exact("realloc_pairs.c", "large"));
}

fn realloc_of_nothing_is_one_allocation() {
    exact("realloc_null.c", "");
}

fn a_failed_realloc_keeps_the_old_block() {
    exact("realloc_failed.c", "keep");
}

fn the_old_block_of_a_failed_realloc_can_be_freed() {
    expect_no_unmatched_frees(&exact("realloc_failed.c", "free"));
}

fn calls_that_fail_make_no_block() {
    exact("failed_calls.c", "");
}

fn posix_memalign_stores_its_block() {
    exact("out_parameter.c", "");
}

fn calloc_and_posix_memalign_count_once() {
    exact("nested_calls.c", "keep");
}

fn calloc_and_posix_memalign_are_freed_whole() {
    expect_no_unmatched_frees(&exact("nested_calls.c", "free"));
}

fn calloc_and_posix_memalign_count_once_on_musl() {
    measure(&Program::new(Build::musl("nested_calls.c").build()).arg("keep")).expect_exact();
}

fn calloc_and_posix_memalign_are_freed_whole_on_musl() {
    let program = Program::new(Build::musl("nested_calls.c").build()).arg("free");
    expect_no_unmatched_frees(measure(&program).expect_exact());
}

fn a_c_library_without_the_rarer_functions_is_traced() {
    measure(&Program::new(Build::musl("keep.c").build())).expect_exact();
}

/// `keep.c`, linked to a library that comes before the C library.
fn keep_with(library: &Build) -> Program {
    let library = library.build();
    Program::new(Build::c("keep.c").flag(library.display().to_string()).build())
}

fn an_allocator_of_only_malloc_and_free_is_traced() {
    measure(&keep_with(&Build::library("c/lib_only_malloc.c", "libonly.so"))).expect_exact();
}

fn an_allocator_with_two_versions_of_malloc_is_traced() {
    let map = outlive_tests::scratch::workloads().join("c/two_versions.map");
    let library = Build::library("c/lib_two_versions.c", "libversions.so")
        .flag(format!("-Wl,--version-script={}", map.display()));
    measure(&keep_with(&library)).expect_exact();
}

fn exceptions_pass_through_a_failing_operator_new() {
    measure(&Program::new(Build::cpp("failing_new.cpp").build())).expect_exact();
}

fn sized_deallocators_that_call_free_free_once() {
    let library = Build::library("c/lib_sized_free.c", "libsized.so").build();
    // Nothing in the program names the library: without this, the linker would leave it out.
    let program = Build::c("sized_free.c")
        .flag("-Wl,--no-as-needed")
        .flag(library.display().to_string())
        .build();
    expect_no_unmatched_frees(measure(&Program::new(program)).expect_exact());
}

fn sized_deallocators_of_the_c_library_free() {
    expect_no_unmatched_frees(&exact("sized_free.c", ""));
}

fn names_that_share_an_address_count_once() {
    expect_no_unmatched_frees(&exact("aliases.c", ""));
}

fn blocks_from_before_the_attach_are_unmatched_frees() {
    let workload = Workload::start(&Program::new(Build::c("born_before.c").build()));
    let measured = measure_running(&workload);
    measured.run.expect_code(0);
    assert_eq!(measured.session.total().bytes, 0, "{}", measured.story());
    assert_eq!(measured.session.total().blocks, 0, "{}", measured.story());
    for batch in measured.session.measured_batches() {
        assert_eq!(batch.unmatched_frees, 100, "{}", measured.story());
    }
}
