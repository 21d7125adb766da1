//! Child processes that end with the test, and waiting with a limit.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a test waits for anything before it calls it stuck.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A child process that is killed and waited for when the test is done with it.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Takes over a child.
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or_else(|_| panic!("a pid beyond i32: {}", self.0.id()))
    }

    /// Sends a signal. The child is not waited for before, so the pid is still its own.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal)
            .unwrap_or_else(|err| panic!("cannot send {signal} to {}: {err}", self.pid()));
    }

    /// Waits for its end. None: still running after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                Ok(None) => return None,
                Err(err) => panic!("cannot wait for {}: {err}", self.pid()),
            }
        }
    }

    /// Is it still running?
    pub fn is_alive(&mut self) -> bool {
        self.wait(Duration::ZERO).is_none()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Fails only for a child that has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a stream to its end beside the test.
#[derive(Debug)]
pub struct Collected(Receiver<String>);

impl Collected {
    /// Starts reading.
    pub fn new(mut stream: impl Read + Send + 'static) -> Self {
        let (send, receive) = channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // A stream that breaks counts as ended: what came is what the test sees.
            let _ = stream.read_to_end(&mut bytes);
            // The test may have given up waiting.
            let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        Self(receive)
    }

    /// All of it, once the writer has ended.
    pub fn text(self, what: &str) -> String {
        match self.0.recv_timeout(Duration::from_secs(10)) {
            Ok(text) => text,
            Err(_) => panic!("{what} is still held open although its process has ended"),
        }
    }
}

/// Asks again until the answer is yes.
#[track_caller]
pub fn eventually(what: &str, mut answer: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !answer() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The state letter of a process; none when there is no such process.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The children of a process, zombies included.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let each = threads.filter_map(|thread| of_thread(thread.ok()?).ok());
    each.flat_map(|text| numbers(&text)).collect()
}

fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The processes that execute this file.
pub fn executing(path: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let pids = entries.filter_map(|entry| pid(entry.ok()?));
    let executes = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|it| it == path);
    pids.filter(executes).collect()
}
