//! A simulated address space, kept page by page, is the truth; its threads' calls are told in the
//! order in which the kernel side tells them, and the books must agree to the byte. And arbitrary
//! calls, possible or not, must leave sums that are those of the pieces.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use tracer_common::decode::{Change, Range};

use super::*;

const PAGE: u64 = 4096;
const N_PAGES: u64 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    used_for: Use,
    reserved: bool,
    stack: u64,
}

/// What a thread's call in flight will do when it returns.
#[derive(Clone, Debug)]
enum Call {
    Unmap { at: u64, n: u64, has_failed: bool },
    Remap { from: u64, n_from: u64, to: Option<(u64, u64)>, stack: u64, locked: Vec<u64> },
}

#[derive(Clone, Copy, Debug)]
struct Step {
    what: u8,
    tid: u32,
    at: u64,
    n: u64,
    to: u64,
    n_to: u64,
    stack: u64,
    how: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0..N_PAGES;
    let step = (0_u8..8, 0_u32..4, page.clone(), 1_u64..8, page, 1_u64..8, 1_u64..5, 0_u8..16)
        .prop_map(|(what, tid, at, n, to, n_to, stack, how)| Step {
            what,
            tid,
            at,
            n,
            to,
            n_to,
            stack,
            how,
        });
    proptest::collection::vec(step, 0..300)
}

#[derive(Default)]
struct Space {
    pages: BTreeMap<u64, Page>,
    calls: HashMap<u32, Call>,
    books: Regions,
}

impl Space {
    /// Does a call in flight still use one of these pages? No sound program touches them.
    fn is_in_use(&self, at: u64, n: u64) -> bool {
        let touches = |from: u64, count: u64| from < at + n && at < from + count;
        self.calls.values().any(|call| match call {
            Call::Unmap { at, n, has_failed } => *has_failed && touches(*at, *n),
            Call::Remap { from, n_from, to, locked, .. } => {
                to.is_none() && touches(*from, *n_from)
                    || locked.iter().any(|page| at <= *page && *page < at + n)
            }
        })
    }

    fn tell(&mut self, call: Range) {
        self.books.apply(&call);
    }

    fn step(&mut self, step: Step) {
        let Step { what, tid, at, n, to, n_to, stack, how } = step;
        let range = range(tid, at, n, stack);
        if self.calls.contains_key(&tid) {
            self.end(tid);
            return;
        }
        if self.is_in_use(at, n) {
            return;
        }
        match what {
            0..=2 => {
                let reserved = how & 1 != 0;
                let (flags, used_for) = match how >> 1 {
                    0..=3 => (0x22, Use::Private),
                    4 => (0x21, Use::Shared),
                    5 => (2, Use::File),
                    6 => (0x2_0022, Use::ThreadStack),
                    _ => (0x22, Use::Arena),
                };
                let inside = used_for == Use::Arena;
                let over_arena = self.pages.get(&at).is_some_and(|p| p.used_for == Use::Arena)
                    // The first page of the range that is mapped decides.
                    || self.pages.range(at..at + n).next().is_some_and(|(_, p)| p.used_for == Use::Arena);
                let used_for = if over_arena { Use::Arena } else { used_for };
                for page in at..at + n {
                    self.pages.insert(page, Page { used_for, reserved, stack });
                }
                let protection = if reserved { 0 } else { 3 };
                // Lengths that end within a page.
                let len = range.len - u64::from(how) * 100;
                self.tell(Range { protection, flags, inside, len, ..range });
            }
            3 | 4 => {
                let has_failed = how == 0;
                if !has_failed {
                    // The kernel gives the pages up at once; others may be given them before
                    // the call has returned.
                    self.pages.retain(|page, _| *page < at || at + n <= *page);
                }
                self.calls.insert(tid, Call::Unmap { at, n, has_failed });
                self.tell(Range { change: Change::Unmap, ..range });
            }
            5 => self.begin_remap(step, range),
            6 => {
                for (_, page) in self.pages.range_mut(at..at + n) {
                    let reserved = how & 1 != 0;
                    if page.reserved && !reserved {
                        page.stack = stack;
                    }
                    page.reserved = reserved;
                }
                let protection = if how & 1 != 0 { 0 } else { 1 };
                self.tell(Range { change: Change::Protect, protection, ..range });
            }
            _ => {
                // A second mapping of the same memory.
                let Some(source) = self.pages.get(&at).copied() else { return };
                if self.is_in_use(to, n_to) || (to < at + n && at < to + n_to) {
                    return;
                }
                for page in to..to + n_to {
                    self.pages.insert(page, Page { stack, ..source });
                }
                let given = Range { change: Change::Unmap, len: 0, ..range };
                self.tell(given);
                let (addr, len) = (to * PAGE, n_to * PAGE);
                let from = at * PAGE;
                self.tell(Range { change: Change::Remap, addr, len, from, from_len: 0, ..range });
            }
        }
    }

    fn begin_remap(&mut self, step: Step, range: Range) {
        let Step { tid, at: from, n: n_from, to, n_to, stack, how, .. } = step;
        // One mapping, whole: nothing else can be moved.
        let old: Vec<Page> =
            (from..from + n_from).filter_map(|p| self.pages.get(&p).copied()).collect();
        let Some(first) = old.first().copied() else { return };
        if old.len() as u64 != n_from || old.iter().any(|page| *page != first) {
            return;
        }
        let overlaps = |at: u64, n: u64| from < at + n && at < from + n_from;
        let to = match how {
            0 => None,
            // In place.
            1..=5 if n_to <= n_from => Some((from, n_to)),
            _ if overlaps(to, n_to) || self.is_in_use(to, n_to) => return,
            _ => Some((to, n_to)),
        };
        let mut locked = Vec::new();
        if let Some((to, n_to)) = to {
            self.pages.retain(|page, _| *page < from || from + n_from <= *page);
            for index in 0..n_to {
                let stack = if index < n_from { first.stack } else { stack };
                self.pages.insert(to + index, Page { stack, ..first });
                locked.push(to + index);
            }
        }
        self.calls.insert(tid, Call::Remap { from, n_from, to, stack, locked });
        self.tell(Range { change: Change::Unmap, ..range });
    }

    fn end(&mut self, tid: u32) {
        match self.calls.remove(&tid) {
            Some(Call::Unmap { at, n, has_failed }) => {
                let change = if has_failed { Change::UnmapFailed } else { Change::Unmapped };
                self.tell(Range { change, ..range(tid, at, n, 0) });
            }
            Some(Call::Remap { from, n_from, to, stack, .. }) => {
                let old = range(tid, from, n_from, stack);
                self.tell(match to {
                    None => Range { change: Change::UnmapFailed, ..old },
                    Some((to, n_to)) => Range {
                        change: Change::Remap,
                        addr: to * PAGE,
                        len: n_to * PAGE,
                        from: old.addr,
                        from_len: old.len,
                        flags: 1,
                        ..old
                    },
                });
            }
            None => {}
        }
    }

    fn truth(&self) -> BTreeMap<Origin, u64> {
        let mut truth = BTreeMap::new();
        for Page { used_for, reserved, stack } in self.pages.values().copied() {
            let attributes = Attributes { used_for, reserved, stack, serial: 0 };
            *truth.entry(Piece { range: 0..PAGE, attributes }.origin()).or_default() += PAGE;
        }
        truth
    }
}

fn range(tid: u32, at: u64, n: u64, stack: u64) -> Range {
    Range {
        change: Change::Map,
        tid,
        addr: at * PAGE,
        len: n * PAGE,
        from: 0,
        from_len: 0,
        stack,
        protection: 3,
        flags: 0,
        inside: false,
        hold: None,
    }
}

fn booked(books: &Regions) -> BTreeMap<Origin, u64> {
    let (_, origins) = books.sums.outstanding();
    origins.into_iter().map(|(origin, held)| (origin, held.bytes)).collect()
}

fn any_call() -> impl Strategy<Value = Range> {
    let changes = [
        Change::Map,
        Change::Unmap,
        Change::Unmapped,
        Change::UnmapFailed,
        Change::Remap,
        Change::Protect,
        Change::Break,
    ];
    let addr = || prop_oneof![(0_u64..64).prop_map(|page| page * PAGE), any::<u64>()];
    let len = || prop_oneof![0_u64..40_000, any::<u64>()];
    let numbers = (addr(), len(), addr(), len());
    let bits = (0_u64..4, any::<u32>(), any::<u32>(), any::<bool>());
    (0..changes.len(), 0_u32..3, numbers, bits).prop_map(
        move |(change, tid, (addr, len, from, from_len), (stack, protection, flags, inside))| {
            let change = changes[change];
            Range {
                change,
                tid,
                addr,
                len,
                from,
                from_len,
                stack,
                protection,
                flags,
                inside,
                hold: None,
            }
        },
    )
}

proptest! {
    #[test]
    fn an_address_space_that_is_seen_whole_is_booked_to_the_byte(steps in steps()) {
        let mut space = Space::default();
        for step in steps {
            space.step(step);
            if space.calls.is_empty() {
                prop_assert_eq!(booked(&space.books), space.truth());
            }
        }
        for tid in 0..4 {
            space.end(tid);
        }
        prop_assert_eq!(booked(&space.books), space.truth());
        let bytes = |purpose| space.books.sums.outstanding().0.held(purpose).bytes;
        let total: u64 = Purpose::ALL.into_iter().map(bytes).sum();
        prop_assert_eq!(total, space.pages.len() as u64 * PAGE);
    }

    #[test]
    fn whatever_comes_unmapping_everything_leaves_nothing(
        calls in proptest::collection::vec(any_call(), 0..60),
    ) {
        let mut books = Regions::default();
        for call in calls {
            books.apply(&call);
        }
        for tid in 0..3 {
            let all = Range { change: Change::Unmap, addr: 0, len: 1 << 57, ..range(tid, 0, 0, 0) };
            books.apply(&all);
            books.apply(&Range { change: Change::Unmapped, ..all });
        }
        prop_assert_eq!(booked(&books), BTreeMap::new());
    }
}
