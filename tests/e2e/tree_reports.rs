//! How reports show programs that are several processes.

use std::fs;

use outlive_tests::build::Build;
use outlive_tests::measure::{MEASURED, Measured, measure_running};
use outlive_tests::process::eventually;
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::session::Session;
use outlive_tests::tool::Tool;
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

use crate::trees::expect_sum;

crate::tests![
    [Bpf, C] equal_stacks_of_several_processes_are_one,
    [Bpf, C] those_that_run_have_a_line_each,
    [Bpf, C] those_that_have_ended_share_a_line,
    [Bpf, C] what_is_left_of_a_tree_is_what_its_last_process_holds,
];

/// Four workers that grow alike, and the parent that made them.
fn workers() -> (Workload, Measured) {
    let workload = Workload::start(&Program::new(Build::c("workers_tree.c").build()));
    let measured = measure_running(&workload);
    measured.expect_exact();
    expect_sum(&measured.session);
    assert_eq!(measured.session.children().len(), 4, "{}", measured.story());
    (workload, measured)
}

/// What each worker gains.
fn share() -> Amount {
    Amount { blocks: 100, bytes: 6400 } * MEASURED
}

fn equal_stacks_of_several_processes_are_one() {
    let (_workload, measured) = workers();
    let session = &measured.session;
    // Two ways lead to the function: the copies are below the parent's main, the others are not.
    assert_eq!(session.stacks.len(), 2, "{}", measured.story());
    for stack in &session.stacks {
        assert_eq!((stack.blocks, stack.bytes), (2 * share().blocks, 2 * share().bytes));
    }
    let folded = fs::read_to_string(measured.run.folder().join("growth.folded")).unwrap();
    let lines: Vec<&str> = folded.lines().filter(|line| line.contains("leaky")).collect();
    let width = format!(" {}", 2 * share().bytes);
    assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with(&width)), "{folded}");
}

fn those_that_run_have_a_line_each() {
    let (_workload, measured) = workers();
    let terminal = &measured.run.stdout;
    let head = "Processes (5 of 5 run; 0 B went with those that ended):\n";
    assert!(terminal.contains(head), "{terminal}");
    let markdown = fs::read_to_string(measured.run.folder().join("summary.md")).unwrap();
    let processes = &measured.session.processes;
    let target = processes[0].pid;
    assert!(terminal.contains(&format!("         0 B  {target} /")), "{terminal}");
    assert!(markdown.contains(&format!("| `{target} /")), "{markdown}");
    for worker in measured.session.children() {
        assert_eq!((worker.ppid, worker.amount()), (target, share()), "{}", measured.story());
        // Below its parent, with what it gained.
        let line = format!("    25.0 KiB    {} /", worker.pid);
        assert!(terminal.contains(&line), "{line}\n{terminal}");
        let row = |line: &&str| line.starts_with(&format!("| &nbsp;&nbsp;`{} /", worker.pid));
        let row = markdown.lines().find(row).unwrap_or_else(|| panic!("{markdown}"));
        assert!(row.contains(" | 25600 | "), "{row}");
    }
}

fn those_that_have_ended_share_a_line() {
    let scratch = Scratch::new();
    // A short path, so that nothing of a line is cut off.
    let program = scratch.join("storm");
    copy_program(&Build::c("storm.c").build(), &program);
    let tool = Tool::new(["run"]).with_folder().args(["--"]);
    let run = tool.args([program.as_os_str(), "20".as_ref(), "forks".as_ref()]).run();
    run.expect_code(0);
    expect_sum(&run.session());
    let exe = program.display();
    // 16 bytes times 1 to 20.
    let head = "Processes (0 of 21 run; 3.28 KiB went with those that ended):\n";
    assert!(run.stdout.contains(head), "{}", run.story());
    assert!(
        run.stdout.contains(&format!("    3.28 KiB    20 × {exe}  made by ")),
        "{}",
        run.story()
    );
    let markdown = fs::read_to_string(run.folder().join("summary.md")).unwrap();
    assert!(markdown.contains(&format!("| &nbsp;&nbsp;`20 × {exe}` | 3360 | `")), "{markdown}");
}

fn what_is_left_of_a_tree_is_what_its_last_process_holds() {
    let program = Program::new(Build::c("daemon.c").build()).arg("stays");
    let tool = Tool::new(["run", "-i", "100ms"]).with_folder();
    let tool = tool.args(["--"]).args([&program.path]).args(&program.args).start();
    let file = tool.folder().join("session.json");
    eventually("the first batch", || file.is_file());
    let folder = tool.folder();
    let daemon = Amount { blocks: 100, bytes: 6400 };
    eventually("the daemon is all that is left", || {
        let session = Session::read(&folder);
        session.processes.len() == 3 && session.total() == daemon
    });
    let session = Session::read(&folder);
    let ended: Vec<bool> = session.processes.iter().map(|each| each.ended.is_some()).collect();
    assert_eq!(ended, [true, true, false], "{:?}", session.processes);
    let pid = nix::unistd::Pid::from_raw(session.processes[2].pid);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
    let run = tool.wait();
    run.expect_code(0);
    let session = run.session();
    assert_eq!(session.total(), daemon, "{}", run.story());
    assert_eq!(session.growth_in("daemon_leaks"), daemon, "{}", run.story());
    assert_eq!(session.growth.ended_bytes, 1200, "{}", run.story());
    expect_sum(&session);
}
