//! How a session ends: the target is gone, or goes on while the probes are taken out.

use std::fs;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{SIGKILL, SIGTERM};
use outlive_tests::build::Build;
use outlive_tests::process::{Owned, eventually};
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{Run, Running, Tool};
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

use crate::trees::expect_sum;

crate::tests![
    [Bpf, C] of_a_target_that_is_killed_between_batches_the_whole_batches_are_kept,
    [Bpf] a_target_that_ends_by_itself_is_judged,
    [Bpf] a_target_that_fails_is_not_judged,
    [Bpf] a_program_that_is_ended_by_a_signal_is_not_judged,
    [Bpf, C] processes_that_are_made_after_the_last_batch_are_no_loss,
];

/// A tool that judges this process by marks, and has begun to.
fn watch(pid: i32) -> Running {
    let words = ["attach", "-p", &pid.to_string(), "--by-mark", "--budget", "1GiB"];
    let tool = Tool::new(words).with_folder().start();
    eventually("the tool watches", || mark(pid).code == Some(0));
    tool
}

fn mark(pid: i32) -> Run {
    Tool::new(["mark", "-p", &pid.to_string(), "here"]).run()
}

/// The session says it, the summary, and the last line of the messages.
#[track_caller]
fn expect_ended(run: &Run, how: &str) {
    run.expect_code(5);
    let reason = format!("the target ended ({how})");
    let session = run.session();
    assert_eq!(session.verdict, "error", "{}", run.story());
    assert_eq!(session.reasons[0], format!("failed: {reason}"), "{}", run.story());
    let summary = fs::read_to_string(run.folder().join("summary.md")).unwrap();
    assert!(summary.contains(&reason), "{summary}");
    let last = run.stderr.lines().last().unwrap_or_default();
    assert_eq!(last, format!("outlive: {reason}"), "{}", run.story());
}

fn of_a_target_that_is_killed_between_batches_the_whole_batches_are_kept() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid();
    let tool = watch(pid);
    for _ in 0..4 {
        workload.batch();
        mark(pid).expect_code(0);
    }
    // Of a batch that does not come to its end.
    workload.batch();
    workload.process().signal(SIGKILL);
    let run = tool.wait();
    expect_ended(&run, "was ended by SIGKILL");
    let session = run.session();
    let made: Vec<_> = session.batches.iter().map(|batch| batch.allocated_blocks).collect();
    assert_eq!(made, [0, 100, 100, 100, 100], "{}", run.story());
    let last = &session.batches[4];
    assert_eq!((last.heap_blocks, last.heap_bytes), (400, 25_600), "{}", run.story());
    let whole = Amount { blocks: 400, bytes: 25_600 };
    assert_eq!(session.growth_in("leaky"), whole, "{}\n{}", session.listing(), run.story());
    assert_eq!(session.total(), whole, "{}", run.story());
    let line = session.stacks[0].frames[0].line;
    assert!(line.is_some(), "no line of leaky(): {}", session.listing());
}

/// A shell that waits for a line, and then does what its script says.
fn shell(script: &str) -> (Owned, ChildStdin) {
    let script = format!("read line; {script}");
    let mut child: Child =
        Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (Owned::new(child), input)
}

/// Watches a shell over five batches and lets it go on to its end.
fn watch_to_the_end(script: &str) -> Run {
    let (mut shell, mut input) = shell(script);
    let name = format!("/proc/{}/comm", shell.pid());
    eventually("the shell runs", || fs::read_to_string(&name).is_ok_and(|name| name == "sh\n"));
    let tool = watch(shell.pid());
    for _ in 0..5 {
        mark(shell.pid()).expect_code(0);
    }
    input.write_all(b"\n").unwrap();
    // Nobody but its parent is told how it ended, once that has asked.
    assert!(shell.wait(outlive_tests::process::PATIENCE).is_some());
    tool.wait()
}

fn a_target_that_ends_by_itself_is_judged() {
    let run = watch_to_the_end("exit 0");
    let session = run.session();
    let notice = session.notices.iter().find(|notice| notice.name == "target-exited");
    let notice = notice.unwrap_or_else(|| panic!("it is not said: {}", run.story()));
    assert!(notice.text.contains("status 0"), "{}", notice.text);
    assert!(!session.reasons.iter().any(|reason| reason.to_string().contains("failed")));
    assert_ne!(session.verdict, "error", "{}", run.story());
    let summary = fs::read_to_string(run.folder().join("summary.md")).unwrap();
    assert!(summary.contains("exited with status 0"), "{summary}");
    assert!(run.stdout.contains("exited with status 0"), "{}", run.story());
}

fn a_target_that_fails_is_not_judged() {
    expect_ended(&watch_to_the_end("exit 3"), "exited with status 3");
    expect_ended(&watch_to_the_end("kill -TERM $$"), "was ended by SIGTERM");
}

fn a_program_that_is_ended_by_a_signal_is_not_judged() {
    let run = Tool::new(["run", "--budget", "1GiB"])
        .with_folder()
        .args(["--", "sh", "-c", "kill -SEGV $$"])
        .run();
    expect_ended(&run, "was ended by SIGSEGV");
}

/// Where one is made all the time, there is always one on its way when the last batch ends.
fn processes_that_are_made_after_the_last_batch_are_no_loss() {
    let mut workload = Workload::start(&Program::new(Build::c("forks_on.c").build()));
    let pid = workload.pid().to_string();
    for _ in 0..4 {
        let words = ["test", "-p", &pid, "--warmup", "1", "--batches", "3"];
        let run = Tool::new(words).with_folder().args(["--", "sleep", "0.05"]).run();
        let session = run.session();
        assert_eq!(session.lost(), 0, "losses {:?}; {}", session.losses, run.story());
        expect_sum(&session);
        assert!(session.children().len() > 1, "{:?}", session.processes);
        assert_eq!(changed_code_bytes(workload.pid()), 0);
    }
    assert!(workload.process().is_alive());
    workload.process().signal(SIGTERM);
}
