//! The tree of processes as a report has it.

use super::{Holds, Tracer};
use crate::{
    batches::{Batches, SpaceGrowth},
    ledger::SpaceId,
    report::model::{self, Notice},
};

/// One row for each process that was traced.
pub(super) fn rows(tracer: &Tracer) -> Vec<model::Process> {
    let time = |time: &jiff::Zoned| time.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
    let row = |member: &super::Member| {
        let (growth, discarded_bytes) = growth(tracer.batches(), &member.spaces);
        model::Process {
            pid: member.pid,
            ppid: member.parent,
            exe: member.exe.to_string_lossy().into_owned(),
            started: time(&member.started),
            ended: ended(member).as_ref().map(time),
            growth,
            discarded_bytes,
            held_s: member.held.as_secs_f64(),
            made_by: Vec::new(),
        }
    };
    tracer.members().into_iter().map(row).collect()
}

/// When it was found to have ended; of one that stays in the books to the last, now.
fn ended(member: &super::Member) -> Option<jiff::Zoned> {
    let has_ended = || member.process.as_ref().is_some_and(|process| process.has_ended());
    member.ended.clone().or_else(|| has_ended().then(jiff::Zoned::now))
}

/// Over all address spaces that were the process's own, one after the other.
fn growth(batches: &Batches, spaces: &[SpaceId]) -> (model::ProcessGrowth, u64) {
    let mut sum = model::ProcessGrowth::default();
    let mut discarded = 0_u64;
    for SpaceGrowth { heap, own, discarded: gone } in spaces.iter().map(|id| batches.growth_in(*id))
    {
        sum.heap_bytes = sum.heap_bytes.saturating_add(heap.bytes);
        sum.heap_blocks = sum.heap_blocks.saturating_add(heap.blocks);
        sum.mapped_bytes = sum.mapped_bytes.saturating_add(own.bytes);
        discarded = discarded.saturating_add(gone.bytes);
    }
    (sum, discarded)
}

/// Names the stacks that made the processes.
pub(super) fn name_makers(tracer: &Tracer, rows: &mut [model::Process]) {
    let makers: Vec<u64> = tracer.members().iter().map(|member| member.made_by).collect();
    for (row, frames) in rows.iter_mut().zip(tracer.named_by_hash(&makers)) {
        row.made_by = frames;
    }
}

/// How processes were stopped for their probes.
pub(super) fn holds(tracer: &Tracer) -> model::Holds {
    holds_of(tracer.holds())
}

/// How processes were stopped because the ring was too full.
pub(super) fn pauses(tracer: &Tracer) -> model::Holds {
    holds_of(tracer.pauses())
}

fn holds_of(Holds { count, longest, total }: Holds) -> model::Holds {
    model::Holds { count, longest_s: longest.as_secs_f64(), total_s: total.as_secs_f64() }
}

/// Says that processes were left out.
///
/// # Errors
/// When the kernel does not say how many.
pub(super) fn not_followed(tracer: &Tracer) -> anyhow::Result<Option<Notice>> {
    let count = tracer.not_followed()?;
    let processes = if count == 1 { "1 child was" } else { &format!("{count} children were") };
    Ok((count > 0).then(|| Notice {
        name: "children-not-traced".to_owned(),
        text: format!("{processes} not traced; with --follow their memory counts as well"),
    }))
}
