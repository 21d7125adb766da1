//! Small file systems that a program can call its root, made of copies: other inodes at the usual
//! paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::{copy_program, workloads};

/// Path of the program in a root of [`fill`].
pub const PROGRAM: &str = "/program";

/// Makes `root` a root folder with copies of this program and of the libraries that it needs, at
/// their usual paths.
pub fn fill(root: &Path, program: &Path) {
    make(root);
    make(&root.join("proc"));
    copy_program(program, &root.join(&PROGRAM[1..]));
    for library in libraries(program) {
        let copy = root.join(library.strip_prefix("/").unwrap_or(&library));
        copy.parent().into_iter().for_each(make);
        copy_program(&library, &copy);
    }
}

/// Makes `folder` hold copies of this program's libraries, for `LD_LIBRARY_PATH`.
pub fn copy_libraries(folder: &Path, program: &Path) {
    make(folder);
    for library in libraries(program) {
        copy_program(&library, &folder.join(library.file_name().unwrap_or_default()));
    }
}

/// Puts this workload in Python, and what it shares with the others, into the root folder itself.
pub fn add_script(root: &Path, script: &str) {
    for name in [script, "batch.py"] {
        copy_program(&workloads().join("python").join(name), &root.join(name));
    }
}

/// Libraries that the program's loader would map, itself included.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.unwrap_or_else(|err| panic!("cannot run ldd: {err}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<PathBuf> =
        text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    assert!(found.len() > 1, "ldd of {}: {text}", program.display());
    found
}

fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
}

/// Words before a program that run `setup`, a piece of shell script, in a mount namespace of their
/// own, and then the program with the folder `root` as its root. The account that a workload
/// writes stays where the test looks for it.
pub fn inside(root: &Path, setup: &str) -> Vec<String> {
    let root = root.display();
    let script = format!(
        "set -e\n{setup}\nshare=$(dirname \"$BATCH_TRUTH\")\nmkdir -p \"{root}$share\"\n\
         mount --bind \"$share\" \"{root}$share\"\nexec chroot \"{root}\" \"$@\""
    );
    elsewhere(&script)
}

/// Words before a program that run a shell script in a mount namespace of their own; the script
/// finds the program and its arguments in `"$@"`.
pub fn elsewhere(script: &str) -> Vec<String> {
    ["unshare", "--mount", "sh", "-c", script, "sh"].map(str::to_owned).to_vec()
}
