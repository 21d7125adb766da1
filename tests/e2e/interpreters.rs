//! Functions of Python on the stacks: which, where, and between which native frames.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SIGCONT, SIGINT, SIGSTOP};
use outlive_tests::build::python_extension;
use outlive_tests::measure::{Measured, measure, measure_running};
use outlive_tests::needs::python_root;
use outlive_tests::process::{PATIENCE, eventually, state};
use outlive_tests::rootfs::{add_script, inside};
use outlive_tests::scratch::{Scratch, workloads};
use outlive_tests::session::{Frame, Stack};
use outlive_tests::tool::Tool;
use outlive_tests::workload::{Program, Workload};

use crate::names::expect_order;

crate::tests![
    [Bpf, Python] python_functions_from_its_first_instruction_on,
    [Bpf, Python] python_functions_of_a_process_that_runs_already,
    [Bpf, Python, Namespaces] python_functions_in_a_pid_namespace_of_another_user,
    [Bpf, C, Python, PythonHeaders] an_extension_is_called_by_python_functions,
    [Bpf, Python312] functions_of_python_3_12,
    [Bpf, Python313, Namespaces] functions_of_python_3_13,
    [Bpf, Python314, Namespaces] functions_of_python_3_14,
    [Bpf, Python] a_forked_python_is_read,
    [Bpf, Python] functions_that_were_thrown_away_cost_no_other_their_names,
    [Bpf, Python313, Namespaces] functions_that_were_thrown_away_in_python_3_13,
    [Bpf, Python314, Namespaces] functions_that_were_thrown_away_in_python_3_14,
];

const SCRIPT: &str = "python/callers.py";

/// Who calls the function that leaves a buffer, outwards, and the text of the line that calls.
const CALLERS: &[(&str, &[(&str, &str)])] = &[
    ("plain", &[("batch", "    plain()")]),
    ("Owner.__init__", &[("makes_owner", "    Owner().method()"), ("batch", "    makes_owner()")]),
    ("Owner.method", &[("makes_owner", "    Owner().method()"), ("batch", "    makes_owner()")]),
    ("sort_key", &[("sorts", "    sorted([1], key=sort_key)"), ("batch", "    sorts()")]),
    ("in_thread", &[("serve_thread", "        in_thread()"), ("Thread.run", "")]),
    ("in_new_thread", &[("Thread.run", ""), ("Thread._bootstrap_inner", "")]),
    ("coroutine", &[("awaits", "    await coroutine()"), ("Handle._run", "")]),
    ("recursive", &[("recursive", "        recursive(depth - 1)")]),
    ("partial_target", &[("batch", "    list(map(functools.partial(partial_target), [1]))")]),
    ("generated", &[("batch", "    NAMESPACE[\"generated\"]()")]),
];

/// Has the script begin threads.
const NEW_THREADS: &str = "new-threads";

fn script() -> Program {
    program("/usr/bin/python3")
}

fn program(python: &str) -> Program {
    Program::new(python).arg(workloads().join(SCRIPT).display().to_string()).arg(NEW_THREADS)
}

fn is_python(frame: &&Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| file.ends_with(".py") || file == "made up")
}

/// Each function has to the byte what it says that it left, and is called by whom it is called.
#[track_caller]
fn expect_functions(measured: &Measured) {
    measured.expect_exact_sites();
    let text = fs::read_to_string(workloads().join(SCRIPT)).unwrap();
    let line_of = |wanted: &str| {
        let at = text.lines().position(|line| line == wanted);
        u32::try_from(at.unwrap_or_else(|| panic!("no line `{wanted}`")) + 1).unwrap()
    };
    let keep_line = line_of("    kept[n_kept] = bytearray(size - 1)");
    for (site, left) in &measured.truth {
        let has = |stack: &&Stack| {
            let mut python = stack.frames.iter().filter(is_python);
            let names = [python.next(), python.next()].map(|at| at?.function.as_deref());
            names == [Some("keep"), Some(site.as_str())]
        };
        let stacks: Vec<_> = measured.session.stacks.iter().filter(has).collect();
        let bytes: i64 = stacks.iter().map(|stack| stack.bytes).sum();
        assert_eq!(bytes, left.bytes, "stacks of {site}; {}", measured.story());
        let callers = CALLERS.iter().find(|(name, _)| name == site).map(|(_, callers)| callers);
        for stack in stacks {
            let python: Vec<_> = stack.frames.iter().filter(is_python).collect();
            assert_eq!(python[0].line, Some(keep_line), "{:?}", python[0]);
            assert!(python[0].interpreted, "{:?}", python[0]);
            assert!(python.iter().all(|frame| !frame.sampled), "{}", measured.story());
            for (frame, (caller, line)) in python[2..].iter().zip(*callers.unwrap_or(&&[][..])) {
                assert_eq!(frame.function.as_deref(), Some(*caller), "{}", measured.story());
                if !line.is_empty() {
                    assert_eq!(frame.line, Some(line_of(line)), "{frame:?}");
                }
            }
            expect_between_native_frames(&stack.frames, measured);
        }
    }
}

/// Native frames stand on both sides, none of them is the interpreter's loop, and what a native
/// function has called back stands within it.
#[track_caller]
fn expect_between_native_frames(frames: &[Frame], measured: &Measured) {
    let is_native = |frame: &Frame| !is_python(&frame);
    assert!(is_native(&frames[0]), "{}", measured.story());
    assert!(frames.last().is_some_and(is_native), "{}", measured.story());
    let place = |name| frames.iter().position(|frame| frame.function.as_deref() == Some(name));
    if let (Some(inner), Some(outer)) = (place("sort_key"), place("sorts")) {
        assert!(frames[inner + 1..outer].iter().any(is_native), "{}", measured.story());
    }
    let is_loop = |frame: &Frame| {
        frame.function.as_ref().is_some_and(|name| name.starts_with("_PyEval_EvalFrameDefault"))
    };
    assert!(!frames.iter().any(is_loop), "{}", measured.story());
}

fn python_functions_from_its_first_instruction_on() {
    expect_functions(&measure(&script()));
}

fn python_functions_of_a_process_that_runs_already() {
    expect_functions(&measure_running(&Workload::start(&script())));
}

fn python_functions_in_a_pid_namespace_of_another_user() {
    let before = [
        &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "setpriv"][..],
        outlive_tests::tool::NOBODY,
    ];
    // The folders of the sources may be closed to others.
    let words = ["unshare", "--mount", "sh", "-c", COPIED, "sh"];
    let copied = workloads().join("python").display().to_string();
    let before = [&words[..], &[&copied], &before.concat()].concat();
    // The kernel side does not know what a thread that begins is called in there.
    let program = Program::new("/usr/bin/python3").arg("/mnt/callers.py");
    let workload = Workload::start_under(&before, &program);
    assert_ne!(workload.pid(), workload.own_pid());
    expect_functions(&measure_running(&workload));
}

/// Puts the scripts in the first argument where everybody can read them, in a mount namespace of its
/// own.
const COPIED: &str = "set -e\nmount -t tmpfs -o mode=755 none /mnt\ncp \"$1\"/*.py /mnt\n\
                      chmod 644 /mnt/*.py\nshift\nexec \"$@\"";

fn an_extension_is_called_by_python_functions() {
    let script = workloads().join("python/named.py").display().to_string();
    let program = Program::new("/usr/bin/python3").arg(script);
    let program = program.arg(python_extension().display().to_string());
    for program in [program.clone(), program.arg("in-threads")] {
        let measured = measure(&program);
        measured.expect_exact_sites();
        assert!(0 < measured.truth["leak_here"].bytes);
        expect_order(&measured, 2, &["extension_leaks", "leak", "leak_here", "outer", "calls"]);
    }
}

fn functions_of_python_3_12() {
    let python = outlive_tests::needs::python_3_12().unwrap();
    expect_functions(&measure_running(&Workload::start(&program(&python))));
}

/// In a root folder of its own, with another C library.
fn start_in_root(version: &str, script: &str, words: &[&str]) -> Workload {
    let root = python_root(version);
    add_script(&root, script);
    let python = format!("/usr/bin/python{version}");
    let mut program = Program::new(python).arg(format!("/{script}"));
    program.args.extend(words.iter().map(ToString::to_string));
    Workload::start_under(&inside(&root, ""), &program)
}

fn in_root(version: &str) {
    let workload = start_in_root(version, "callers.py", &[NEW_THREADS]);
    expect_functions(&measure_running(&workload));
}

fn functions_of_python_3_13() {
    in_root("3.13");
}

fn functions_of_python_3_14() {
    in_root("3.14");
}

/// The child has its parent's memory, where the parent's thread is the only one that Python knows.
fn a_forked_python_is_read() {
    let script = workloads().join("python/forks.py");
    let scratch = Scratch::new();
    let all_left = scratch.join("all-left");
    let tool = Tool::new(["run", "-i", "100ms"]).with_folder().args(["--", "/usr/bin/python3"]);
    let mut tool = tool.args([&script, &all_left]).start();
    eventually("the child has left its buffers", || all_left.exists());
    // For batches to end while it holds them.
    sleep(Duration::from_secs(2));
    tool.process.signal(SIGINT);
    assert!(tool.process.wait(PATIENCE).is_some());
    fs::remove_file(&all_left).unwrap();
    let run = tool.wait();
    let session = run.session();
    assert_eq!(session.lost(), 0, "losses {:?}; {}", session.losses, run.story());
    let in_child = |stack: &&Stack| {
        let python = stack.frames.iter().filter(is_python).filter(|frame| !frame.sampled);
        let names: Vec<_> = python.filter_map(|frame| frame.function.as_deref()).collect();
        names == ["in_child", "child", "main", "<module>"]
    };
    let bytes: i64 = session.stacks.iter().filter(in_child).map(|stack| stack.bytes).sum();
    assert!(bytes >= 40 * 100_001, "{bytes} bytes; {}\n{}", session.listing(), run.story());
}

/// Functions that are made and thrown away in each batch of the script, ten of them by `replaced`, and
/// what each leaves by way of one that lives.
const MADE: i64 = 60;
const SIZE: i64 = 5001;
/// Batches of those.
const BATCHES: i64 = 3;

/// The tool stands still in each batch: when it reads, they are gone, and those that live are not.
#[track_caller]
fn expect_living_functions(mut workload: Workload) {
    let pid = workload.pid().to_string();
    let mark = || Tool::new(["mark", "-p", &pid, "here"]).run().code == Some(0);
    let tool =
        Tool::new(["attach", "-p", &pid, "--by-mark", "--warmup", "1"]).with_folder().start();
    eventually("the tool watches", mark);
    let stands_still = || state(tool.process.pid()) == Some('T');
    for _ in 0..BATCHES {
        tool.process.signal(SIGSTOP);
        eventually("the tool stands still", stands_still);
        workload.batch();
        tool.process.signal(SIGCONT);
        assert!(mark());
    }
    tool.process.signal(SIGINT);
    let run = tool.wait();
    let session = run.session();
    let story = || format!("{}\n{}", session.listing(), run.story());
    let called_by = |caller: &'static str| {
        let calls = |stack: &&Stack| {
            let mut names = stack.frames.iter().map(|frame| frame.function.as_deref());
            names.any(|name| name == Some("Cache.add")) && names.next() == Some(Some(caller))
        };
        session.stacks.iter().filter(calls).collect::<Vec<_>>()
    };
    for (caller, n_calls, is_known) in [("lives", 1, true), ("<freed code>", MADE, false)] {
        let bytes: i64 = called_by(caller).iter().map(|stack| stack.bytes).sum();
        assert_eq!(bytes, BATCHES * n_calls * SIZE, "called by {caller}; {}", story());
        for stack in called_by(caller) {
            let python: Vec<_> = stack.frames.iter().filter(|frame| frame.interpreted).collect();
            assert_eq!(python[1].sampled, !is_known, "{}", story());
            assert_eq!(python[1].file.is_some(), is_known, "{}", story());
            let names = python.iter().filter_map(|it| it.function.as_deref());
            let names: Vec<_> = names.filter(|name| *name != "replaced").collect();
            assert_eq!(names, ["Cache.add", caller, "batch", "serve", "<module>"], "{}", story());
            let mut others = python.iter().enumerate().filter(|(place, _)| *place != 1);
            assert!(others.all(|(_, frame)| !frame.sampled), "{}", story());
        }
    }
    let was_replaced = [Some("<freed code>"), Some("replaced")];
    let is_there = session.stacks.iter().any(|stack| {
        let names: Vec<_> = stack.frames.iter().map(|frame| frame.function.as_deref()).collect();
        names.windows(2).any(|names| names == was_replaced)
    });
    assert!(is_there, "{}", story());
    let told = |name| session.notices.iter().any(|notice| notice.name == name);
    assert!(told("freed-functions"), "{}", story());
    assert!(!told("sampled-functions"), "{}", story());
}

fn functions_that_were_thrown_away_cost_no_other_their_names() {
    let script = workloads().join("python/throws_away.py").display().to_string();
    let program = Program::new("/usr/bin/python3").arg(script);
    expect_living_functions(Workload::start(&program));
}

#[track_caller]
fn thrown_away_in_root(version: &str) {
    expect_living_functions(start_in_root(version, "throws_away.py", &[]));
}

fn functions_that_were_thrown_away_in_python_3_13() {
    thrown_away_in_root("3.13");
}

fn functions_that_were_thrown_away_in_python_3_14() {
    thrown_away_in_root("3.14");
}
