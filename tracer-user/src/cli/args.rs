//! What can be typed. Doc comments are the help text.

use std::{ffi::OsString, path::PathBuf, str::FromStr as _, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{probes::guard, report::GroupBy, target::allocators::Custom, units};

/// Finds native allocations that outlive the batch that made them.
///
/// outlive attaches to a running process, keeps every outstanding allocation with the stack
/// that made it, compares equivalent batches of work, and says with evidence whether memory
/// grows and which stack grows.
///
/// Exit codes: 0 pass; 1 growth over budget; 2 usage error; 3 inconclusive; 4 this machine,
/// this user or this target cannot be traced; 5 the target or the batch command failed or
/// timed out.
#[derive(Debug, Parser)]
#[command(name = "outlive", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Say more on stderr; twice for what the tracer itself does.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Say nothing on stderr but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Colour of the terminal's output.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a running process: each interval is a batch.
    Attach(AttachArgs),
    /// Run equivalent batches of work and judge what outlives them.
    Test(TestArgs),
    /// Start a program and trace it from its first instruction.
    Run(RunArgs),
    /// End a batch of a running attach or run.
    Mark(MarkArgs),
    /// Show a session folder in another form.
    Report(ReportArgs),
    /// Can this machine trace, can this process be traced?
    Doctor(DoctorArgs),
    /// Watches over the targets of another outlive, which starts it.
    #[command(name = guard::WORD, hide = true)]
    Guard {
        /// Descriptor of the kernel's table.
        table: i32,
    },
}

/// What happens when events come faster than they can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOverflow {
    /// Some are lost, and counted.
    Lose,
    /// The target is stopped, for two seconds at a time at the most.
    Pause,
}

/// What every tracing command takes.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Folder for the session; made when it does not exist [default: outlive-DATE-TIME].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Growth that is allowed, in bytes per batch, such as 64KiB.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub budget: Option<u64>,
    /// Smallest block that is counted.
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = units::parse_bytes, default_value = "0")]
    pub min_size: u64,
    /// Stacks to show.
    #[arg(short = 'T', long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// What to trace beside the known allocators: cuda, sqlite, openssl, or a description such
    /// as name=pool,alloc=pool_get(size=0),free=pool_put(ptr=0).
    ///
    /// The numbers are places of arguments, from zero. alloc takes size (size32 for an int),
    /// count, and out where the block is stored through a pointer; realloc takes ptr, size and
    /// count; free takes ptr. Each may be given several times. object=PATTERN is the file that
    /// has them. May be repeated.
    #[arg(long = "probe", value_name = "WHAT", value_parser = Custom::from_str)]
    pub probes: Vec<Custom>,
    /// Do not stop processes until their probes are in place. What they do before is then not
    /// seen, which makes a verdict inconclusive.
    ///
    /// Needed where a parent watches whether its children are stopped, as a shell with job control
    /// does: it would take them for suspended.
    #[arg(long)]
    pub no_hold: bool,
    /// What happens when events come faster than they can be read: lose some, which is counted and
    /// makes a verdict inconclusive, or stop the target until they are read.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOverflow::Lose)]
    pub on_overflow: OnOverflow,
    /// A library with an allocator that the target will load later, by its path as the target
    /// sees it: probed before its first call. May be repeated.
    #[arg(long = "library", value_name = "FILE")]
    pub libraries: Vec<PathBuf>,
    /// Memory for events that wait to be read; a power of two.
    #[arg(long, value_name = "SIZE", value_parser = ring_size, default_value = "64MiB")]
    pub ring_size: u32,
}

/// `outlive attach`
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Process to watch.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Length of a batch.
    #[arg(short, long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    pub interval: Duration,
    /// Batches end by `outlive mark` alone, not by time.
    #[arg(long, conflicts_with = "interval")]
    pub by_mark: bool,
    /// Stop after this long instead of at Ctrl-C.
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    pub duration: Option<Duration>,
    /// Trace the processes that it makes too, and those that it has made.
    #[arg(long)]
    pub follow: bool,
    /// First batches, which are not compared.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,
    /// What every tracing command takes.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `outlive test`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "service", "lines"]))]
pub struct TestArgs {
    /// Process to test; the command is one batch.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Service to start and to test; the command is one batch. Words as a shell splits them.
    #[arg(long, value_name = "CMD")]
    pub service: Option<String>,
    /// The command is the target: it prints READY, runs one batch for each line that it reads,
    /// and prints DONE after each.
    #[arg(long)]
    pub lines: bool,
    /// The service is ready when it prints a line that matches.
    #[arg(long, value_name = "REGEX", requires = "service", conflicts_with = "ready_tcp")]
    pub ready_line: Option<String>,
    /// The service is ready when it accepts a connection.
    #[arg(long, value_name = "ADDR", requires = "service")]
    pub ready_tcp: Option<String>,
    /// First batches, which are not compared.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub warmup: u32,
    /// Batches that are compared.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub batches: u32,
    /// Leave out the processes that the target makes.
    #[arg(long)]
    pub no_follow: bool,
    /// Longest that one batch, and getting ready, may take.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "60s")]
    pub timeout: Duration,
    /// What every tracing command takes.
    #[command(flatten)]
    pub trace: TraceArgs,
    /// The batch command; with --lines the target.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `outlive run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Length of a batch; without it, batches end by `outlive mark` and at the program's end.
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Leave out the processes that the program makes.
    #[arg(long)]
    pub no_follow: bool,
    /// First batches, which are not compared.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warmup: u32,
    /// What every tracing command takes.
    #[command(flatten)]
    pub trace: TraceArgs,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `outlive mark`
#[derive(Debug, Args)]
pub struct MarkArgs {
    /// Process that is being traced.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Name of the batch that ends.
    pub label: String,
    /// Work that was done in it, such as sessions=12; may be repeated.
    #[arg(long = "unit", value_name = "NAME=NUMBER", value_parser = unit)]
    pub units: Vec<(String, f64)>,
}

/// `outlive report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folder of the session.
    pub session: PathBuf,
    /// Form to show it in.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// What a row of the table of stacks stands for, in text and markdown.
    #[arg(long, value_enum, default_value_t = Grouping::Stack)]
    pub group_by: Grouping,
    /// File to write instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Rows to show.
    #[arg(short = 'T', long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

/// What a row of a report's table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Grouping {
    /// Stacks with the same calls; recursion of any depth is one.
    Stack,
    /// The function that names the stack: the first outside of allocators and containers.
    Function,
    /// The file of that function.
    Object,
}

impl From<Grouping> for GroupBy {
    fn from(grouping: Grouping) -> Self {
        match grouping {
            Grouping::Stack => Self::Stack,
            Grouping::Function => Self::Function,
            Grouping::Object => Self::Object,
        }
    }
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for the terminal.
    Text,
    /// A summary for a pull request.
    Markdown,
    /// Everything, for programs.
    Json,
    /// Growth as a flamegraph.
    Svg,
    /// Growth as folded stacks.
    Folded,
}

/// `outlive doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Process to look at as well.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
}

/// Smallest ring that is worth having.
const RING_MIN: u64 = 64 << 10;
/// Largest ring that the kernel takes.
const RING_MAX: u64 = 1 << 30;

fn ring_size(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text).map_err(|error| error.to_string())?;
    match u32::try_from(bytes) {
        Ok(size) if size.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&bytes) => Ok(size),
        _ => Err("give a power of two from 64KiB to 1GiB".to_owned()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("give a time above zero".to_owned()) } else { Ok(time) }
}

fn unit(text: &str) -> Result<(String, f64), String> {
    let (name, number) =
        text.split_once('=').ok_or_else(|| "give NAME=NUMBER, such as sessions=12".to_owned())?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    if name.is_empty() || !number.is_finite() || number < 0.0 {
        return Err("give a name and a number that is not negative".to_owned());
    }
    Ok((name.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn units_are_names_with_numbers() {
        assert_eq!(unit("sessions=12"), Ok(("sessions".to_owned(), 12.0)));
        for bad in ["sessions", "=1", "a=b", "a=NaN", "a=-1", "a=inf"] {
            assert!(unit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ring_is_a_power_of_two() {
        assert_eq!(ring_size("64KiB"), Ok(64 << 10));
        for bad in ["1KiB", "96KiB", "2GiB", "8GiB", "x"] {
            assert!(ring_size(bad).is_err(), "{bad}");
        }
    }
}
