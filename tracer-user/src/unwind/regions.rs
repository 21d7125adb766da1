//! What of each address space is code of which object, as the kernel side is told.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tracer_common::unwind::{CallSite, Region, Row};

use super::table::Table;
use crate::{symbols::ObjectId, target::mappings::Mapping};

/// What the kernel side is to be told, in this order.
#[derive(Debug, Default)]
pub struct Covered {
    /// Address ranges that are void, with the code that was there.
    pub void: Vec<(u64, u64, u64)>,
    /// Stretches of generated code for which no guess holds from here on.
    pub guesses: Vec<CallSite>,
    /// Tables that it does not have.
    pub tables: Vec<NewTable>,
    /// Address space, first address and the one behind the last, and what is there.
    pub regions: Vec<(u64, u64, u64, Region)>,
}

/// The table of an object.
#[derive(Debug)]
pub struct NewTable {
    /// The object's number.
    pub table: u32,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    end: u64,
    offset: u64,
    id: ObjectId,
}

/// What it was told, by address space and first address.
#[derive(Debug, Default)]
pub(super) struct Regions {
    spaces: FxHashMap<u64, BTreeMap<u64, Known>>,
}

impl Regions {
    /// Is there something at this address?
    pub(super) fn has(&self, space: u64, addr: u64) -> bool {
        let before = self.spaces.get(&space).and_then(|known| known.range(..=addr).next_back());
        before.is_some_and(|(_, known)| addr < known.end)
    }

    /// Is exactly this mapping there?
    pub(super) fn has_all(&self, space: u64, mapping: &Mapping, id: ObjectId) -> bool {
        let known = self.spaces.get(&space).and_then(|known| known.get(&mapping.start));
        known == Some(&Known { end: mapping.end, offset: mapping.offset, id })
    }

    /// This mapping is there, in place of what was.
    pub(super) fn add(
        &mut self,
        space: u64,
        mapping: &Mapping,
        id: ObjectId,
        table: &Table,
        covered: &mut Covered,
    ) {
        covered.void.extend(self.forget(space, mapping.start, mapping.end).void);
        let known = Known { end: mapping.end, offset: mapping.offset, id };
        self.spaces.entry(space).or_default().insert(mapping.start, known);
        let region = Region {
            bias: mapping.start.wrapping_sub(mapping.offset),
            table: id.number(),
            n_rows: u32::try_from(table.rows().len()).unwrap_or(u32::MAX),
        };
        covered.regions.push((space, mapping.start, mapping.end, region));
    }

    /// Nothing of what was in this range is there any more.
    pub(super) fn forget(&mut self, space: u64, start: u64, end: u64) -> Covered {
        let mut covered = Covered::default();
        let Some(known) = self.spaces.get_mut(&space) else { return covered };
        let touched = known.range(..end).rev().take_while(|(_, known)| start < known.end);
        let touched: Vec<(u64, u64)> = touched.map(|(at, known)| (*at, known.end)).collect();
        for (at, end) in touched {
            known.remove(&at);
            covered.void.push((space, at, end));
        }
        if known.is_empty() {
            self.spaces.remove(&space);
        }
        covered
    }
}
