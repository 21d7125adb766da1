//! Processes that are stopped until their probes are in place: nobody stands still for long or
//! for ever, whatever becomes of the tool, and what others want of a process comes about.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use outlive_tests::build::Build;
use outlive_tests::measure::measure_with;
use outlive_tests::process::{children, eventually, executing, state};
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::session::Session;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{Running, Tool};
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

use crate::harm::{expect_unloaded, held_by};

crate::tests![
    [Bpf, C] a_held_child_goes_on_when_the_tool_is_killed,
    [Bpf, C] nobody_of_a_storm_stands_still_when_the_tool_is_killed,
    [Bpf, C] a_tool_that_stands_still_holds_nobody_for_long,
    [Bpf, C] a_held_child_that_another_continues_is_counted_as_lost,
    [Bpf, C] a_held_child_that_another_stops_stays_stopped,
    [Bpf, C] a_held_child_that_another_ends_ends,
    [Bpf, C] without_holds_the_gap_is_counted,
    [Bpf, C] a_shell_with_job_control_is_undisturbed_without_holds,
    [Bpf, C] nothing_of_a_tree_is_left_at_the_end,
    [Bpf, C] nothing_of_a_tree_is_left_of_a_killed_tool,
];

/// A workload and a tool that watches it and its children.
struct Watched {
    workload: Workload,
    tool: Running,
    guard: i32,
}

impl Watched {
    #[track_caller]
    fn start(file: &str, mode: &str) -> Self {
        let workload = Workload::start(&Program::new(Build::c(file).build()).arg(mode));
        let pid = workload.pid();
        let tool = Tool::new(["attach", "--follow", "-p", &pid.to_string(), "-i", "100ms"]);
        let tool = tool.with_folder().start();
        let folder = tool.folder();
        eventually("the first batch", || folder.join("session.json").is_file());
        let guard = guard(tool.process.pid());
        Self { workload, tool, guard }
    }

    /// The one child of the workload, which stands still since nobody looks after it.
    #[track_caller]
    fn held_child(&self) -> i32 {
        let of_workload = || children(self.workload.pid());
        eventually("a child that stands still", || {
            of_workload().first().is_some_and(|child| state(*child) == Some('T'))
        });
        of_workload()[0]
    }

    fn stop_tool(&self) {
        self.tool.process.signal(SIGSTOP);
        eventually("the tool stands still", || state(self.tool.process.pid()) == Some('T'));
    }

    /// Waits until the tool knows of another process, and has let it go.
    #[track_caller]
    fn wait_for_child(&self) {
        let folder = self.tool.folder();
        eventually("the child is in the session", || Session::read(&folder).processes.len() == 2);
    }

    #[track_caller]
    fn end(self) -> Session {
        self.tool.process.signal(SIGTERM);
        let run = self.tool.wait();
        run.expect_code(0);
        assert!(!exists(self.guard), "the guard is still there");
        run.session()
    }
}

/// The process that watches over those that are held.
#[track_caller]
fn guard(tool: i32) -> i32 {
    let is_guard = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words.windows(12).any(|word| word == b"target-guard"))
    };
    let found: Vec<i32> = children(tool).into_iter().filter(is_guard).collect();
    assert_eq!(found.len(), 1, "guards of process {tool}: {found:?}");
    found[0]
}

/// Does the process run? A zombie, which nobody has waited for yet, does not.
fn exists(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

fn a_held_child_goes_on_when_the_tool_is_killed() {
    let mut watched = Watched::start("child_leaks.c", "late");
    watched.stop_tool();
    watched.workload.ask();
    let child = watched.held_child();
    watched.tool.process.signal(SIGKILL);
    assert!(watched.workload.line().starts_with("DONE "));
    assert_ne!(state(child), Some('T'));
    let guard = watched.guard;
    assert_eq!(watched.tool.wait().code, None);
    eventually("the guard has ended", || !exists(guard));
    watched.workload.batch();
}

fn nobody_of_a_storm_stands_still_when_the_tool_is_killed() {
    for moment in [1, 3, 6] {
        let scratch = Scratch::new();
        let program = scratch.join("storm");
        copy_program(&Build::c("storm.c").build(), &program);
        let tool = Tool::new(["run", "--"]).args([program.as_os_str(), "200".as_ref()]).start();
        eventually("the storm has begun", || executing(&program).len() > 1);
        // Wherever it is by then.
        sleep(Duration::from_millis(20 * moment));
        let guard = guard(tool.process.pid());
        tool.process.signal(SIGKILL);
        assert_eq!(tool.wait().code, None);
        eventually("all processes have come to their end", || executing(&program).is_empty());
        eventually("the guard has ended", || !exists(guard));
    }
}

fn a_tool_that_stands_still_holds_nobody_for_long() {
    let mut watched = Watched::start("child_leaks.c", "late");
    watched.stop_tool();
    watched.workload.ask();
    watched.held_child();
    assert!(watched.workload.line().starts_with("DONE "));
    assert_eq!(state(watched.tool.process.pid()), Some('T'), "the tool went on");
    watched.tool.process.signal(SIGCONT);
    watched.wait_for_child();
    let session = watched.end();
    assert_eq!(session.losses["late_probes"], 1, "{:?}", session.losses);
    let says_so = |reason: &serde_json::Value| reason.to_string().contains("lost: 1 times");
    assert!(session.reasons.iter().any(says_so), "{:?}", session.reasons);
}

/// Lets the workload send a signal to a child that is held.
#[track_caller]
fn signalled(mode: &str) -> Watched {
    let mut watched = Watched::start("signals.c", mode);
    watched.stop_tool();
    watched.workload.batch();
    watched.tool.process.signal(SIGCONT);
    watched.wait_for_child();
    watched.workload.batch();
    let folder = watched.tool.folder();
    eventually("the child's end is in the session", || {
        Session::read(&folder).processes[1].ended.is_some()
    });
    watched
}

fn a_held_child_that_another_continues_is_counted_as_lost() {
    let session = signalled("continue").end();
    assert_eq!(session.losses["late_probes"], 1, "{:?}", session.losses);
}

fn a_held_child_that_another_stops_stays_stopped() {
    let session = signalled("stop").end();
    assert_eq!(session.lost(), 0, "{:?}", session.losses);
    let left = session.processes[1].amount();
    assert_eq!(left, Amount { blocks: 50, bytes: 1600 }, "{:?}", session.processes);
}

fn a_held_child_that_another_ends_ends() {
    let session = signalled("end").end();
    assert_eq!(session.lost(), 0, "{:?}", session.losses);
    let left = session.processes[1].amount();
    assert_eq!(left, Amount { blocks: 0, bytes: 0 }, "{:?}", session.processes);
}

fn without_holds_the_gap_is_counted() {
    let program = Program::new(Build::c("child_leaks.c").build()).arg("late");
    let measured = measure_with(&["--no-hold"], &program);
    measured.run.expect_code(3);
    let session = &measured.session;
    assert_eq!(session.holds.count, 0);
    assert_eq!(session.losses["late_probes"], 1, "{:?}", session.losses);
    assert_eq!(session.verdict, "inconclusive");
    // Later batches are seen in whole all the same.
    let left = session.growth_in("leaky");
    assert_eq!(left, Amount { blocks: 400, bytes: 25_600 }, "{}", measured.story());
}

fn a_shell_with_job_control_is_undisturbed_without_holds() {
    let script = "set -m; true; /bin/true; echo $?; sh -c 'exit 3'; echo $?; jobs; exit 7";
    let tool = Tool::new(["run", "-q", "--no-hold"]).with_folder().args(["--"]);
    let run = tool.args(["bash", "-c", script]).run();
    let session = run.session();
    assert!(run.stdout.starts_with("0\n3\n"), "{}", run.story());
    assert!(!run.stdout.contains("Stopped"), "{}", run.story());
    assert_eq!(session.children().len(), 2, "{:?}", session.processes);
    run.expect_code(5);
}

/// A tool that watches a process and its child, ended by `end`; what was there is there no more.
#[track_caller]
fn expect_nothing_left(end: impl FnOnce(Running)) {
    let Watched { mut workload, tool, guard } = Watched::start("child_leaks.c", "");
    let (pid, child) = (workload.pid(), children(workload.pid())[0]);
    eventually("probes in both processes", || {
        [pid, child].into_iter().all(|pid| changed_code_bytes(pid) > 0)
    });
    workload.batch();
    let held = held_by(&tool);
    end(tool);
    eventually("the code of both is as before", || {
        [pid, child].into_iter().all(|pid| changed_code_bytes(pid) == 0)
    });
    expect_unloaded(&held);
    eventually("the guard has ended", || !exists(guard));
    workload.batch();
}

fn nothing_of_a_tree_is_left_at_the_end() {
    expect_nothing_left(|tool| {
        tool.process.signal(SIGTERM);
        tool.wait().expect_code(0);
    });
}

fn nothing_of_a_tree_is_left_of_a_killed_tool() {
    expect_nothing_left(|tool| {
        tool.process.signal(SIGKILL);
        assert_eq!(tool.wait().code, None);
    });
}
