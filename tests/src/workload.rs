//! A workload that the test itself runs and drives.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::process::{Owned, PATIENCE};
use crate::scratch::{Scratch, copy_program};
use crate::truth::Truth;

/// A program with its arguments and environment.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are added to the environment.
    pub env: Vec<(String, String)>,
}

impl Program {
    /// A program without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), env: Vec::new() }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more variable, for the program alone or for the tool that starts it.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }
}

/// A running workload; killed when dropped.
#[derive(Debug)]
pub struct Workload {
    child: Owned,
    /// The program's own process; `child` may be what it runs under.
    pid: i32,
    /// What the program believes its process id to be.
    own_pid: i32,
    lines: Receiver<String>,
    input: File,
    scratch: Scratch,
}

impl Workload {
    /// Starts a program and waits until it is ready.
    pub fn start(program: &Program) -> Self {
        Self::start_under::<&str>(&[], program)
    }

    /// The same behind other words, such as those of `unshare` or `chroot`, which the program's
    /// path and arguments are appended to.
    pub fn start_under<W: AsRef<OsStr>>(before: &[W], program: &Program) -> Self {
        let scratch = Scratch::new();
        for name in ["input", "reply"] {
            let usual = Mode::S_IRUSR | Mode::S_IWUSR;
            mkfifo(&scratch.join(name), usual).unwrap_or_else(|err| panic!("mkfifo: {err}"));
        }
        open(&scratch.join("truth"), OpenOptions::new().create_new(true).write(true));
        // The program, or the command that asks for a batch, may run as another user.
        for name in ["input", "reply", "truth"] {
            share(&scratch.join(name));
        }
        // Open for both, so that neither end waits for the other. The workload itself must only
        // read: it has to see the end of its input when the test ends.
        let input = open(&scratch.join("input"), OpenOptions::new().read(true).write(true));
        let for_child = open(&scratch.join("input"), OpenOptions::new().read(true));

        let mut words: Vec<&OsStr> = before.iter().map(AsRef::as_ref).collect();
        words.push(program.path.as_os_str());
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(&program.args)
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .env("BATCH_TRUTH", scratch.join("truth"))
            .env("BATCH_REPLY", scratch.join("reply"))
            .stdin(Stdio::from(for_child))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|err| panic!("cannot start {:?}: {err}", words[0]));
        let Some(output) = child.stdout.take() else { panic!("standard output is a pipe") };
        let (send, lines) = channel();
        thread::spawn(move || {
            // Ends with the workload, or when nobody listens any more.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let child = Owned::new(child);
        let mut workload = Self { pid: child.pid(), own_pid: 0, child, lines, input, scratch };
        let ready = workload.line();
        let own_pid = ready.strip_prefix("READY ").and_then(|pid| pid.trim().parse().ok());
        workload.own_pid = own_pid.unwrap_or_else(|| panic!("the workload began with `{ready}`"));
        while let Some(inner) = only_child(workload.pid).filter(|_| !before.is_empty()) {
            workload.pid = inner;
        }
        workload
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its process id in its own pid namespace.
    pub fn own_pid(&self) -> i32 {
        self.own_pid
    }

    /// The process, for signals and for waiting.
    pub fn process(&mut self) -> &mut Owned {
        &mut self.child
    }

    /// The ids of its threads, the main thread's first.
    pub fn threads(&self) -> Vec<i32> {
        let folder = format!("/proc/{}/task", self.pid());
        let entries = fs::read_dir(&folder).unwrap_or_else(|err| panic!("{folder}: {err}"));
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let mut ids: Vec<i32> = entries.filter_map(Result::ok).filter_map(number).collect();
        ids.sort_unstable();
        ids
    }

    /// Asks for a batch and does not wait for it.
    pub fn ask(&mut self) {
        self.input.write_all(b"\n").unwrap_or_else(|err| panic!("workload's input: {err}"));
    }

    /// Runs one batch to its end. No other may be running.
    #[track_caller]
    pub fn batch(&mut self) {
        let number = self.truth().n_batches() + 1;
        self.ask();
        loop {
            let line = self.line();
            let done = line.strip_prefix("DONE ");
            match done.and_then(|done| done.parse::<usize>().ok()) {
                Some(done) if done == number => return,
                // Of a batch that a command asked for: nobody has read that line so far.
                Some(done) if done < number => {}
                _ => panic!("the workload answered `{line}` to the request for batch {number}"),
            }
        }
    }

    /// The next line of its output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(_) => panic!("no line from the workload; still alive: {}", self.child.is_alive()),
        }
    }

    /// A line of its output that has come already.
    pub fn waiting_line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// What it says of itself.
    pub fn truth(&self) -> Truth {
        Truth::read(&self.scratch.join("truth"))
    }

    /// A command that makes this workload run one batch, for `outlive test -p … -- command`.
    pub fn batch_command(&self) -> PathBuf {
        batch_command(self.scratch.path())
    }
}

/// The child that a process waits for, if it has one.
fn only_child(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Lets everyone read and write a file.
pub fn share(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
        .unwrap_or_else(|err| panic!("{}: {err}", path.display()));
}

fn open(path: &Path, how: &OpenOptions) -> File {
    how.open(path).unwrap_or_else(|err| panic!("cannot open {}: {err}", path.display()))
}

/// Writes a script that asks for one batch through the pipe `input` of this folder and waits for
/// the answer in the pipe `reply`.
pub fn batch_command(folder: &Path) -> PathBuf {
    let at = folder.display();
    let text = format!("printf 'r\\n' >> '{at}/input'\nread -r answer < '{at}/reply'\n");
    script(&folder.join("one-batch.sh"), &text)
}

/// Writes a shell script that can be run.
pub fn script(path: &Path, text: &str) -> PathBuf {
    let draft = path.with_extension("draft");
    fs::write(&draft, format!("#!/bin/sh\n{text}"))
        .unwrap_or_else(|err| panic!("cannot write {}: {err}", draft.display()));
    copy_program(&draft, path);
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use nix::sys::signal::{SIGCONT, SIGSTOP, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::build::{Build, node_addon, python, python_extension};
    use crate::process::{eventually, state};
    use crate::scratch::workloads;
    use crate::truth::Amount;

    #[track_caller]
    fn account(program: &Program, function: &str) -> Amount {
        let mut workload = Workload::start(program);
        for _ in 0..3 {
            workload.batch();
        }
        workload.truth().growth(1, 3)[function]
    }

    #[test]
    fn a_workload_runs_batches_and_keeps_its_account() {
        let keep = Program::new(Build::c("keep.c").build());
        assert_eq!(account(&keep, "leaky"), Amount { blocks: 200, bytes: 12_800 });
        let boxes = Program::new(Build::rust("boxes.rs").build());
        assert_eq!(account(&boxes, "forgets"), Amount { blocks: 200, bytes: 200_000 });
    }

    #[test]
    fn interpreters_run_workloads_too() {
        let kept = Amount { blocks: 200, bytes: 140_000 };
        let path = |name: &str| workloads().join(name).display().to_string();
        let extension = python_extension().display().to_string();
        let python = Program::new(python()).arg(path("python/extension.py")).arg(extension);
        assert_eq!(account(&python, "extension_leaks"), kept);
        let addon = node_addon().display().to_string();
        let node = Program::new("node").arg(path("node/addon.js")).arg(addon);
        assert_eq!(account(&node, "addon_leaks"), kept);
    }

    #[test]
    fn a_command_runs_a_batch() {
        let workload = Workload::start(&Program::new(Build::c("keep.c").build()));
        let status = Command::new(workload.batch_command()).status().unwrap();
        assert!(status.success());
        assert_eq!(workload.truth().n_batches(), 1);
    }

    #[test]
    fn a_batch_is_waited_for_behind_those_of_a_command() {
        let mut workload = Workload::start(&Program::new(Build::c("keep.c").build()));
        for _ in 0..2 {
            assert!(Command::new(workload.batch_command()).status().unwrap().success());
        }
        let pid = workload.pid();
        workload.process().signal(SIGSTOP);
        eventually("the workload stands still", || state(pid) == Some('T'));
        let goes_on = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                goes_on.store(true, Ordering::SeqCst);
                kill(Pid::from_raw(pid), SIGCONT).unwrap();
            });
            workload.batch();
            assert!(goes_on.load(Ordering::SeqCst), "a batch ended while the workload stood still");
        });
        assert_eq!(workload.truth().n_batches(), 3);
    }
}
