//! Exact figures for programs in each language, and what each calls its functions.

use outlive_tests::build::{Build, node_addon, python, python_extension};
use outlive_tests::measure::{Measured, measure};
use outlive_tests::scratch::workloads;
use outlive_tests::workload::Program;

crate::tests![
    [Bpf, C] c_is_exact,
    [Bpf, Cpp] cpp_with_new_delete_and_exceptions_is_exact,
    [Bpf, Rust] rust_with_frees_by_another_thread_is_exact,
    [Bpf, C, PythonHeaders] a_python_extension_is_exact,
    [Bpf, C, PythonHeaders] a_clean_python_extension_passes,
    [Bpf, C, Node] a_node_addon_is_exact,
    [Bpf, C, Node] a_clean_node_addon_leaves_nothing,
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
