//! A short look at a process, to see how far its stacks can be walked.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    TraceOptions, Tracer,
    ending::{ExitWatch, Interrupts},
    stack_quality, start,
};
use crate::{report::model::StackQuality, target::process::Process};

/// What a [`trial`] shows.
#[derive(Clone, Debug)]
pub struct Trial {
    /// How far the stacks that allocated were walked.
    pub quality: StackQuality,
    /// Was anything lost?
    pub has_losses: bool,
}

/// Traces a running process alone for this long, or until somebody asks to stop.
///
/// # Errors
/// What keeps it from being traced.
pub fn trial(pid: u32, length: Duration, options: &TraceOptions) -> anyhow::Result<Trial> {
    let (runtime, interrupts) = start::runtime()?;
    let mut tracer = Tracer::load(Process::open(pid)?, options)?;
    tracer.attach()?;
    runtime.block_on(watch(&mut tracer, length, interrupts))?;
    tracer.detach();
    let has_losses = tracer.losses()?.lost().next().is_some();
    Ok(Trial { quality: stack_quality::of(&tracer), has_losses })
}

async fn watch(
    tracer: &mut Tracer,
    length: Duration,
    mut interrupts: Interrupts,
) -> anyhow::Result<()> {
    let exit = ExitWatch::new(tracer.process(), tracer.others())?;
    tracer.start().await?;
    let over = async {
        tokio::select! {
            () = interrupts.next() => {}
            () = exit.ended() => {}
            () = sleep(length) => {}
        }
    };
    tracer.pump(over).await;
    Ok(())
}
