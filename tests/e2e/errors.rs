//! Errors: one sentence that says what to do, and an exit code that is neither 0 nor 1.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::SIGKILL;
use outlive_tests::build::Build;
use outlive_tests::needs::BITS32;
use outlive_tests::process::{Owned, eventually};
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{NOBODY, Run, Tool};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, Namespaces] without_rights_the_missing_right_is_named,
    [Bpf, Namespaces, Capabilities] with_a_part_of_the_rights_the_rest_is_named,
    [Bpf, Namespaces] the_process_of_another_user_is_refused,
    [Bpf, Namespaces] a_kernel_without_types_is_refused,
    [Bpf] a_pid_that_nobody_has_is_refused,
    [Bpf] a_process_that_has_ended_is_refused,
    [Bpf] a_kernel_thread_is_refused,
    [Bpf, C, Bits32] a_32_bit_program_is_refused,
    [Bpf, C] a_program_without_a_visible_allocator_is_refused,
    [Bpf] a_target_that_ends_while_it_is_attached_to_is_no_accident,
    [] words_that_mean_nothing_are_usage_errors,
    [] numbers_that_mean_nothing_are_usage_errors,
    [Bpf, C] an_output_folder_that_cannot_be_made_is_named,
    [Bpf, C, Namespaces] a_full_disk_is_named,
    [Bpf, C] a_batch_command_that_fails_ends_the_test,
    [Bpf, C] a_batch_command_that_does_not_exist_ends_the_test,
    [Bpf, C] a_batch_that_never_ends_times_out,
    [Bpf, C] a_batch_command_that_never_ends_times_out,
    [Bpf, C] a_target_that_is_killed_in_a_batch_ends_the_test,
    [Bpf] a_program_that_cannot_be_started_is_named,
    [Bpf] a_program_that_never_gets_ready_is_named,
    [Bpf] a_program_that_says_nothing_is_told_what_it_should_say,
];

/// A process that waits, as root or as the given options of `setpriv` have it.
fn sleeper(options: &[&str]) -> Owned {
    let mut words = vec!["setpriv"];
    words.extend(options);
    words.extend(["sleep", "100"]);
    let words = if options.is_empty() { &words[1..] } else { &words[..] };
    let child = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).spawn().unwrap();
    let child = Owned::new(child);
    let name = format!("/proc/{}/comm", child.pid());
    eventually("sleep runs", || std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
    child
}

fn attach(pid: i32) -> [String; 7] {
    ["attach", "-p", &pid.to_string(), "-d", "1s", "-i", "1s"].map(str::to_owned)
}

fn without_rights_the_missing_right_is_named() {
    let target = sleeper(NOBODY);
    Tool::as_nobody(attach(target.pid())).run().expect_error(4, &["root", "CAP_"]);
}

fn with_a_part_of_the_rights_the_rest_is_named() {
    let target = sleeper(NOBODY);
    let run = Tool::by_nobody("cap_bpf,cap_perfmon=ep", attach(target.pid())).run();
    run.expect_error(4, &["cap_sys_ptrace, cap_dac_read_search"]);
    assert!(!run.stderr.contains("cap_bpf"), "{}", run.story());
}

fn the_process_of_another_user_is_refused() {
    let target = sleeper(&[]);
    let run = Tool::as_nobody(attach(target.pid())).run();
    run.expect_error(4, &["root", "CAP_", "another user"]);
}

fn a_kernel_without_types_is_refused() {
    let target = sleeper(&[]);
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", hide, "sh"];
    Tool::under(&before, attach(target.pid())).run().expect_error(4, &["BTF", "/sys/kernel/btf"]);
}

fn a_pid_that_nobody_has_is_refused() {
    // Above the highest pid that Linux gives.
    Tool::new(attach(4_194_305)).run().expect_error(5, &["4194305"]);
}

fn a_process_that_has_ended_is_refused() {
    // Not waited for: it has an entry in /proc still, and no memory.
    let mut child = Command::new("true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let state = format!("/proc/{pid}/stat");
    eventually("true has ended", || {
        std::fs::read_to_string(&state).is_ok_and(|text| text.contains(") Z "))
    });
    let run = Tool::new(attach(pid)).run();
    child.wait().unwrap();
    run.expect_error(5, &[&pid.to_string()]);
}

fn a_kernel_thread_is_refused() {
    let run = Tool::new(attach(2)).run();
    run.expect_error(4, &["kernel thread"]);
}

fn a_32_bit_program_is_refused() {
    let workload = Workload::start(&Program::new(Build::c("bare32.c").only_flags(BITS32).build()));
    Tool::new(attach(workload.pid())).run().expect_error(4, &["32-bit"]);
}

fn a_program_without_a_visible_allocator_is_refused() {
    let program = Build::c("keep.c").flag("-static").flag("-s").build();
    let workload = Workload::start(&Program::new(&program));
    let run = Tool::new(attach(workload.pid())).run();
    run.expect_error(4, &["no allocator"]);
    assert!(run.stderr.contains("keep"), "the objects are not named: {}", run.story());
}

fn a_target_that_ends_while_it_is_attached_to_is_no_accident() {
    for delay in (0..200).step_by(20) {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let target = Owned::new(child);
        let tool = Tool::new(attach(target.pid())).start();
        std::thread::sleep(Duration::from_millis(delay));
        drop(target);
        let run = tool.wait();
        // Early enough nothing was measured; later it is a target that was ended under observation.
        run.expect_code(5);
        let last = run.stderr.lines().last().unwrap_or_default();
        let words = ["ended", "exited", "no process", "gone"];
        assert!(words.iter().any(|word| last.contains(word)), "after {delay} ms: {}", run.story());
        assert!(!run.stderr.contains("panicked"), "after {delay} ms: {}", run.story());
    }
}

#[track_caller]
fn expect_usage_error<const N: usize>(args: [&str; N], word: &str) {
    let run = Tool::new(args).run();
    run.expect_code(2);
    assert_eq!(run.stdout, "", "{}", run.story());
    assert!(run.stderr.contains(word), "`{word}` is not named: {}", run.story());
    assert!(!run.stderr.contains("panicked"), "{}", run.story());
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.story());
}

fn words_that_mean_nothing_are_usage_errors() {
    expect_usage_error(["frobnicate"], "frobnicate");
    expect_usage_error(["attach", "-p", "1", "--frobnicate"], "--frobnicate");
    expect_usage_error(["attach"], "--pid");
    expect_usage_error(["test", "-p", "1"], "");
    expect_usage_error(["test", "--lines", "-p", "1", "--", "true"], "--lines");
    expect_usage_error(["report"], "");
    expect_usage_error(["report", ".", "--format", "papyrus"], "papyrus");
}

fn numbers_that_mean_nothing_are_usage_errors() {
    expect_usage_error(["attach", "-p", "abc"], "abc");
    expect_usage_error(["attach", "-p", "0"], "0");
    expect_usage_error(["attach", "-p", "-1"], "-1");
    expect_usage_error(["attach", "-p", "99999999999999"], "99999999999999");
    expect_usage_error(["attach", "-p", "1", "-d", "10parsecs"], "10parsecs");
    expect_usage_error(["attach", "-p", "1", "-i", "0s"], "0s");
    expect_usage_error(["test", "--budget", "64 apples", "--lines", "--", "true"], "64 apples");
    expect_usage_error(["test", "--budget", "-5", "--lines", "--", "true"], "-5");
    expect_usage_error(["test", "--batches", "0", "--lines", "--", "true"], "0");
    expect_usage_error(["test", "--batches", "1e9", "--lines", "--", "true"], "1e9");
    expect_usage_error(["test", "--warmup", "-2", "--lines", "--", "true"], "-2");
}

/// An error that is neither a verdict nor an error of words.
#[track_caller]
fn expect_failure(run: &Run, words: &[&str]) {
    assert!(matches!(run.code, Some(2 | 4 | 5)), "{}", run.story());
    let last = run.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("outlive: "), "{}", run.story());
    assert!(words.iter().any(|word| last.contains(word)), "{words:?}: {}", run.story());
    assert!(!run.stderr.contains("panicked"), "{}", run.story());
}

fn keep() -> String {
    Build::c("keep.c").build().display().to_string()
}

fn an_output_folder_that_cannot_be_made_is_named() {
    let run = Tool::new(["test", "--lines", "-o", "/proc/nowhere/session", "--", &keep()]).run();
    expect_failure(&run, &["/proc/nowhere"]);
    assert_eq!(run.stdout, "", "{}", run.story());
}

fn a_full_disk_is_named() {
    let fill = "mount -t tmpfs -o size=16k none /mnt && exec \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", fill, "sh"];
    let words = ["test", "--lines", "--batches", "4", "-o", "/mnt/session", "--", &keep()];
    let run = Tool::under(&before, words).run();
    expect_failure(&run, &["space"]);
}

/// `outlive test -p` on a healthy workload with this batch command.
fn test_with(command: &[&str]) -> (Workload, Run) {
    let workload = Workload::start(&Program::new(keep()));
    let run = Tool::new(["test", "-p", &workload.pid().to_string(), "--timeout", "1s", "--"])
        .args(command)
        .run();
    (workload, run)
}

#[track_caller]
fn expect_target_unharmed(mut workload: Workload) {
    assert!(workload.process().is_alive());
    assert_eq!(changed_code_bytes(workload.pid()), 0);
    workload.batch();
}

fn a_batch_command_that_fails_ends_the_test() {
    let (workload, run) = test_with(&["sh", "-c", "exit 7"]);
    run.expect_code(5);
    expect_failure(&run, &["7"]);
    expect_target_unharmed(workload);
}

fn a_batch_command_that_does_not_exist_ends_the_test() {
    let (workload, run) = test_with(&["/nowhere/batch.sh"]);
    expect_failure(&run, &["/nowhere/batch.sh"]);
    expect_target_unharmed(workload);
}

fn a_batch_command_that_never_ends_times_out() {
    let (workload, run) = test_with(&["sleep", "100"]);
    run.expect_code(5);
    expect_failure(&run, &["1s", "time"]);
    expect_target_unharmed(workload);
}

fn a_batch_that_never_ends_times_out() {
    let program = Build::c("slow.c").build();
    let run = Tool::new(["test", "--lines", "--timeout", "1s", "--"]).args([program]).run();
    run.expect_code(5);
    expect_failure(&run, &["1s", "time"]);
}

fn a_target_that_is_killed_in_a_batch_ends_the_test() {
    let mut workload = Workload::start(&Program::new(Build::c("slow.c").build()));
    let tool = Tool::new(["test", "-p", &workload.pid().to_string(), "--"])
        .args([workload.batch_command()])
        .start();
    eventually("the second batch", || workload.truth().n_batches() == 1);
    std::thread::sleep(Duration::from_millis(300));
    workload.process().signal(SIGKILL);
    let run = tool.wait();
    run.expect_code(5);
    expect_failure(&run, &["the target ended (was ended by SIGKILL)"]);
}

fn a_program_that_cannot_be_started_is_named() {
    let run = Tool::new(["run", "--", "/nowhere/program"]).run();
    run.expect_error(5, &["/nowhere/program"]);
}

fn a_program_that_never_gets_ready_is_named() {
    let run = Tool::new(["test", "--lines", "--", "true"]).run();
    run.expect_code(5);
    expect_failure(&run, &["READY"]);
}

fn a_program_that_says_nothing_is_told_what_it_should_say() {
    let run = Tool::new(["test", "--lines", "--timeout", "1s", "--", "sleep", "100"]).run();
    expect_failure(&run, &["a line that starts with READY took longer than 1s"]);
    let service = ["test", "--service", "sleep 100", "--ready-line", "listen(ing)?"];
    let run = Tool::new(service).args(["--timeout", "1s", "--", "true"]).run();
    run.expect_code(5);
    expect_failure(&run, &["a line of its output that matches listen(ing)? took longer than 1s"]);
}
