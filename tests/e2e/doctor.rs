//! `outlive doctor -p` says how far stacks can be walked before anything is measured.

use outlive_tests::build::Build;
use outlive_tests::tool::{Run, Tool};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C, Musl] objects_without_tables_are_named,
    [Bpf, C] stacks_are_tried,
    [Bpf, C] a_process_that_allocates_nothing_has_no_stacks,
    [Bpf, C] a_stopped_process_is_not_waited_for,
];

fn doctor(workload: &Workload) -> Tool {
    Tool::new(["doctor", "-p", &workload.pid().to_string()])
}

/// What is said of this, with its mark.
fn found<'a>(run: &'a Run, what: &str) -> Vec<(&'a str, &'a str)> {
    let line = |line: &'a str| {
        let (mark, rest) = line.split_at_checked(4)?;
        Some((mark.trim(), rest.trim_start().strip_prefix(what)?.trim_start()))
    };
    run.stdout.lines().filter_map(line).collect()
}

fn objects_without_tables_are_named() {
    let tables = |program| {
        let run = doctor(&Workload::start(&Program::new(program))).run();
        run.expect_code(0);
        run
    };
    let usual = tables(Build::c("keep.c").build());
    let [("ok", all)] = found(&usual, "tables ")[..] else { panic!("{}", usual.story()) };
    assert!(all.starts_with("3 of 3 objects have unwind tables: "), "{all}");
    let musl = tables(Build::musl("keep.c").build());
    let [_, ("note", bare)] = found(&musl, "tables ")[..] else { panic!("{}", musl.story()) };
    assert!(bare.contains("musl"), "{bare}");
}

fn stacks_are_tried() {
    let tried = |path: &str| {
        let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
        let program = Program::new(Build::c("paths.c").only_flags(&flags).build()).arg(path);
        let mut workload = Workload::start(&program);
        let mut running = doctor(&workload).start();
        while running.process.is_alive() {
            workload.batch();
        }
        let run = running.wait();
        run.expect_code(0);
        run
    };
    let deep = tried("deep");
    let [("ok", shares)] = found(&deep, "stacks ")[..] else { panic!("{}", deep.story()) };
    assert!(shares.ends_with(", 1 at the depth limit, 0 broken"), "{shares}");
    let bare = tried("bare");
    let [("ok", shares), ("note", place)] = found(&bare, "stacks ")[..] else {
        panic!("{}", bare.story())
    };
    assert!(shares.ends_with(", 0 at the depth limit, 1 broken"), "{shares}");
    assert!(
        place.starts_with("1 break in ") && place.contains("/paths: no unwind table"),
        "{place}"
    );
}

fn a_process_that_allocates_nothing_has_no_stacks() {
    let run = doctor(&Workload::start(&Program::new(Build::c("keep.c").build()))).run();
    run.expect_code(0);
    assert_eq!(found(&run, "stacks "), [("note", "nothing was allocated within 1 s")]);
}

fn a_stopped_process_is_not_waited_for() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    workload.process().signal(nix::sys::signal::SIGSTOP);
    outlive_tests::process::eventually("the workload is stopped", || {
        outlive_tests::process::state(workload.pid()) == Some('T')
    });
    let run = doctor(&workload).run();
    run.expect_code(0);
    let [("note", _)] = found(&run, "state ")[..] else { panic!("{}", run.story()) };
    assert!(found(&run, "stacks ").is_empty(), "{}", run.story());
}
