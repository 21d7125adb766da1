//! Functions of C++ that have no linkage name, because no other unit can call them.

use std::path::Path;
use std::process::Command;

use super::debug_files::{objcopy, split};
use super::{Folder, SINK, functions, names};
use crate::symbols::Frame;

/// Each function is called `step`, or has no name at all. Where one is inlined, the line before says it.
const STEPS: &str = r#"
#define OUT __attribute__((noinline))
#define IN inline __attribute__((always_inline))
#define BODY { sink(); asm(""); }
namespace {
OUT void step(int) BODY
OUT void step(long) BODY
}
namespace red { namespace {
OUT void step() BODY
struct Pool { OUT void step(); };
void Pool::step() BODY
template <class T> struct Cache { OUT void step(T) BODY };
} }
static OUT void alone() BODY
extern "C" OUT void plain() BODY
namespace {
IN void inner() BODY
struct Pool { static IN void step() BODY };
}
namespace blue { namespace {
IN void step() BODY
struct Pool { IN void step() BODY };
template <class T> IN void step(T) BODY
} }
extern "C" OUT void c_calls() {
    inner();
    Pool::step();
    blue::step();
    blue::Pool pool;
    pool.step();
    blue::step(&pool);
    auto step = [](int) __attribute__((always_inline)) BODY;
    step(1);
    asm("");
}
int main() {
    step(1);
    step(1L);
    red::step();
    red::Pool().step();
    red::Cache<int>().step(1);
    alone();
    plain();
    c_calls();
    getchar();
}
"#;

/// Names of what is not inlined: by the symbol table, and by debug information alone.
const OUTER: [[&str; 2]; 7] = [
    ["(anonymous namespace)::step(int)", "(anonymous namespace)::step"],
    ["(anonymous namespace)::step(long)", "(anonymous namespace)::step"],
    ["red::(anonymous namespace)::step()", "red::(anonymous namespace)::step"],
    ["red::(anonymous namespace)::Pool::step()", "red::(anonymous namespace)::Pool::step"],
    [
        "red::(anonymous namespace)::Cache<int>::step(int)",
        "red::(anonymous namespace)::Cache<int>::step",
    ],
    ["alone()", "alone"],
    ["plain", "plain"],
];

/// Names of what is inlined into `c_calls`.
const INNER: [&str; 6] = [
    "(anonymous namespace)::inner",
    "(anonymous namespace)::Pool::step",
    "blue::(anonymous namespace)::step",
    "blue::(anonymous namespace)::Pool::step",
    "blue::(anonymous namespace)::step<blue::(anonymous namespace)::Pool*>",
    "c_calls::{lambda}::operator()",
];

fn source() -> String {
    format!("{SINK}\n#line 1 \"steps.cpp\"{STEPS}")
}

/// The frames of each place that the program prints.
fn stacks(folder: &Folder) -> Vec<Vec<Frame>> {
    let mut program = folder.start("program");
    let process = program.process();
    (0..OUTER.len() + INNER.len()).map(|_| names(&process, program.addr())).collect()
}

/// Are the functions told apart, the outer ones named as by debug information alone?
#[track_caller]
fn expect_apart(folder: &Folder, outer_by: usize) {
    let stacks = stacks(folder);
    let expected = OUTER.map(|names| vec![names[outer_by]]).into_iter();
    let expected = expected.chain(INNER.map(|name| vec![name, "c_calls"]));
    for (frames, expected) in stacks.iter().zip(expected) {
        assert_eq!(functions(frames), expected);
        let is_placed = |frame: &Frame| {
            frame.line.is_some()
                && frame.file.as_deref().is_some_and(|file| file.ends_with("/steps.cpp"))
        };
        assert!(frames.iter().all(is_placed), "{frames:?}");
    }
}

const FORMS: [&[&str]; 5] = [
    &["-gdwarf-4"],
    &["-gdwarf-5"],
    &["-gdwarf-5", "-gz"],
    &["-gdwarf-5", "-gsplit-dwarf"],
    &["-gdwarf-4", "-fdebug-types-section"],
];

#[test]
fn functions_of_one_name_are_told_apart() {
    for form in FORMS {
        let folder = Folder::new();
        // Copies for the arguments that are given would be other functions.
        folder.compile_cpp("program", &source(), &[&["-O2", "-fno-ipa-icf"], form].concat());
        expect_apart(&folder, 0);
    }
}

#[test]
fn debug_information_alone_tells_them_apart() {
    for form in FORMS {
        let folder = Folder::new();
        // The linker leaves out symbols of functions that no other unit calls.
        let flags = ["-O2", "-fno-ipa-icf", "-Wl,--discard-all"];
        folder.compile_cpp("program", &source(), &[&flags, form].concat());
        expect_apart(&folder, 1);
    }
}

#[test]
fn a_debug_file_tells_them_apart() {
    let folder = Folder::new();
    folder.compile_cpp("program", &source(), &["-O2", "-g", "-fno-ipa-icf"]);
    split(&folder);
    expect_apart(&folder, 0);
}

/// The compiler writes what is inlined into units of its own, to which those with code refer.
#[test]
fn units_that_refer_to_others_are_followed() {
    let folder = Folder::new();
    folder.compile_cpp("program", &source(), &["-O2", "-g", "-fno-ipa-icf", "-flto"]);
    expect_apart(&folder, 0);
}

/// The program's symbol in which this occurs.
fn symbol(program: &Path, part: &str) -> String {
    let symbols =
        Command::new("nm").arg(program).output().expect("nm, which comes with the linker");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    symbols.split_whitespace().find(|symbol| symbol.contains(part)).expect("it has one").to_owned()
}

#[test]
fn a_function_s_copies_and_pieces_have_its_name() {
    let folder = Folder::new();
    let source = format!(
        "{SINK}\
         namespace {{ __attribute__((noinline)) void step(int *n) {{ sink(); *n += 1; }} }}\n\
         int main() {{ int n = 1; step(&n); getchar(); return n; }}\n"
    );
    let program = folder.compile_cpp("program", &source, &["-O2", "-g"]);
    let symbol = symbol(&program, "4stepEPi");
    for suffix in ["", ".cold", ".part.0", ".constprop.0.isra.0"] {
        let copy = format!("copy{suffix}");
        let rename = format!("--redefine-sym={symbol}=_ZN12_GLOBAL__N_14stepEPi{suffix}");
        objcopy(&folder, &[&rename, "program", &copy]);
        let mut program = folder.start(&copy);
        let frames = names(&program.process(), program.addr());
        assert_eq!(functions(&frames), ["(anonymous namespace)::step(int*)"], "{suffix}");
    }
}

/// A linker that gives several functions one code keeps all of their symbols.
#[test]
fn a_symbol_of_another_function_is_not_believed() {
    let folder = Folder::new();
    let program = folder.compile_cpp("program", &source(), &["-O2", "-g", "-fno-ipa-icf"]);
    let renames = [("_ZN12_GLOBAL__N_14stepEi", "_ZN5other4leakEi"), ("_ZL5alonev", "_Z2isv")];
    let renames =
        renames.map(|(old, new)| format!("--redefine-sym={}={new}", symbol(&program, old)));
    objcopy(&folder, &[&renames[0], &renames[1], "program"]);
    let stacks = stacks(&folder);
    let outermost = |at: usize| stacks[at].last().and_then(|frame| frame.function.as_deref());
    assert_eq!(outermost(0), Some("(anonymous namespace)::step"));
    assert_eq!(outermost(5), Some("alone"));
}
