//! Small programs for the tests, compiled by the machine's `cc` and `c++`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::process::Process;

/// Leaves an object without section headers: in the header of the file, their place (`e_shoff`), their
/// number and that of their names.
pub(crate) fn remove_section_headers(bytes: &mut [u8]) {
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
}

/// A folder of one test, removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static N_FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        // A blank in every path: nothing may mind.
        let name = format!("outlive test {} {number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles `source` to the file `name`.
    pub(crate) fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_by("cc", &format!("{name}.c"), source, name, flags)
    }

    /// The same in C++.
    pub(crate) fn compile_cpp(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_by("c++", &format!("{name}.cpp"), source, name, flags)
    }

    fn compile_by(
        &self,
        compiler: &str,
        input: &str,
        source: &str,
        name: &str,
        flags: &[&str],
    ) -> PathBuf {
        let input = self.path(input);
        fs::write(&input, source).expect("the folder is writable");
        let output = self.path(name);
        let mut command = Command::new(compiler);
        command.arg("-o").arg(&output).arg(&input).args(flags).current_dir(&self.0);
        let done = command.output().expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        output
    }

    /// Compiles and starts a program.
    pub(crate) fn run(&self, source: &str, flags: &[&str]) -> Program {
        self.compile("program", source, flags);
        self.start("program")
    }

    /// Starts a program that was compiled before.
    pub(crate) fn start(&self, name: &str) -> Program {
        Program::start(&self.path(name), &self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running program that answers lines; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &Path, folder: &Path) -> Self {
        let mut command = Command::new(path);
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it was just compiled");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    pub(crate) fn process(&self) -> Process {
        Process::open(self.child.id()).expect("it runs")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it prints text");
        assert!(line.ends_with('\n'), "it ended");
        line.trim_end().to_owned()
    }

    /// The next line, which is an address.
    pub(crate) fn addr(&mut self) -> u64 {
        let line = self.line();
        u64::from_str_radix(line.trim_start_matches("0x"), 16).expect("an address")
    }

    /// Sends it an empty line.
    pub(crate) fn go_on(&mut self) {
        self.stdin.write_all(b"\n").expect("it reads");
    }

    /// Kills it without waiting for it: it stays a zombie.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
