//! The usual test: `outlive test --lines` on a workload, compared with its own account.

use std::collections::BTreeMap;

use crate::process::Owned;
use crate::session::{Session, Stack};
use crate::tool::{Run, Tool};
use crate::truth::{Amount, Truth};
use crate::workload::{Program, Workload, share};

/// Batches before the measurement starts.
pub const WARMUP: usize = 2;
/// Measured batches.
pub const MEASURED: usize = 4;

/// A measured program.
#[derive(Debug)]
pub struct Measured {
    /// The tool's call.
    pub run: Run,
    /// What it wrote.
    pub session: Session,
    /// What the program says of itself, over the measured batches.
    pub truth: BTreeMap<String, Amount>,
}

/// Lets the tool start the program and drive its batches.
#[track_caller]
pub fn measure(program: &Program) -> Measured {
    measure_with(&[], program)
}

/// Attaches the tool to a program that runs already; a command drives its batches.
#[track_caller]
pub fn measure_running(workload: &Workload) -> Measured {
    measure_as(workload, workload.pid())
}

/// As [`measure_running`], with further options of the tool.
#[track_caller]
pub fn measure_running_by(options: &[&str], workload: &Workload) -> Measured {
    let tool = Tool::new(words(workload.pid())).args(options.iter().copied());
    seen(workload, finish(tool, workload).run())
}

/// As [`measure_running`], with the number that the tool is told as the target's.
#[track_caller]
pub fn measure_as(workload: &Workload, pid: i32) -> Measured {
    seen(workload, run_on(workload, pid))
}

/// As [`measure_running`], with the tool behind other words, such as those of `nsenter`, and the
/// target's number as the tool sees it there.
#[track_caller]
pub fn measure_under(before: &[&str], workload: &Workload, pid: i32) -> Measured {
    seen(workload, call_under(before, workload, pid).run())
}

/// As [`measure_running`], doing something to the tool meanwhile.
#[track_caller]
pub fn measure_running_with(workload: &Workload, meanwhile: impl FnOnce(&Owned)) -> Measured {
    let running = call(workload, workload.pid()).start();
    meanwhile(&running.process);
    seen(workload, running.wait())
}

/// As [`measure`], with further options of the tool.
#[track_caller]
pub fn measure_with(options: &[&str], program: &Program) -> Measured {
    let mut tool =
        Tool::new(["test", "--lines"]).args(counts()).args(options.iter().copied()).with_folder();
    for (name, value) in &program.env {
        tool = tool.env(name, value);
    }
    let truth = tool.scratch().join("truth");
    // The program may come to run as another user.
    std::fs::write(&truth, "").unwrap_or_else(|err| panic!("{}: {err}", truth.display()));
    share(&truth);
    let tool = tool.env("BATCH_TRUTH", &truth).args(["--"]);
    let run = tool.args([&program.path]).args(&program.args).run();
    let session = run.session();
    let truth = Truth::read(&truth).growth(WARMUP, WARMUP + MEASURED);
    Measured { run, session, truth }
}

/// The tool's call of [`measure_as`] alone, which may fail.
#[track_caller]
pub fn run_on(workload: &Workload, pid: i32) -> Run {
    call(workload, pid).run()
}

/// As [`measure_running`], by the user "nobody" with the capabilities that the tool's file holds.
#[track_caller]
pub fn measure_as_user(workload: &Workload) -> Measured {
    seen(workload, finish(Tool::as_user(words(workload.pid())), workload).run())
}

fn call(workload: &Workload, pid: i32) -> Tool {
    call_under(&[], workload, pid)
}

fn call_under(before: &[&str], workload: &Workload, pid: i32) -> Tool {
    finish(Tool::under(before, words(pid)), workload)
}

fn words(pid: i32) -> [String; 3] {
    ["test".to_owned(), "-p".to_owned(), pid.to_string()]
}

fn finish(tool: Tool, workload: &Workload) -> Tool {
    tool.args(counts()).with_folder().args(["--"]).args([workload.batch_command()])
}

#[track_caller]
fn seen(workload: &Workload, run: Run) -> Measured {
    let session = run.session();
    let truth = workload.truth();
    // The test may have run batches of its own before.
    let end = truth.n_batches();
    assert!(end >= WARMUP + MEASURED, "the batch command ran {end} batches: {}", run.story());
    let truth = truth.growth(end - MEASURED, end);
    Measured { run, session, truth }
}

fn counts() -> [String; 4] {
    let (warmup, measured) = (WARMUP.to_string(), MEASURED.to_string());
    ["--warmup".to_owned(), warmup, "--batches".to_owned(), measured]
}

impl Measured {
    /// Fails the test unless the tool reports to the byte and block what the program left, in
    /// total and by function, and judges accordingly.
    #[track_caller]
    pub fn expect_exact(&self) -> &Self {
        let total: Amount = self.truth.values().copied().sum();
        assert_eq!(self.session.total(), total, "total; {}", self.story());
        let in_stacks: Amount = self.session.stacks.iter().map(Stack::amount).sum();
        assert_eq!(in_stacks, total, "in all stacks; {}", self.story());
        self.expect_exact_sites();
        let (verdict, code) = if total.bytes > 0 { ("growth", 1) } else { ("pass", 0) };
        assert_eq!(self.session.verdict, verdict, "{}", self.story());
        assert_eq!(self.session.exit_code, code, "{}", self.story());
        self.run.expect_code(code);
        self
    }

    /// The same by function alone, for programs whose runtime allocates for itself.
    #[track_caller]
    pub fn expect_exact_sites(&self) -> &Self {
        for (function, left) in &self.truth {
            let seen = self.session.growth_in(function);
            assert_eq!(seen, *left, "growth in {function}; {}", self.story());
        }
        assert_eq!(self.session.lost(), 0, "losses {:?}", self.session.losses);
        self
    }

    /// Fails the test unless the figures are exact or the tool says that it lost something and
    /// judges nothing.
    #[track_caller]
    pub fn expect_exact_or_lost(&self) -> &Self {
        if self.session.lost() == 0 {
            return self.expect_exact();
        }
        assert_eq!(self.session.verdict, "inconclusive", "{}", self.story());
        self.run.expect_code(3);
        self
    }

    /// Everything that is known, for the message of a failed test.
    pub fn story(&self) -> String {
        let Self { run, session, truth } = self;
        let (losses, stacks) = (&session.losses, session.listing());
        format!("truth {truth:?}\nlosses {losses:?}\nstacks\n{stacks}{}", run.story())
    }
}
