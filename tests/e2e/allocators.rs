//! Every allocator that people use: the same bytes under the same stacks, whoever hands them out.

use outlive_tests::build::{Build, library_path, prefixed_jemalloc};
use outlive_tests::measure::{Measured, measure, measure_with};
use outlive_tests::session::Stack;
use outlive_tests::tool::Tool;
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] the_c_library_linked_into_the_program,
    [Bpf, C, Musl] musl_as_a_library_and_within_the_program,
    [Bpf, C, Jemalloc] jemalloc_preloaded_linked_and_within_the_program,
    [Bpf, C, Tcmalloc] tcmalloc_preloaded_and_linked,
    [Bpf, C, Mimalloc] mimalloc_preloaded_and_linked,
    [Bpf, C, Musl, Jemalloc, Tcmalloc, Mimalloc] one_program_is_the_same_under_every_allocator,
    [Bpf, C, Jemalloc] functions_of_jemalloc_s_own,
    [Bpf, C, Jemalloc] a_prefixed_jemalloc_beside_the_c_library,
    [Bpf, C, Mimalloc] functions_of_mimalloc_s_own,
    [Bpf, Cpp, Jemalloc] new_and_delete_of_jemalloc,
    [Bpf, Cpp, Tcmalloc] new_and_delete_of_tcmalloc,
    [Bpf, Cpp, Mimalloc] new_and_delete_of_mimalloc,
    [Bpf, Cpp] new_and_delete_within_a_static_program,
    [Bpf, Cpp, Jemalloc] exceptions_pass_through_operator_new_of_jemalloc,
    [Bpf, Cpp, Tcmalloc] exceptions_pass_through_operator_new_of_tcmalloc,
    [Bpf, C] an_allocator_that_switches_stacks_within_a_call,
    [Bpf, C] a_library_that_is_bound_to_its_own_allocator,
    [Bpf, C] a_second_c_library_in_another_namespace,
    [Bpf, C] an_allocator_that_comes_late_leaves_no_verdict,
    [Bpf, C] an_allocator_that_was_named_ahead_is_exact_from_its_first_call,
    [Bpf, C] a_library_that_cannot_be_named_ahead_is_an_error,
    [Bpf, C] an_allocator_that_comes_and_goes_leaves_no_verdict,
    [Bpf, C] an_allocator_that_cannot_be_probed_leaves_no_verdict,
    [Bpf, C] described_allocators_and_resources,
    [Bpf, C] a_description_that_matches_nothing_is_said,
    [Bpf, C] memory_of_an_accelerator,
    [Bpf, C, Sqlite] memory_that_sqlite_hands_out,
    [Bpf, C, Openssl] memory_of_openssl,
    [C] nonsense_as_a_description_is_a_usage_error,
];

#[track_caller]
fn expect_no_unmatched_frees(measured: &Measured) {
    let batches = measured.session.measured_batches();
    let unmatched: u64 = batches.map(|batch| batch.unmatched_frees).sum();
    assert_eq!(unmatched, 0, "{}", measured.story());
}

#[track_caller]
fn exact(program: &Program) -> Measured {
    let measured = measure(program);
    measured.expect_exact();
    expect_no_unmatched_frees(&measured);
    measured
}

/// A program that runs under this preloaded library.
fn preloaded(build: &Build, library: &str) -> Program {
    // Through `env`, because the tool itself is to keep its own allocator.
    Program::new("/usr/bin/env")
        .arg(format!("LD_PRELOAD={}", library_path(library)))
        .arg(build.build().display().to_string())
}

fn forms() -> Build {
    Build::c("forms.c")
}

/// Every stack of the session is booked under this allocator.
#[track_caller]
fn expect_family(measured: &Measured, start: &str) {
    for stack in &measured.session.stacks {
        assert!(stack.family.starts_with(start), "{} is not {start}", stack.family);
    }
}

fn the_c_library_linked_into_the_program() {
    expect_family(&exact(&Program::new(forms().build())), "libc.so");
    for flag in ["-static", "-static-pie"] {
        expect_family(&exact(&Program::new(forms().flag(flag).build())), "forms");
    }
}

fn musl_as_a_library_and_within_the_program() {
    let build = Build::musl("forms.c");
    exact(&Program::new(build.build()));
    exact(&Program::new(build.flag("-static").build()));
}

fn jemalloc_preloaded_linked_and_within_the_program() {
    let library = "libjemalloc.so.2";
    expect_family(&exact(&preloaded(&forms(), library)), library);
    let linked = forms().flag("-Wl,--no-as-needed").flag("-ljemalloc");
    expect_family(&exact(&Program::new(linked.build())), library);
    let within = ["-l:libjemalloc.a", "-lm", "-ldl", "-lstdc++"];
    let within = within.iter().fold(forms(), |build, library| build.flag(*library));
    expect_family(&exact(&Program::new(within.build())), "forms");
}

fn tcmalloc_preloaded_and_linked() {
    let library = "libtcmalloc_minimal.so.4";
    expect_family(&exact(&preloaded(&forms(), library)), library);
    let linked = forms().flag("-Wl,--no-as-needed").flag(format!("-l:{library}"));
    expect_family(&exact(&Program::new(linked.build())), library);
}

fn mimalloc_preloaded_and_linked() {
    expect_family(&exact(&preloaded(&forms(), "libmimalloc.so")), "libmimalloc.so");
    let linked = forms().flag("-Wl,--no-as-needed").flag("-lmimalloc");
    expect_family(&exact(&Program::new(linked.build())), "libmimalloc.so");
}

/// Bytes, blocks and functions, from the allocator's caller to `main`, of each stack that grew.
type Rows = Vec<(i64, i64, Vec<String>)>;

fn rows(measured: &Measured) -> Rows {
    let row = |stack: &Stack| {
        let names = stack.frames.iter().map(|frame| frame.function.clone().unwrap_or_default());
        let mut functions: Vec<String> = names.collect();
        let end = functions.iter().position(|name| name == "main");
        functions.truncate(end.map_or(0, |end| end + 1));
        (stack.bytes, stack.blocks, functions)
    };
    let mut rows: Rows = measured.session.stacks.iter().map(row).collect();
    rows.sort();
    rows
}

fn one_program_is_the_same_under_every_allocator() {
    let within = ["-l:libjemalloc.a", "-lm", "-ldl", "-lstdc++"];
    let programs = [
        Program::new(forms().build()),
        Program::new(forms().flag("-static").build()),
        Program::new(Build::musl("forms.c").build()),
        Program::new(Build::musl("forms.c").flag("-static").build()),
        preloaded(&forms(), "libjemalloc.so.2"),
        Program::new(within.iter().fold(forms(), |build, flag| build.flag(*flag)).build()),
        preloaded(&forms(), "libtcmalloc_minimal.so.4"),
        preloaded(&forms(), "libmimalloc.so"),
    ];
    let all: Vec<Rows> = programs.iter().map(|program| rows(&exact(program))).collect();
    assert_eq!(all[0].len(), 5, "{all:?}");
    for (_, _, functions) in &all[0] {
        let names: Vec<_> = functions.iter().map(String::as_str).collect();
        assert_eq!(names[1..], ["batch", "batches", "main"], "{functions:?}");
    }
    for (program, rows) in programs.iter().zip(&all) {
        assert_eq!(*rows, all[0], "{program:?}");
    }
}

fn functions_of_jemalloc_s_own() {
    let build = Build::c("jemalloc_forms.c").flag("-DPREFIX=").flag("-ljemalloc");
    exact(&Program::new(build.build()));
}

fn a_prefixed_jemalloc_beside_the_c_library() {
    let build = Build::c("jemalloc_forms.c")
        .flag("-DPREFIX=_rjem_")
        .flag("-DTWO")
        .flag(prefixed_jemalloc().display().to_string());
    let build = ["-lm", "-ldl", "-lstdc++"].iter().fold(build, |build, flag| build.flag(*flag));
    let measured = exact(&Program::new(build.build()));
    let families: Vec<_> =
        measured.session.stacks.iter().map(|stack| stack.family.as_str()).collect();
    assert!(families.contains(&"jemalloc_forms"), "{families:?}");
    assert!(families.contains(&"libc.so.6"), "{families:?}");
}

fn functions_of_mimalloc_s_own() {
    exact(&Program::new(Build::c("mimalloc_forms.c").flag("-lmimalloc").build()));
}

/// Deleted with and without the size.
#[track_caller]
fn news(library: &str) {
    for flag in ["-fsized-deallocation", "-fno-sized-deallocation"] {
        let build = Build::cpp("new_delete.cpp").flag("-std=c++17").flag(flag);
        expect_family(&exact(&preloaded(&build, library)), library);
    }
}

fn new_and_delete_of_jemalloc() {
    news("libjemalloc.so.2");
}

fn new_and_delete_of_tcmalloc() {
    news("libtcmalloc_minimal.so.4");
}

fn new_and_delete_of_mimalloc() {
    news("libmimalloc.so");
}

fn new_and_delete_within_a_static_program() {
    exact(&Program::new(Build::cpp("new_delete.cpp").flag("-static").build()));
}

fn exceptions_pass_through_operator_new_of_jemalloc() {
    exact(&preloaded(&Build::cpp("failing_new.cpp"), "libjemalloc.so.2"));
}

fn exceptions_pass_through_operator_new_of_tcmalloc() {
    exact(&preloaded(&Build::cpp("failing_new.cpp"), "libtcmalloc_minimal.so.4"));
}

fn an_allocator_that_switches_stacks_within_a_call() {
    for mode in ["upper", "lower"] {
        exact(&Program::new(Build::c("coroutines.c").build()).arg(mode));
    }
}

/// Opens this library in this way.
fn opened(how: &str, library: &Build) -> Program {
    Program::new(Build::c("opened_allocator.c").flag("-ldl").build())
        .arg(how)
        .arg(library.build().display().to_string())
}

fn a_library_that_is_bound_to_its_own_allocator() {
    let library = Build::library("c/lib_own_malloc.c", "libown.so");
    expect_family(&exact(&opened("deep", &library)), "libown.so");
}

fn a_second_c_library_in_another_namespace() {
    exact(&opened("apart", &Build::library("c/lib_leaky.c", "libleaky.so")));
}

fn an_allocator_that_comes_late_leaves_no_verdict() {
    let library = Build::library("c/lib_own_malloc.c", "libown.so");
    let measured = measure(&opened("late", &library));
    assert_eq!(measured.session.verdict, "inconclusive", "{}", measured.story());
    measured.run.expect_code(3);
}

fn an_allocator_that_was_named_ahead_is_exact_from_its_first_call() {
    let library = Build::library("c/lib_own_malloc.c", "libown.so");
    let path = library.build().display().to_string();
    let measured = measure_with(&["--library", &path], &opened("late", &library));
    assert_eq!(measured.session.growth_in("leaky_library"), measured.truth["leaky_library"]);
    assert_eq!(measured.session.lost(), 0, "{}", measured.story());
    assert!(!measured.run.stdout.contains("late-allocator"), "{}", measured.story());
    assert_ne!(measured.session.verdict, "pass", "{}", measured.story());

    // Named although it is there already: the same as not named.
    let own = &opened("deep", &library);
    measure_with(&["--library", &path], own).expect_exact();
    let usual = Workload::start(&Program::new(Build::c("keep.c").build()));
    let run =
        Tool::new(["attach", "-d", "1s", "-i", "1s", "--library", &library_path("libc.so.6")]);
    run.args(["-p".to_owned(), usual.pid().to_string()]).run().expect_code(0);
}

fn a_library_that_cannot_be_named_ahead_is_an_error() {
    let without = Build::library("c/lib_leaky.c", "libleaky.so").build().display().to_string();
    for (path, word) in [("/no/such.so", "No such file"), (&*without, "no function of an")] {
        let run = Tool::new(["run", "--library", path, "--", "/bin/true"]).run();
        run.expect_error(2, &[word]);
    }
}

/// Opened and closed within a batch: no look into the memory map would find it.
fn an_allocator_that_comes_and_goes_leaves_no_verdict() {
    let library = Build::library("c/lib_own_malloc.c", "libown.so");
    let program = Program::new(Build::c("closed_library.c").flag("-ldl").build())
        .arg(library.build().display().to_string());
    let program = program.arg("late");
    let measured = measure_with(&["--no-hold"], &program);
    assert_eq!(measured.session.verdict, "inconclusive", "{}", measured.story());
    assert!(measured.run.stdout.contains("late-allocator"), "{}", measured.story());

    // Held until it is probed, every call is seen; that its memory went with it is not.
    let measured = measure(&program);
    assert_eq!(measured.session.verdict, "inconclusive", "{}", measured.story());
    assert!(!measured.run.stdout.contains("late-allocator"), "{}", measured.story());
    assert_eq!(measured.session.losses["healed"], 200, "{}", measured.story());
}

fn an_allocator_that_cannot_be_probed_leaves_no_verdict() {
    let measured = measure(&Program::new(Build::c("indirect.c").build()));
    assert_eq!(measured.session.verdict, "inconclusive", "{}", measured.story());
    measured.run.expect_code(3);
    let names_it = |reason: &serde_json::Value| {
        let text = reason.as_str().unwrap_or_default();
        text.starts_with("untraceable: ") && text.contains("je_malloc")
    };
    assert!(measured.session.reasons.iter().any(names_it), "{}", measured.story());
}

/// Misspelled, or of a library that is not there: the same words in every way to begin.
fn a_description_that_matches_nothing_is_said() {
    let words = "no function of the description pool is in process";
    let probe = "name=pool,alloc=pool_gett(size=0),free=pool_putt(ptr=0)";
    let program = Program::new(Build::c("keep.c").build());
    let measured = measure_with(&["--probe", probe], &program);
    assert!(measured.run.stderr.contains(words), "{}", measured.story());
    let run = Tool::new(["run", "--probe", probe]).with_folder().args(["--"]);
    let run = run.args([Build::c("leak_once.c").build()]).run();
    assert!(run.stderr.contains(words), "{}", run.story());
    let workload = Workload::start(&program);
    let run = Tool::new(["attach", "--probe", probe, "-d", "1s", "-i", "1s"]).with_folder();
    let run = run.args(["-p".to_owned(), workload.pid().to_string()]).run();
    assert!(run.stderr.contains(words), "{}", run.story());
    // Some of its functions: the rest is named.
    let probe = "name=pool,alloc=pool_get(size=1),alloc=pool_got(size=1),free=pool_put(ptr=0)";
    let measured = measure_with(&["--probe", probe], &Program::new(Build::c("pool.c").build()));
    assert!(measured.run.stderr.contains("pool_got"), "{}", measured.story());
    assert!(!measured.run.stderr.contains("pool_get,"), "{}", measured.story());
}

fn described_allocators_and_resources() {
    let pool = "name=pool,alloc=pool_get(size=1),alloc=pool_rows(size=1,count=0),\
                free=pool_put(ptr=0)";
    let handle = "name=handle,object=pool*,alloc=handle_open(size32=0,out=1),\
                  free=handle_close(ptr=0)";
    let program = Program::new(Build::c("pool.c").build());
    let measured = measure_with(&["--probe", pool, "--probe", handle], &program);
    measured.expect_exact();
    expect_no_unmatched_frees(&measured);
    let bytes = |family: &str| -> i64 {
        let stacks = measured.session.stacks.iter().filter(|stack| stack.family == family);
        stacks.map(|stack| stack.bytes).sum()
    };
    assert_eq!(bytes("pool"), 4 * 100 * (100 + 210));
    assert_eq!(bytes("handle"), 4 * 100 * 500);
    assert_eq!(bytes("libc.so.6"), 4 * 100 * 60);
}

#[track_caller]
fn exact_with(probe: &str, build: &Build) {
    let measured = measure_with(&["--probe", probe], &Program::new(build.build()));
    measured.expect_exact();
    expect_no_unmatched_frees(&measured);
    expect_family(&measured, probe);
}

fn memory_of_an_accelerator() {
    let library = Build::library("c/lib_cuda.c", "libcudart.so").build();
    exact_with("cuda", &Build::c("cuda.c").flag(library.display().to_string()));
}

fn memory_that_sqlite_hands_out() {
    exact_with("sqlite", &Build::c("sqlite_memory.c").flag("-lsqlite3"));
}

fn memory_of_openssl() {
    exact_with("openssl", &Build::c("openssl_memory.c").flag("-lcrypto"));
}

fn nonsense_as_a_description_is_a_usage_error() {
    for (probe, word) in [
        ("tensorflow", "is no description"),
        ("name=x,alloc=f(size=0)", "needs free"),
        ("name=x,alloc=f(size=9),free=g(ptr=0)", "from 0 to 5"),
    ] {
        let run = Tool::new(["run", "--probe", probe, "--", "/bin/true"]).run();
        run.expect_code(2);
        assert!(run.stderr.contains(word), "{}", run.story());
    }
}
