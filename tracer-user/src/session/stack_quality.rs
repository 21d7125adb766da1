//! How far stacks were walked, and where the others end.

use std::collections::{BTreeMap, BTreeSet};

use tracer_common::event;

use super::Tracer;
use crate::{
    report::model::{BreakReason, BrokenIn, Notice, Share, StackEnd, StackQuality},
    stacks::{LOST, StackId},
    units::human_bytes,
};

/// Places where stacks end that are told of; what ends elsewhere is in the sums.
const MOST_PLACES: usize = 20;
/// Of these, in a notice.
const MOST_NAMED: usize = 3;

/// How this stack ends.
pub(super) fn end(tracer: &Tracer, id: StackId) -> StackEnd {
    match tracer.ledger().stacks().trace(id).map(|trace| trace.end) {
        Some(event::StackEnd::Whole) => StackEnd::Whole,
        Some(event::StackEnd::DepthLimit) => StackEnd::DepthLimit,
        Some(event::StackEnd::Broken | event::StackEnd::Unfinished | event::StackEnd::Unsent)
        | None => StackEnd::Broken,
    }
}

/// How far all stacks were walked.
pub(super) fn of(tracer: &Tracer) -> StackQuality {
    let stacks = tracer.ledger().stacks();
    let mut quality = StackQuality::default();
    let mut places: BTreeMap<(Option<String>, BreakReason), Share> = BTreeMap::new();
    // One stack may have asked several allocators.
    let mut counted = BTreeSet::new();
    for id in stacks.ids() {
        // Of a process that has ended nothing is known any more.
        let Some(hash) = stacks.hash(id) else { continue };
        if hash != LOST && stacks.is_lost(id) && tracer.ledger().outstanding_of(id).bytes == 0 {
            continue;
        }
        let is_new = counted.insert(hash);
        let bytes = tracer.ledger().outstanding_of(id).bytes;
        let add = |share: &mut Share| {
            share.stacks += u64::from(is_new);
            share.bytes = share.bytes.saturating_add(bytes);
        };
        match end(tracer, id) {
            StackEnd::Whole => add(&mut quality.whole),
            StackEnd::DepthLimit => add(&mut quality.depth_limit),
            StackEnd::Broken => {
                add(&mut quality.broken);
                add(places.entry(tracer.why_broken(id)).or_default());
            }
        }
    }
    let places = places.into_iter();
    quality.broken_in =
        places.map(|((object, reason), share)| BrokenIn { object, reason, share }).collect();
    quality
        .broken_in
        .sort_by_key(|place| std::cmp::Reverse((place.share.bytes, place.share.stacks)));
    quality.broken_in.truncate(MOST_PLACES);
    quality
}

/// What to say of stacks that are not whole, and of `left_out` tables and mappings that the kernel side
/// had no room for.
pub(super) fn notices(quality: &StackQuality, left_out: u64) -> Vec<Notice> {
    let n_stacks = quality.n_stacks();
    let StackQuality { depth_limit, broken, broken_in, .. } = quality;
    let mut notices = Vec::new();
    if 0 < left_out {
        notices.push(Notice {
            name: "unwind-tables-full".to_owned(),
            text: format!(
                "the kernel programs' tables for walking stacks were full {left_out} times, so the \
                 tool finishes stacks through code that came then: that takes time, and may lose \
                 events of a busy target"
            ),
        });
    }
    if 0 < broken.stacks {
        let named = broken_in.iter().take(MOST_NAMED);
        let named = named.map(|place| format!("{} in {}", place.share.stacks, place.words()));
        let more = if broken_in.len() > MOST_NAMED { "; others in session.json" } else { "" };
        notices.push(Notice {
            name: "broken-stacks".to_owned(),
            text: format!(
                "{} of {n_stacks} stacks ({} outstanding) do not reach the start of their thread, so \
                 callers are missing: {}{more}",
                broken.stacks,
                human_bytes(broken.bytes),
                named.collect::<Vec<_>>().join("; ")
            ),
        });
    }
    if 0 < depth_limit.stacks {
        notices.push(Notice {
            name: "deep-stacks".to_owned(),
            text: format!(
                "{} of {n_stacks} stacks ({} outstanding) have more than the {} frames that are \
                 taken, so their outermost callers are missing",
                depth_limit.stacks,
                human_bytes(depth_limit.bytes),
                event::MAX_FRAMES
            ),
        });
    }
    notices
}
