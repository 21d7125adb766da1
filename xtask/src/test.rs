//! Every check of the project, to the end whatever fails, and one closing line.

use std::io::{BufRead as _, BufReader};
use std::ops::AddAssign;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};

use crate::cmd::{CommandExt as _, Workspace, command, is_root, shown};
use crate::setup::{self, Toolchain};
use crate::{kernels, tidy};

/// Outcomes. A check that is one command, such as a linter's run, counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };
    const SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1 };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The run so far.
struct Run {
    tally: Tally,
    /// What failed, for the reader who sees only the end.
    failures: Vec<String>,
}

/// Runs everything.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let toolchain = setup::run(workspace)?;
    let mut run = Run { tally: Tally::default(), failures: Vec::new() };
    let cargo = |args: &[&str]| {
        let mut cargo = workspace.cargo();
        cargo.args(args);
        cargo
    };
    let ebpf = workspace.root.join("tracer-ebpf");

    run.one("format", &mut cargo(&["fmt", "--all", "--check"]));
    run.one("format, kernel side", cargo(&["fmt", "--check"]).current_dir(&ebpf));
    let fuzz = workspace.root.join("fuzz");
    run.one("format, fuzz targets", cargo(&["fmt", "--check"]).current_dir(fuzz));
    for check in tidy::check(workspace)? {
        run.tidy(&check);
    }
    run.one(
        "lint",
        &mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"]),
    );
    run.lint_kernel_side(workspace, &toolchain);
    run.one(
        "documents",
        cargo(&["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-Dwarnings"),
    );
    run.cargo_test(
        "unit and property tests",
        &mut cargo(&[
            "test",
            "--workspace",
            "--exclude",
            "outlive-tests",
            "--features",
            "outlive/swift",
            "--locked",
            "--no-fail-fast",
        ]),
    );
    run.end_to_end(workspace, in_ci)?;
    run.other_kernels(workspace, in_ci)?;

    println!();
    for failure in &run.failures {
        println!("FAILED: {failure}");
    }
    let Tally { passed, failed, skipped } = run.tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Run {
    fn add(&mut self, name: &str, tally: Tally) {
        self.tally += tally;
        if tally.failed > 0 {
            self.failures.push(name.to_owned());
        }
    }

    fn one(&mut self, name: &str, command: &mut Command) {
        headline(name);
        let tally = match command.run() {
            Ok(()) => Tally::PASSED,
            Err(err) => {
                println!("{err:#}");
                Tally::FAILED
            }
        };
        self.add(name, tally);
    }

    fn tidy(&mut self, check: &tidy::Checked) {
        headline(check.name);
        for finding in &check.findings {
            println!("{finding}");
        }
        let tally = if check.findings.is_empty() { Tally::PASSED } else { Tally::FAILED };
        self.add(check.name, tally);
    }

    fn lint_kernel_side(&mut self, workspace: &Workspace, toolchain: &Toolchain) {
        let name = "lint, kernel side";
        let mut clippy = match toolchain {
            Toolchain::Debian(unpacked) => unpacked.clippy(workspace),
            Toolchain::Rustup => {
                let nightly = ["run", "nightly", "cargo", "clippy"];
                if !command("rustup").args(nightly).arg("--version").works() {
                    println!("SKIPPED {name}: rustup's nightly has no clippy");
                    self.tally += Tally::SKIPPED;
                    return;
                }
                let mut clippy = command("rustup");
                clippy.args(nightly).arg("-Zbuild-std=core").env_remove("RUSTUP_TOOLCHAIN");
                clippy
            }
        };
        clippy
            .args(["--release", "--locked", "--target=bpfel-unknown-none", "--target-dir"])
            .arg(workspace.target_dir.join("bpf-lint"))
            .args(["--", "-Dwarnings"])
            .current_dir(workspace.root.join("tracer-ebpf"))
            .env("CARGO_ENCODED_RUSTFLAGS", "--cfg=bpf_target_arch=\"x86_64\"");
        self.one(name, &mut clippy);
    }

    /// Runs tests and reads their closing lines.
    fn cargo_test(&mut self, name: &str, command: &mut Command) {
        headline(name);
        match read_results(command) {
            Ok(tally) => self.add(name, tally),
            Err(err) => {
                println!("{err:#}");
                self.add(name, Tally::FAILED);
            }
        }
    }

    fn end_to_end(&mut self, workspace: &Workspace, in_ci: bool) -> Result<()> {
        let name = "end-to-end tests";
        if !is_root()? {
            println!(
                "\n**** NOT ROOT: the end-to-end tests will mostly be skipped. ****\n\
                 **** Run `sudo -E env PATH=$PATH cargo xtask test` to run them. ****"
            );
        }
        let mut build = workspace.cargo();
        build.args(["build", "--package", "outlive", "--locked"]);
        if let Err(err) = build.run() {
            println!("{err:#}");
            self.add(name, Tally::FAILED);
            return Ok(());
        }
        let mut tests = workspace.cargo();
        tests
            .args(["test", "--package", "outlive-tests", "--locked", "--no-fail-fast"])
            .env("OUTLIVE_BIN", workspace.target_dir.join("debug/outlive"));
        if in_ci {
            tests.env("OUTLIVE_TESTS_REQUIRE_ALL", "1");
        }
        self.cargo_test(name, &mut tests);
        Ok(())
    }

    /// What keeps a kernel from being fetched or booted is a failure; that this machine could not
    /// boot any is one where everything has to run.
    fn other_kernels(&mut self, workspace: &Workspace, in_ci: bool) -> Result<()> {
        let name = "other kernels";
        headline(name);
        if let Some(why) = kernels::missing()? {
            println!("{} {name}: {why}", if in_ci { "FAILED" } else { "SKIPPED" });
            self.add(name, if in_ci { Tally::FAILED } else { Tally::SKIPPED });
            return Ok(());
        }
        match kernels::boot(workspace, KERNELS) {
            Ok(kernels::Outcome { passed, failed }) => {
                self.add(name, Tally { passed, failed, skipped: 0 });
            }
            Err(err) => {
                println!("{err:#}");
                self.add(name, Tally::FAILED);
            }
        }
        Ok(())
    }
}

/// Kernels that the core of the end-to-end tests runs on each time: the oldest and the newest that
/// are supported. `cargo xtask kernels` has more.
const KERNELS: &[&str] = &["6.1", "7.2"];

/// Shows a test run's output and sums its `test result:` lines. A run that failed without a
/// failed test (it did not build, or died) is one failure.
fn read_results(command: &mut Command) -> Result<Tally> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", shown(command)))?;
    let mut tally = Tally::default();
    let stdout = child.stdout.take().context("stdout is a pipe")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(result) = result_line(&line) {
            tally += result;
        }
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        println!("{status}: {}", shown(command));
        tally += Tally::FAILED;
    }
    Ok(tally)
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
fn result_line(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        counts
            .split("; ")
            .find_map(|part| part.trim().strip_suffix(what)?.trim_end().parse::<u64>().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

fn headline(name: &str) {
    println!("\n== {name}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let line =
            "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out";
        assert_eq!(result_line(line), Some(Tally { passed: 12, failed: 1, skipped: 3 }));
        assert_eq!(result_line("test a ... ok"), None);
    }

    #[test]
    fn a_run_that_dies_is_a_failure() {
        let mut dies = command("sh");
        dies.args(["-c", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101"]);
        let tally = read_results(&mut dies).expect("it runs");
        assert_eq!(tally, Tally { passed: 2, failed: 1, skipped: 0 });
    }
}
