//! Folders of one test, removed when it passes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path as a word of a command line or of a text.
pub fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

/// A new folder for the files of one test. Kept, and named, when the test fails.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder of its own below the machine's temporary folder.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("outlive-e2e-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self { path },
                // Of a test that failed, whose process had the same id.
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                Err(err) => panic!("cannot make the folder {}: {err}", path.display()),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("files of the failed test are kept in {}", self.path.display());
            return;
        }
        // What cannot be removed stays in the temporary folder, which is nobody's loss.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies a file so that everyone may run the copy.
///
/// By another process: while this one holds a file open for writing, any child that another test
/// starts at that moment holds it too, and the file cannot be run ("text file busy").
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("cannot copy {} to {}: {other:?}", from.display(), to.display()),
    }
}

/// Copies a program and leaves out where its sections are, as `sstrip` and packers do.
pub fn copy_without_section_headers(from: &Path, to: &Path) {
    let mut bytes = fs::read(from).unwrap_or_else(|err| panic!("{}: {err}", from.display()));
    // The fields of the header are their place (`e_shoff`), their number and that of their names.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let draft = to.with_extension("draft");
    fs::write(&draft, bytes).unwrap_or_else(|err| panic!("{}: {err}", draft.display()));
    copy_program(&draft, to);
}

/// Makes a program's file hold capabilities, written as `setcap` takes them.
pub fn give_capabilities(program: &Path, capabilities: &str) {
    let status = Command::new("setcap").arg(capabilities).arg(program).status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("setcap {capabilities} {}: {other:?}", program.display()),
    }
}

/// The build folder of this test binary, `target/` in most checkouts.
pub fn target_folder() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_else(|err| panic!("own path: {err}"));
    // target/<profile>/deps/<binary>
    match exe.ancestors().nth(3) {
        Some(path) => path.to_owned(),
        None => panic!("{} is not in a cargo build folder", exe.display()),
    }
}

/// The folder `workloads/` of the sources.
pub fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads")
}
