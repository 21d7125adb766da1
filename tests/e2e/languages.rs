//! Exact figures for programs in each language, and what each calls its functions.

use outlive_tests::build::{Build, node_addon, python, python_extension};
use outlive_tests::measure::{Measured, measure, measure_running};
use outlive_tests::scratch::workloads;
use outlive_tests::session::Frame;
use outlive_tests::tool::Tool;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] c_is_exact,
    [Bpf, Cpp] cpp_with_new_delete_and_exceptions_is_exact,
    [Bpf, Rust] rust_with_frees_by_another_thread_is_exact,
    [Bpf, C, PythonHeaders] a_python_extension_is_exact,
    [Bpf, C, PythonHeaders] a_clean_python_extension_passes,
    [Bpf, C, Node] a_node_addon_is_exact,
    [Bpf, C, Node] a_clean_node_addon_leaves_nothing,
    [Bpf, C, Go] c_memory_of_a_go_program_is_exact,
    [Bpf, Go] a_go_program_without_c_has_no_allocator,
];

fn c_is_exact() {
    measure(&Program::new(Build::c("keep.c").build())).expect_exact();
}

fn cpp_with_new_delete_and_exceptions_is_exact() {
    measure(&Program::new(Build::cpp("new_delete.cpp").build())).expect_exact();
}

fn rust_with_frees_by_another_thread_is_exact() {
    measure(&Program::new(Build::rust("boxes.rs").build())).expect_exact();
}

fn extension(mode: &str) -> Measured {
    let script = workloads().join("python/extension.py");
    let program = Program::new(python())
        .arg(script.display().to_string())
        .arg(python_extension().display().to_string());
    measure(&program.arg(mode))
}

fn a_python_extension_is_exact() {
    let measured = extension("leak");
    measured.expect_exact_sites().run.expect_code(1);
}

fn a_clean_python_extension_passes() {
    extension("clean").expect_exact();
}

fn addon(mode: &str) -> Measured {
    let script = workloads().join("node/addon.js");
    let program = Program::new("node")
        .arg(script.display().to_string())
        .arg(node_addon().display().to_string());
    measure(&program.arg(mode))
}

fn a_node_addon_is_exact() {
    addon("leak").expect_exact_sites();
}

/// The engine's own threads allocate as they like: only the addon's part is known.
fn a_clean_node_addon_leaves_nothing() {
    addon("clean").expect_exact_sites();
}

/// Goroutines have stacks that move: a return address of theirs must never be replaced.
fn c_memory_of_a_go_program_is_exact() {
    let program = Program::new(Build::go("native.go", true).build());
    for measured in [measure(&program), measure_running(&Workload::start(&program))] {
        // The runtime starts threads when it likes; their memory is not the program's.
        let copies = measured.session.stacks.iter().filter(|stack| {
            let is_copy = |frame: &Frame| {
                frame.function.as_ref().is_some_and(|name| name.ends_with("_Cfunc__Cmalloc"))
            };
            stack.frames.iter().any(is_copy)
        });
        let copies: Vec<_> = copies.collect();
        let bytes: i64 = copies.iter().map(|stack| stack.bytes).sum();
        let blocks: i64 = copies.iter().map(|stack| stack.blocks).sum();
        assert_eq!((bytes, blocks), (4 * 100_100, 400), "{}", measured.story());
        for frame in copies.iter().flat_map(|stack| &stack.frames) {
            assert!(frame.object.is_some(), "{frame:?}; {}", measured.story());
        }
        assert_eq!(measured.session.lost(), 0, "{}", measured.story());
    }
}

fn a_go_program_without_c_has_no_allocator() {
    let program = Program::new(Build::go("managed.go", false).build());
    let mut workload = Workload::start(&program);
    let run = Tool::new(["attach", "-d", "1s", "-p", &workload.pid().to_string()]).run();
    run.expect_error(4, &["no allocator symbol"]);
    workload.batch();
}
