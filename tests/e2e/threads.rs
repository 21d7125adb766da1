//! Several threads at once: sums, and addresses that change their owner.

use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_as, run_on};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] calls_of_eight_threads_are_told_apart,
    [Bpf, C] blocks_of_two_threads_on_one_stack_add_up,
    [Bpf, Cpp] thirty_threads_of_new_and_delete_leave_nothing,
    [Bpf, C] an_address_that_realloc_gives_up_may_be_taken_at_once,
    [Bpf, C] a_leak_beside_reallocs_is_exact,
    [Bpf, C] blocks_freed_by_another_thread_are_gone,
    [Bpf, C] blocks_kept_by_another_thread_are_counted_where_they_were_made,
    [Bpf, C] a_process_is_all_its_threads,
    [Bpf, C] the_id_of_a_thread_means_its_process_or_is_refused,
];

#[track_caller]
fn exact(file: &str, mode: &str) {
    measure(&Program::new(Build::c(file).build()).arg(mode)).expect_exact();
}

/// For workloads so fast that the tool may lose something, if it says so.
#[track_caller]
fn exact_or_lost(program: &Program) {
    measure(program).expect_exact_or_lost();
}

fn calls_of_eight_threads_are_told_apart() {
    exact("threads_by_size.c", "");
}

fn blocks_of_two_threads_on_one_stack_add_up() {
    exact("one_stack.c", "");
}

fn thirty_threads_of_new_and_delete_leave_nothing() {
    exact_or_lost(&Program::new(Build::cpp("many_threads.cpp").build()));
}

fn an_address_that_realloc_gives_up_may_be_taken_at_once() {
    exact("realloc_race.c", "clean");
}

fn a_leak_beside_reallocs_is_exact() {
    exact("realloc_race.c", "leak");
}

fn blocks_freed_by_another_thread_are_gone() {
    exact("handed_over.c", "clean");
}

fn blocks_kept_by_another_thread_are_counted_where_they_were_made() {
    exact("handed_over.c", "leak");
}

fn a_process_is_all_its_threads() {
    let workload = Workload::start(&Program::new(Build::c("workers.c").build()));
    measure_as(&workload, workload.pid()).expect_exact();
}

fn the_id_of_a_thread_means_its_process_or_is_refused() {
    let workload = Workload::start(&Program::new(Build::c("workers.c").build()));
    let worker = workload.threads()[1];
    let run = run_on(&workload, worker);
    if run.code == Some(5) {
        run.expect_error(5, &["thread"]);
    } else {
        measure_as(&workload, worker).expect_exact();
    }
}
