//! Programs that make other processes: each block belongs to the memory that it is in, and the
//! figures of all processes add up.

use outlive_tests::build::Build;
use outlive_tests::measure::{
    MEASURED, WARMUP, measure, measure_running, measure_running_by, measure_with,
};
use outlive_tests::session::Session;
use outlive_tests::tool::{Run, Tool};
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] what_a_child_does_to_its_copy_is_not_its_parent_s,
    [Bpf, C] a_child_that_leaks_is_counted_with_its_parent,
    [Bpf, C] a_child_that_is_made_in_a_batch_is_exact_from_its_first_call,
    [Bpf, C] a_child_that_is_not_followed_is_named_and_not_counted,
    [Bpf, C] a_child_from_before_the_attach_is_followed,
    [Bpf, C] a_child_from_before_the_attach_is_named_where_it_is_not_followed,
    [Bpf, C] exec_discards_what_the_old_image_had,
    [Bpf, C] exec_by_another_thread_than_the_first_is_exact,
    [Bpf, C] spawned_programs_leave_nothing,
    [Bpf, C] two_hundred_spawned_programs_leave_nothing,
    [Bpf, C] a_block_of_a_vfork_child_is_its_parent_s,
    [Bpf, C] a_block_of_a_child_in_shared_memory_is_its_parent_s,
    [Bpf, C] a_child_in_shared_memory_leaves_it_by_exec_as_it_was,
    [Bpf, C] two_hundred_short_lived_programs_are_exact,
    [Bpf, C] two_hundred_short_lived_copies_are_exact,
    [Bpf, C] children_that_several_threads_make_at_once_are_exact,
    [Bpf, C] forty_generations_are_exact,
    [Bpf, C] a_run_lasts_as_long_as_its_daemon,
    [Bpf, C] children_made_in_the_midst_of_calls_are_exact_and_end,
    [Bpf, C] what_workers_make_and_the_first_thread_frees_is_gone,
];

fn program(file: &str, mode: &str) -> Program {
    Program::new(Build::c(file).build()).arg(mode)
}

/// Traces a program from its beginning to its end.
#[track_caller]
fn run(program: &Program, options: &[&str]) -> (Run, Session) {
    let tool = Tool::new(["run"]).with_folder().args(options.iter().copied()).args(["--"]);
    let run = tool.args([&program.path]).args(&program.args).run();
    run.expect_code(0);
    let session = run.session();
    assert_eq!(session.lost(), 0, "losses {:?}; {}", session.losses, run.story());
    expect_sum(&session);
    (run, session)
}

/// What ended with a process, and what the others gained, is what all of them gained.
#[track_caller]
pub(crate) fn expect_sum(session: &Session) {
    let ended = Amount { blocks: session.growth.ended_blocks, bytes: session.growth.ended_bytes };
    let sum = [session.total(), ended].into_iter().sum::<Amount>();
    assert_eq!(session.total_of_processes(), sum, "{:?}", session.processes);
}

fn amount(blocks: i64, bytes: i64) -> Amount {
    Amount { blocks, bytes }
}

/// Times that something happened which each batch does once.
const EACH: i64 = MEASURED as i64;

fn what_a_child_does_to_its_copy_is_not_its_parent_s() {
    let measured = measure(&program("fork_middle.c", ""));
    let session = &measured.expect_exact().session;
    expect_sum(session);
    assert_eq!(session.growth_in("leaky"), amount(100 * EACH, 100_000 * EACH));
    assert_eq!(session.mapped_in("maps"), amount(EACH, EACH * (32 << 20)));
    assert_eq!(session.growth.ended_bytes, 10 * 48 * EACH);
    for batch in &session.batches {
        assert_eq!(batch.inherited_frees, 100, "{}", measured.story());
        assert_eq!(batch.unmatched_frees, 0, "{}", measured.story());
    }
    assert_eq!(session.processes[0].amount(), session.total());
    assert_eq!(session.children().len(), WARMUP + MEASURED, "{}", measured.story());
    let grown = session.children().iter().filter(|child| child.amount() == amount(10, 480));
    assert_eq!(grown.count(), MEASURED, "{:?}", session.processes);
    let none = session.children().iter().filter(|child| child.amount() == amount(0, 0));
    assert_eq!(none.count(), WARMUP, "{:?}", session.processes);
    assert!(session.children().iter().all(|child| child.growth.mapped_bytes == 0));
}

/// The child alone has grown.
#[track_caller]
fn expect_child_s(session: &Session) {
    expect_sum(session);
    assert_eq!(session.processes.len(), 2, "{:?}", session.processes);
    assert_eq!(session.processes[0].amount(), amount(0, 0));
    assert_eq!(session.processes[1].amount(), amount(100 * EACH, 6400 * EACH));
    assert_eq!(session.processes[1].ppid, session.processes[0].pid);
}

fn a_child_that_leaks_is_counted_with_its_parent() {
    expect_child_s(&measure(&program("child_leaks.c", "")).expect_exact().session);
}

fn a_child_that_is_made_in_a_batch_is_exact_from_its_first_call() {
    let measured = measure(&program("child_leaks.c", "late"));
    expect_child_s(&measured.expect_exact().session);
    let ends: Vec<i64> = measured.session.batches.iter().map(|batch| batch.heap_bytes).collect();
    let expected: Vec<i64> = (1..=ends.len() as i64).map(|n| 6400 * n).collect();
    assert_eq!(ends, expected, "{}", measured.story());
}

#[track_caller]
fn expect_not_followed(session: &Session) {
    assert_eq!(session.verdict, "pass", "{:?}", session.reasons);
    assert_eq!(session.total(), amount(0, 0), "{}", session.listing());
    assert_eq!(session.processes.len(), 1, "{:?}", session.processes);
    let notice = session.notices.iter().find(|notice| notice.name == "children-not-traced");
    let text = notice.map(|notice| notice.text.as_str()).unwrap_or_default();
    assert!(text.starts_with("1 child was not traced"), "{:?}", session.notices);
}

fn a_child_that_is_not_followed_is_named_and_not_counted() {
    let measured = measure_with(&["--no-follow"], &program("child_leaks.c", ""));
    measured.run.expect_code(0);
    expect_not_followed(&measured.session);
}

fn a_child_from_before_the_attach_is_followed() {
    let workload = Workload::start(&program("child_leaks.c", ""));
    expect_child_s(&measure_running(&workload).expect_exact().session);
}

fn a_child_from_before_the_attach_is_named_where_it_is_not_followed() {
    let workload = Workload::start(&program("child_leaks.c", ""));
    let measured = measure_running_by(&["--no-follow"], &workload);
    measured.run.expect_code(0);
    expect_not_followed(&measured.session);
}

/// What an exec leaves: the new image's blocks, and how much went with the old one.
#[track_caller]
fn expect_second_image(session: &Session, discarded: i64) {
    assert_eq!(session.total(), amount(100, 6400), "{}", session.listing());
    assert_eq!(session.growth_in("second_leaks"), amount(100, 6400), "{}", session.listing());
    assert_eq!(session.growth_in("first_leaks"), amount(0, 0), "{}", session.listing());
    assert_eq!(session.processes.len(), 1, "{:?}", session.processes);
    assert_eq!(session.processes[0].discarded_bytes, discarded, "{:?}", session.processes);
    assert_eq!(session.verdict, "inconclusive");
    let is_said = |reason: &serde_json::Value| reason.to_string().contains("target-replaced");
    assert!(session.reasons.iter().any(is_said), "{:?}", session.reasons);
}

fn exec_discards_what_the_old_image_had() {
    let (_, session) = run(&program("exec_self.c", ""), &[]);
    expect_second_image(&session, 100_000);
}

fn exec_by_another_thread_than_the_first_is_exact() {
    let (_, session) = run(&program("exec_self.c", "thread"), &[]);
    // The C library has a block for the thread beside the program's own.
    let of_the_thread = session.processes[0].discarded_bytes - 100_000;
    assert!((1..4096).contains(&of_the_thread), "{:?}", session.processes);
    expect_second_image(&session, 100_000 + of_the_thread);
}

/// One block of the parent's per batch, however many processes come and go.
#[track_caller]
fn expect_parent_s(mode: &str, processes: usize) {
    let measured = measure(&program("shared_memory.c", mode));
    let session = &measured.expect_exact().session;
    expect_sum(session);
    assert_eq!(session.processes[0].amount(), amount(EACH, 64 * EACH), "{}", measured.story());
    assert_eq!(session.growth.ended_bytes, 0, "{:?}", session.processes);
    assert_eq!(session.children().len(), processes, "{:?}", session.processes);
    assert!(session.children().iter().all(|child| child.discarded_bytes == 0));
}

fn spawned_programs_leave_nothing() {
    expect_parent_s("spawn", 20 * (WARMUP + MEASURED));
}

fn two_hundred_spawned_programs_leave_nothing() {
    let (run, session) = run(&program("spawn_many.c", ""), &[]);
    assert_eq!(session.total(), amount(1, 1000), "{}", session.listing());
    assert_eq!(session.growth.ended_bytes, 0, "{}", run.story());
    let is_true = |exe: &str| exe.ends_with("/true");
    assert_eq!(session.children().iter().filter(|child| is_true(&child.exe)).count(), 200);
}

fn a_block_of_a_vfork_child_is_its_parent_s() {
    expect_parent_s("vfork", WARMUP + MEASURED);
}

fn a_block_of_a_child_in_shared_memory_is_its_parent_s() {
    expect_parent_s("clone", WARMUP + MEASURED);
}

fn a_child_in_shared_memory_leaves_it_by_exec_as_it_was() {
    expect_parent_s("exec", WARMUP + MEASURED);
}

/// 200 children of which the i-th keeps 16 * (i + 1) bytes, and a parent that keeps 1,500.
#[track_caller]
fn expect_storm(program: &Program) {
    let (run, session) = run(program, &[]);
    assert_eq!(session.total(), amount(2, 1500), "{}", session.listing());
    assert_eq!(session.processes[0].amount(), amount(2, 1500), "{}", run.story());
    let mut left: Vec<i64> =
        session.children().iter().map(|child| child.growth.heap_bytes).collect();
    left.sort_unstable();
    assert_eq!(left, (1..=200).map(|i| 16 * i).collect::<Vec<_>>(), "{}", run.story());
    assert!(session.children().iter().all(|child| child.growth.heap_blocks == 1));
    assert!(session.children().iter().all(|child| child.ended.is_some()));
    assert_eq!(session.growth.ended_bytes, 16 * 200 * 201 / 2);
}

fn two_hundred_short_lived_programs_are_exact() {
    expect_storm(&program("storm.c", "200"));
}

fn two_hundred_short_lived_copies_are_exact() {
    expect_storm(&program("storm.c", "200").arg("forks"));
}

fn children_that_several_threads_make_at_once_are_exact() {
    let (run, session) = run(&program("generations.c", "threads"), &[]);
    assert_eq!(session.children().len(), 4 * 24, "{}", run.story());
    let of = |amount: Amount| session.children().iter().filter(move |it| it.amount() == amount);
    assert_eq!(of(amount(1, 100)).count(), 4 * 16, "{:?}", session.processes);
    assert_eq!(of(amount(0, 0)).count(), 4 * 8, "{:?}", session.processes);
    assert!(of(amount(0, 0)).all(|child| child.exe.ends_with("/true")));
    assert_eq!(session.growth.ended_bytes, 4 * 16 * 100, "{}", run.story());
    assert_eq!(session.growth_in("leaks"), amount(0, 0), "{}", session.listing());
}

fn forty_generations_are_exact() {
    let (run, session) = run(&program("generations.c", "chain"), &[]);
    let processes = &session.processes;
    assert_eq!(processes.len(), 41, "{}", run.story());
    assert!(processes.iter().all(|process| process.amount() == amount(1, 7)), "{processes:?}");
    assert!(processes.windows(2).all(|pair| pair[1].ppid == pair[0].pid), "{processes:?}");
    assert_eq!(session.total(), amount(1, 7), "{}", session.listing());
}

fn a_run_lasts_as_long_as_its_daemon() {
    let (run, session) = run(&Program::new(Build::c("daemon.c").build()), &[]);
    let each: Vec<Amount> = session.processes.iter().map(|process| process.amount()).collect();
    let expected = [amount(1, 1000), amount(1, 200), amount(100, 6400)];
    assert_eq!(each, expected, "{}", run.story());
    let parents: Vec<i32> = session.children().iter().map(|process| process.ppid).collect();
    let pids: Vec<i32> = session.processes.iter().map(|process| process.pid).collect();
    assert_eq!(parents, pids[..2], "{:?}", session.processes);
}

fn children_made_in_the_midst_of_calls_are_exact_and_end() {
    let measured = measure(&program("fork_crowd.c", ""));
    let session = &measured.expect_exact().session;
    expect_sum(session);
    assert_eq!(session.growth.ended_bytes, 0);
    assert_eq!(session.children().len(), 25 * (WARMUP + MEASURED));
}

fn what_workers_make_and_the_first_thread_frees_is_gone() {
    let measured = measure(&program("pooled.c", ""));
    let session = &measured.expect_exact().session;
    assert_eq!(session.stacks.len(), 0, "{}", measured.story());
    assert!(session.batches.iter().all(|batch| batch.freed_blocks == 8000));
}
