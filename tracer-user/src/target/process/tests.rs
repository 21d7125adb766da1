use super::*;
use crate::target::test_program::Folder;

const WAIT: &str = "#include <stdio.h>\n\
    int main(void) { puts(\"up\"); fflush(stdout); getchar(); return 0; }\n";

#[test]
fn a_program() {
    let folder = Folder::new();
    let mut program = folder.run(WAIT, &[]);
    program.line();
    let process = program.process();
    assert_eq!(process.pid, program.pid());
    assert_eq!(process.asked_for_thread, None);
    assert_eq!(process.exe, folder.path("program"));
    assert_eq!(process.cmdline, [folder.path("program").into_os_string()]);
    assert!(!process.has_ended());
    let status = process.status().expect("it runs");
    assert_eq!((status.name.as_str(), status.n_threads), ("program", 1));
    assert!(status.rss_bytes.is_some_and(|bytes| bytes > 0));
    assert_eq!(process.auxv(libc::AT_PAGESZ).expect("it runs"), Some(4096));

    program.go_on();
    assert!(process.wait_exit(Duration::from_secs(10)));
    assert!(matches!(process.status(), Err(ProcessError::Ended { .. })));
}

#[test]
fn the_id_of_a_thread_stands_for_its_process() {
    let folder = Folder::new();
    let source = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *work(void *p) { printf("%x\n", gettid()); fflush(stdout); pause(); return p; }
        int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pause(); return 0; }
    "#;
    let mut program = folder.run(source, &["-pthread"]);
    let tid = u32::try_from(program.addr()).expect("an id");
    assert_ne!(tid, program.pid());
    let process = Process::open(tid).expect("it runs");
    assert_eq!((process.pid, process.asked_for_thread), (program.pid(), Some(tid)));
}

#[test]
fn memory_outlives_the_first_thread() {
    let folder = Folder::new();
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *work(void *p) { pause(); return p; }
        int main(void) {
            pthread_t t;
            pthread_create(&t, 0, work, 0);
            printf("%p\n", (void *)main);
            fflush(stdout);
            getchar();
            pthread_exit(0);
        }
    "#;
    let mut program = folder.run(source, &["-pthread"]);
    let main = program.addr();
    let process = program.process();
    assert_eq!(process.shown_as(), process.pid);
    program.go_on();
    while !Status::read(process.pid).expect("its other thread runs").is_over() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!process.has_ended());
    assert_ne!(process.shown_as(), process.pid);
    let mappings = process.mappings().expect("it is there");
    assert!(mappings.at(main).is_some_and(|code| code.is_executable()));
    let memory = process.memory().expect("it is there");
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut [0; 4], main).expect("code");
}

#[test]
fn a_stopped_program_can_be_opened() {
    let folder = Folder::new();
    let mut program = folder.run(WAIT, &[]);
    program.line();
    let pid = nix::unistd::Pid::from_raw(program.pid().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
    let process = program.process();
    for _ in 0..1000 {
        if process.status().expect("it is there").is_stopped() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never stopped");
}

#[test]
fn what_can_be_no_target() {
    let own = Process::open(std::process::id()).expect_err("it is us");
    assert!(matches!(own, ProcessError::Ourselves { .. }), "{own}");
    assert_eq!(own.class(), Class::Usage);

    let none = Process::open(u32::MAX).expect_err("no such id");
    assert!(matches!(none, ProcessError::NoSuchProcess { .. }), "{none}");
    assert_eq!(none.class(), Class::Target);

    let folder = Folder::new();
    let mut program = folder.run(WAIT, &[]);
    program.line();
    let process = program.process();
    program.kill();
    assert!(process.wait_exit(Duration::from_secs(10)));
    let zombie = Process::open(program.pid()).expect_err("it has ended");
    assert!(matches!(zombie, ProcessError::Zombie { .. }), "{zombie}");
}

fn status(text: &str) -> Option<Status> {
    Status::parse(text.as_bytes())
}

#[test]
fn kernel_threads_are_told_by_the_kernel_or_by_having_no_memory() {
    let head = "Name:\tkthreadd\nState:\tS (sleeping)\nTgid:\t2\nUid:\t0\t0\t0\t0\n";
    let old = status(head).expect("whole");
    assert!(old.is_kernel_thread());
    let new = status(&format!("{head}Kthread:\t1\n")).expect("whole");
    assert!(new.is_kernel_thread());
    let program = status(&format!("{head}VmSize:\t 10 kB\n")).expect("whole");
    assert!(!program.is_kernel_thread());
    assert_eq!(status("Name:\tx\n"), None);
}

#[test]
fn a_stop_that_waits_is_one_thread_s_or_the_process_s() {
    let head = "Name:\ta\nState:\tT (stopped)\nTgid:\t7\nUid:\t0\t0\t0\t0\n";
    let stop = "0000000000040000";
    let asked = |thread: &str, process: &str| {
        let status = status(&format!("{head}SigPnd:\t{thread}\nShdPnd:\t{process}\n"));
        let status = status.expect("whole");
        assert!(status.is_stopped());
        (status.stop_pending, status.stop_asked)
    };
    let (nothing, others) = ("0000000000000000", "fffffffffffbffff");
    assert_eq!(asked(nothing, others), (false, false));
    assert_eq!(asked(stop, nothing), (true, false));
    assert_eq!(asked(nothing, stop), (true, true));
}

#[test]
fn the_innermost_id_is_what_a_process_calls_itself() {
    let text = "Name:\ta\nState:\tR\nTgid:\t70\nUid:\t1\t2\t3\t4\nNSpid:\t70\t8\t1\n";
    let status = status(text).expect("whole");
    assert_eq!((status.inner_pid(), status.uid), (1, 2));
}

#[test]
fn arguments_are_bytes() {
    assert_eq!(cmdline(b""), Vec::<OsString>::new());
    assert_eq!(cmdline(b"a\0\0b c\0"), ["a", "", "b c"]);
    assert_eq!(cmdline(b"a\xff"), [OsString::from_vec(b"a\xff".to_vec())]);
}
