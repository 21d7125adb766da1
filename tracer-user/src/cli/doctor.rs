//! `outlive doctor`: can this machine trace, can this process be traced, and at what cost?
//! Asks the same questions in the same way as a measurement does.

use std::{
    fmt::{Display, Write as _},
    io::{self, IsTerminal as _},
    time::Duration,
};

use super::{args::DoctorArgs, exit, messages, print};
use crate::{
    chain::chain,
    exit::PASS,
    probes::{LoadPlan, Probes, rights},
    report::{
        escape,
        model::{Share, StackQuality},
        wrap::wrap,
    },
    session::{TraceOptions, Trial, trial},
    symbols::demangle::demangle,
    target::{
        allocators::{AllocatorObject, Allocators},
        process::{Process, kernel_release},
        sites::Cost,
    },
    units::plural,
    unwind::Survey,
};

/// A process id that no process has: programs that are only loaded watch nobody.
const NOBODY: u32 = 0;

/// What a row of an unwind table takes in the kernel.
const ROW_BYTES: usize = size_of::<tracer_common::unwind::Row>();

/// How long a process is traced to see its stacks.
const TRIAL: Duration = Duration::from_secs(1);
/// How it is traced then: alone.
const TRIAL_OPTIONS: TraceOptions = TraceOptions {
    ring_bytes: 16 << 20,
    min_size: 0,
    warmup: 0,
    custom: Vec::new(),
    follow: false,
    hold: false,
    pause: false,
    libraries: Vec::new(),
};

/// Columns before what was found.
const INDENT: usize = 18;

struct Report {
    text: String,
    code: u8,
    /// Columns of a line. As many as there are for who is no person.
    width: usize,
}

impl Report {
    fn good(&mut self, what: &str, found: impl Display) {
        self.line("ok  ", what, &found.to_string());
    }

    fn note(&mut self, what: &str, found: impl Display) {
        self.line("note", what, &found.to_string());
    }

    fn bad(&mut self, what: &str, error: &anyhow::Error) {
        if self.code == PASS {
            self.code = exit::code_of(error);
        }
        self.line("FAIL", what, &chain(error.as_ref()));
    }

    fn line(&mut self, mark: &str, what: &str, found: &str) {
        let found = escape::terminal(found);
        let lines = wrap(&found, self.width, INDENT, INDENT).join(&format!("\n{:INDENT$}", ""));
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "{mark}  {what:<11} {lines}");
    }
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let width = if io::stdout().is_terminal() { messages::width() } else { usize::MAX };
    let mut report = Report { text: String::new(), code: PASS, width };
    machine(&mut report);
    if let Some(pid) = args.pid
        && let Err(error) = target(&mut report, pid)
    {
        report.bad("target", &error);
    }
    print(report.text.as_bytes())?;
    Ok(report.code)
}

fn machine(report: &mut Report) {
    match kernel_release() {
        Ok(release) => report.good("kernel", release.display()),
        Err(error) => report.note("kernel", error),
    }
    if let Err(error) = rights::check() {
        return report.bad("rights", &error.into());
    }
    report.good("rights", "everything that tracing needs");
    let plan = LoadPlan {
        pid: NOBODY,
        ring_bytes: 1 << 16,
        max_threads: 1,
        min_size: 0,
        follow: false,
        hold: false,
        pause: false,
    };
    match Probes::load(&plan) {
        Ok(probes) if probes.has_multi_links() => {
            report.good("programs", "loaded; one link sets all probes of an object");
        }
        Ok(_) => {
            report.good("programs", "loaded");
            report.note(
                "links",
                "this kernel has no uprobe-multi links (6.6), so detaching takes about a tenth \
                 of a second for each probe",
            );
        }
        Err(error) => report.bad("programs", &error.into()),
    }
}

fn target(report: &mut Report, pid: u32) -> anyhow::Result<()> {
    let process = Process::open(pid)?;
    let status = process.status()?;
    report.good(
        "target",
        format!(
            "{} (process {}, {} {})",
            process.exe.display(),
            process.pid,
            status.n_threads,
            plural(status.n_threads.into(), "thread", "threads")
        ),
    );
    if status.is_stopped() {
        report.note("state", "the target is stopped; nothing is measured until it goes on");
    }
    let mut allocators = Allocators::default();
    for index in allocators.find(&process)? {
        describe(report, &allocators.objects()[index]);
    }
    for object in allocators.unreadable() {
        report.note("unreadable", format!("{}: {}", object.path, object.reason));
    }
    tables(report, &process);
    if report.code == PASS && !status.is_stopped() {
        stacks(report, &trial(pid, TRIAL, &TRIAL_OPTIONS)?);
    }
    Ok(())
}

fn tables(report: &mut Report, process: &Process) {
    let Survey { n_objects, n_rows, bare } = Survey::of(process);
    report.good(
        "tables",
        format!(
            "{} of {n_objects} objects have unwind tables: {n_rows} rows of {ROW_BYTES} bytes",
            n_objects - bare.len(),
        ),
    );
    for (name, share) in bare {
        report.note(
            "tables",
            format!(
                "{name} has unwind tables for {:.0} % of its code; in the rest stacks are whole \
                 only where frame pointers are kept",
                share * 100.0
            ),
        );
    }
}

/// How far the stacks of a short look were walked, and what is at fault where they break.
fn stacks(report: &mut Report, trial: &Trial) {
    let n_stacks = trial.quality.n_stacks();
    let StackQuality { whole, depth_limit, broken, broken_in } = &trial.quality;
    let length = TRIAL.as_secs();
    if n_stacks == 0 {
        return report.note("stacks", format!("nothing was allocated within {length} s"));
    }
    // Not rounded up to a hundred.
    let percent = |share: &Share| (share.stacks * 1000 / n_stacks) as f64 / 10.0;
    report.good(
        "stacks",
        format!(
            "{n_stacks} within {length} s: {} whole ({:.1} %), {} at the depth limit, {} broken",
            whole.stacks,
            percent(whole),
            depth_limit.stacks,
            broken.stacks
        ),
    );
    for place in broken_in {
        report.note("stacks", format!("{} break in {}", place.share.stacks, place.words()));
    }
    if trial.has_losses {
        report.note("stacks", "events were lost, so there may be other stacks");
    }
}

fn describe(report: &mut Report, object: &AllocatorObject) {
    let names = object.functions.iter().map(|function| called(&function.names));
    report.good(
        "allocator",
        format!("{}: {}", object.path.display(), names.collect::<Vec<_>>().join(" ")),
    );
    let slow = object.functions.iter().filter(|function| function.site.cost == Cost::SingleStepped);
    let slow: Vec<_> = slow
        .map(|function| format!("{} ({})", called(&function.names), function.site.instruction))
        .collect();
    if !slow.is_empty() {
        report.note(
            "slow probes",
            format!(
                "the kernel single-steps {}: up to twenty times the cost of the others",
                slow.join(", ")
            ),
        );
    }
    for function in &object.untraceable {
        report.note("untraceable", format!("{}: {}", called(&function.names), function.reason));
    }
}

/// A function by all its names.
fn called(names: &[String]) -> String {
    names.iter().map(|name| demangle(name)).collect::<Vec<_>>().join("=")
}
