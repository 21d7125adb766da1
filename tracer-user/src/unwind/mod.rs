//! How the kernel side leaves frames: by tables, which are compiled here from those of the objects.
//!
//! An object's table is compiled once, the first time that it is met in a walk or found mapped, and
//! shared by all processes that map it. The kernel side looks a call site up there once and keeps its
//! rule. Where it has no table yet it sends the stack; here the walk is finished by the same rules, and
//! the table is given to it. So nothing is lost while libraries come, and nothing has to be there
//! before a target is traced. Code without a table, such as generated one, is left by the frame
//! pointer: the kernel side is told which.

mod finish;
mod known_code;
mod regions;
mod remembered;
mod rule;
mod survey;
mod table;
mod tables;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, ops::Range};

use rustc_hash::{FxHashMap, FxHashSet};
use tracer_common::{
    decode::{Event, Frames, Piece},
    event::StackEnd,
    hash::StackHash,
    unwind::{CallSite, Rule, generated, stretch},
};

pub use self::{
    finish::Site,
    regions::{Covered, NewTable},
    survey::Survey,
};
pub(crate) use self::{finish::walked, table::Table};

use self::{
    finish::{Copied, Frame, finish},
    known_code::{begins_thread, has_trampolines, returns_from_signal, trampoline},
    regions::Regions,
    tables::Tables,
};
use crate::{
    symbols::{Binder, Bound, ObjectId, ObjectKind},
    target::process::Process,
};

/// A stack that the kernel side could not finish.
#[derive(Debug)]
struct Unfinished {
    /// What stands for its hash.
    token: u64,
    frame: Frame,
    copied: Copied,
}

/// A stack without a hash so far.
#[derive(Clone, Copy, Debug)]
pub struct Unnamed {
    /// What stands for its hash.
    pub token: u64,
    /// What stands in its hash for what an interpreter runs on it.
    pub run: Option<u64>,
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
    /// What the kernel side is to know of code without a table, packed.
    pub rules: Vec<(CallSite, u32)>,
    /// Was there code of which the kernel side has no table in this address space?
    pub met_new_code: bool,
}

impl Walked {
    /// Return addresses, innermost first.
    pub fn frames(&self) -> Frames<'_> {
        Frames::of(&self.frames)
    }
}

/// Stretches of generated code that are looked at anew when code is mapped there: 2 GiB, which is more
/// than a runtime has.
const MOST_GUESSES: usize = 1024;

/// Stacks of one thread that can be unfinished in records to come: the calls that it has in flight.
const MOST_NAMES: usize = 8;

/// Finishes walks.
#[derive(Debug, Default)]
pub struct Unwinder {
    /// The table of each object.
    tables: Tables,
    /// Objects of which the kernel side has the table.
    told: FxHashSet<ObjectId>,
    /// Address spaces with code whose table is being compiled.
    waiting: FxHashSet<u64>,
    /// What of each address space the kernel side has tables for.
    regions: Regions,
    /// What each thread has sent of a stack.
    pieces: FxHashMap<u32, Unfinished>,
    /// What stands for which hash in the records of each thread.
    names: FxHashMap<u32, VecDeque<(u64, u64)>>,
}

impl Unwinder {
    /// Keeps a piece of a stack until its frames come.
    pub fn keep(&mut self, piece: &Piece<'_>) {
        let Piece { return_addr, sp, fp, .. } = *piece;
        let frame = Frame { return_addr, sp, fp, context: 0 };
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
        Unnamed { token, run }: Unnamed,
        known: Frames<'_>,
        space: u64,
        process: Option<&Process>,
        binder: &mut Binder,
    ) -> Walked {
        let mut frames: Vec<u64> = known.iter().collect();
        let mut met = FxHashMap::default();
        let mut end = StackEnd::Broken;
        let mut met_new_code = false;
        let begun = self.pieces.remove(&tid).filter(|begun| begun.token == token);
        if let (Some(begun), Some(process)) = (begun, process) {
            let site = |return_addr| {
                *met.entry(return_addr).or_insert_with(|| {
                    let mut bound = binder.bind(space, process, return_addr);
                    if bound.object.is_none() {
                        // Who generates code makes it executable after it is written: the memory
                        // map may have been read in between.
                        binder.refresh(space, process);
                        bound = binder.bind(space, process, return_addr);
                    }
                    met_new_code |=
                        bound.space.is_none() && !self.regions.has(space, bound.address);
                    match self.site(&bound, binder) {
                        Site::Guessed if bound.space.is_some() => {
                            trampoline(process, return_addr).map_or(Site::Guessed, Site::Said)
                        }
                        site => site,
                    }
                })
            };
            let finished = finish(&mut frames, begun.frame, &begun.copied, site);
            end = finished.end;
            if let Some(misled_by) = finished.misled_by {
                met.insert(misled_by, Site::NoCode);
            }
        }
        let mut guesses = FxHashMap::default();
        let rules = met.into_iter().filter_map(|(return_addr, site)| {
            let rule = match site {
                Site::Said(rule) => rule.pack()?,
                Site::NoCode => Rule::UNKNOWN.pack()?,
                Site::Guessed => Rule::GUESS,
            };
            let whole = generated(return_addr);
            let is_generated = site == Site::Guessed
                && *guesses
                    .entry(whole)
                    .or_insert_with(|| is_guessed(whole, space, process, binder));
            let addr = if is_generated { whole } else { return_addr };
            Some((CallSite { space, addr }, rule))
        });
        let rules = rules.collect();
        let hash = frames.iter().fold(StackHash::new().with(space), |hash, at| hash.with(*at));
        let hash = run.map_or(hash, |run| hash.with(run)).finish();
        let names = self.names.entry(tid).or_default();
        if names.len() == MOST_NAMES {
            names.pop_front();
        }
        names.push_back((token, hash));
        let frames = frames.iter().flat_map(|frame| frame.to_ne_bytes()).collect();
        Walked { hash, frames, end, rules, met_new_code }
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

    /// The executable mappings of files in this address space that the kernel side has no table for:
    /// it has from here on, unless a table is large. Such a one is compiled beside; see
    /// [`Unwinder::compiled`].
    pub fn cover(&mut self, space: u64, process: &Process, binder: &mut Binder) -> Covered {
        self.cover_by(space, process, binder, Tables::ask_for)
    }

    /// The same, large tables included: for when nothing is read meanwhile.
    pub fn cover_at_once(&mut self, space: u64, process: &Process, binder: &mut Binder) -> Covered {
        self.cover_by(space, process, binder, Tables::compile)
    }

    fn cover_by(
        &mut self,
        space: u64,
        process: &Process,
        binder: &mut Binder,
        compile: fn(&mut Tables, ObjectId, &Binder),
    ) -> Covered {
        let mut covered = Covered::default();
        for (mapping, id) in binder.code(space, process) {
            if self.regions.has_all(space, &mapping, id) {
                continue;
            }
            compile(&mut self.tables, id, binder);
            let Some(table) = self.tables.get(id) else {
                self.waiting.insert(space);
                continue;
            };
            if self.told.insert(id) && !table.rows().is_empty() {
                covered.tables.push(NewTable { table: id.number(), rows: table.rows().to_vec() });
            }
            self.regions.add(space, &mapping, id, table, &mut covered);
        }
        covered
    }

    /// Address spaces to be covered again, since tables have been compiled.
    pub fn compiled(&mut self) -> FxHashSet<u64> {
        match self.tables.take_ready() {
            true => std::mem::take(&mut self.waiting),
            false => FxHashSet::default(),
        }
    }

    /// Waits for the tables that are being compiled: from here on it is said of each stack why it ends.
    pub fn settle(&mut self) {
        self.tables.wait();
    }

    /// Something else is executed in this range from here on. Answers what is void.
    pub fn forget_range(&mut self, space: u64, start: u64, end: u64) -> Covered {
        let mut covered = self.regions.forget(space, start, end);
        let stretches = generated(start)..=generated(end.saturating_sub(1));
        let guesses = stretches.take(MOST_GUESSES).map(|addr| CallSite { space, addr });
        covered.guesses.extend(guesses);
        covered
    }

    /// The address space is no more. Answers what is void.
    pub fn close(&mut self, space: u64) -> Covered {
        self.waiting.remove(&space);
        self.regions.forget(space, 0, u64::MAX)
    }

    fn site(&mut self, bound: &Bound, binder: &Binder) -> Site {
        if let Some(id) = bound.object {
            self.tables.ask_for(id, binder);
        }
        self.known(bound, binder)
    }

    /// What is known of a call site, without compiling anything for it.
    pub fn known(&self, bound: &Bound, binder: &Binder) -> Site {
        let Some(id) = bound.object else { return Site::NoCode };
        let Some(object) = binder.object(id) else { return Site::NoCode };
        let file = match &object.kind {
            ObjectKind::File(Some(file)) => file,
            ObjectKind::File(None) | ObjectKind::Kernel => return Site::Said(Rule::UNKNOWN),
            ObjectKind::Anonymous => return Site::Guessed,
        };
        let rule = self.tables.rule(id, bound.offset);
        let returns_to = bound.offset + 1;
        let rule = rule
            .or_else(|| returns_from_signal(file, returns_to).then_some(Rule::SIGNAL))
            .or_else(|| {
                let is_function =
                    self.tables.get(id).is_some_and(|table| table.begins_at(returns_to));
                begins_thread(file, returns_to, is_function).then_some(Rule::OUTERMOST)
            });
        rule.map_or(Site::Guessed, Site::Said)
    }
}

/// Is the guess that holds for one call site in a stretch of memory good for all of them? It is where
/// all is generated code and none of it is known to be otherwise.
fn is_guessed(whole: u64, space: u64, process: Option<&Process>, binder: &Binder) -> bool {
    let (start, end) = stretch(whole);
    let code = binder.generated_code(space, start..end);
    let is_known =
        |range: &Range<u64>| process.is_some_and(|process| has_trampolines(process, range.clone()));
    !code.is_empty() && !code.iter().any(is_known)
}
