//! Finding the allocator of a process, however its files are called and laid out; programs from
//! packages under load.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::SIGINT;
use outlive_tests::build::Build;
use outlive_tests::measure::{measure, measure_running};
use outlive_tests::process::{Owned, eventually};
use outlive_tests::scratch::{Scratch, copy_program, workloads};
use outlive_tests::session::Session;
use outlive_tests::text::changed_code_bytes;
use outlive_tests::tool::{Run, Tool};
use outlive_tests::workload::{Program, Workload};

crate::tests![
    [Bpf, C] mappings_with_odd_names_are_no_hindrance,
    [Bpf, C] a_path_may_hold_spaces,
    [Bpf, C] a_program_whose_file_was_deleted_is_traced,
    [Bpf, C] a_program_whose_folder_was_deleted_has_its_names,
    [Bpf, C] a_library_that_was_closed_keeps_its_names,
    [Bpf, C] two_tools_on_one_target_do_not_disturb_each_other,
    [Bpf, C] tools_that_come_and_go_while_a_target_works_are_not_noticed,
    [Bpf, C] a_library_that_is_named_like_the_c_library_is_not_it,
    [Bpf, C] a_program_may_define_its_own_malloc,
    [Bpf, C] a_program_at_a_fixed_address_is_traced,
    [Bpf, C] segments_may_share_their_pages,
    [Bpf, C] a_program_may_sit_at_an_unusual_address,
    [Bpf, C, Lld] another_linker_is_no_hindrance,
    [Bpf, C] a_static_program_with_symbols_is_exact,
    [Bpf, C] a_program_that_its_loader_is_told_to_start_is_exact,
    [Bpf, C] a_program_that_filters_its_system_calls_is_not_harmed,
    [Bpf, C] a_program_that_dies_of_an_unknown_system_call_is_not_harmed,
    [Bpf, Python] python_under_load_stays_healthy,
    [Bpf, Node] node_under_load_stays_healthy,
    [Bpf, Redis] redis_under_load_stays_healthy,
];

fn mappings_with_odd_names_are_no_hindrance() {
    let workload = Workload::start(&Program::new(Build::c("odd_mappings.c").build()));
    measure_running(&workload).expect_exact();
}

/// Where the kernel would harm it, the tool must refuse, which shows as another exit code here:
/// kernels that do are not tested on.
fn a_program_that_filters_its_system_calls_is_not_harmed() {
    measure_running(&Workload::start(&Program::new(Build::c("filtered.c").build()))).expect_exact();
}

fn a_program_that_dies_of_an_unknown_system_call_is_not_harmed() {
    let program = Program::new(Build::c("filtered.c").build()).arg("kill");
    measure_running(&Workload::start(&program)).expect_exact();
}

fn a_path_may_hold_spaces() {
    let scratch = Scratch::new();
    let folder = scratch.join("dir with space");
    fs::create_dir(&folder).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.join(name);
        copy_program(from, &to);
        to
    };
    let program = copy(&Build::c("opened_library.c").flag("-ldl").build(), "a program");
    let library = copy(&Build::library("c/lib_leaky.c", "libleaky.so").build(), "lib leaky.so");
    let program = Program::new(program).arg(library.display().to_string());
    measure(&program).expect_exact();
    measure_running(&Workload::start(&program)).expect_exact();
}

fn a_program_whose_file_was_deleted_is_traced() {
    let scratch = Scratch::new();
    let copy = scratch.join("copy");
    copy_program(&Build::c("own_malloc.c").flag("-rdynamic").build(), &copy);
    let workload = Workload::start(&Program::new(&copy));
    fs::remove_file(&copy).unwrap();
    measure_running(&workload).expect_exact();
}

/// It is there alone, works in that folder, and has no names but those of its full symbol table.
fn a_program_whose_folder_was_deleted_has_its_names() {
    let scratch = Scratch::new();
    let folder = scratch.join("folder");
    fs::create_dir(&folder).unwrap();
    let program = Build::c("keep.c").flag("-pie").flag("-fPIE").flag("-Wl,--strip-debug").build();
    copy_program(&program, &folder.join("copy"));
    let script = format!("cd '{}' && exec \"$@\"", folder.display());
    let workload = Workload::start_under(&["sh", "-c", &script, "sh"], &Program::new("./copy"));
    fs::remove_dir_all(&folder).unwrap();
    let measured = measure_running(&workload);
    measured.expect_exact();
    let frames = &measured.session.stacks[0].frames;
    let names: Vec<_> = frames.iter().take(3).map(|frame| frame.function.as_deref()).collect();
    assert_eq!(names, ["leaky", "batch", "batches"].map(Some), "{}", measured.story());
}

fn a_library_that_was_closed_keeps_its_names() {
    let library = Build::library("c/lib_leaky.c", "libleaky.so").build();
    let program = Program::new(Build::c("closed_library.c").flag("-ldl").build())
        .arg(library.display().to_string());
    measure(&program).expect_exact();
    measure_running(&Workload::start(&program)).expect_exact();
}

fn two_tools_on_one_target_do_not_disturb_each_other() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid().to_string();
    let other = Tool::new(["attach", "-p", &pid, "-i", "100s"]).with_folder().start();
    let mark = || Tool::new(["mark", "-p", &pid, "begin"]).run().code == Some(0);
    eventually("the first tool watches", mark);
    // Ends while the first goes on.
    let measured = measure_running(&workload);
    measured.expect_exact();
    workload.batch();
    assert!(mark(), "the first tool watches no more");
    other.process.signal(SIGINT);
    let run = other.wait();
    run.expect_code(0);
    let session = run.session();
    let batch = session.batches.last().unwrap();
    let n_batches = i64::try_from(workload.truth().n_batches()).unwrap();
    assert_eq!(batch.heap_blocks, 100 * n_batches, "{}", run.story());
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}

fn tools_that_come_and_go_while_a_target_works_are_not_noticed() {
    let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
    let pid = workload.pid().to_string();
    let first = Tool::new(["attach", "-p", &pid, "--by-mark"]).with_folder().start();
    let mark = || Tool::new(["mark", "-p", &pid, "here"]).run().code == Some(0);
    eventually("the first tool watches", mark);
    let mut n_batches = 0;
    let mut work = || {
        workload.ask();
        assert!(workload.line().starts_with("DONE "));
        n_batches += 1;
        // At full speed it would fill the rings, which is another matter.
        std::thread::sleep(Duration::from_millis(1));
    };
    for _ in 0..5 {
        let mut other = Tool::new(["attach", "-p", &pid, "-i", "50ms"]).with_folder().start();
        let folder = other.folder();
        let sees = || {
            let is_there = folder.join("session.json").is_file();
            is_there && Session::read(&folder).batches.iter().any(|it| it.allocated_blocks > 0)
        };
        // Comes and goes while there is work.
        eventually("the other tool sees blocks", || {
            work();
            sees()
        });
        other.process.signal(SIGINT);
        while other.process.is_alive() {
            work();
        }
        let run = other.wait();
        run.expect_code(0);
        assert_eq!(run.session().lost(), 0, "{}", run.story());
    }
    assert!(mark(), "the first tool watches no more");
    first.process.signal(SIGINT);
    let run = first.wait();
    run.expect_code(0);
    let session = run.session();
    let left = session.batches.last().unwrap().heap_blocks;
    assert_eq!(left, 100 * n_batches, "{}", run.story());
    assert_eq!(session.lost(), 0, "losses {:?}", session.losses);
    assert_eq!(changed_code_bytes(workload.pid()), 0);
}

fn a_library_that_is_named_like_the_c_library_is_not_it() {
    let fake = Build::library("c/lib_fake.c", "libc-fake.so").build();
    let program =
        Program::new(Build::c("keep.c").build()).env("LD_PRELOAD", fake.display().to_string());
    measure_running(&Workload::start(&program)).expect_exact();
}

#[track_caller]
fn own_malloc(flags: &[&str]) {
    let mut build = Build::c("own_malloc.c").flag("-rdynamic");
    for &flag in flags {
        build = build.flag(flag);
    }
    measure(&Program::new(build.build())).expect_exact();
}

fn a_program_may_define_its_own_malloc() {
    own_malloc(&["-fPIE", "-pie"]);
}

fn a_program_at_a_fixed_address_is_traced() {
    own_malloc(&["-fno-pie", "-no-pie"]);
}

fn segments_may_share_their_pages() {
    own_malloc(&["-Wl,-z,noseparate-code"]);
}

fn a_program_may_sit_at_an_unusual_address() {
    own_malloc(&["-fno-pie", "-no-pie", "-Wl,-Ttext-segment=0x600000"]);
}

fn another_linker_is_no_hindrance() {
    own_malloc(&["-fuse-ld=lld"]);
}

fn a_static_program_with_symbols_is_exact() {
    measure(&Program::new(Build::c("keep.c").flag("-static").build())).expect_exact();
}

fn a_program_that_its_loader_is_told_to_start_is_exact() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-Wl,-z,noseparate-code"]] {
        let build = flags.iter().fold(Build::c("keep.c"), |build, flag| build.flag(*flag));
        let program = Program::new(loader).arg(build.build().display().to_string());
        measure(&program).expect_exact();
        measure_running(&Workload::start(&program)).expect_exact();
    }
    // Over before any tool could attach late.
    let once = Build::c("leak_once.c").build();
    let run = Tool::new(["run"]).with_folder().args(["--", loader]).args([once]).run();
    run.expect_code(0);
    let session = run.session();
    assert_eq!(session.growth_in("leak_once").blocks, 100, "{}", run.story());
}

/// Attaches for two intervals and fails unless the tool saw allocations and left no trace.
#[track_caller]
fn attach_and_leave(pid: i32) -> Run {
    let run =
        Tool::new(["attach", "-p", &pid.to_string(), "-d", "2s", "-i", "1s"]).with_folder().run();
    let session = run.session();
    let made: u64 = session.batches.iter().map(|batch| batch.allocated_blocks).sum();
    assert!(made > 100, "the program was busy and {made} allocations were seen; {}", run.story());
    assert_eq!(changed_code_bytes(pid), 0, "breakpoints are left; {}", run.story());
    run
}

#[track_caller]
fn stays_healthy(program: &Program) {
    let mut workload = Workload::start(program);
    attach_and_leave(workload.pid()).expect_code(0);
    for _ in 0..3 {
        // What it said meanwhile was kept for us: read on until it is the present.
        while workload.waiting_line().is_some() {}
        assert!(workload.line().starts_with("ALIVE "));
    }
    assert!(workload.process().is_alive());
}

fn python_under_load_stays_healthy() {
    let script = workloads().join("python/busy.py").display().to_string();
    stays_healthy(&Program::new("/usr/bin/python3").arg(script));
}

fn node_under_load_stays_healthy() {
    let script = workloads().join("node/busy.js").display().to_string();
    stays_healthy(&Program::new("node").arg(script));
}

fn redis_under_load_stays_healthy() {
    let scratch = Scratch::new();
    let socket = scratch.join("redis.sock");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut redis = Owned::new(child);
    eventually("redis listens", || UnixStream::connect(&socket).is_ok());

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = Client::connect(&socket);
            let mut n_asked = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let (key, value) = (n_asked % 100, "x".repeat(100 + (n_asked % 900) as usize));
                assert_eq!(client.ask(&format!("SET key{key} {value}")), "+OK");
                n_asked += 1;
            }
            n_asked
        });
        let run = std::panic::catch_unwind(|| attach_and_leave(redis.pid()));
        stop.store(true, Ordering::Relaxed);
        assert!(load.join().unwrap() > 1000, "the load did not run");
        run.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).expect_code(0);
    });
    assert_eq!(Client::connect(&socket).ask("PING"), "+PONG");
    assert!(redis.is_alive());
}

/// A client of redis that sends one line and reads one.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}
