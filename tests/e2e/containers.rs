//! Targets that see other files, other process ids, or other users than the tool does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outlive_tests::build::Build;
use outlive_tests::measure::{Measured, measure_running, measure_under, run_on};
use outlive_tests::rootfs::{PROGRAM, copy_libraries, elsewhere, fill, inside};
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::tool::Tool;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C, Namespaces] a_target_in_a_pid_namespace_of_its_own,
    [Bpf, C, Namespaces] tool_and_target_in_one_pid_namespace,
    [Bpf, C, Namespaces] a_target_in_a_pid_namespace_below_the_tool_s,
    [Bpf, C, Namespaces] a_target_in_a_user_namespace,
    [Bpf, C, Namespaces] a_program_that_is_started_within_a_pid_namespace,
    [Bpf, C, Namespaces] a_root_folder_with_its_own_c_library,
    [Bpf, C, Namespaces] a_root_that_only_the_target_has_mounted,
    [Bpf, C, Namespaces] a_root_of_layers,
    [Bpf, C, Namespaces] a_library_that_was_copied_up_in_layers_is_refused,
    [Bpf, C, Namespaces] another_c_library_mounted_over_the_usual_one,
    [Bpf, C] a_c_library_that_was_deleted_under_the_target,
    [Bpf, C] a_c_library_that_was_replaced_under_the_target,
    [Bpf, C] a_program_that_was_replaced_while_it_ran,
];

/// Words of `unshare` for a pid namespace of one's own with a `/proc` that shows it.
const PIDS: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

fn keep() -> PathBuf {
    Build::c("keep.c").build()
}

/// What was measured is exact, and the frames have their functions, files and lines.
#[track_caller]
fn expect_exact_and_named(measured: &Measured) {
    measured.expect_exact();
    let stack = &measured.session.stacks[0];
    let frame = &stack.frames[0];
    assert_eq!(frame.function.as_deref(), Some("leaky"), "{}", measured.story());
    assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("keep.c")), "{frame:?}");
    let functions: Vec<_> =
        stack.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert!(functions.contains(&"main"), "{functions:?}");
}

fn a_target_in_a_pid_namespace_of_its_own() {
    let workload = Workload::start_under(PIDS, &Program::new(keep()));
    assert_ne!(workload.pid(), workload.own_pid());
    expect_exact_and_named(&measure_running(&workload));
}

/// Words that enter the pid namespace of a process, and see its `/proc`.
fn enter(pid: i32) -> Vec<String> {
    let words = ["nsenter", "--target", &pid.to_string(), "--pid", "--mount"];
    words.map(str::to_owned).to_vec()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn tool_and_target_in_one_pid_namespace() {
    let workload = Workload::start_under(PIDS, &Program::new(keep()));
    let enter = enter(workload.pid());
    expect_exact_and_named(&measure_under(&words(&enter), &workload, workload.own_pid()));
}

fn a_target_in_a_pid_namespace_below_the_tool_s() {
    let mut workload = Workload::start_under(&[PIDS, PIDS].concat(), &Program::new(keep()));
    // The inner `unshare` lives in the pid namespace between; the outer one shows it in `/proc`.
    let between = parent(workload.pid());
    let enter = [
        "nsenter".to_owned(),
        format!("--pid=/proc/{between}/ns/pid"),
        format!("--mount=/proc/{}/ns/mnt", workload.process().pid()),
    ];
    let status = fs::read_to_string(format!("/proc/{}/status", workload.pid())).unwrap();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    let seen: i32 = ids.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_ne!(seen, workload.own_pid());
    expect_exact_and_named(&measure_under(&words(&enter), &workload, seen));
}

fn parent(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

fn a_target_in_a_user_namespace() {
    let before = [PIDS, &["--user", "--map-root-user"]].concat();
    let workload = Workload::start_under(&before, &Program::new(keep()));
    expect_exact_and_named(&measure_running(&workload));
}

fn a_program_that_is_started_within_a_pid_namespace() {
    let run = Tool::under(PIDS, ["run"]).with_folder().args(["--"]);
    let run = run.args([Build::c("leak_once.c").build()]).run();
    run.expect_code(0);
    let left = run.session().growth_in("leak_once");
    assert_eq!((left.bytes, left.blocks), (6400, 100), "{}", run.story());
}

fn a_root_folder_with_its_own_c_library() {
    let scratch = Scratch::new();
    let root = scratch.join("root");
    fill(&root, &keep());
    let workload = Workload::start_under(&inside(&root, ""), &Program::new(PROGRAM));
    expect_exact_and_named(&measure_running(&workload));
}

/// A program in a root that is mounted in its own namespace alone.
fn in_mounted_root(scratch: &Scratch, setup: &str) -> Workload {
    let (filled, root) = (scratch.join("filled"), scratch.join("root"));
    fill(&filled, &keep());
    fs::create_dir(&root).unwrap();
    let at = scratch.path().display();
    Workload::start_under(&inside(&root, &format!("cd {at}\n{setup}")), &Program::new(PROGRAM))
}

fn a_root_that_only_the_target_has_mounted() {
    let scratch = Scratch::new();
    let workload = in_mounted_root(&scratch, "mount -t tmpfs none root\ncp -a filled/. root/");
    assert!(!scratch.join("root").join(&PROGRAM[1..]).exists());
    expect_exact_and_named(&measure_running(&workload));
}

const LAYERS: &str = "mkdir layers\nmount -t tmpfs none layers\nmkdir layers/upper layers/work\n\
                      mount -t overlay none root \
                      -o lowerdir=filled,upperdir=layers/upper,workdir=layers/work";

fn a_root_of_layers() {
    let scratch = Scratch::new();
    expect_exact_and_named(&measure_running(&in_mounted_root(&scratch, LAYERS)));
}

fn a_library_that_was_copied_up_in_layers_is_refused() {
    let scratch = Scratch::new();
    let workload = in_mounted_root(&scratch, LAYERS);
    let pid = workload.pid().to_string();
    let status = Command::new("nsenter")
        .args(["--target", &pid, "--mount", "chmod", "700"])
        .arg(mapped_library(workload.pid()))
        .status();
    assert!(status.unwrap().success());
    run_on(&workload, workload.pid()).expect_error(4, &["another copy of the file"]);
}

/// Path of the C library that a process maps.
fn mapped_library(pid: i32) -> PathBuf {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let found = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.ends_with("/libc.so.6").then(|| PathBuf::from(path))
    });
    found.unwrap_or_else(|| panic!("no C library in\n{maps}"))
}

fn another_c_library_mounted_over_the_usual_one() {
    let scratch = Scratch::new();
    let usual = Workload::start(&Program::new(keep()));
    let (library, copy) = (mapped_library(usual.pid()), scratch.join("copy"));
    copy_program(&library, &copy);
    let script = format!("mount --bind {} {}\nexec \"$@\"", copy.display(), library.display());
    let workload = Workload::start_under(&elsewhere(&script), &Program::new(keep()));
    expect_exact_and_named(&measure_running(&workload));
    expect_exact_and_named(&measure_running(&usual));
}

/// A program with a C library of its own.
fn with_library(folder: &Path) -> Workload {
    copy_libraries(folder, &keep());
    let path = folder.display().to_string();
    Workload::start(&Program::new(keep()).env("LD_LIBRARY_PATH", path))
}

fn a_c_library_that_was_deleted_under_the_target() {
    let scratch = Scratch::new();
    let folder = scratch.join("lib");
    let workload = with_library(&folder);
    fs::remove_dir_all(&folder).unwrap();
    expect_exact_and_named(&measure_running(&workload));
}

fn a_c_library_that_was_replaced_under_the_target() {
    let scratch = Scratch::new();
    let folder = scratch.join("lib");
    let workload = with_library(&folder);
    // As a package manager does it: the new file gets the old one's name.
    let (library, new) = (folder.join("libc.so.6"), folder.join("libc.so.6.new"));
    copy_program(&library, &new);
    fs::rename(&new, &library).unwrap();
    expect_exact_and_named(&measure_running(&workload));
}

fn a_program_that_was_replaced_while_it_ran() {
    let scratch = Scratch::new();
    let path = scratch.join("program");
    copy_program(&Build::c("keep.c").flag("-static").build(), &path);
    let workload = Workload::start(&Program::new(&path));
    // Another program of the same name: its symbols must not be taken for the old one's.
    let new = scratch.join("new");
    copy_program(&Build::c("slow.c").flag("-static").build(), &new);
    fs::rename(&new, &path).unwrap();
    expect_exact_and_named(&measure_running(&workload));
}
