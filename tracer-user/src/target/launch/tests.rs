use std::process::Stdio;

use super::*;
use crate::target::allocators::Allocators;
use crate::target::test_program::Folder;

fn held(program: &str, args: &[&str]) -> Result<Held, LaunchError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Held::start(command)
}

#[test]
fn a_program_begins_only_when_its_allocator_was_seen() {
    let mut allocators = Allocators::default();
    let mut families = Vec::new();
    let running = held("echo", &["hello"])
        .expect("echo starts")
        .run_to_entry(|process, _| -> Result<(), LaunchError> {
            for index in allocators.look(process)? {
                families.push(allocators.objects()[index].family_name.clone());
            }
            Ok(())
        })
        .expect("echo runs");
    let output = running.child.wait_with_output().expect("echo ends");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"hello\n");
    assert!(families.iter().any(|name| name.starts_with("libc.so")), "{families:?}");
    assert!(running.process.has_ended());
}

#[test]
fn no_trace_of_it_remains() {
    let running = held("cat", &["/proc/self/status"])
        .expect("cat starts")
        .run_to_entry(|_, _| Ok::<(), LaunchError>(()))
        .expect("cat runs");
    let output = running.child.wait_with_output().expect("cat ends");
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
}

#[test]
fn what_cannot_be_started_is_told() {
    let error = held("/no/such/program", &[]).expect_err("it is not there");
    assert!(matches!(error, LaunchError::NotFound { .. }), "{error}");
    let error = held("/etc/passwd", &[]).expect_err("it is no program");
    assert!(matches!(error, LaunchError::Exec { .. }), "{error}");
    assert_eq!(error.class(), Class::Target);
}

#[test]
fn a_probe_that_fails_ends_the_program() {
    let held = held("sleep", &["1000"]).expect("sleep starts");
    let pid = held.pid.as_raw().cast_unsigned();
    let error = held
        .run_to_entry(|_, _| Err::<(), _>(LaunchError::NoEntry { program: "sleep".to_owned() }));
    assert!(matches!(error, Err(LaunchError::NoEntry { .. })));
    assert!(matches!(Process::open(pid), Err(ProcessError::NoSuchProcess { .. })));
}

#[test]
fn a_signal_that_comes_meanwhile_is_delivered() {
    let held = held("sleep", &["1000"]).expect("sleep starts");
    let pid = held.pid;
    let error = held.run_to_entry(|_, _| {
        nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it is there");
        Ok::<(), LaunchError>(())
    });
    match error {
        Err(LaunchError::Ended { status, .. }) => {
            assert_eq!(status.signal(), Some(libc::SIGTERM));
        }
        other => panic!("{other:?}"),
    }
}

/// Runs `main` with this code in a constructor of a library that it is linked with.
fn with_constructor(code: &str) -> (String, usize) {
    let folder = Folder::new();
    let library = format!(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         #include <signal.h>\n#include <sys/wait.h>\n\
         __attribute__((constructor)) static void first(void) {{ {code} }}\n\
         void used(void) {{}}\n"
    );
    folder.compile("libfirst.so", &library, &["-shared", "-fPIC"]);
    let main = "#include <stdio.h>\nvoid used(void);\n\
        int main(void) { used(); puts(\"main\"); return 0; }\n";
    let flags = ["-L.", "-lfirst", "-Wl,-rpath,$ORIGIN"];
    let path = folder.compile("program", main, &flags);
    let path = path.to_str().expect("text");
    let mut n_probed = 0;
    let running = held(path, &[])
        .expect("it starts")
        .run_to_entry(|_, _| {
            n_probed += 1;
            Ok::<(), LaunchError>(())
        })
        .expect("it runs");
    let output = running.child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    (String::from_utf8(output.stdout).expect("text"), n_probed)
}

#[test]
fn a_constructor_runs_while_it_is_held() {
    let (output, n_probed) = with_constructor("puts(\"constructor\");");
    assert_eq!(output, "constructor\nmain\n");
    // At the start, for each of two libraries, at the entry.
    assert_eq!(n_probed, 4);
}

#[test]
fn a_constructor_that_forks_has_a_healthy_child() {
    let code = "int status = 0; pid_t child = fork(); \
        if (child) { waitpid(child, &status, 0); printf(\"child %d\\n\", status); fflush(stdout); }";
    let (output, _) = with_constructor(code);
    assert_eq!(output, "main\nchild 0\nmain\n");
}

#[test]
fn a_constructor_that_runs_the_program_again_is_followed() {
    let code = "if (!getenv(\"AGAIN\")) { setenv(\"AGAIN\", \"1\", 1); \
        execl(\"/proc/self/exe\", \"program\", (char *)0); }";
    let (output, n_probed) = with_constructor(code);
    assert_eq!(output, "main\n");
    assert_eq!(n_probed, 7);
}

#[test]
fn a_constructor_gets_its_signals() {
    let code = "sigset_t none; sigprocmask(0, 0, &none); \
        printf(\"%d\\n\", sigismember(&none, SIGTERM)); fflush(stdout); \
        signal(SIGRTMIN + 1, SIG_IGN); raise(SIGRTMIN + 1); raise(SIGSTOP);";
    let (output, _) = with_constructor(code);
    assert_eq!(output, "0\nmain\n");
}
