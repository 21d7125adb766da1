//! What happens to the target when the tool ends, in any way.

use nix::sys::signal::{SIGINT, SIGKILL, SIGTERM, Signal};
use outlive_tests::build::Build;
use outlive_tests::kernel::BpfIds;
use outlive_tests::measure::measure_running;
use outlive_tests::process::eventually;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{Run, Running, Tool};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] nothing_is_left_in_the_kernel_after_the_usual_end,
    [Bpf, C] the_target_outlives_a_killed_tool,
    [Bpf, C] the_target_outlives_an_interrupted_tool,
    [Bpf, C] the_target_outlives_a_terminated_tool,
    [Bpf, C] a_target_under_test_outlives_a_killed_tool,
    [Bpf, C] nothing_is_left_by_a_tool_that_is_killed_while_it_removes_probes,
    [Bpf, C] nothing_is_left_by_a_tool_that_is_killed_while_it_sets_probes,
    [Bpf, C] a_tool_that_is_told_to_stop_while_it_attaches_writes_a_session,
    [Bpf, C] a_test_that_is_told_to_stop_while_it_attaches_ends_as_told,
];

/// Ends an attached tool by a signal; the target must work on, without breakpoints, and can be
/// traced again.
#[track_caller]
fn end_by(signal: Signal) -> Run {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid();
    let tool = Tool::new(["attach", "-p", &pid.to_string(), "-d", "60s", "-i", "1s"])
        .with_folder()
        .start();
    eventually("probes in the target", || changed_code_bytes(pid) > 0);
    workload.batch();
    let held = held_by(&tool);
    tool.process.signal(signal);
    let run = tool.wait();
    eventually("the code of the target is as before", || changed_code_bytes(pid) == 0);
    expect_unloaded(&held);
    workload.batch();
    assert!(workload.process().is_alive());

    measure_running(&workload).expect_exact();
    workload.batch();
    assert_eq!(changed_code_bytes(pid), 0);
    run
}

/// The programs and links of the tool, which the kernel knows.
#[track_caller]
pub(crate) fn held_by(tool: &Running) -> BpfIds {
    let complete = || {
        let held = BpfIds::held_by(tool.process.pid());
        // Programs for functions, for tasks and for system calls.
        held.programs.len() > 4 && held.links.len() > 4
    };
    eventually("the tool's programs and links", complete);
    let held = BpfIds::held_by(tool.process.pid());
    assert_eq!(held.common(&BpfIds::all()), held);
    held
}

/// The kernel knows none of these any more.
#[track_caller]
pub(crate) fn expect_unloaded(held: &BpfIds) {
    eventually("programs and links are gone", || held.common(&BpfIds::all()).is_empty());
}

fn nothing_is_left_in_the_kernel_after_the_usual_end() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid();
    let tool = Tool::new(["attach", "-p", &pid.to_string(), "-d", "2s", "-i", "1s"]).start();
    eventually("probes in the target", || changed_code_bytes(pid) > 0);
    let held = held_by(&tool);
    tool.wait().expect_code(0);
    assert_eq!(changed_code_bytes(pid), 0);
    expect_unloaded(&held);
    workload.batch();
}

fn the_target_outlives_a_killed_tool() {
    assert_eq!(end_by(SIGKILL).code, None);
}

fn the_target_outlives_an_interrupted_tool() {
    let run = end_by(SIGINT);
    run.expect_code(0);
    assert!(run.session().batches.iter().any(|batch| batch.allocated_blocks >= 100));
}

fn the_target_outlives_a_terminated_tool() {
    let run = end_by(SIGTERM);
    run.expect_code(0);
    assert!(!run.session().batches.is_empty());
}

fn a_target_under_test_outlives_a_killed_tool() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid();
    let tool = Tool::new(["test", "-p", &pid.to_string(), "--batches", "100000", "--"])
        .args([workload.batch_command()])
        .start();
    eventually("probes in the target", || changed_code_bytes(pid) > 0);
    std::thread::sleep(std::time::Duration::from_millis(500));
    tool.process.signal(SIGKILL);
    assert_eq!(tool.wait().code, None);
    eventually("the code of the target is as before", || changed_code_bytes(pid) == 0);
    assert!(workload.process().is_alive());
}

/// Kills the tool at several moments after `begun` has returned; each time the target must be left
/// without a breakpoint. The target keeps its memory map locked nearly always, so the tool is
/// nearly always killed while it waits to write to the target's code.
#[track_caller]
fn killed_with_probes_half_way(begun: impl Fn(i32, &Running)) {
    for moment in [0, 20, 50, 90, 150] {
        let mut workload = Workload::start(&Program::new(Build::c("populates.c").build()));
        let pid = workload.pid();
        let tool = Tool::new(["attach", "-p", &pid.to_string()]).with_folder().start();
        begun(pid, &tool);
        std::thread::sleep(std::time::Duration::from_millis(moment));
        tool.process.signal(SIGKILL);
        assert_eq!(tool.wait().code, None);
        eventually("the code of the target is as before", || changed_code_bytes(pid) == 0);
        assert!(workload.process().is_alive());
    }
}

fn nothing_is_left_by_a_tool_that_is_killed_while_it_removes_probes() {
    killed_with_probes_half_way(|pid, tool| {
        eventually("probes in the target", || changed_code_bytes(pid) > 0);
        held_by(tool);
        tool.process.signal(SIGTERM);
    });
}

fn nothing_is_left_by_a_tool_that_is_killed_while_it_sets_probes() {
    killed_with_probes_half_way(|pid, _| {
        eventually("probes in the target", || changed_code_bytes(pid) > 0);
    });
}

/// Sends the signal as soon as the session's folder is there, which is made before the probes.
#[track_caller]
fn stopped_while_it_attaches(tool: Tool, signal: Signal) -> Run {
    let folder = tool.scratch().join("session");
    let tool = tool.start();
    eventually("the session's folder", || folder.is_dir());
    tool.process.signal(signal);
    tool.wait()
}

fn a_tool_that_is_told_to_stop_while_it_attaches_writes_a_session() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    for signal in [SIGTERM, SIGINT] {
        let tool = Tool::new(["attach", "-p", &workload.pid().to_string()]).with_folder();
        let run = stopped_while_it_attaches(tool, signal);
        run.expect_code(0);
        assert_eq!(run.session().batches.len(), 1, "{}", run.story());
        assert_eq!(changed_code_bytes(workload.pid()), 0);
        workload.batch();
    }
    measure_running(&workload).expect_exact();
}

fn a_test_that_is_told_to_stop_while_it_attaches_ends_as_told() {
    let workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let tool = Tool::new(["test", "-p", &workload.pid().to_string()]).with_folder();
    let tool = tool.args(["--"]).args([workload.batch_command()]);
    let run = stopped_while_it_attaches(tool, SIGTERM);
    run.expect_code(3);
    let session = run.session();
    let interrupted = |reason: &serde_json::Value| reason.to_string().contains("interrupted:");
    assert!(session.reasons.iter().any(interrupted), "{}", run.story());
    // The signal may come when the attach is done and the first batch runs.
    assert!(workload.truth().n_batches() <= 1, "{}", run.story());
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}
