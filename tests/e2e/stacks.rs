//! Stacks are walked to the start of their thread, however the code was compiled, and one that is
//! not says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use outlive_tests::build::Build;
use outlive_tests::measure::{Measured, measure, measure_running, measure_with};
use outlive_tests::scratch::{Scratch, copy_without_section_headers, workloads};
use outlive_tests::session::Stack;
use outlive_tests::tool::Tool;
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] code_without_frame_pointers_gives_whole_stacks,
    [Bpf, C] code_with_frame_pointers_gives_the_same_stacks,
    [Bpf, C] tables_in_debug_information_alone_will_do,
    [Bpf, C] objects_without_section_headers_are_walked_as_whole_ones,
    [Bpf, C] a_process_that_runs_already_gives_whole_stacks,
    [Bpf, C, Musl] a_c_library_without_tables_gives_what_can_be_had,
    [Bpf, C] the_kernel_s_own_functions_in_a_process_are_walked_through,
    [Bpf, C] a_stack_of_too_many_frames_says_so,
    [Bpf, C] a_stack_that_breaks_says_where_and_why,
    [Bpf, C] trampolines_beside_code_with_frame_pointers_are_left,
    [Bpf, C] calls_that_a_probe_sends_elsewhere_are_walked_through,
    [Bpf, C] a_call_that_never_returned_is_no_caller,
    [Bpf, C] functions_side_by_side_are_told_apart,
    [Bpf, Cpp] the_caller_of_new_is_there,
    [Bpf, Cpp] cpp_without_frame_pointers_gives_whole_stacks,
    [Bpf, Rust] rust_without_tables_is_walked_by_frame_pointers,
    [Bpf, Rust] rust_without_frame_pointers_gives_whole_stacks,
];

/// As distributions build programs.
pub(crate) const USUAL: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];

/// Every path, from the allocator's caller to where the program's own code begins.
pub(crate) const PATHS: &[&[&str]] = &[
    &["path_aa", "path_a", "batch"],
    &["path_bbb", "path_bb", "path_b", "batch"],
    &["on_signal", "<signal handler called>", "*", "raises", "batch"],
    &["aligned", "batch"],
    &["variable", "batch"],
    &["compare", "*", "sorts", "batch"],
    &["generated", "", "calls_generated", "batch"],
    &["in_thread", "*"],
    &["on_edge", "edge", "shifted", "edges", "*"],
];

pub(crate) fn paths(flags: &[&str]) -> Program {
    Program::new(Build::c("paths.c").only_flags(flags).build())
}

/// The functions of a stack, without parameters and the compiler's endings; empty where there is none.
pub(crate) fn functions(stack: &Stack) -> Vec<&str> {
    let frames = stack.frames.iter().filter(|frame| !frame.inlined);
    frames.map(|frame| bare(frame.function.as_deref().unwrap_or_default())).collect()
}

fn bare(function: &str) -> &str {
    function.split(['.', '(']).next().unwrap_or(function)
}

/// Do the functions begin like this? `*` stands for any number.
pub(crate) fn begins(functions: &[&str], path: &[&str]) -> bool {
    match path {
        [] => true,
        ["*", rest @ ..] => {
            (0..=functions.len()).any(|skipped| begins(&functions[skipped..], rest))
        }
        [first, rest @ ..] => functions.first() == Some(first) && begins(&functions[1..], rest),
    }
}

#[track_caller]
fn expect_paths(measured: &Measured) {
    measured.expect_exact();
    let stacks = &measured.session.stacks;
    for path in PATHS {
        let of_path = || stacks.iter().filter(|stack| functions(stack).first() == Some(&path[0]));
        assert!(0 < of_path().count(), "no {path:?}; {}", measured.story());
        for stack in of_path() {
            let functions = functions(stack);
            assert!(begins(&functions, path), "{path:?}: {functions:?}; {}", measured.story());
            assert_eq!(stack.end, "whole", "{path:?}; {}", measured.story());
            let n_mains = functions.iter().filter(|name| **name == "main").count();
            let is_in_thread = ["in_thread", "edges"].iter().any(|name| functions.contains(name));
            assert_eq!(n_mains, usize::from(!is_in_thread), "{functions:?}; {}", measured.story());
        }
    }
    // The recursion is there as often as it was.
    let wide = stacks.iter().find(|stack| functions(stack).first() == Some(&"wide"));
    let wide = functions(wide.unwrap_or_else(|| panic!("no wide; {}", measured.story())));
    assert_eq!(wide.iter().filter(|name| **name == "wide").count(), 31, "{wide:?}");
    let quality = &measured.session.stack_quality;
    assert_eq!(
        (quality.broken.stacks, quality.depth_limit.stacks),
        (0, 0),
        "{:?}; {}",
        quality.broken_in,
        measured.story()
    );
}

fn code_without_frame_pointers_gives_whole_stacks() {
    expect_paths(&measure(&paths(USUAL)));
}

fn code_with_frame_pointers_gives_the_same_stacks() {
    expect_paths(&measure(&paths(&["-O1", "-fno-omit-frame-pointer", "-pthread"])));
}

fn tables_in_debug_information_alone_will_do() {
    let flags =
        ["-O2", "-g", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-pthread"];
    expect_paths(&measure(&paths(&flags)));
}

/// Nothing has a name there, but each stack is as long as it was.
fn objects_without_section_headers_are_walked_as_whole_ones() {
    let scratch = Scratch::new();
    let whole = Build::c("paths.c").only_flags(USUAL).build();
    let bare = scratch.join("bare");
    copy_without_section_headers(&whole, &bare);
    let stacks = |program: &Path| {
        let measured = measure(&Program::new(program));
        let total: Amount = measured.truth.values().copied().sum();
        assert_eq!((measured.session.total(), measured.session.lost()), (total, 0));
        let stacks = measured.session.stacks.iter().map(|stack| {
            let frames = stack.frames.iter().filter(|frame| !frame.inlined);
            (stack.bytes, stack.blocks, frames.count(), stack.end.clone())
        });
        let mut stacks: Vec<_> = stacks.collect();
        stacks.sort();
        assert!(stacks.iter().all(|stack| stack.3 == "whole"), "{}", measured.story());
        stacks
    };
    assert_eq!(stacks(&bare), stacks(&whole));
    let workload = Workload::start(&Program::new(&bare));
    let doctor = Tool::new(["doctor", "-p", &workload.pid().to_string()]).run();
    assert!(doctor.stdout.contains("3 of 3 objects have unwind tables: "), "{}", doctor.stdout);
}

fn a_process_that_runs_already_gives_whole_stacks() {
    expect_paths(&measure_running(&Workload::start(&paths(USUAL))));
}

/// musl's own code is often built without tables: the figures are right, the program's part of a
/// stack is there, and what breaks is told of.
fn a_c_library_without_tables_gives_what_can_be_had() {
    let program = Build::musl("paths.c").only_flags(&["-O2", "-fomit-frame-pointer", "-pthread"]);
    let measured = measure(&Program::new(program.build()));
    measured.expect_exact();
    let has =
        |path: &[&str]| measured.session.stacks.iter().any(|stack| begins(&functions(stack), path));
    for path in [
        &["path_aa", "path_a", "batch"][..],
        &["on_signal", "<signal handler called>"],
        &["aligned", "batch"],
    ] {
        assert!(has(path), "no {path:?}; {}", measured.story());
    }
    let quality = &measured.session.stack_quality;
    let told = measured.session.notices.iter().any(|notice| notice.name == "broken-stacks");
    assert_eq!(told, quality.broken.stacks > 0, "{:?}", measured.session.notices);
}

/// A signal that comes in the vDSO, after each of its first instructions.
fn the_kernel_s_own_functions_in_a_process_are_walked_through() {
    let measured = measure(&paths(USUAL).arg("vdso"));
    measured.expect_exact();
    assert_eq!(measured.session.total().blocks, 20 * 4, "{}", measured.story());
    for stack in &measured.session.stacks {
        let functions = functions(stack);
        let path = ["in_vdso", "on_trap", "<signal handler called>", "*", "reads_clock", "batch"];
        assert!(begins(&functions, &path), "{functions:?}");
        let lent = &stack.frames[3];
        assert_eq!(lent.object.as_deref(), Some("[vdso]"), "{lent:?}");
        assert!(lent.function.as_deref().is_some_and(|name| name.ends_with("clock_gettime")));
        assert_eq!(stack.end, "whole", "{functions:?}");
    }
}

fn a_stack_of_too_many_frames_says_so() {
    let measured = measure(&paths(USUAL).arg("deep"));
    measured.expect_exact();
    let [stack] = &measured.session.stacks[..] else { panic!("{}", measured.story()) };
    assert_eq!((stack.frames.len(), stack.end.as_str()), (127, "depth-limit"));
    let quality = &measured.session.stack_quality;
    // Two warm-up batches and four measured ones, of two blocks each.
    assert_eq!((quality.depth_limit.stacks, quality.depth_limit.bytes), (1, 6 * 140));
    assert!(measured.session.notices.iter().any(|notice| notice.name == "deep-stacks"));
    let said = &measured.run.stdout;
    assert!(said.contains("1 at the depth limit, 0 broken"), "{said}");
}

fn a_stack_that_breaks_says_where_and_why() {
    let measured = measure(&paths(USUAL).arg("bare"));
    measured.expect_exact();
    let [stack] = &measured.session.stacks[..] else { panic!("{}", measured.story()) };
    assert_eq!(functions(stack), ["bare", "bare_call"], "{}", measured.story());
    assert_eq!(stack.end, "broken");
    let quality = &measured.session.stack_quality;
    assert_eq!((quality.broken.stacks, quality.broken.bytes), (1, 6 * 200));
    let [place] = &quality.broken_in[..] else { panic!("{quality:?}") };
    assert!(place.object.as_deref().is_some_and(|path| path.ends_with("/paths")), "{place:?}");
    assert_eq!(place.reason, "no-table");
    let notice = measured.session.notices.iter().find(|notice| notice.name == "broken-stacks");
    let text = &notice.unwrap_or_else(|| panic!("{}", measured.story())).text;
    assert!(text.contains("no unwind table"), "{text}");
    let folded = measured.run.folder().join("growth.folded");
    let folded = std::fs::read_to_string(folded).expect("the report is there");
    assert_eq!(folded, format!("[broken stack];bare_call;bare {}\n", 4 * 200));
}

/// The trampolines come when the frame pointer has been found to do for what lies beside them.
fn trampolines_beside_code_with_frame_pointers_are_left() {
    let measured = measure(&Program::new(Build::c("mixed_code.c").only_flags(USUAL).build()));
    measured.expect_exact();
    for function in ["by_frame_pointer", "by_trampoline"] {
        let path = [function, "", "with_number", "batch"];
        let stacks = measured.session.stacks.iter();
        let stacks: Vec<_> =
            stacks.filter(|stack| functions(stack).first() == Some(&function)).collect();
        assert!(!stacks.is_empty(), "{}", measured.story());
        for stack in stacks {
            assert!(begins(&functions(stack), &path), "{}", measured.story());
            assert_eq!(stack.end, "whole", "{}", measured.story());
        }
    }
}

/// The program opens and closes handles: the end of `handle_close` is probed.
#[track_caller]
fn measure_handles(source: &str) -> Measured {
    let probe = "name=handle,alloc=handle_open(size=0),free=handle_close(ptr=0)";
    let program = Program::new(Build::c(source).only_flags(USUAL).build());
    let measured = measure_with(&["--probe", probe], &program);
    measured.expect_exact_sites();
    measured
}

/// A probe on the end of a function puts an address of its own where the function returns to.
fn calls_that_a_probe_sends_elsewhere_are_walked_through() {
    let measured = measure_handles("keeps_on_close.c");
    for caller in ["closes", "closes_deep"] {
        let path = ["logs", "handle_close", caller, "*", "main"];
        let stacks = measured.session.stacks.iter();
        let found: Vec<_> = stacks.filter(|stack| begins(&functions(stack), &path)).collect();
        let [stack] = found[..] else { panic!("{path:?}: {}", measured.story()) };
        assert_eq!(stack.end, "whole", "{}", measured.story());
    }
    let quality = &measured.session.stack_quality;
    assert_eq!(quality.broken.stacks, 0, "{quality:?}");
}

/// The kernel awaits its return still, at a place of the stack that is another call's.
fn a_call_that_never_returned_is_no_caller() {
    let measured = measure_handles("jumps_on_close.c");
    let stacks = measured.session.stacks.iter();
    let found: Vec<_> = stacks.filter(|stack| functions(stack).contains(&"logs")).collect();
    assert!(!found.is_empty(), "{}", measured.story());
    for stack in found {
        let functions = functions(stack);
        assert!(begins(&functions, &["logs", "", "works", "*", "main"]), "{functions:?}");
    }
}

fn functions_side_by_side_are_told_apart() {
    for flags in [USUAL, &["-O2", "-fno-omit-frame-pointer", "-pthread"]] {
        let measured = measure(&Program::new(Build::c("adjacent.c").only_flags(flags).build()));
        measured.expect_exact();
        let stacks = &measured.session.stacks;
        assert_eq!(stacks.len(), 20, "{}", measured.story());
        for stack in stacks {
            let functions = functions(stack);
            let own = functions.iter().filter(|name| name.starts_with('f') && **name != "free");
            assert_eq!(own.count(), 1, "{functions:?}");
            assert_eq!((functions[1], functions[2]), ("batch", "main"), "{functions:?}");
            assert_eq!(stack.end, "whole", "{functions:?}");
        }
    }
}

fn the_caller_of_new_is_there() {
    let flags = ["-O2", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread"];
    let measured = measure(&Program::new(Build::cpp("called_new.cpp").only_flags(&flags).build()));
    measured.expect_exact();
    let stacks = &measured.session.stacks;
    let path = ["operator new", "foo", "bar", "*", "main"];
    assert!(
        stacks.iter().any(|stack| begins(&functions(stack), &path) && stack.end == "whole"),
        "{}",
        measured.story()
    );
}

/// Calls of new and delete, and exceptions that are thrown.
fn cpp_without_frame_pointers_gives_whole_stacks() {
    let measured = measure(&Program::new(Build::cpp("new_delete.cpp").only_flags(USUAL).build()));
    measured.expect_exact();
    let quality = &measured.session.stack_quality;
    assert!(quality.whole.stacks > 5, "{quality:?}");
    assert_eq!((quality.broken.stacks, quality.depth_limit.stacks), (0, 0), "{quality:?}");
}

/// A program of Rust, optimized.
pub(crate) fn rust(source: &str, flags: &[&str]) -> PathBuf {
    let usual = ["--edition=2024", "-O"];
    Build::rust(source).only_flags(&[&usual, flags].concat()).build()
}

#[track_caller]
fn expect_boxes(flags: &[&str]) {
    let measured = measure(&Program::new(rust("boxes.rs", flags)));
    measured.expect_exact_sites();
    for (function, stack) in measured.truth.keys().flat_map(|function| {
        let has = |stack: &&Stack| {
            let names = stack.frames.iter().filter_map(|frame| frame.function.as_deref());
            names.into_iter().any(|name| name.contains(function.as_str()))
        };
        measured.session.stacks.iter().filter(has).map(move |stack| (function, stack))
    }) {
        assert_eq!(stack.end, "whole", "{function}; {}", measured.story());
    }
    let quality = &measured.session.stack_quality;
    assert_eq!((quality.broken.stacks, quality.depth_limit.stacks), (0, 0), "{quality:?}");
}

/// The standard library comes with tables; the program's own part has none.
fn rust_without_tables_is_walked_by_frame_pointers() {
    let linker = workloads().join("rust/link_without_tables.sh");
    let linker = format!("-Clinker={}", linker.display());
    let flags = ["-Cpanic=abort", "-Cforce-frame-pointers=yes", &linker];
    expect_boxes(&flags);
    let program = rust("calls.rs", &flags);
    for function in ["inner", "outer"] {
        let addr = addr_of(&program, &format!("calls::{function}"));
        assert!(!has_table(&program, addr), "{function} has a table");
    }
    let measured = measure(&Program::new(program));
    measured.expect_exact_sites();
    let inner = measured.session.stacks.iter();
    let inner: Vec<_> = inner.filter(|stack| functions(stack).contains(&"calls::inner")).collect();
    let [stack] = inner[..] else { panic!("{}", measured.story()) };
    let functions = functions(stack);
    let own: Vec<_> = functions.iter().filter(|name| name.starts_with("calls::")).collect();
    assert_eq!(own, [&"calls::inner", &"calls::outer", &"calls::main"], "{functions:?}");
    assert_eq!(stack.end, "whole", "{functions:?}");
}

/// What a program of the binary tools prints.
fn printed(program: &str, words: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(words).arg(file).output();
    let output = output.unwrap_or_else(|err| panic!("{program}: {err}"));
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn addr_of(program: &Path, function: &str) -> u64 {
    let symbols = printed("nm", &["--demangle"], program);
    let is_it = |line: &&str| line.split(' ').nth(2).is_some_and(|name| bare(name) == function);
    let line = symbols.lines().find(is_it).unwrap_or_else(|| panic!("no {function}: {symbols}"));
    u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap()
}

/// Does an unwind table cover this address?
fn has_table(program: &Path, addr: u64) -> bool {
    let tables = printed("readelf", &["--wide", "--debug-dump=frames"], program);
    let mut covered = tables.lines().filter_map(|line| line.split_once(" pc=")?.1.split_once(".."));
    assert!(0 < covered.clone().count(), "the standard library has tables");
    let number = |hex: &str| u64::from_str_radix(hex.trim(), 16).unwrap();
    covered.any(|(start, end)| (number(start)..number(end)).contains(&addr))
}

fn rust_without_frame_pointers_gives_whole_stacks() {
    expect_boxes(&["-Cforce-frame-pointers=no", "-Cstrip=debuginfo"]);
}
