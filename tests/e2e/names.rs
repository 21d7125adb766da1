//! What frames are called, where it is not in the file that has the path.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use outlive_tests::build::{Build, java_classes, node_addon, python_extension_for_all};
use outlive_tests::measure::{Measured, measure, measure_as_user, measure_running};
use outlive_tests::needs::{python_3_12, python_root};
use outlive_tests::rootfs::{PROGRAM, add_script, fill, inside};
use outlive_tests::scratch::{Scratch, copy_program, workloads};
use outlive_tests::session::{Frame, Session, Stack};
use outlive_tests::tool::NOBODY;
use outlive_tests::truth::Amount;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C, Namespaces] a_stripped_program_is_named_from_the_debug_file_in_its_root,
    [Bpf, C, Namespaces, Capabilities] a_debug_file_that_its_user_may_not_read_is_not_read,
    [Bpf, C] a_program_in_memory_has_its_names,
    [Bpf, C] code_without_a_name_keeps_its_place_in_the_stack,
    [Bpf, Cpp] names_that_differ_in_their_parameters_are_apart,
    [Bpf, Cpp] functions_of_one_name_are_apart,
    [Bpf, C, Node] functions_of_a_script_have_names_from_its_table,
    [Bpf, C, Node, Namespaces] the_table_is_read_where_the_target_wrote_it,
    [Bpf, C, Node] functions_of_a_script_have_names_from_its_dump,
    [Bpf, C, Java] functions_of_java_have_names,
    [Bpf, C, PythonHeaders, Python312] functions_of_python_have_names_from_its_table,
    [Bpf, C, PythonHeaders, Python313, Namespaces] functions_of_python_have_names_from_its_dump,
    [Bpf, C] names_may_hold_what_separates_names,
    [Bpf, Rust] names_of_rust_are_the_same_in_every_build,
];

#[track_caller]
fn frame(session: &Session, is: impl Fn(&str) -> bool) -> &Frame {
    let mut frames = session.stacks.iter().flat_map(|stack| &stack.frames);
    let found = frames.find(|frame| frame.function.as_deref().is_some_and(&is));
    found.unwrap_or_else(|| panic!("no such frame:\n{}", session.listing()))
}

/// The stacks with a function of this very name.
fn stacks_with<'a>(session: &'a Session, name: &'a str) -> impl Iterator<Item = &'a Stack> {
    let has = move |stack: &&Stack| {
        stack.frames.iter().any(|frame| frame.function.as_deref() == Some(name))
    };
    session.stacks.iter().filter(has)
}

/// Is there a stack of which these functions are part, in this order from the innermost on, where the
/// first `n_innermost` have nothing between them, and which reaches the start of its thread?
#[track_caller]
pub(crate) fn expect_order(measured: &Measured, n_innermost: usize, path: &[&str]) {
    let is_it = |stack: &Stack| {
        let functions = stack.frames.iter().filter(|frame| !frame.inlined);
        let functions: Vec<_> = functions.map(|frame| frame.function.as_deref()).collect();
        let mut rest = functions.iter().flatten();
        functions.iter().flatten().zip(path).take(n_innermost).all(|(one, other)| one == other)
            && path.iter().all(|name| rest.any(|function| function == name))
            && stack.end == "whole"
    };
    assert!(measured.session.stacks.iter().any(is_it), "{path:?}: {}", measured.story());
}

fn objcopy<W: AsRef<OsStr> + Debug>(words: &[W], file: &Path, to: &Path) {
    let status = Command::new("objcopy").args(words).arg(file).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "objcopy {words:?}");
}

fn a_stripped_program_is_named_from_the_debug_file_in_its_root() {
    let scratch = Scratch::new();
    let (root, stripped) = (scratch.join("root"), scratch.join("stripped"));
    let program = Build::c("keep.c").flag("-Wl,--build-id=0xab0102030405060708").build();
    objcopy(&["--strip-all"], &program, &stripped);
    fill(&root, &stripped);
    let folder = root.join("usr/lib/debug/.build-id/ab");
    fs::create_dir_all(&folder).unwrap();
    objcopy(&["--only-keep-debug"], &program, &folder.join("0102030405060708.debug"));
    let workload = Workload::start_under(&inside(&root, ""), &Program::new(PROGRAM));
    let measured = measure_running(&workload);
    measured.expect_exact();
    let leaky = frame(&measured.session, |name| name == "leaky");
    assert!(leaky.file.as_deref().is_some_and(|file| file.ends_with("keep.c")), "{leaky:?}");
    assert_eq!(leaky.object.as_deref().map(|object| object.ends_with(PROGRAM)), Some(true));
}

fn a_debug_file_that_its_user_may_not_read_is_not_read() {
    let scratch = Scratch::new();
    let (program, debug) = (scratch.join("program"), scratch.join("program.debug"));
    let whole = Build::c("keep.c").build();
    objcopy(&["--only-keep-debug"], &whole, &debug);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let stripped = scratch.join("stripped");
    objcopy(&["--strip-all", &link], &whole, &stripped);
    copy_program(&stripped, &program);
    let by_nobody = [&["setpriv"], NOBODY].concat();
    let workload = Workload::start_under(&by_nobody, &Program::new(&program));
    for (mode, is_named) in [(0o600, false), (0o644, true)] {
        fs::set_permissions(&debug, fs::Permissions::from_mode(mode)).unwrap();
        let measured = measure_as_user(&workload);
        assert_eq!(measured.session.lost(), 0, "{}", measured.story());
        let named = measured.session.growth_in("leaky");
        assert_eq!(named != Amount::default(), is_named, "{}", measured.story());
        assert_ne!(measured.session.total(), Amount::default());
    }
}

fn a_program_in_memory_has_its_names() {
    let program = Build::c("keep.c").build().display().to_string();
    let workload = Workload::start(&Program::new(Build::c("from_memory.c").build()).arg(program));
    let measured = measure_running(&workload);
    measured.expect_exact();
    let leaky = frame(&measured.session, |name| name == "leaky");
    assert!(leaky.object.as_deref().is_some_and(|name| name.contains("memfd:program")));
    assert!(leaky.line.is_some(), "{leaky:?}");
}

fn code_without_a_name_keeps_its_place_in_the_stack() {
    let measured = measure(&Program::new(Build::c("generated.c").build()));
    measured.expect_exact();
    let stacks = &measured.session.stacks;
    let names = stacks[0].frames.iter().map(|frame| frame.function.as_deref());
    let names: Vec<_> = names.take(5).collect();
    let expected = [Some("leaky"), None, Some("through"), Some("batch"), Some("batches")];
    assert_eq!(names, expected, "{}", measured.story());
    assert_eq!(stacks[0].frames[1].object, None);
    let folded = fs::read_to_string(measured.run.folder().join("growth.folded")).unwrap();
    assert!(folded.contains("through;[unknown];leaky "), "{folded}");
}

fn names_that_differ_in_their_parameters_are_apart() {
    let measured = measure(&Program::new(Build::cpp("templates.cpp").build()));
    measured.expect_exact();
    let half = measured.session.total().bytes / 2;
    for name in ["void exec<void ()>(void (*)())", "void exec<int (int)>(int (*)(int))"] {
        let has = |frame: &Frame| frame.function.as_deref() == Some(name);
        let stacks = measured.session.stacks.iter().filter(|stack| stack.frames.iter().any(has));
        assert_eq!(stacks.map(|stack| stack.bytes).sum::<i64>(), half, "{}", measured.story());
        let folded = fs::read_to_string(measured.run.folder().join("growth.folded")).unwrap();
        assert!(folded.contains(&format!(";{name} {half}\n")), "{folded}");
    }
}

/// With debug information as without it, which names nothing that was inlined.
fn functions_of_one_name_are_apart() {
    for (debug_flag, is_inlined_named) in [("-g", true), ("-g0", false)] {
        // A copy of a function for some arguments has another name.
        let flags = ["-O2", "-fno-ipa-cp", "-fno-ipa-sra", "-pthread", debug_flag];
        let build = Build::cpp("internal.cpp").only_flags(&flags);
        let measured = measure(&Program::new(build.build()));
        assert_eq!(measured.session.lost(), 0, "{}", measured.story());
        let total = measured.session.total().bytes;
        let of =
            |name: &str| stacks_with(&measured.session, name).map(|stack| stack.bytes).sum::<i64>();
        let inlined = of("green::(anonymous namespace)::step");
        assert_eq!(inlined, if is_inlined_named { total / 7 } else { 0 }, "{}", measured.story());
        assert_eq!(of("around"), total / 7, "{}", measured.story());
        let (pool, step) = ("(anonymous namespace)::Pool::step()", "(anonymous namespace)::step()");
        assert_eq!(of(&format!("blue::{pool}")), total / 7 * 2, "{}", measured.story());
        assert_eq!(of(&format!("red::{step}")), total / 7 * 4, "{}", measured.story());
        assert_ne!(total, 0);
    }
}

/// A script whose functions are compiled at their first call, and write their names so.
fn script(node: Program, names: &str) -> Program {
    node.arg("--always-sparkplug")
        .arg(names)
        .arg(workloads().join("node/generated.js").display().to_string())
        .arg(node_addon().display().to_string())
}

#[track_caller]
fn expect_script(measured: &Measured) {
    measured.expect_exact_sites();
    assert!(measured.truth["leakHere"].bytes > 0);
    let leak = frame(&measured.session, |name| name == "leakHere");
    assert!(leak.file.as_deref().is_some_and(|file| file.ends_with("node/generated.js")));
    assert_eq!((leak.line, &leak.object), (Some(13), &None), "{leak:?}");
    expect_order(
        measured,
        2,
        &["addon_leaks", "leak", "leakHere", "node::Start(int, char**)", "_start"],
    );
}

fn functions_of_a_script_have_names_from_its_table() {
    let measured = measure(&script(Program::new("node"), "--perf-basic-prof"));
    remove_table(&measured);
    expect_script(&measured);
}

/// Runtimes leave their tables behind.
fn remove_table(measured: &Measured) {
    let table = format!("/tmp/perf-{}.map", measured.session.target.pid);
    fs::remove_file(&table).unwrap_or_else(|err| panic!("{table}: {err}"));
}

fn the_table_is_read_where_the_target_wrote_it() {
    let mut program = Program::new("unshare");
    for word in ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] {
        program = program.arg(word);
    }
    // The account that the script writes stays where the test looks for it.
    let setup = "share=$(dirname \"$BATCH_TRUTH\")\nexec 9< \"$share\"\nmount -t tmpfs none /tmp\n\
                 mkdir -p \"$share\"\nmount -c --bind /proc/self/fd/9 \"$share\"\nexec \"$@\"";
    let program = program.arg("sh").arg("-ec").arg(setup).arg("sh").arg("node");
    expect_script(&measure(&script(program, "--perf-basic-prof")));
}

fn functions_of_a_script_have_names_from_its_dump() {
    let scratch = Scratch::new();
    let program = Program::new("sh").arg("-c").arg("cd \"$0\" && exec node --perf-prof \"$@\"");
    let program = program.arg(scratch.path().display().to_string());
    expect_script(&measure(&script(program, "--perf-prof")));
}

fn functions_of_java_have_names() {
    java(&[], &[]);
    // The machine writes the table itself when it ends.
    java(&["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"], &["no-table"]);
}

fn java(options: &[&str], arguments: &[&str]) {
    let library = Build::library("java/leaky_native.c", "libleaky_native.so").build();
    let mut program = Program::new("java");
    for word in options {
        program = program.arg(*word);
    }
    for word in [
        "-XX:+PreserveFramePointer",
        "-Xcomp",
        "-XX:TieredStopAtLevel=1",
        "-XX:CompileCommand=quiet",
        "-XX:CompileCommand=dontinline,Generated.leakHere",
        "-cp",
    ] {
        program = program.arg(word);
    }
    program = program.arg(java_classes().display().to_string());
    program = program.arg("Generated").arg(library.display().to_string());
    let program = arguments.iter().fold(program, |program, word| program.arg(*word));
    let measured = measure(&program);
    remove_table(&measured);
    measured.expect_exact_sites();
    assert_ne!(measured.truth["java_leaks"], Amount::default());
    for name in ["void Generated.leakHere()", "void Generated.main(java.lang.String[])"] {
        let has = |frame: &Frame| frame.function.as_deref() == Some(name);
        let stacks = measured.session.stacks.iter().filter(|stack| stack.frames.iter().any(has));
        let bytes: i64 = stacks.map(|stack| stack.bytes).sum();
        assert!(measured.truth["java_leaks"].bytes <= bytes, "{name}: {}", measured.story());
    }
    let path = [
        "java_leaks",
        "Java_Generated_leak",
        "void Generated.leakHere()",
        "void Generated.main(java.lang.String[])",
        "JavaMain",
    ];
    expect_order(&measured, 2, &path);
}

/// With `-X perf` each function of a script has code of its own, without a table and without a frame
/// pointer.
fn functions_of_python_have_names_from_its_table() {
    let program = Program::new(python_3_12().unwrap())
        .arg("-X")
        .arg("perf")
        .arg(workloads().join("python/named.py").display().to_string())
        .arg(python_extension_for_all().display().to_string());
    let measured = measure(&program);
    remove_table(&measured);
    measured.expect_exact_sites();
    assert!(measured.truth["leak_here"].bytes > 0);
    let leak = frame(&measured.session, |name| name == "leak_here");
    assert!(leak.file.as_deref().is_some_and(|file| file.ends_with("python/named.py")), "{leak:?}");
    for stack in stacks_with(&measured.session, "leak_here") {
        let is_script = |frame: &&Frame| frame.file == leak.file;
        let names: Vec<_> =
            stack.frames.iter().filter(is_script).map(|frame| frame.function.as_deref()).collect();
        let expected = ["leak_here", "outer", "calls", "batch", "<module>"].map(Some);
        assert_eq!(names, expected, "each is there once: {}", measured.story());
    }
    expect_order(
        &measured,
        2,
        &["extension_leaks", "leak", "leak_here", "outer", "<module>", "_start"],
    );
}

/// The dump is below a root of its own, under the number that the process has there. Of a thread that
/// begins there the tool reads the functions too late to be sure of them: what is written down is better.
fn functions_of_python_have_names_from_its_dump() {
    let root = python_root("3.13");
    let extension = python_extension_for_all().join("leaky_extension.so");
    add_script(&root, "named.py");
    copy_program(&extension, &root.join("leaky_extension.so"));
    fs::create_dir_all(root.join("tmp")).unwrap();
    let setup = format!("mount -t tmpfs none \"{}/tmp\"", root.display());
    let own_pids = ["unshare", "--pid", "--fork", "--kill-child"].map(str::to_owned);
    let script = ["/usr/bin/python3.13", "-X", "perf_jit", "/named.py", "/"].map(str::to_owned);
    let words = [&own_pids[..], &inside(&root, &setup), &script].concat();
    let program = words[1..].iter().fold(Program::new(&words[0]), Program::arg);
    for (program, is_read) in [(program.clone(), true), (program.arg("in-threads"), false)] {
        let measured = measure(&program);
        measured.expect_exact_sites();
        assert!(measured.truth["leak_here"].bytes > 0);
        for stack in stacks_with(&measured.session, "leak_here") {
            let frames = stack.frames.iter().filter(|frame| {
                frame.file.as_deref() == Some("/named.py") || frame.object.is_none()
            });
            let frames: Vec<_> = frames.take(3).collect();
            let names: Vec<_> = frames.iter().map(|frame| frame.function.as_deref()).collect();
            // Each is there once, and none is without a name.
            assert_eq!(names, ["leak_here", "outer", "calls"].map(Some), "{}", measured.story());
            for frame in frames {
                assert_eq!(
                    (frame.interpreted, frame.line.is_some()),
                    (is_read, is_read),
                    "{frame:?}"
                );
                assert_eq!((frame.sampled, frame.object.is_some()), (false, is_read), "{frame:?}");
            }
        }
    }
}

/// A linker takes any bytes for a name.
fn names_may_hold_what_separates_names() {
    let scratch = Scratch::new();
    let program = Build::c("keep.c").only_flags(&["-O1", "-pthread"]).build();
    let long = "\u{6f0f}".repeat(200);
    let names: [(&[u8], &str, &str); 5] = [
        (b"ns;leak here 42", "ns;leak here 42", "ns:leak here_42"),
        (b"a\x1b<x>&\"y\"", "a\u{1b}<x>&\"y\"", "a\\x1b<x>&\"y\""),
        (b"half \xff", "half \u{fffd}", "half \u{fffd}"),
        (long.as_bytes(), &long, &long),
        (
            b"Ljava/lang/StringConcatHelper;::prepend",
            "Ljava/lang/StringConcatHelper;::prepend",
            "Ljava/lang/StringConcatHelper:::prepend",
        ),
    ];
    for (bytes, function, folded) in names {
        let renamed = scratch.join("renamed");
        let rename = [b"--redefine-sym=leaky=", bytes].concat();
        objcopy(&[OsStr::from_bytes(&rename)], &program, &renamed);
        let measured = measure(&Program::new(&renamed));
        let total = measured.session.total();
        assert_eq!(total, measured.truth["leaky"], "{}", measured.story());
        assert_eq!(measured.session.lost(), 0);
        frame(&measured.session, |name| name == function);
        let folder = measured.run.folder();
        let lines = fs::read_to_string(folder.join("growth.folded")).unwrap();
        assert!(lines.ends_with(&format!(";batch;{folded} {}\n", total.bytes)), "{lines}");
        let picture = fs::read_to_string(folder.join("growth.svg")).unwrap();
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        if let Err(err) = roxmltree::Document::parse_with_options(&picture, options) {
            panic!("not well-formed: {err}\n{picture}");
        }
    }
}

/// The compiler's own form of mangled names and the newer one, which may be the same; each built twice,
/// so that the hashes differ.
fn names_of_rust_are_the_same_in_every_build() {
    for form in [None, Some("-Csymbol-mangling-version=v0")] {
        let reports = ["one", "other"].map(|build| {
            let program = Build::rust("boxes.rs").flag(format!("-Cmetadata={build}"));
            let program = form.map_or(program.clone(), |form| program.flag(form));
            let measured = measure(&Program::new(program.build()));
            measured.expect_exact();
            // The older form does not say what is in place of a parameter.
            let forgets = frame(&measured.session, |name| name.starts_with("boxes::forgets"));
            let forgets = forgets.function.as_deref().unwrap_or_default();
            let whole = "boxes::forgets::<core::num::wrapping::Wrapping<u8>>";
            let is_one = |name| name == whole || form.is_none() && name == "boxes::forgets";
            assert!(is_one(forgets), "{forgets}, {form:?}");
            fs::read_to_string(measured.run.folder().join("growth.folded")).unwrap()
        });
        assert_eq!(reports[0], reports[1], "{form:?}");
        let mangled = ["_R", "_Z", "::h"];
        assert!(!mangled.iter().any(|mark| reports[0].contains(mark)), "{}", reports[0]);
    }
}
