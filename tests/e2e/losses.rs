//! More than the tool can take: it is exact, or it says what it lost and judges nothing.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SIGCONT, SIGINT, SIGSTOP};
use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_running_with, measure_with};
use outlive_tests::process::{eventually, state};
use outlive_tests::sampling::Sampling;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{Running, Tool};
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] a_tool_that_stands_still_loses_nothing_in_silence,
    [Bpf, C] a_buffer_that_is_too_small_is_said,
    [Bpf, C] a_target_may_be_stopped_rather_than_that_events_are_lost,
    [Bpf, C] sampling_beside_it_loses_nothing_in_silence,
    [Bpf, C] two_million_blocks_are_held,
    [Bpf, C] probes_that_go_with_another_tracer_are_counted,
];

fn flood(pairs: u32) -> Program {
    Program::new(Build::c("flood.c").build()).arg(pairs.to_string()).arg("8")
}

fn a_tool_that_stands_still_loses_nothing_in_silence() {
    let workload = Workload::start(&flood(200_000));
    let measured = measure_running_with(&workload, |tool| {
        eventually("probes in the target", || changed_code_bytes(workload.pid()) > 0);
        sleep(Duration::from_millis(500));
        tool.signal(SIGSTOP);
        sleep(Duration::from_secs(2));
        tool.signal(SIGCONT);
    });
    measured.expect_exact_or_lost();
}

/// Eight threads against 64 KiB: about 1,300 records. Something is lost for certain as long as
/// the tool has to share two processors with them, and if not, the figures are exact.
fn a_buffer_that_is_too_small_is_said() {
    measure_with(&["--ring-size", "64KiB"], &flood(20_000)).expect_exact_or_lost();
}

/// The same in a buffer where that loses nine events of ten.
fn a_target_may_be_stopped_rather_than_that_events_are_lost() {
    let options = ["--ring-size", "64KiB", "--on-overflow", "pause"];
    let measured = measure_with(&options, &flood(20_000));
    measured.expect_exact();
    assert!(measured.session.pauses.count > 0, "{}", measured.story());
}

fn sampling_beside_it_loses_nothing_in_silence() {
    let sampling = Sampling::start(4999);
    measure(&flood(10_000)).expect_exact_or_lost();
    assert!(sampling.has_samples());
}

fn two_million_blocks_are_held() {
    measure(&Program::new(Build::c("many_blocks.c").build())).expect_exact_or_lost();
}

#[track_caller]
fn mark(pid: i32) {
    Tool::new(["mark", "-p", &pid.to_string(), "here"]).run().expect_code(0);
}

/// A tool that watches this process and has begun to.
fn watch(pid: i32) -> Running {
    let pid = pid.to_string();
    let words = ["attach", "-p", &pid, "--by-mark", "--budget", "1GiB"];
    let tool = Tool::new(words).with_folder().start();
    let is_there = || Tool::new(["mark", "-p", &pid, "here"]).run().code == Some(0);
    eventually("the tool watches", is_there);
    tool
}

/// Of a process whose first thread has ended, the kernel takes all probes out when any tracer of the
/// same library goes, one of another process included.
fn probes_that_go_with_another_tracer_are_counted() {
    let mut workload = Workload::start(&Program::new(Build::c("ended_leader.c").build()));
    let other_workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid();
    let (tool, other) = (watch(pid), watch(other_workload.pid()));
    let mut batch = || {
        workload.batch();
        mark(pid);
    };
    batch();
    eventually("the first thread has ended", || state(pid) == Some('Z'));
    batch();
    other.process.signal(SIGINT);
    other.wait();
    for _ in 0..3 {
        batch();
    }
    tool.process.signal(SIGINT);
    let run = tool.wait();
    let session = run.session();
    let resident = |batch: &outlive_tests::session::Batch| batch.rss_bytes > Some(100_000);
    assert!(session.batches.iter().all(resident), "{}", run.story());
    // A kernel that leaves them in place is right as well.
    if session.growth_in("leaky") == (Amount { blocks: 500, bytes: 32_000 }) {
        assert_eq!(session.lost(), 0, "losses {:?}", session.losses);
        run.expect_code(0);
    } else {
        assert!(session.losses["removed_probes"] > 0, "{}", run.story());
        assert_eq!(session.lost(), session.losses["removed_probes"]);
        run.expect_code(3);
    }
}
