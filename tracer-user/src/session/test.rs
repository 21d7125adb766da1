//! `outlive test`: equivalent batches, one after the other, each ended by an exact mark.

use std::{collections::BTreeMap, future::Future, process::ExitStatus, time::Duration};

use anyhow::Context as _;
use tokio::runtime::Runtime;

use super::{
    DriveError, Finished, Ready, Subject, TestPlan, TraceOptions, Tracer,
    drive::Drive,
    ending::{ExitWatch, Interrupts},
    finish::{Ending, Folder},
    progress::Progress,
    service::Output,
    start::{self, Child},
};
use crate::{target::process::Process, units};

/// Runs a test to its verdict.
///
/// # Errors
/// What keeps it from being measured at all. What goes wrong once batches run is a verdict of
/// its own, with what was measured so far.
pub fn test(plan: &TestPlan) -> anyhow::Result<Finished> {
    crate::probes::rights::check()?;
    // Outlives the child: its output is read by tasks of this runtime.
    let (runtime, interrupts) = start::runtime()?;
    let waiting = Waiting { runtime: &runtime, interrupts };
    let options = &plan.plan.options;
    match &plan.subject {
        Subject::Process { pid, batch } => {
            let process = Process::open(*pid)?;
            let folder = Folder::prepare(&plan.plan)?;
            let mut tracer = Tracer::load(process, options)?;
            tracer.attach()?;
            let drive = |pid| Ok(Drive::Command { words: batch.clone(), pid });
            measure(plan, tracer, &folder, waiting, None, None, drive)
        }
        Subject::Service { service, ready, batch } => {
            let (tracer, child, folder) = begin(plan, service, options, start::Streams::Output)?;
            let drive = |pid| Ok(Drive::Command { words: batch.clone(), pid });
            measure(plan, tracer, &folder, waiting, Some(child), Some(ready), drive)
        }
        Subject::Lines { program } => {
            let (tracer, mut child, folder) =
                begin(plan, program, options, start::Streams::Conversation)?;
            let pipes = child.take_conversation();
            let drive = |_| {
                let (stdin, stdout) = pipes.context("the target has no pipes")?;
                start::lines(stdin, stdout)
            };
            measure(plan, tracer, &folder, waiting, Some(child), None, drive)
        }
    }
}

fn begin(
    plan: &TestPlan,
    words: &[std::ffi::OsString],
    options: &TraceOptions,
    streams: start::Streams,
) -> anyhow::Result<(Tracer, Child, Folder)> {
    let folder = Folder::prepare(&plan.plan)?;
    let (tracer, child) = start::start(words, streams, options)?;
    Ok((tracer, child, folder))
}

/// What waits for things to come about, and for requests to stop.
struct Waiting<'a> {
    runtime: &'a Runtime,
    interrupts: Interrupts,
}

fn measure(
    plan: &TestPlan,
    mut tracer: Tracer,
    folder: &Folder,
    waiting: Waiting<'_>,
    child: Option<Child>,
    ready: Option<&Ready>,
    drive: impl FnOnce(u32) -> anyhow::Result<Drive>,
) -> anyhow::Result<Finished> {
    let mut child = child;
    let Waiting { runtime, interrupts } = waiting;
    let batches = batches(plan, &mut tracer, folder, interrupts, child.as_mut(), ready, drive);
    let ending = runtime.block_on(batches)?;
    tracer.detach();
    // Names are looked up while the target is there to be asked.
    folder.finish(&plan.plan, &tracer, &ending, true)
}

async fn batches(
    plan: &TestPlan,
    tracer: &mut Tracer,
    folder: &Folder,
    mut interrupts: Interrupts,
    mut child: Option<&mut Child>,
    ready: Option<&Ready>,
    drive: impl FnOnce(u32) -> anyhow::Result<Drive>,
) -> anyhow::Result<Ending> {
    let exit = ExitWatch::new(tracer.process(), tracer.others())?;
    let warmup = plan.plan.options.warmup;
    let n_batches = warmup.saturating_add(plan.batches);
    let progress = Progress::new(plan.plan.progress, n_batches);
    let mut drive = drive(tracer.process().pid)?;

    progress.stage("starting");
    let mut output = match child.as_mut().and_then(|child| child.take_output()) {
        Some(streams) => Some(Output::collect(streams, folder.create("service.log")?)?),
        None => None,
    };
    let get_ready = async {
        if let (Some(output), Some(ready)) = (output.as_mut(), ready) {
            output.ready(ready).await?;
        }
        drive.ready().await
    };
    let awaited = ready.map_or_else(|| "a line that starts with READY".to_owned(), Ready::awaited);
    let what = format!("waiting for {awaited}");
    let readiness = step(get_ready, what, plan.timeout, &mut interrupts, &exit);
    if let Some(ending) = tracer.pump(readiness).await {
        let too_early = match ready {
            Some(_) => " before it was ready",
            None => " before it printed a line that starts with READY",
        };
        return Ok(ending.explained(|| how_it_ended(child, tracer), too_early));
    }
    tracer.start().await?;

    for index in 0..n_batches {
        progress.stage(if index < warmup { "warming up" } else { "measuring" });
        let what = format!("batch {index}");
        let batch = step(drive.batch(index), what, plan.timeout, &mut interrupts, &exit);
        if let Some(ending) = tracer.pump(batch).await {
            return Ok(ending.explained(|| how_it_ended(child, tracer), ""));
        }
        tracer.end_batch(format!("batch {index}"), BTreeMap::new()).await?;
        progress.batch_done();
        folder.keep(&plan.plan, tracer)?;
    }
    Ok(Ending::Complete)
}

/// How the target ended, which has.
fn how_it_ended(child: Option<&mut Child>, tracer: &mut Tracer) -> Option<ExitStatus> {
    child.and_then(Child::wait).or_else(|| tracer.how_it_ended())
}

/// One thing to wait for, and all that may come between. `None` when it came about.
async fn step(
    work: impl Future<Output = Result<(), DriveError>>,
    what: String,
    limit: Duration,
    interrupts: &mut Interrupts,
    exit: &ExitWatch,
) -> Option<Ending> {
    tokio::select! {
        biased;
        // One that came while the probes were set keeps the work from being begun.
        () = interrupts.next() => Some(Ending::Interrupted),
        outcome = tokio::time::timeout(limit, work) => match outcome {
            Ok(Ok(())) => None,
            // A target that dies closes its output first, or makes the command fail.
            Ok(Err(error)) => {
                let dying = tokio::time::timeout(Duration::from_millis(200), exit.ended());
                Some(match dying.await {
                    Ok(()) => Ending::TargetEnded,
                    Err(_) => Ending::Failed(error),
                })
            }
            Err(_) => {
                let limit = units::exact_duration(limit);
                Some(Ending::Failed(DriveError::TimedOut { what, limit }))
            }
        },
        () = exit.ended() => Some(Ending::TargetEnded),
    }
}
