//! Which of many ranges that follow each other in time is meant at an address and a moment.
//!
//! A runtime may write millions of them, again and again for the same memory. They are taken in order of
//! time over a tree of the addresses that are asked for: the work is a logarithm for each range and each
//! query, not ranges times queries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::generated::Query;

/// Ranges that are remembered at the most, 128 MiB of them; later ones are not seen.
const MOST: usize = 4 << 20;

/// Bytes of the names of one process's generated code at the most, counted once for each query.
pub(crate) const MOST_NAMES: usize = 64 << 20;

/// Names of generated code.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By what was asked.
    pub(crate) names: FxHashMap<Query, Rc<str>>,
    /// Is anything left out, for want of room?
    pub(crate) is_cut: bool,
}

/// The names at `queries`, which must be sorted: for each the last that was written until then, else the
/// first after. `read` hands out every record with its name, from the first on, until it is answered with
/// false; it is called twice, so that only names are kept that are an answer. They may have `room` bytes.
pub(super) fn lookup(
    queries: &[Query],
    room: &mut usize,
    read: impl Fn(&mut dyn FnMut(Written, &[u8]) -> bool),
) -> Found {
    let mut ranges = Ranges::new(queries);
    read(&mut |written, _| ranges.take(written));
    let mut is_cut = ranges.is_cut;
    let (answers, _) = ranges.answers();
    let mut wanted: BTreeMap<u64, (Written, usize)> = BTreeMap::new();
    for written in answers.iter().flatten() {
        wanted.entry(written.number).or_insert((*written, 0)).1 += 1;
    }

    let mut names: FxHashMap<u64, Rc<str>> = FxHashMap::default();
    let last = wanted.keys().next_back().copied().unwrap_or_default();
    read(&mut |written, name| {
        if let Some((meant, n_queries)) = wanted.get(&written.number)
            // What was written anew meanwhile has other names.
            && *meant == written
        {
            let name = String::from_utf8_lossy(name);
            match room.checked_sub(name.len().saturating_mul(*n_queries)) {
                Some(left) => {
                    *room = left;
                    names.insert(written.number, name.into());
                }
                None => is_cut = true,
            }
        }
        written.number < last
    });
    let named = queries
        .iter()
        .zip(answers)
        .filter_map(|(query, written)| Some((*query, names.get(&written?.number)?.clone())));
    Found { names: named.collect(), is_cut }
}

/// Code that was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Its first address.
    pub(super) start: u64,
    /// The address behind it.
    pub(super) end: u64,
    /// When. What was seen at this moment or later is meant by it.
    pub(super) time: u64,
    /// Which record it is, counted from the first.
    pub(super) number: u64,
}

/// What was written of some addresses.
#[derive(Debug)]
pub(super) struct Ranges<'a> {
    /// Sorted by address, then by time.
    queries: &'a [Query],
    written: Vec<Written>,
    /// Was there more than is remembered?
    pub(super) is_cut: bool,
}

impl<'a> Ranges<'a> {
    /// None yet. The queries must be sorted.
    pub(super) fn new(queries: &'a [Query]) -> Self {
        Self { queries, written: Vec::new(), is_cut: false }
    }

    /// Takes one more, unless nobody asks for it. False when there is no room for any more.
    pub(super) fn take(&mut self, written: Written) -> bool {
        if !self.places(&written).is_empty() {
            self.is_cut = self.written.len() == MOST;
            if !self.is_cut {
                self.written.push(written);
            }
        }
        !self.is_cut
    }

    /// For each query: the last that was written until then, else the first after.
    pub(super) fn answers(mut self) -> (Vec<Option<Written>>, Work) {
        // What has the same time stays in the order of the file.
        self.written.sort_by_key(|written| written.time);
        let mut by_time: Vec<usize> = (0..self.queries.len()).collect();
        by_time.sort_by_key(|at| self.queries[*at].1);
        let mut by_time = by_time.into_iter().peekable();

        let mut tree = Tree::new(self.queries.len());
        let mut answers = vec![None; self.queries.len()];
        // Queries of a time when nothing was written there yet.
        let mut waiting = BTreeSet::new();
        let mut steps = 0;
        for (index, written) in self.written.iter().enumerate() {
            while let Some(at) = by_time.next_if(|at| self.queries[*at].1 < written.time) {
                answers[at] = tree.last(at).map(|index| self.written[index]);
                if answers[at].is_none() {
                    waiting.insert(at);
                }
            }
            let places = self.places(written);
            let answered: Vec<usize> = waiting.range(places.clone()).copied().collect();
            for at in answered {
                waiting.remove(&at);
                answers[at] = Some(*written);
                steps += 1;
            }
            tree.cover(places, index);
        }
        for at in by_time {
            answers[at] = tree.last(at).map(|index| self.written[index]);
        }
        (answers, Work(tree.steps + steps))
    }

    fn places(&self, written: &Written) -> Range<usize> {
        let first = |addr| self.queries.partition_point(|query| query.0 < addr);
        let (start, end) = (first(written.start), first(written.end));
        start..end.max(start)
    }
}

/// Steps that were taken: what grows with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work(#[cfg_attr(not(test), expect(dead_code, reason = "asked by tests"))] u64);

/// A place in the tree that nothing covers.
const NONE: u32 = u32::MAX;
const _: () = assert!(MOST < NONE as usize);

/// The last range over each place: a range is kept in the few nodes that make it up.
#[derive(Debug)]
struct Tree {
    n_leaves: usize,
    nodes: Vec<u32>,
    steps: u64,
}

impl Tree {
    fn new(n_leaves: usize) -> Self {
        Self { n_leaves, nodes: vec![NONE; 2 * n_leaves], steps: 0 }
    }

    fn cover(&mut self, places: Range<usize>, index: usize) {
        let index = u32::try_from(index).unwrap_or(NONE);

        let (mut start, mut end) = (places.start + self.n_leaves, places.end + self.n_leaves);
        while start < end {
            self.steps += 1;
            if start % 2 == 1 {
                self.nodes[start] = index;
                start += 1;
            }
            if end % 2 == 1 {
                end -= 1;
                self.nodes[end] = index;
            }
            (start, end) = (start / 2, end / 2);
        }
    }

    fn last(&mut self, place: usize) -> Option<usize> {
        let mut node = place + self.n_leaves;
        let mut last = None;
        while 0 < node {
            self.steps += 1;
            let index = self.nodes[node];
            if index != NONE {
                last = last.max(Some(index as usize));
            }
            node /= 2;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(queries: &[Query], written: &[Written]) -> (Vec<Option<Written>>, Work) {
        let mut ranges = Ranges::new(queries);
        assert!(written.iter().all(|written| ranges.take(*written)));
        ranges.answers()
    }

    fn written(number: u64, range: Range<u64>, time: u64) -> Written {
        Written { start: range.start, end: range.end, time, number }
    }

    /// What the answers mean, each looked for by itself.
    fn model(query: Query, written: &[Written]) -> Option<Written> {
        let there = |one: &&Written| (one.start..one.end).contains(&query.0);
        let before = written.iter().filter(there).filter(|one| one.time <= query.1);
        let after = written.iter().filter(there).filter(|one| query.1 < one.time);
        before
            .max_by_key(|one| (one.time, one.number))
            .or_else(|| after.min_by_key(|one| (one.time, one.number)))
            .copied()
    }

    #[test]
    fn the_work_does_not_grow_with_ranges_times_queries() {
        const N: u64 = 10_000;
        let queries: Vec<Query> = (0..N).map(|at| (at, at)).collect();
        // Each covers all or nearly all.
        let all: Vec<_> = (0..N).map(|at| written(at, at % 7..N, at * 7919 % N)).collect();
        let (found, Work(steps)) = answers(&queries, &all);
        assert!(found.iter().all(Option::is_some));
        let logarithm = u64::from((2 * N).ilog2() + 1);
        assert!(steps <= 2 * N * logarithm, "{steps}");
    }

    #[test]
    fn what_nobody_asks_for_is_not_remembered_and_the_rest_is_bounded() {
        let queries = [(5, 0)];
        let mut ranges = Ranges::new(&queries);
        for number in 0..100 {
            assert!(ranges.take(written(number, 6..u64::MAX, number)));
        }
        assert!(ranges.written.is_empty());
        ranges.written = vec![written(0, 0..9, 0); MOST - 1];
        assert!(ranges.take(written(1, 0..9, 1)));
        assert!(!ranges.take(written(2, 0..9, 2)) && ranges.is_cut);
        assert_eq!(ranges.written.len(), MOST);
    }

    proptest! {
        #[test]
        fn the_answers_are_those_of_the_model(
            mut queries in proptest::collection::vec((0_u64..20, 0_u64..12), 0..30),
            ranges in proptest::collection::vec((0_u64..20, 0_u64..12, 0_u64..12), 0..30),
        ) {
            queries.sort_unstable();
            let numbered = ranges.into_iter().zip(0..);
            let all: Vec<_> = numbered
                .map(|((start, len, time), number)| written(number, start..start + len, time))
                .collect();
            let expected: Vec<_> = queries.iter().map(|query| model(*query, &all)).collect();
            prop_assert_eq!(answers(&queries, &all).0, expected);
        }
    }
}
