//! From words to an exit code. The only place that prints errors.

pub mod args;
mod doctor;
mod exit;
mod live;
mod messages;
mod plan;

use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use clap::Parser as _;

use self::args::{Cli, Color, Command, Format, MarkArgs, ReportArgs};
use crate::{
    chain::chain,
    control::{self, MarkReply, MarkRequest},
    exit::{PASS, USAGE},
    probes::guard,
    report::{
        GroupBy, Options, flamegraph, folded, folder, json, markdown, model::Verdict, terminal,
    },
    session::{self, Finished},
};

/// Does what the words say.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    messages::init(cli.verbose, cli.quiet);
    match dispatch(&cli, &words) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            messages::error(&chain(error.as_ref()));
            ExitCode::from(exit::code_of(&error))
        }
    }
}

/// Help and version are results; everything else that clap says is an error of usage.
fn usage(error: &clap::Error) -> ExitCode {
    // A reader that has gone away is no reason for another message.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { USAGE } else { PASS })
}

fn dispatch(cli: &Cli, words: &[OsString]) -> anyhow::Result<u8> {
    match &cli.command {
        Command::Attach(args) => {
            let (plan, rhythm) = plan::attach(args, cli, words);
            let options = options(cli, args.trace.top);
            let mut watcher = live::Live::new(options, cli.quiet);
            finished(&session::attach(&plan, args.pid, rhythm, &mut watcher)?, options)
        }
        Command::Run(args) => {
            let (plan, rhythm) = plan::run(args, cli, words);
            let options = options(cli, args.trace.top);
            // Standard output is the program's until it ends.
            let mut watcher = live::Live::silent();
            finished(&session::run(&plan, &args.command, rhythm, &mut watcher)?, options)
        }
        Command::Test(args) => {
            let plan = match plan::test(args, cli, words) {
                Ok(plan) => plan,
                Err(error) => return Ok(misused(&error)),
            };
            finished(&session::test(&plan)?, options(cli, args.trace.top))
        }
        Command::Mark(args) => mark(args),
        Command::Report(args) => report(args, cli),
        Command::Doctor(args) => doctor::run(args),
        Command::Guard { table } => guard::watch(*table).map(|()| PASS),
    }
}

/// A combination of words that only their meaning shows to be wrong.
fn misused(error: &anyhow::Error) -> u8 {
    messages::error(&chain(error.as_ref()));
    USAGE
}

fn finished(finished: &Finished, options: Options) -> anyhow::Result<u8> {
    let Finished { session, folder } = finished;
    print(terminal::render(session, folder, &options).as_bytes())?;
    if session.verdict == Verdict::Error
        && let Some(reason) = session.reasons.first()
    {
        messages::error(reason.strip_prefix("failed: ").unwrap_or(reason));
    }
    Ok(session.exit_code)
}

fn mark(args: &MarkArgs) -> anyhow::Result<u8> {
    let request =
        MarkRequest { label: args.label.clone(), units: args.units.iter().cloned().collect() };
    match control::send(args.pid, &request)? {
        MarkReply::Closed { index, heap_bytes, heap_blocks } => {
            let text = format!(
                "batch {index} ended: {heap_bytes} bytes in {heap_blocks} blocks outstanding\n"
            );
            print(text.as_bytes())?;
        }
        MarkReply::Refused { reason } => anyhow::bail!("{reason}"),
    }
    Ok(PASS)
}

fn report(args: &ReportArgs, cli: &Cli) -> anyhow::Result<u8> {
    let group_by = GroupBy::from(args.group_by);
    if group_by != GroupBy::Stack && !matches!(args.format, Format::Text | Format::Markdown) {
        let error = anyhow!("--group-by is for the formats text and markdown");
        return Ok(misused(&error));
    }
    let session = folder::read(&args.session)?;
    let options = Options { group_by, ..options(cli, args.top) };
    let bytes = match args.format {
        Format::Text => terminal::render(&session, &args.session, &options).into_bytes(),
        Format::Markdown => markdown::render(&session, &options).into_bytes(),
        Format::Json => json::render(&session).context("cannot write the session as JSON")?,
        Format::Svg => flamegraph::growth(&session).context("cannot draw the flamegraph")?,
        Format::Folded => folded::render(&session).into_bytes(),
    };
    match &args.output {
        Some(path) => {
            fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => print(&bytes)?,
    }
    Ok(PASS)
}

/// Results go to standard output.
fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write the result")
}

fn options(cli: &Cli, top: usize) -> Options {
    let color = match cli.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    Options { top, width: messages::width(), color, group_by: GroupBy::Stack }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}
