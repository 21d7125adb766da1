//! Targets with rights of their own, targets that stand still, targets that others trace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, Signal, kill};
use nix::unistd::Pid;
use outlive_tests::build::Build;
use outlive_tests::measure::{
    measure, measure_as_user, measure_running, measure_running_with, run_on,
};
use outlive_tests::process::{Owned, eventually};
use outlive_tests::scratch::{Scratch, copy_program, give_capabilities};
use outlive_tests::text::{changed_code, changed_code_bytes};
use outlive_tests::tool::{NOBODY, Tool};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] a_set_user_id_program_is_exact_for_root,
    [Bpf, C, Capabilities] a_program_whose_file_has_capabilities_is_exact_for_root,
    [Bpf, C, Namespaces, Capabilities] a_user_traces_what_is_their_own,
    [Bpf, C, Capabilities] a_user_is_refused_what_is_not_their_own,
    [Bpf, C, Namespaces, Capabilities] a_user_is_refused_their_process_that_has_rights,
    [Bpf, C, Capabilities] a_user_starts_no_set_user_id_program,
    [Bpf, C, Namespaces, Capabilities] a_program_that_gains_rights_is_no_longer_traced,
    [Bpf, C] a_stopped_target_is_attached_to_and_stays_stopped,
    [Bpf, C] threads_that_are_stopped_in_calls_are_exact_when_they_go_on,
    [Bpf, C] a_stopped_target_is_let_go_and_stays_stopped,
    [Bpf, C, Strace] a_target_under_strace_is_exact,
    [Bpf, C] a_target_of_a_tracing_parent_is_exact,
    [Bpf, C] a_target_at_fixed_addresses_is_exact,
    [Bpf, C, Gdb] a_target_under_a_debugger_is_exact,
    [Bpf, C, Gdb] a_debugger_s_breakpoint_where_a_probe_would_be_is_refused,
];

fn keep() -> PathBuf {
    Build::c("keep.c").build()
}

fn copy(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("program");
    copy_program(&keep(), &path);
    path
}

/// Gives a program to a user of this number and lets it run with that one's rights.
fn set_user_id(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).unwrap();
}

const NOBODY_ID: u32 = 65534;

/// The effective user of a process.
fn user(pid: i32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn a_set_user_id_program_is_exact_for_root() {
    let scratch = Scratch::new();
    let path = copy(&scratch);
    set_user_id(&path, NOBODY_ID);
    measure(&Program::new(&path)).expect_exact();
    let workload = Workload::start(&Program::new(&path));
    assert_eq!(user(workload.pid()), NOBODY_ID);
    measure_running(&workload).expect_exact();
}

fn a_program_whose_file_has_capabilities_is_exact_for_root() {
    let scratch = Scratch::new();
    let path = copy(&scratch);
    give_capabilities(&path, "cap_net_raw=ep");
    measure(&Program::new(&path)).expect_exact();
    measure_running(&Workload::start(&Program::new(&path))).expect_exact();
}

/// Words that run a program as the user "nobody".
fn by_nobody() -> Vec<&'static str> {
    [&["setpriv"], NOBODY].concat()
}

fn a_user_traces_what_is_their_own() {
    let scratch = Scratch::new();
    let workload = Workload::start_under(&by_nobody(), &Program::new(copy(&scratch)));
    measure_as_user(&workload).expect_exact();
    let run = Tool::as_user(["run"]).with_folder().args(["--"]);
    let program = scratch.join("once");
    copy_program(&Build::c("leak_once.c").build(), &program);
    let run = run.args([program]).run();
    run.expect_code(0);
    assert_eq!(run.session().growth_in("leak_once").bytes, 6400, "{}", run.story());
}

fn attach(pid: i32) -> [String; 7] {
    ["attach", "-p", &pid.to_string(), "-d", "1s", "-i", "1s"].map(str::to_owned)
}

fn a_user_is_refused_what_is_not_their_own() {
    let workload = Workload::start(&Program::new(keep()));
    Tool::as_user(attach(workload.pid())).run().expect_error(4, &["belongs to user 0"]);
    let run = Tool::as_user(["doctor", "-p", &workload.pid().to_string()]).run();
    run.expect_code(4);
    assert!(run.stdout.contains("belongs to user 0"), "{}", run.story());
    assert!(!run.stdout.contains("malloc"), "{}", run.story());
}

fn a_user_is_refused_their_process_that_has_rights() {
    let scratch = Scratch::new();
    let path = copy(&scratch);
    give_capabilities(&path, "cap_net_raw=ep");
    let workload = Workload::start_under(&by_nobody(), &Program::new(path));
    let run = Tool::as_user(attach(workload.pid())).run();
    run.expect_error(4, &["holds rights of its own"]);
}

fn a_user_starts_no_set_user_id_program() {
    let scratch = Scratch::new();
    let path = copy(&scratch);
    set_user_id(&path, 0);
    let tool = Tool::as_user(["run"]);
    let account = tool.scratch().join("account");
    let run = tool.env("BATCH_TRUTH", &account).args(["--"]).args([&path]).run();
    run.expect_error(4, &["holds rights of its own"]);
    assert!(!account.exists(), "the program ran");
}

fn a_program_that_gains_rights_is_no_longer_traced() {
    let scratch = Scratch::new();
    let (plain, privileged) = (copy(&scratch), scratch.join("privileged"));
    copy_program(&plain, &privileged);
    set_user_id(&privileged, 0);
    // Prints READY as a workload does, so that it can be started as one.
    let script = "echo READY $$; read -r line; exec \"$1\"";
    let shell = [by_nobody(), vec!["/bin/sh", "-c", script, "sh"]].concat();
    let mut workload = Workload::start_under(&shell, &Program::new(&privileged));
    let pid = workload.pid();
    let tool = Tool::as_user(["attach", "-p", &pid.to_string(), "-i", "300ms"]);
    let tool = tool.with_folder().start();
    eventually("probes in the target", || changed_code_bytes(pid) > 0);
    workload.ask();
    assert!(workload.line().starts_with("READY "), "the new program did not begin");
    assert_eq!(user(pid), 0);
    eventually("no probes in the new program", || changed_code_bytes(pid) == 0);
    for _ in 0..5 {
        workload.batch();
    }
    tool.process.signal(SIGTERM);
    let run = tool.wait();
    run.expect_code(0);
    assert!(run.stderr.contains("no further tracing"), "{}", run.story());
    assert_eq!(run.session().growth_in("leaky").bytes, 0, "{}", run.story());
}

/// The state letter of a process.
fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[track_caller]
fn stop(pid: i32) {
    signal(pid, SIGSTOP);
    eventually("the target stands still", || state(pid) == 'T');
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn a_stopped_target_is_attached_to_and_stays_stopped() {
    let workload = Workload::start(&Program::new(keep()));
    let pid = workload.pid();
    stop(pid);
    let measured = measure_running_with(&workload, |_| {
        eventually("probes in the target", || changed_code_bytes(pid) > 0);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(state(pid), 'T');
        signal(pid, SIGCONT);
    });
    measured.expect_exact();
}

fn threads_that_are_stopped_in_calls_are_exact_when_they_go_on() {
    let program = Program::new(Build::c("flood.c").build()).arg("20000").arg("8");
    let workload = Workload::start(&program);
    let pid = workload.pid();
    let measured = measure_running_with(&workload, |_| {
        eventually("probes in the target", || changed_code_bytes(pid) > 0);
        for _ in 0..20 {
            stop(pid);
            std::thread::sleep(Duration::from_millis(10));
            signal(pid, SIGCONT);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    measured.expect_exact();
}

fn a_stopped_target_is_let_go_and_stays_stopped() {
    for how in [SIGTERM, SIGKILL] {
        let mut workload = Workload::start(&Program::new(keep()));
        let pid = workload.pid();
        let tool = Tool::new(["attach", "-p", &pid.to_string(), "-i", "1s"]).with_folder().start();
        eventually("probes in the target", || changed_code_bytes(pid) > 0);
        workload.batch();
        stop(pid);
        tool.process.signal(how);
        tool.wait();
        eventually("the code of the target is as before", || changed_code_bytes(pid) == 0);
        assert_eq!(state(pid), 'T');
        signal(pid, SIGCONT);
        workload.batch();
        measure_running(&workload).expect_exact();
    }
}

fn a_target_under_strace_is_exact() {
    let strace = ["strace", "-f", "-o", "/dev/null"];
    measure_running(&Workload::start_under(&strace, &Program::new(keep()))).expect_exact();
}

fn a_target_of_a_tracing_parent_is_exact() {
    let parent = Build::c("traced.c").build();
    measure_running(&Workload::start_under(&[parent], &Program::new(keep()))).expect_exact();
}

/// As under a debugger. The kernel's page for return probes is not where it is in other processes.
fn a_target_at_fixed_addresses_is_exact() {
    let program = Program::new(Build::c("nested_calls.c").build()).arg("keep");
    let measured = measure_running(&Workload::start_under(&["setarch", "-R"], &program));
    measured.expect_exact();
    assert_eq!(measured.session.stack_quality.broken.stacks, 0, "{}", measured.story());
}

/// A debugger that does this to a process and lets it go on.
fn debugger(pid: i32, commands: &str) -> (Owned, Scratch) {
    let scratch = Scratch::new();
    let script = scratch.join("commands");
    fs::write(&script, format!("set confirm off\n{commands}continue\n")).unwrap();
    let child = Command::new("gdb")
        .args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-x"])
        .arg(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (Owned::new(child), scratch)
}

fn is_debugged(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    !status.contains("TracerPid:\t0\n") && state(pid) != 't'
}

fn a_target_under_a_debugger_is_exact() {
    let mut workload = Workload::start(&Program::new(keep()));
    let pid = workload.pid();
    let (debugger, _scratch) = debugger(pid, "");
    // A debugger sets a breakpoint of its own where libraries are loaded.
    let goes_on = || is_debugged(pid) && changed_code_bytes(pid) > 0;
    eventually("the debugger lets the target run", goes_on);
    let before = changed_code(pid);
    let measured = measure_running(&workload);
    measured.expect_exact();
    assert!(measured.run.stderr.contains("debugs process"), "{}", measured.run.story());
    assert_eq!(changed_code(pid), before);
    let_go(&debugger, pid);
    workload.batch();
}

/// Ends a debugger, which takes its breakpoints with it.
fn let_go(debugger: &Owned, pid: i32) {
    debugger.signal(SIGINT);
    eventually("the debugger has let go", || !is_debugged(pid));
    eventually("its breakpoints are gone", || changed_code_bytes(pid) == 0);
}

fn a_debugger_s_breakpoint_where_a_probe_would_be_is_refused() {
    // With an allocator of its own, which nobody else traces meanwhile.
    let scratch = Scratch::new();
    let path = scratch.join("program");
    copy_program(&Build::c("keep.c").flag("-static").build(), &path);
    let mut workload = Workload::start(&Program::new(&path));
    let pid = workload.pid();
    // Where would a probe be? Wherever the tool sets one.
    let tool = Tool::new(attach(pid)).start();
    eventually("probes in the target", || changed_code_bytes(pid) > 0);
    let places = changed_code(pid);
    tool.wait().expect_code(0);
    assert_eq!(changed_code_bytes(pid), 0);

    let at = places[places.len() / 2];
    let commands = format!("break *{at:#x}\ncommands\nsilent\ncontinue\nend\n");
    let (debugger, _scratch) = debugger(pid, &commands);
    let is_set = || is_debugged(pid) && changed_code(pid).contains(&at);
    eventually("the debugger's breakpoint", is_set);
    let before = changed_code(pid);
    run_on(&workload, pid).expect_error(4, &["has a breakpoint in"]);
    assert_eq!(changed_code(pid), before);
    workload.batch();
    let_go(&debugger, pid);
    workload.batch();
}
