//! Rules for the call sites that stacks lead through.
//!
//! The kernel side follows rules and knows none by itself. Where it meets a call site that has no
//! rule it sends the stack; here the walk is finished by the unwind tables of the objects, and every
//! call site on the way gets its rule, so that the next walk through it stays in the kernel. That is
//! exact from the first stack on, costs nothing at attach, and needs room for the call sites that
//! allocate only, where whole tables would need it for all code.

mod finish;
mod table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use tracer_common::{
    decode::{Event, Frames, Piece},
    event::StackEnd,
    hash::StackHash,
    unwind::{CallSite, Rule, generated, stretch},
};

use self::{
    finish::{Copied, Frame, Site, finish},
    table::Table,
};
use crate::{
    symbols::{Binder, Bound, ObjectId, ObjectKind},
    target::{elf::FileOffset, process::Process},
};

/// A stack that the kernel side could not finish.
#[derive(Debug)]
struct Unfinished {
    /// What stands for its hash.
    token: u64,
    frame: Frame,
    copied: Copied,
}

/// A stack that is finished now.
#[derive(Debug)]
pub struct Walked {
    /// Its name, the one that the kernel side gives it from here on.
    pub hash: u64,
    /// Its frames, as a record has them.
    frames: Vec<u8>,
    /// Why there are no more.
    pub end: StackEnd,
    /// What the kernel side is to know from here on.
    pub rules: Vec<(CallSite, Rule)>,
}

impl Walked {
    /// Return addresses, innermost first.
    pub fn frames(&self) -> Frames<'_> {
        Frames::of(&self.frames)
    }
}

/// Stacks of one thread that can be unfinished in records to come: the calls that it has in flight.
const MOST_NAMES: usize = 8;

/// Finishes walks.
#[derive(Debug, Default)]
pub struct Unwinder {
    /// The tables of each object; `None` of what is none.
    tables: FxHashMap<ObjectId, Option<Table>>,
    /// What was found in them, by place in the file. The kernel side knows address spaces only.
    found: FxHashMap<(ObjectId, u64), Site>,
    /// The call sites of each address space that the kernel side has rules for.
    given: FxHashMap<u64, BTreeSet<u64>>,
    /// What each thread has sent of a stack.
    pieces: FxHashMap<u32, Unfinished>,
    /// What stands for which hash in the records of each thread.
    names: FxHashMap<u32, VecDeque<(u64, u64)>>,
}

impl Unwinder {
    /// Keeps a piece of a stack until its frames come.
    pub fn keep(&mut self, piece: &Piece<'_>) {
        let frame = Frame { return_addr: piece.return_addr, sp: piece.sp, fp: piece.fp };
        let begun = self.pieces.get_mut(&piece.tid).filter(|begun| begun.token == piece.hash);
        match begun {
            Some(begun) => drop(begun.copied.push(piece.addr, piece.bytes)),
            None => {
                let mut copied = Copied::default();
                copied.push(piece.addr, piece.bytes);
                let begun = Unfinished { token: piece.hash, frame, copied };
                self.pieces.insert(piece.tid, begun);
            }
        }
    }

    /// Finishes the stack of this thread, of which these frames are known, in an address space
    /// where this process lives.
    pub fn finish(
        &mut self,
        tid: u32,
        token: u64,
        known: Frames<'_>,
        space: u64,
        process: Option<&Process>,
        binder: &mut Binder,
        run: Option<u64>,
    ) -> Walked {
        let mut frames: Vec<u64> = known.iter().collect();
        let mut met = FxHashMap::default();
        let mut end = StackEnd::Broken;
        let begun = self.pieces.remove(&tid).filter(|begun| begun.token == token);
        if let (Some(begun), Some(process)) = (begun, process) {
            let site = |return_addr| {
                *met.entry(return_addr).or_insert_with(|| {
                    let bound = binder.bind(space, process, return_addr);
                    self.site(&bound, binder)
                })
            };
            let finished = finish(&mut frames, begun.frame, &begun.copied, site);
            end = finished.end;
            if let Some(misled_by) = finished.misled_by {
                met.insert(misled_by, Site::NoCode);
            }
        }
        let rules = met
            .into_iter()
            .filter_map(|(return_addr, site)| self.give(space, return_addr, site, binder));
        let rules = rules.collect();
        let hash = frames.iter().fold(StackHash::new().with(space), |hash, at| hash.with(*at));
        let hash = run.map_or(hash, |run| hash.with(run)).finish();
        let names = self.names.entry(tid).or_default();
        if names.len() == MOST_NAMES {
            names.pop_front();
        }
        names.push_back((token, hash));
        let frames = frames.iter().flat_map(|frame| frame.to_ne_bytes()).collect();
        Walked { hash, frames, end, rules }
    }

    /// The event, with what stands for the hash of a stack replaced by it.
    pub fn named<'a>(&self, event: &Event<'a>) -> Event<'a> {
        let mut event = *event;
        match &mut event {
            Event::Alloc { tid, stack, .. } => *stack = self.name(*tid, *stack),
            Event::Range(range) => range.stack = self.name(range.tid, range.stack),
            // The thread that made the process sent it, and is not said.
            Event::Space(space) if space.stack != 0 => {
                let mut names = self.names.values().flatten();
                let name = names.find(|(token, _)| *token == space.stack);
                space.stack = name.map_or(space.stack, |(_, hash)| *hash);
            }
            _ => {}
        }
        event
    }

    fn name(&self, tid: u32, hash: u64) -> u64 {
        let names = self.names.get(&tid).into_iter().flatten();
        names.rev().find(|(token, _)| *token == hash).map_or(hash, |(_, hash)| *hash)
    }

    /// Something else is executed in this range from here on. Answers whose rules are void.
    pub fn forget_range(&mut self, space: u64, start: u64, end: u64) -> Vec<CallSite> {
        let Some(given) = self.given.get_mut(&space) else { return Vec::new() };
        // A call site lies before its return address, and a stretch of generated code around it.
        let mut void: Vec<u64> = given.range(start.saturating_add(1)..=end).copied().collect();
        void.extend(given.range(generated(start)..=generated(end)));
        for addr in &void {
            given.remove(addr);
        }
        void.into_iter().map(|addr| CallSite { space, addr }).collect()
    }

    /// The address space is no more. Answers whose rules are void.
    pub fn close(&mut self, space: u64) -> Vec<CallSite> {
        let given = self.given.remove(&space).unwrap_or_default();
        given.into_iter().map(|addr| CallSite { space, addr }).collect()
    }

    fn site(&mut self, bound: &Bound, binder: &Binder) -> Site {
        let Some(id) = bound.object else { return Site::NoCode };
        let Some(object) = binder.object(id) else { return Site::NoCode };
        let file = match &object.kind {
            ObjectKind::File(Some(file)) => file,
            ObjectKind::File(None) | ObjectKind::Kernel => return Site::Said(Rule::UNKNOWN),
            ObjectKind::Anonymous => return Site::Guessed,
        };
        let table = self.tables.entry(id).or_insert_with(|| Table::open(file));
        *self.found.entry((id, bound.offset)).or_insert_with(|| {
            let rule = table.as_mut().and_then(|table| table.rule(FileOffset(bound.offset)));
            rule.map_or(Site::Guessed, Site::Said)
        })
    }

    /// The rule that the kernel side is to have of a call site, if it has none.
    fn give(
        &mut self,
        space: u64,
        return_addr: u64,
        site: Site,
        binder: &Binder,
    ) -> Option<(CallSite, Rule)> {
        let (addr, rule) = match site {
            Site::Said(rule) => (return_addr, rule),
            Site::NoCode => (return_addr, Rule::UNKNOWN),
            Site::Guessed => {
                let stretch_addr = generated(return_addr);
                let (start, end) = stretch(stretch_addr);
                let is_generated = binder.is_all_generated(space, start, end);
                (if is_generated { stretch_addr } else { return_addr }, Rule::FRAME_POINTER)
            }
        };
        let is_new = self.given.entry(space).or_default().insert(addr);
        (is_new || site == Site::NoCode).then_some((CallSite { space, addr }, rule))
    }
}
