//! Runs `outlive`.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Collected, Owned, PATIENCE};
use crate::scratch::{Scratch, copy_program, give_capabilities, target_folder};
use crate::session::Session;

/// The binary under test: `OUTLIVE_BIN`, or the one that cargo built beside this test.
///
/// # Errors
/// Neither is there.
pub fn binary() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("OUTLIVE_BIN") {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(format!("no file {}", path.display())) };
    }
    let profiles = ["debug", "release"];
    let paths = profiles.map(|profile| target_folder().join(profile).join("outlive"));
    paths
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| "outlive is not built: run `cargo build` or set OUTLIVE_BIN".to_owned())
}

/// Options of `setpriv` that make a program run as a user without any right.
pub const NOBODY: &[&str] = &["--reuid=65534", "--regid=65534", "--clear-groups"];

/// A call of the tool that is being put together.
#[derive(Debug)]
pub struct Tool {
    command: Command,
    scratch: Scratch,
}

impl Tool {
    /// A call with these arguments.
    pub fn new<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::under(&[], args)
    }

    /// A call by the user "nobody", of a copy of the binary that everyone may read.
    pub fn as_nobody<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::by_nobody("", args)
    }

    /// A call by the user "nobody", of a copy of the binary whose file holds the capabilities
    /// that tracing needs.
    pub fn as_user<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::by_nobody("cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search=ep", args)
    }

    /// The same with other capabilities, written as `setcap` takes them; none when empty.
    pub fn by_nobody<A: Into<OsString>>(
        capabilities: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let scratch = Scratch::new();
        let (original, copy) =
            (binary().unwrap_or_else(|err| panic!("{err}")), scratch.join("outlive"));
        copy_program(&original, &copy);
        if !capabilities.is_empty() {
            give_capabilities(&copy, capabilities);
        }
        // Its current folder, where a session would go, must not be what refuses it.
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o777))
            .unwrap_or_else(|err| panic!("{}: {err}", scratch.path().display()));
        let mut command = Command::new("setpriv");
        command.args(NOBODY).arg(copy).args(args.into_iter().map(Into::into));
        Self { command, scratch }
    }

    /// A call behind another program, such as `unshare` with its options.
    pub fn under<A: Into<OsString>>(before: &[&str], args: impl IntoIterator<Item = A>) -> Self {
        let path = binary().unwrap_or_else(|err| panic!("{err}"));
        let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
        words.push(path.into_os_string());
        words.extend(args.into_iter().map(Into::into));
        let mut command = Command::new(&words[0]);
        // Colours and sizes of the terminal that runs the tests are not part of a test.
        command.args(&words[1..]).env_remove("COLUMNS").env_remove("NO_COLOR");
        Self { command, scratch: Scratch::new() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment of the tool and what it starts.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Adds `-o` with a folder of this call.
    #[must_use]
    pub fn with_folder(mut self) -> Self {
        self.command.arg("-o").arg(self.scratch.join("session"));
        self
    }

    /// The folder of this call's own files.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        // Without `-o`, the session goes to the current folder.
        self.command.current_dir(self.scratch.path());
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|err| panic!("outlive: {err}"));
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            panic!("both streams are pipes");
        };
        Running {
            call: format!("{:?}", self.command),
            process: Owned::new(child),
            stdout: Collected::new(stdout),
            stderr: Collected::new(stderr),
            scratch: self.scratch,
        }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Run {
        self.start().wait()
    }
}

/// The tool at work; killed when dropped.
#[derive(Debug)]
pub struct Running {
    call: String,
    /// The process, for signals.
    pub process: Owned,
    stdout: Collected,
    stderr: Collected,
    scratch: Scratch,
}

impl Running {
    /// The session folder of [`Tool::with_folder`].
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("session")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Run {
        let Some(status) = self.process.wait(PATIENCE) else {
            self.process.signal(nix::sys::signal::SIGKILL);
            let stderr = self.stderr.text("standard error");
            panic!("{} did not end in {PATIENCE:?}; it said:\n{stderr}", self.call);
        };
        Run {
            call: self.call,
            code: status.code(),
            stdout: self.stdout.text("standard output"),
            stderr: self.stderr.text("standard error"),
            scratch: self.scratch,
        }
    }
}

/// What a call of the tool left.
#[derive(Debug)]
pub struct Run {
    call: String,
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    scratch: Scratch,
}

impl Run {
    /// The session folder of [`Tool::with_folder`].
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("session")
    }

    /// The folder of this call's own files.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The session file.
    #[track_caller]
    pub fn session(&self) -> Session {
        assert!(
            self.folder().join("session.json").is_file(),
            "no session was written: {}",
            self.story()
        );
        Session::read(&self.folder())
    }

    /// Everything that is known, for the message of a failed test.
    pub fn story(&self) -> String {
        let Self { call, code, stdout, stderr, .. } = self;
        format!("{call}\nexit code {code:?}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }

    /// Fails the test unless the exit code is this one.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}", self.story());
        self
    }

    /// Fails the test unless this is an error as a person should see it: this exit code, one line
    /// on standard error that contains one of `words`, nothing on standard output.
    #[track_caller]
    pub fn expect_error(&self, code: i32, words: &[&str]) {
        self.expect_code(code);
        self.expect_one_sentence(words);
    }

    /// The part of [`Run::expect_error`] that is about the words.
    #[track_caller]
    pub fn expect_one_sentence(&self, words: &[&str]) {
        let story = self.story();
        assert_eq!(self.stdout, "", "something on standard output: {story}");
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "not one line on standard error: {story}");
        assert!(lines[0].starts_with("outlive: "), "the error does not say who speaks: {story}");
        assert!(!lines[0].contains("panicked"), "{story}");
        assert!(
            words.iter().any(|word| lines[0].contains(word)),
            "the error contains none of {words:?}: {story}"
        );
    }
}
