//! Boots other kernels in QEMU and runs the core of the end-to-end suite in each.
//!
//! The suite runs on this machine first, from a folder of its own: that compiles the programs
//! that it needs, and says whether a failure is the kernel's. Then everything is packed into one
//! archive that the machines boot from, each with `tests/kernels/init.sh` as its first process,
//! whose lines on the console are the verdicts.

mod archive;
mod debian;
mod machine;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::cmd::{CommandExt as _, Workspace, command, is_root};
use crate::setup;

/// A kernel as Debian distributes it.
struct Kernel {
    /// As a person names it.
    version: &'static str,
    /// Debian's suite that has it.
    suite: &'static str,
    expected: Expected,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The core of the suite passes.
    Works,
    /// The tool says what is missing.
    Refused,
}

const KERNELS: &[Kernel] = &[
    Kernel { version: "5.10", suite: "bullseye", expected: Expected::Refused },
    Kernel { version: "6.1", suite: "bookworm", expected: Expected::Works },
    Kernel { version: "6.12", suite: "trixie", expected: Expected::Works },
    Kernel { version: "7.2", suite: "sid", expected: Expected::Works },
];

/// For one test. Without acceleration everything takes about twenty times longer.
const TEST_LIMIT: Duration = Duration::from_secs(150);
/// For booting and switching off.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// Outcomes of all kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Runs the kernels of these versions, all of them when none is named.
pub(crate) fn run(workspace: &Workspace, versions: &[String]) -> Result<ExitCode> {
    setup::run(workspace)?;
    setup::packages::install()?;
    workspace.cargo().args(["build", "--package", "outlive", "--locked"]).run()?;
    let versions: Vec<_> = versions.iter().map(String::as_str).collect();
    let Outcome { passed, failed } = boot(workspace, &versions)?;
    println!("\n{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why no kernel can be booted here, if so.
pub(crate) fn missing() -> Result<Option<String>> {
    if !is_root()? {
        return Ok(Some("not root".to_owned()));
    }
    if !command("apt-get").arg("--version").works() {
        return Ok(Some("kernels come from Debian, and this system has no apt-get".to_owned()));
    }
    if !machine::is_there() {
        return Ok(Some("there is no emulator; `cargo xtask setup --test` installs it".to_owned()));
    }
    Ok(None)
}

/// The same with the tool built already; reports as it goes and leaves the closing line to the
/// caller.
pub(crate) fn boot(workspace: &Workspace, versions: &[&str]) -> Result<Outcome> {
    let kernels = select(versions)?;
    if let Some(why) = missing()? {
        bail!("cannot boot kernels: {why}");
    }
    let dir = workspace.target_dir.join("kernels");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;

    let mut outcome = Outcome::default();
    let mut failures = Vec::new();
    let core = core(workspace)?;
    let suite = Suite::prepare(workspace, &dir)?;
    if kernels.iter().any(|kernel| kernel.expected == Expected::Works) {
        println!("\n== core of the suite, this machine's kernel");
        for name in &core {
            let passed = suite.passes(name);
            println!("{} {name}", if passed { "passed" } else { "FAILED" });
            count(&mut outcome, &mut failures, "this machine", name, passed);
        }
    }
    let common = suite.pack(workspace)?;
    // Each machine keeps one processor busy.
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    for kernels in kernels.chunks(at_once) {
        let names: Vec<_> = kernels.iter().map(|kernel| kernel.version).collect();
        println!("\n== kernel {}", names.join(", kernel "));
        for (kernel, verdicts) in together(kernels, &dir, &suite, &common, &core) {
            let verdicts = verdicts.unwrap_or_else(|err| {
                println!("{}: {err:#}", kernel.version);
                vec![("boots and runs to the end".to_owned(), false)]
            });
            for (name, passed) in verdicts {
                count(&mut outcome, &mut failures, kernel.version, &name, passed);
            }
        }
    }
    println!();
    for failure in failures {
        println!("FAILED: {failure}");
    }
    Ok(outcome)
}

fn count(
    outcome: &mut Outcome,
    failures: &mut Vec<String>,
    kernel: &str,
    name: &str,
    passed: bool,
) {
    if passed {
        outcome.passed += 1;
    } else {
        outcome.failed += 1;
        failures.push(format!("kernel {kernel}: {name}"));
    }
}

fn select(versions: &[&str]) -> Result<Vec<&'static Kernel>> {
    let known: Vec<_> = KERNELS.iter().map(|kernel| kernel.version).collect();
    for version in versions {
        ensure!(
            known.contains(version),
            "no kernel {version} in the table; there are {}",
            known.join(", ")
        );
    }
    let wanted = |kernel: &&Kernel| versions.is_empty() || versions.contains(&kernel.version);
    Ok(KERNELS.iter().filter(wanted).collect())
}

/// Names of the tests that run everywhere.
fn core(workspace: &Workspace) -> Result<Vec<String>> {
    let path = workspace.root.join("tests/kernels/core.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let names = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

/// Tests, and whether they passed.
type Verdicts = Vec<(String, bool)>;

/// Boots these kernels at the same time. Their images are fetched one after the other.
fn together<'a>(
    kernels: &[&'a Kernel],
    dir: &Path,
    suite: &Suite,
    common: &archive::Archive,
    core: &[String],
) -> Vec<(&'a Kernel, Result<Verdicts>)> {
    let images: Vec<_> = kernels
        .iter()
        .map(|kernel| debian::image(&dir.join(kernel.suite), kernel.suite, kernel.version))
        .collect();
    thread::scope(|scope| {
        let machines: Vec<_> = kernels
            .iter()
            .zip(images)
            .map(|(kernel, image)| {
                (*kernel, scope.spawn(|| one(kernel, &image?, dir, suite, common, core)))
            })
            .collect();
        let died = |_| Err(anyhow!("the thread that watched the machine died"));
        let ends =
            machines.into_iter().map(|(kernel, end)| (kernel, end.join().unwrap_or_else(died)));
        ends.collect()
    })
}

/// Boots one kernel. Answers a verdict for each test; one that was not reached has failed.
fn one(
    kernel: &Kernel,
    image: &Path,
    dir: &Path,
    suite: &Suite,
    common: &archive::Archive,
    core: &[String],
) -> Result<Verdicts> {
    let tests = if kernel.expected == Expected::Works { core } else { &[] };
    let what = format!(
        "SUITE='{}'\nLIMIT={}\nTESTS='{}'\nexport OUTLIVE_BIN=/usr/bin/outlive OUTLIVE_TESTS_REQUIRE_ALL=1\n",
        suite.binary.display(),
        TEST_LIMIT.as_secs(),
        tests.join(" "),
    );
    let mut archive = common.clone();
    archive.file("/what", what.as_bytes(), 0o644);
    let initrd = dir.join(kernel.suite).join("initrd");
    fs::write(&initrd, archive.finish()).with_context(|| initrd.display().to_string())?;

    let tests_count = u32::try_from(tests.len().max(1)).unwrap_or(u32::MAX);
    let limit = BOOT_LIMIT + TEST_LIMIT / 4 * tests_count;
    let end = machine::boot(kernel.version, image, &initrd, limit)?;
    let mut verdicts = end.verdicts;
    if let Some(why) = end.cut_short {
        println!("{}: {why}", kernel.version);
        verdicts.push((format!("runs to the end: {why}"), false));
    }
    for name in tests {
        if !verdicts.iter().any(|(seen, _)| seen == name) {
            verdicts.push((format!("{name} (not reached)"), false));
        }
    }
    Ok(verdicts)
}

/// The end-to-end suite and the tool, where the machines find them too.
struct Suite {
    /// The folder that the suite takes for cargo's: its programs are compiled into it.
    dir: PathBuf,
    binary: PathBuf,
    tool: PathBuf,
}

impl Suite {
    fn prepare(workspace: &Workspace, dir: &Path) -> Result<Self> {
        let built = workspace
            .cargo()
            .args(["test", "--package", "outlive-tests", "--test", "e2e", "--locked", "--no-run"])
            .arg("--message-format=json")
            .text()?;
        let executable = built
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find_map(|message| Some(message["executable"].as_str()?.to_owned()))
            .context("cargo names no test binary")?;
        let dir = dir.join("suite");
        // Programs of older sources would only make the archive larger.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        let binary = dir.join("debug/deps/e2e");
        fs::create_dir_all(dir.join("debug/deps")).with_context(|| dir.display().to_string())?;
        let tool = dir.join("debug/outlive");
        let stripped =
            |from: &Path, to: &Path| command("strip").arg("-g").arg("-o").arg(to).arg(from).run();
        stripped(Path::new(&executable), &binary)?;
        stripped(&workspace.target_dir.join("debug/outlive"), &tool)?;
        Ok(Self { dir, binary, tool })
    }

    /// Runs one test here.
    fn passes(&self, name: &str) -> bool {
        let output = command(&self.binary)
            .args(["--exact", name])
            .env("OUTLIVE_BIN", &self.tool)
            .env("OUTLIVE_TESTS_REQUIRE_ALL", "1")
            .output();
        match output {
            // A name that no test has passes without running anything.
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("1 passed") => true,
            Ok(output) => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
                print!("{}", String::from_utf8_lossy(&output.stderr));
                false
            }
            Err(err) => {
                println!("{}: {err}", self.binary.display());
                false
            }
        }
    }

    /// Everything that a machine needs but its list of tests.
    fn pack(&self, workspace: &Workspace) -> Result<archive::Archive> {
        let mut archive = archive::Archive::default();
        let tests = workspace.root.join("tests");
        archive.copy_as(&tests.join("kernels/init.sh"), Path::new("/init"))?;
        for program in PROGRAMS {
            let from = debian::on_path(program)?;
            for folder in ["/usr/bin", "/bin"] {
                archive.program(&from, &Path::new(folder).join(program))?;
            }
        }
        // The suite's programs are compiled already; it asks only whether it could.
        for compiler in ["cc", "c++"] {
            archive.file(&format!("/usr/bin/{compiler}"), b"#!/bin/sh\n", 0o755);
        }
        archive.program(&self.tool, Path::new("/usr/bin/outlive"))?;
        archive.program(&self.binary, &self.binary)?;
        for folder in ["c", "cpp"] {
            archive.tree(&tests.join("workloads").join(folder))?;
        }
        let programs = self.dir.join("workloads");
        if programs.is_dir() {
            archive.tree(&programs)?;
        }
        Ok(archive)
    }
}

/// What the first process and the suite call.
const PROGRAMS: &[&str] =
    &["sh", "mount", "cat", "wc", "grep", "sleep", "timeout", "true", "install", "rm"];
