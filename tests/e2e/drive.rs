//! The ways to drive batches and to watch a program.

use std::fs;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_running, measure_running_by, measure_with};
use outlive_tests::process::eventually;
use outlive_tests::session::{Batch, Session};
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::Tool;
use outlive_tests::truth::{Amount, Truth};
use outlive_tests::workload::{Program, Workload, batch_command, script};

crate::tests![
    [Bpf, C] lines_drive_a_program_that_the_tool_starts,
    [Bpf, C] a_command_drives_a_running_process,
    [Bpf, C] a_command_drives_a_service_that_the_tool_starts,
    [Bpf, C] attach_for_a_while_sees_what_stays,
    [Bpf, C] run_sees_a_program_that_is_over_at_once,
    [Bpf, C] a_budget_above_the_growth_passes,
    [Bpf, C] marks_cut_batches,
    [Bpf, C] frees_are_seen_with_every_combination_of_options,
];

fn keep() -> Program {
    Program::new(Build::c("keep.c").build())
}

/// What `keep.c` leaves in so many batches.
fn kept(batches: i64) -> Amount {
    Amount { blocks: 100 * batches, bytes: 6400 * batches }
}

fn lines_drive_a_program_that_the_tool_starts() {
    let measured = measure(&keep());
    measured.expect_exact();
    assert_eq!((measured.session.warmup, measured.session.measured), (2, 4));
    for batch in measured.session.measured_batches() {
        assert_eq!(batch.allocated_blocks, 100);
        assert_eq!(batch.freed_blocks, 0);
        assert!(batch.rss_bytes.is_some_and(|bytes| bytes > 100_000));
    }
}

fn a_command_drives_a_running_process() {
    let mut workload = Workload::start(&keep());
    let measured = measure_running(&workload);
    measured.expect_exact();
    assert_eq!(measured.session.target.pid, workload.pid());
    assert!(workload.process().is_alive());
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}

fn a_command_drives_a_service_that_the_tool_starts() {
    let tool = Tool::new(["test", "--warmup", "2", "--batches", "4", "--ready-line", "^READY"]);
    let folder = tool.scratch().to_owned();
    let private = Mode::S_IRUSR | Mode::S_IWUSR;
    for name in ["input", "reply"] {
        mkfifo(&folder.join(name), private).unwrap();
    }
    let text = format!(
        "exec env BATCH_TRUTH='{0}/truth' BATCH_REPLY='{0}/reply' '{1}' 0<> '{0}/input'\n",
        folder.display(),
        keep().path.display()
    );
    let service = script(&folder.join("service.sh"), &text);
    let run = tool
        .with_folder()
        .args(["--service".as_ref(), service.as_os_str(), "--".as_ref()])
        .args([batch_command(&folder)])
        .run();
    run.expect_code(1);
    let session = run.session();
    assert_eq!(session.growth_in("leaky"), kept(4), "{}", run.story());
    assert_eq!(session.total(), kept(4), "{}", run.story());
    assert_eq!(Truth::read(&folder.join("truth")).n_batches(), 6);
    let gone = !fs::exists(format!("/proc/{}", session.target.pid)).unwrap();
    assert!(gone, "the service outlived the tool; {}", run.story());
}

fn attach_for_a_while_sees_what_stays() {
    let mut workload = Workload::start(&keep());
    let pid = workload.pid().to_string();
    let tool = Tool::new(["attach", "-p", &pid, "-d", "3s", "-i", "1s"]).with_folder().start();
    eventually("probes in the target", || changed_code_bytes(workload.pid()) > 0);
    // The first probe is there; the last follows within the first interval.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for _ in 0..3 {
        workload.batch();
    }
    let run = tool.wait();
    let session = run.session();
    let last = session.batches.last().unwrap_or_else(|| panic!("no batch: {}", run.story()));
    let outstanding = Amount { blocks: last.heap_blocks, bytes: last.heap_bytes };
    assert_eq!(outstanding, kept(3), "{}", run.story());
    assert!(workload.process().is_alive());
}

fn run_sees_a_program_that_is_over_at_once() {
    let run =
        Tool::new(["run"]).with_folder().args(["--"]).args([Build::c("leak_once.c").build()]).run();
    let session = run.session();
    assert_eq!(session.growth_in("leak_once"), kept(1), "{}\n{}", session.listing(), run.story());
}

fn a_budget_above_the_growth_passes() {
    let budget = |budget: &str| {
        Tool::new(["test", "--lines", "--warmup", "2", "--batches", "4", "--budget", budget])
            .with_folder()
            .args(["--"])
            .args([keep().path])
            .run()
    };
    // A batch leaves 6,400 bytes.
    budget("6400").expect_code(0);
    budget("7KiB").expect_code(0);
    budget("6399").expect_code(1);
}

fn marks_cut_batches() {
    let mut workload = Workload::start(&keep());
    let pid = workload.pid().to_string();
    let tool = Tool::new(["attach", "-p", &pid, "--by-mark"]).with_folder().start();
    let mark = |label: &str| Tool::new(["mark", "-p", &pid, label, "--unit", "sessions=12"]).run();
    eventually("the tool takes marks", || mark("start").code == Some(0));
    workload.batch();
    mark("one").expect_code(0);
    workload.batch();
    workload.batch();
    mark("two").expect_code(0);
    tool.process.signal(nix::sys::signal::SIGINT);
    let run = tool.wait();
    let session: Session = run.session();
    let made: Vec<_> = session.batches.iter().map(|batch| batch.allocated_blocks).collect();
    assert_eq!(made[..3], [0, 100, 200], "{}", run.story());
}

fn frees_are_seen_with_every_combination_of_options() {
    let clean = Program::new(Build::c("clean.c").build());
    let workload = Workload::start(&clean);
    let children: [&[&str]; 3] = [&[], &["--no-hold"], &["--no-follow"]];
    for of_children in children {
        for of_overflow in ["--on-overflow=lose", "--on-overflow=pause"] {
            for smallest in ["--min-size=0", "--min-size=64"] {
                let options = [of_children, &[of_overflow, smallest]].concat();
                for measured in
                    [measure_with(&options, &clean), measure_running_by(&options, &workload)]
                {
                    measured.expect_exact();
                    let freed = |batch: &Batch| batch.freed_blocks >= 1000;
                    assert!(measured.session.batches.iter().all(freed), "{}", measured.story());
                }
            }
        }
    }
}
