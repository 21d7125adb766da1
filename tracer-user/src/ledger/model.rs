//! Two judges of the ledger. A simulated target, whose heap is the truth and whose calls are
//! told in the order that the kernel side tells them: the ledger must agree to the byte and
//! lose nothing. And arbitrary events, possible or not, against books kept the obvious way.

use std::collections::HashMap;

use proptest::prelude::*;
use tracer_common::decode::{Event, Space, Turn};

use super::{Booked, Held, Ledger};

const FAMILY: u16 = 3;
/// The only process.
const FIRST: u32 = 1;

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc {
        tid: u32,
        slot: u64,
        size: u64,
        stack: u64,
    },
    Free {
        tid: u32,
        slot: u64,
    },
    ReallocBegins {
        tid: u32,
        slot: u64,
    },
    /// What the call does is decided here: 0 fails, 1 frees, 2 stays in place, else moves.
    ReallocEnds {
        tid: u32,
        how: u8,
        slot: u64,
        size: u64,
        stack: u64,
    },
    Mark,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (tid, slot, stack) = (0_u32..6, 1_u64..24, 1_u64..7);
    let size = prop_oneof![0_u64..100, (1_u64 << 33)..(1 << 34), Just(1 << 50)];
    let step = prop_oneof![
        4 => (tid.clone(), slot.clone(), size.clone(), stack.clone())
            .prop_map(|(tid, slot, size, stack)| Step::Alloc { tid, slot, size, stack }),
        3 => (tid.clone(), slot.clone()).prop_map(|(tid, slot)| Step::Free { tid, slot }),
        3 => (tid.clone(), slot.clone()).prop_map(|(tid, slot)| Step::ReallocBegins { tid, slot }),
        3 => (tid, 0_u8..5, slot, size, stack).prop_map(|(tid, how, slot, size, stack)| {
            Step::ReallocEnds { tid, how, slot, size, stack }
        }),
        1 => Just(Step::Mark),
    ];
    proptest::collection::vec(step, 0..400)
}

/// What a heap really holds, by address: (size, stack, batch of birth).
type Heap = HashMap<u64, Block>;
type Block = (u64, u64, u32);

fn alloc(tid: u32, addr: u64, size: u64, stack: u64, resized: bool) -> Event<'static> {
    Event::Alloc { tid, family: FAMILY, addr, size, stack, resized }
}

/// The only process replaces its image.
fn exec(space: u64) -> Event<'static> {
    Event::Space(Space {
        turn: Turn::Exec,
        tid: FIRST,
        space,
        from: space - 1,
        stack: 0,
        pid: FIRST,
        parent: 0,
        hold: None,
        shares: false,
        by_other_thread: false,
    })
}

fn sum<'a>(blocks: impl Iterator<Item = &'a Block>) -> Held {
    blocks.fold(Held::default(), |sum, (size, ..)| Held {
        bytes: sum.bytes + size,
        blocks: sum.blocks + 1,
    })
}

fn agrees(ledger: &Ledger, heap: &Heap) -> Result<(), TestCaseError> {
    prop_assert_eq!(ledger.outstanding(), sum(heap.values()));
    let mut over_stacks = Held::default();
    for id in ledger.stacks().ids() {
        let hash = ledger.stacks().hash(id).expect("a number that was given");
        let held = ledger.outstanding_of(id);
        prop_assert_eq!(held, sum(heap.values().filter(|(_, stack, _)| *stack == hash)));
        over_stacks.bytes += held.bytes;
        over_stacks.blocks += held.blocks;
    }
    prop_assert_eq!(over_stacks, ledger.outstanding());
    Ok(())
}

proptest! {
    #[test]
    fn a_target_that_is_seen_whole_is_booked_to_the_byte(steps in steps()) {
        let (mut ledger, mut heap, mut batch) = (Ledger::new(FIRST), Heap::new(), 0);
        // What a thread's realloc in flight was given; still in the heap, not to be released
        // by anyone else.
        let mut calls: HashMap<u32, u64> = HashMap::new();
        let mut before = Held::default();
        for step in steps {
            let booked = match step {
                Step::Alloc { tid, slot, size, stack } => {
                    if calls.contains_key(&tid) || heap.contains_key(&slot) { continue; }
                    heap.insert(slot, (size, stack, batch));
                    ledger.apply(&alloc(tid, slot, size, stack, false))
                }
                Step::Free { tid, slot } => {
                    if calls.contains_key(&tid) || calls.values().any(|addr| *addr == slot) {
                        continue;
                    }
                    let Some((bytes, _, born)) = heap.remove(&slot) else { continue };
                    let booked = ledger.apply(&Event::Free { tid, addr: slot, repeat: false });
                    prop_assert_eq!(booked, Booked::Gone { born, bytes });
                    booked
                }
                Step::ReallocBegins { tid, slot } => {
                    if calls.contains_key(&tid)
                        || calls.values().any(|addr| *addr == slot)
                        || !heap.contains_key(&slot) { continue; }
                    calls.insert(tid, slot);
                    ledger.apply(&Event::GiveUp { tid, addr: slot, repeat: false })
                }
                Step::ReallocEnds { tid, how, slot, size, stack } => {
                    let Some(old) = calls.remove(&tid) else { continue };
                    match how {
                        0 => ledger.apply(&Event::TakeBack { tid }),
                        1 => {
                            heap.remove(&old);
                            ledger.apply(&Event::Release { tid })
                        }
                        _ => {
                            let new = if how == 2 || heap.contains_key(&slot) { old } else { slot };
                            heap.remove(&old);
                            heap.insert(new, (size, stack, batch));
                            // Between the call's work and its record another thread may
                            // be given the old address, and its record comes first.
                            if how == 4 && new != old {
                                heap.insert(old, (7, 1, batch));
                                ledger.apply(&alloc(99, old, 7, 1, false));
                            }
                            ledger.apply(&alloc(tid, new, size, stack, true))
                        }
                    }
                }
                Step::Mark => {
                    let closed = ledger.close_batch();
                    batch += 1;
                    let t = closed.totals;
                    prop_assert_eq!((t.healed, t.undecided, t.malformed, t.unmatched_frees), (0, 0, 0, 0));
                    prop_assert_eq!(closed.outstanding.bytes + t.freed.bytes, before.bytes + t.allocated.bytes);
                    prop_assert_eq!(closed.outstanding.blocks + t.freed.blocks, before.blocks + t.allocated.blocks);
                    before = closed.outstanding;
                    continue;
                }
            };
            let odd = matches!(booked, Booked::Unmatched { .. } | Booked::Malformed);
            prop_assert!(!odd);
            agrees(&ledger, &heap)?;
        }
    }

    #[test]
    fn snapshots_of_changes_rebuild_every_stack(steps in proptest::collection::vec(steps(), 1..4)) {
        let mut ledger = Ledger::new(FIRST);
        let mut rebuilt: HashMap<u32, Held> = HashMap::new();
        for part in steps {
            for step in part {
                match step {
                    Step::Alloc { tid, slot, size, stack } => { ledger.apply(&alloc(tid, slot, size, stack, false)); }
                    Step::Free { tid, slot } => { ledger.apply(&Event::Free { tid, addr: slot, repeat: false }); }
                    Step::ReallocBegins { .. } | Step::ReallocEnds { .. } | Step::Mark => {}
                }
            }
            let closed = ledger.close_batch();
            for (id, held) in &closed.changed {
                prop_assert_ne!(rebuilt.insert(id.0, *held), Some(*held), "not a change");
            }
            for id in ledger.stacks().ids() {
                let known = rebuilt.get(&id.0).copied().unwrap_or_default();
                prop_assert_eq!(known, ledger.outstanding_of(id));
            }
        }
    }

    #[test]
    fn whatever_is_told_the_books_stay_balanced(steps in steps(), odd in proptest::collection::vec(any::<bool>(), 400)) {
        let (mut ledger, mut heap) = (Ledger::new(FIRST), Heap::new());
        let mut limbo: HashMap<u32, Option<(u64, Block)>> = HashMap::new();
        let (mut healed, mut undecided, mut unmatched) = (0, 0, 0);
        let mut n_spaces = 1;
        for (step, odd) in steps.into_iter().zip(odd) {
            match step {
                Step::Alloc { tid, slot, size, stack } => {
                    if odd && let Some(given) = limbo.remove(&tid) {
                        unmatched += u64::from(given.is_none());
                    }
                    // The kernel side names a stack by its address space too.
                    let stack = n_spaces << 8 | stack;
                    healed += u64::from(heap.insert(slot, (size, stack, 0)).is_some());
                    ledger.apply(&alloc(tid, slot, size, stack, odd));
                }
                Step::Free { tid, slot } => {
                    unmatched += u64::from(heap.remove(&slot).is_none() && !odd);
                    ledger.apply(&Event::Free { tid, addr: slot, repeat: odd });
                }
                Step::ReallocBegins { tid, slot } => {
                    let given = heap.remove(&slot).map(|block| (slot, block));
                    undecided += u64::from(limbo.insert(tid, given).is_some());
                    ledger.apply(&Event::GiveUp { tid, addr: slot, repeat: false });
                }
                Step::ReallocEnds { tid, how, .. } => {
                    let given = limbo.remove(&tid);
                    if how < 3 {
                        if let Some(Some((addr, block))) = given {
                            healed += u64::from(heap.insert(addr, block).is_some());
                        }
                        ledger.apply(&Event::TakeBack { tid });
                    } else {
                        unmatched += u64::from(given == Some(None));
                        ledger.apply(&Event::Release { tid });
                    }
                }
                Step::Mark if odd => {
                    heap.clear();
                    limbo.clear();
                    n_spaces += 1;
                    ledger.apply(&exec(n_spaces));
                }
                Step::Mark => {}
            }
            let mut all = heap.clone();
            for (tid, given) in &limbo {
                if let Some((_, block)) = given {
                    all.insert(1000 + u64::from(*tid), *block);
                }
            }
            agrees(&ledger, &all)?;
        }
        let closed = ledger.close_batch();
        let t = closed.totals;
        prop_assert_eq!((t.healed, t.undecided, t.unmatched_frees), (healed, undecided, unmatched));
        prop_assert_eq!(
            closed.outstanding.bytes + t.freed.bytes + t.struck_off.bytes + t.discarded.bytes,
            t.allocated.bytes
        );
        prop_assert_eq!(
            closed.outstanding.blocks + t.freed.blocks + t.struck_off.blocks + t.discarded.blocks,
            t.allocated.blocks
        );
    }
}
