//! What no compiler checks: who may use whom, how long a file is, what a text names, whose
//! licence a dependency has.

mod edges;
mod licences;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::cmd::{CommandExt as _, Workspace, command};

/// Lines of a file, its unit tests apart, from which on it is asking to be two.
const LONGEST: usize = 400;

/// What one check found; nothing when it passed.
pub(crate) struct Checked {
    pub(crate) name: &'static str,
    pub(crate) findings: Vec<String>,
}

/// One file of the repository.
struct Source {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    fn is_document(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "md")
    }

    /// The lines of a Rust file before its unit tests.
    fn without_tests(&self) -> impl Iterator<Item = &str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]")
    }
}

/// Prints the findings.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let checks = check(workspace)?;
    for finding in checks.iter().flat_map(|check| &check.findings) {
        eprintln!("{finding}");
    }
    let n_findings: usize = checks.iter().map(|check| check.findings.len()).sum();
    println!("{} checks, {n_findings} findings", checks.len());
    Ok(if n_findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every check, each with what it found.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Checked>> {
    let sources = sources(&workspace.root)?;
    Ok(vec![
        Checked { name: "dependency edges", findings: edges::check(&sources) },
        Checked { name: "file length", findings: lengths(&sources) },
        Checked { name: "words", findings: texts::words(&sources) },
        Checked { name: "named files exist", findings: texts::paths(&workspace.root, &sources) },
        Checked { name: "licences", findings: licences::check(workspace)? },
    ])
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let listed = command("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .text()
        .context("tidy checks the files that git knows")?;
    let mut sources = Vec::new();
    for path in listed.lines().map(PathBuf::from) {
        // What is fed to readers is no text of ours.
        if path.starts_with("fuzz/corpus") {
            continue;
        }
        // Deleted and not yet committed, or a link to a directory.
        let Ok(bytes) = fs::read(root.join(&path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source { path, text });
        }
    }
    Ok(sources)
}

fn lengths(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|source| source.is_rust()).filter_map(|source| {
        let n_lines = source.without_tests().count();
        let path = source.path.display();
        (n_lines > LONGEST).then(|| format!("{path}: {n_lines} lines, at most {LONGEST}"))
    });
    long.collect()
}
