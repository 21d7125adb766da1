//! `outlive attach` and `outlive run`: batches end by time, by marks, and at the end.

use std::{collections::BTreeMap, ffi::OsString, future, process::ExitStatus, time::Instant};

use tokio::time::{Duration, sleep_until};

use super::{
    Finished, Plan, Rhythm, Tracer, Watcher,
    ending::{ExitWatch, Interrupts},
    finish::{Ending, Folder},
    start,
};
use crate::{
    control::{MarkReply, MarkServer, Pending},
    target::process::Process,
};

/// Watches a running process.
///
/// # Errors
/// What keeps it from being watched.
pub fn attach(
    plan: &Plan,
    pid: u32,
    rhythm: Rhythm,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<Finished> {
    crate::probes::rights::check()?;
    let (runtime, interrupts) = start::runtime()?;
    let process = Process::open(pid)?;
    if let Some(thread) = process.asked_for_thread {
        log::warn!("{thread} is a thread of process {}; the whole process is traced", process.pid);
    }
    let folder = Folder::prepare(plan)?;
    let mut tracer = Tracer::load(process, &plan.options)?;
    tracer.attach()?;
    let ending = runtime.block_on(async {
        tracer.start().await?;
        watch(plan, &mut tracer, rhythm, interrupts, watcher, &folder).await
    })?;
    let ending = judged_end(ending, tracer.how_it_ended());
    tracer.detach();
    folder.finish(plan, &tracer, &ending, false)
}

/// Starts a program and watches it to its end.
///
/// # Errors
/// What keeps it from being started or watched.
pub fn run(
    plan: &Plan,
    program: &[OsString],
    rhythm: Rhythm,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<Finished> {
    crate::probes::rights::check()?;
    let (runtime, interrupts) = start::runtime()?;
    let folder = Folder::prepare(plan)?;
    let (mut tracer, mut child) = start::start(program, start::Streams::Inherited, &plan.options)?;
    // Its first batch began with its first instruction: there is no start to take off.
    let watching = watch(plan, &mut tracer, rhythm, interrupts, watcher, &folder);
    let outcome = runtime.block_on(watching);
    let ending = match outcome {
        Ok(Ending::TargetEnded) => match child.wait() {
            Some(status) if status.success() => Ending::Complete,
            status => Ending::TargetEnded.explained(|| status, ""),
        },
        other => {
            // It is the user's program: it goes on, as after an attach. Ctrl-C reaches it by
            // itself, as the terminal sends it to both.
            child.release();
            other?
        }
    };
    tracer.detach();
    folder.finish(plan, &tracer, &ending, false)
}

/// A target that somebody or something has ended did not do what it was watched for: there is no
/// verdict on it. Nor on one of which nobody knows.
fn judged_end(ending: Ending, status: Option<ExitStatus>) -> Ending {
    match (ending, status) {
        (Ending::TargetEnded, Some(status)) if status.success() => Ending::Exited,
        (ending, status) => ending.explained(|| status, ""),
    }
}

/// What ended a batch.
enum Cue {
    Time,
    Mark(Pending),
    Stop,
    TargetEnded,
}

async fn watch(
    plan: &Plan,
    tracer: &mut Tracer,
    rhythm: Rhythm,
    mut interrupts: Interrupts,
    watcher: &mut dyn Watcher,
    folder: &Folder,
) -> anyhow::Result<Ending> {
    let exit = ExitWatch::new(tracer.process(), tracer.others())?;
    let marks = match MarkServer::listen(tracer.process().pid, tracer.process().uid) {
        Ok(server) => Some(server),
        Err(error) => {
            log::warn!("{error}");
            None
        }
    };
    let began = Instant::now();
    let stop = rhythm.duration.map(|duration| began + duration);
    let mut due = rhythm.interval.map(|interval| began + interval);
    let mut n_batches = 0_u32;
    loop {
        let cue = tracer.pump(cue(&mut interrupts, &exit, marks.as_ref(), due, stop)).await;
        let ending = match &cue {
            Cue::Time | Cue::Mark(_) => None,
            Cue::Stop => Some(Ending::Complete),
            Cue::TargetEnded => Some(Ending::TargetEnded),
        };
        // A batch that was cut off is not equivalent to the others; but a session without
        // any other has only that one to show.
        if ending.is_none() || n_batches == 0 {
            let (label, units) = match &cue {
                Cue::Mark(mark) => (mark.request.label.clone(), mark.request.units.clone()),
                _ => (format!("batch {n_batches}"), BTreeMap::new()),
            };
            let batch = tracer.end_batch(label, units).await?;
            let reply = MarkReply::Closed {
                index: batch.index,
                heap_bytes: batch.outstanding.bytes,
                heap_blocks: batch.outstanding.blocks,
            };
            n_batches += 1;
            if let Cue::Mark(mark) = cue {
                mark.answer(&reply).await;
            }
            watcher.batch_ended(tracer);
            folder.keep(plan, tracer)?;
        }
        if let Some(ending) = ending {
            return Ok(ending);
        }
        due = rhythm.interval.and_then(|interval| {
            // Intervals do not drift, and one that was missed is not made up for.
            let next = due? + interval;
            Some(next.max(Instant::now() + interval / 2))
        });
    }
}

async fn cue(
    interrupts: &mut Interrupts,
    exit: &ExitWatch,
    marks: Option<&MarkServer>,
    due: Option<Instant>,
    stop: Option<Instant>,
) -> Cue {
    let at = |instant: Option<Instant>| async move {
        match instant {
            Some(instant) => sleep_until(instant.into()).await,
            None => future::pending().await,
        }
    };
    let mark = async {
        match marks {
            Some(server) => server.next().await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        // Ctrl-C in a terminal ends the program as well: then it is the end that was asked for.
        () = interrupts.next() => Cue::Stop,
        () = exit.ended() => Cue::TargetEnded,
        mark = mark => Cue::Mark(mark),
        () = at(due) => Cue::Time,
        // A last interval that ends with the watch still counts.
        () = at(stop.map(|stop| stop + Duration::from_millis(1))) => Cue::Stop,
    }
}
