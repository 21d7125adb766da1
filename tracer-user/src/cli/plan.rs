//! Arguments → what the session is to do. Conflicts that clap cannot see are found here.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
};

use anyhow::{Context as _, anyhow};

use super::args::{AttachArgs, Cli, OnOverflow, RunArgs, TestArgs, TraceArgs};
use crate::{
    growth::Budget,
    session::{Plan, Ready, Rhythm, Subject, TestPlan, TraceOptions},
};

pub(super) fn attach(args: &AttachArgs, cli: &Cli, words: &[OsString]) -> (Plan, Rhythm) {
    let interval = (!args.by_mark).then_some(args.interval);
    let rhythm = Rhythm { interval, duration: args.duration };
    (plan(&args.trace, args.warmup, args.follow, cli, words), rhythm)
}

pub(super) fn run(args: &RunArgs, cli: &Cli, words: &[OsString]) -> (Plan, Rhythm) {
    let rhythm = Rhythm { interval: args.interval, duration: None };
    (plan(&args.trace, args.warmup, !args.no_follow, cli, words), rhythm)
}

pub(super) fn test(args: &TestArgs, cli: &Cli, words: &[OsString]) -> anyhow::Result<TestPlan> {
    let command = args.command.clone();
    let subject = match (args.pid, &args.service) {
        (Some(pid), _) => Subject::Process { pid, batch: command },
        (None, Some(text)) => {
            Subject::Service { service: service(text)?, ready: ready(args)?, batch: command }
        }
        (None, None) => Subject::Lines { program: command },
    };
    Ok(TestPlan {
        plan: plan(&args.trace, args.warmup, !args.no_follow, cli, words),
        subject,
        batches: args.batches,
        timeout: args.timeout,
    })
}

fn service(text: &str) -> anyhow::Result<Vec<OsString>> {
    let words = shell_words::split(text).with_context(|| format!("--service {text:?}"))?;
    if words.is_empty() {
        return Err(anyhow!("--service is empty; give a program and its arguments"));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

fn ready(args: &TestArgs) -> anyhow::Result<Ready> {
    Ok(match (&args.ready_line, &args.ready_tcp) {
        (Some(pattern), _) => {
            let pattern = regex::Regex::new(pattern)
                .map_err(|_| anyhow!("--ready-line {pattern:?} is no regular expression"))?;
            Ready::Line(pattern)
        }
        (None, Some(address)) => {
            if address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(anyhow!("--ready-tcp {address:?}: give HOST:PORT"));
            }
            Ready::Tcp(address.clone())
        }
        (None, None) => Ready::Started,
    })
}

fn plan(trace: &TraceArgs, warmup: u32, follow: bool, cli: &Cli, words: &[OsString]) -> Plan {
    Plan {
        command: words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        output: trace.output.clone(),
        budget: trace.budget.map(|heap_bytes_per_batch| Budget { heap_bytes_per_batch }),
        options: TraceOptions {
            ring_bytes: trace.ring_size,
            min_size: trace.min_size,
            warmup,
            custom: trace.probes.clone(),
            follow,
            hold: follow && !trace.no_hold,
            pause: trace.on_overflow == OnOverflow::Pause,
            libraries: trace.libraries.clone(),
        },
        progress: !cli.quiet && io::stderr().is_terminal(),
    }
}
