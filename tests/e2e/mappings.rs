//! Memory that the program maps itself, in whole pages, and what is told apart from it.

use outlive_tests::build::Build;
use outlive_tests::measure::{MEASURED, Measured, measure};
use outlive_tests::session::Batch;
use outlive_tests::workload::Program;

crate::tests![
    [Bpf, C] kept_mappings_are_counted,
    [Bpf, C] a_system_call_without_the_c_library_is_seen,
    [Bpf, C] a_hole_leaves_what_is_around_it,
    [Bpf, C] the_pieces_of_a_mapping_may_go_one_by_one,
    [Bpf, C] lengths_count_in_whole_pages,
    [Bpf, C] a_mapping_that_moves_counts_once,
    [Bpf, C] a_mapping_that_moved_is_unmapped_where_it_is,
    [Bpf, C] a_mapping_that_shrinks_keeps_the_rest,
    [Bpf, C] a_second_mapping_of_the_same_memory_counts,
    [Bpf, C] mapping_over_a_reservation_counts_once,
    [Bpf, C] a_reservation_is_not_memory,
    [Bpf, C] calls_that_fail_change_nothing,
    [Bpf, C] a_block_with_a_mapping_of_its_own_counts_once,
    [Bpf, C] arenas_of_threads_are_no_leak,
    [Bpf, C] stacks_of_threads_that_left_by_the_system_call_are_counted,
    [Bpf, C] stacks_of_threads_that_ended_are_used_again,
    [Bpf, C] resident_memory_that_nothing_explains_is_shown,
];

const MIB: i64 = 1 << 20;

/// Measures the mode and compares mapped memory with the program's account.
#[track_caller]
fn exact(mode: &str) -> Measured {
    let measured = measure(&Program::new(Build::c("mappings.c").build()).arg(mode));
    let left: i64 = measured.truth.values().map(|amount| amount.bytes).sum();
    assert_eq!(measured.session.growth.mapped_bytes, left, "{}", measured.story());
    assert_eq!(measured.session.total().bytes, 0, "{}", measured.story());
    assert_eq!(measured.session.lost(), 0, "{}", measured.story());
    assert_eq!(measured.session.verdict, "pass", "{}", measured.story());
    measured
}

/// What the measured batches added to a figure.
fn added(measured: &Measured, figure: impl Fn(&Batch) -> i64) -> i64 {
    let figures: Vec<i64> = measured.session.batches.iter().map(figure).collect();
    figures[figures.len() - 1] - figures[figures.len() - 1 - MEASURED]
}

fn kept_mappings_are_counted() {
    let measured = exact("keep");
    let in_caller = measured.session.mapped_in("maps");
    assert_eq!((in_caller.bytes, in_caller.blocks), (40 * MIB, 40), "{}", measured.story());
}

fn a_system_call_without_the_c_library_is_seen() {
    exact("raw");
}

fn a_hole_leaves_what_is_around_it() {
    exact("hole");
}

fn the_pieces_of_a_mapping_may_go_one_by_one() {
    exact("pieces");
}

fn lengths_count_in_whole_pages() {
    exact("rounding");
}

fn a_mapping_that_moves_counts_once() {
    exact("moved");
}

fn a_mapping_that_moved_is_unmapped_where_it_is() {
    exact("moved-unmapped");
}

fn a_mapping_that_shrinks_keeps_the_rest() {
    exact("shrunk");
}

fn a_second_mapping_of_the_same_memory_counts() {
    assert_eq!(added(&exact("twice"), |batch| batch.shared_bytes), 80 * MIB);
}

fn mapping_over_a_reservation_counts_once() {
    assert_eq!(added(&exact("committed"), |batch| batch.reserved_bytes), 0);
}

fn a_reservation_is_not_memory() {
    assert_eq!(added(&exact("reserved"), |batch| batch.reserved_bytes), 4096 * MIB);
}

fn calls_that_fail_change_nothing() {
    exact("failed");
}

fn a_block_with_a_mapping_of_its_own_counts_once() {
    let measured = measure(&Program::new(Build::c("large_blocks.c").build()));
    measured.expect_exact();
    assert_eq!(measured.session.growth.mapped_bytes, 0, "{}", measured.story());
    let arena = added(&measured, |batch| batch.arena_bytes);
    let heap = measured.session.total().bytes;
    assert!(heap <= arena && arena <= heap + heap / 10, "arena {arena}, heap {heap}");
}

/// Each thread's arena is 64 MiB of address space, mapped by the first `malloc` of the thread.
fn arenas_of_threads_are_no_leak() {
    for mode in ["stay", "end"] {
        let measured = measure(&Program::new(Build::c("arenas.c").build()).arg(mode));
        measured.expect_exact();
        let first = &measured.session.batches[0];
        // On two processors the C library makes sixteen arenas, the main one included.
        assert!(first.reserved_bytes >= 10 * 60 * MIB, "{} reserved", first.reserved_bytes);
        assert!(first.arena_bytes >= 10 * 128 * 1024, "{} in arenas", first.arena_bytes);
        assert!(first.arena_bytes < 16 * MIB, "{} in arenas", first.arena_bytes);
        assert_eq!(added(&measured, |batch| batch.arena_bytes), 0, "{}", measured.story());
        assert_eq!(measured.session.growth.mapped_bytes, 0, "{}", measured.story());
    }
}

fn ended_threads(mode: &str) -> Measured {
    measure(&Program::new(Build::c("ended_threads.c").build()).arg(mode))
}

fn stacks_of_threads_that_left_by_the_system_call_are_counted() {
    let measured = ended_threads("raw");
    let session = &measured.session;
    let n_threads = 10 * i64::try_from(MEASURED).unwrap();
    // A guard page before each.
    let stacks = n_threads * (256 + 4) * 1024;
    assert_eq!(added(&measured, |batch| batch.thread_stack_bytes), stacks, "{}", measured.story());
    assert_eq!(session.total().blocks, n_threads, "{}", measured.story());
    assert_eq!(session.verdict, "growth", "{}", measured.story());
    assert_eq!(session.lost(), 0, "{}", measured.story());
}

fn stacks_of_threads_that_ended_are_used_again() {
    let measured = ended_threads("usual");
    let session = &measured.session;
    // How many wait to be used again depends on how many were alive at once.
    let most = 10 * (256 + 4) * 1024;
    let last = &session.batches[session.batches.len() - 1];
    assert!(last.thread_stack_bytes <= most, "{}", measured.story());
    assert!(session.total().blocks < 10, "{}", measured.story());
    assert_eq!(session.lost(), 0, "{}", measured.story());
}

fn resident_memory_that_nothing_explains_is_shown() {
    // Keeps its pointers in static memory, which no allocator hands out.
    let measured = measure(&Program::new(Build::c("many_blocks.c").build()));
    let last = measured.session.batches.last().unwrap();
    let rest = last.rss_bytes.unwrap() - u64::try_from(last.heap_bytes).unwrap();
    assert!(rest > 1 << 20, "{}", measured.story());
    let line = measured.run.stdout.lines().find(|line| line.ends_with("resident, unexplained"));
    let line = line.unwrap_or_else(|| panic!("{}", measured.story()));
    assert!(line.contains("MiB"), "{line}");
    let summary = std::fs::read_to_string(measured.run.folder().join("summary.md")).unwrap();
    assert!(summary.contains("\n| resident, unexplained | "), "{summary}");
}
