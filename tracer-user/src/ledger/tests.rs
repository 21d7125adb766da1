use tracer_common::decode::{Event, Space as SpaceEvent, Turn};

use super::*;

/// The process that is traced.
const FIRST: u32 = 100;

const A: u64 = 0x1000;
const B: u64 = 0x2000;

fn alloc(tid: u32, addr: u64, size: u64) -> Event<'static> {
    Event::Alloc { tid, family: 0, addr, size, stack: 0xa, resized: false }
}

fn resized(tid: u32, addr: u64, size: u64) -> Event<'static> {
    Event::Alloc { tid, family: 0, addr, size, stack: 0xb, resized: true }
}

fn give_up(tid: u32, addr: u64) -> Event<'static> {
    Event::GiveUp { tid, addr, repeat: false }
}

fn free(tid: u32, addr: u64) -> Event<'static> {
    Event::Free { tid, addr, repeat: false }
}

fn repeat(tid: u32, addr: u64) -> Event<'static> {
    Event::Free { tid, addr, repeat: true }
}

/// Books the events and answers what is outstanding and the batch's totals.
fn after(events: &[Event<'_>]) -> (Held, Totals) {
    let mut ledger = Ledger::new(FIRST);
    for event in events {
        ledger.apply(event);
    }
    (ledger.outstanding(), ledger.close_batch().totals)
}

fn turn(turn: Turn, pid: u32, space: u64) -> SpaceEvent {
    SpaceEvent {
        turn,
        tid: pid,
        space,
        from: FIRST_SPACE,
        stack: 0,
        pid,
        parent: FIRST,
        hold: None,
        shares: false,
        by_other_thread: false,
    }
}

fn exec(pid: u32, space: u64) -> Event<'static> {
    Event::Space(turn(Turn::Exec, pid, space))
}

fn held(bytes: u64, blocks: u64) -> Held {
    Held { bytes, blocks }
}

#[test]
fn a_block_is_outstanding_until_any_thread_frees_it() {
    let (now, totals) = after(&[alloc(1, A, 64), alloc(1, B, 36), free(2, A)]);
    assert_eq!(now, held(36, 1));
    assert_eq!((totals.allocated, totals.freed), (held(100, 2), held(64, 1)));
}

#[test]
fn a_block_of_no_bytes_is_a_block() {
    assert_eq!(after(&[alloc(1, A, 0)]).0, held(0, 1));
}

#[test]
fn a_resized_block_counts_once_at_its_new_size_and_stack() {
    let mut ledger = Ledger::new(FIRST);
    for event in [alloc(1, A, 100), give_up(1, A), resized(1, B, 300_000)] {
        ledger.apply(&event);
    }
    assert_eq!(ledger.outstanding(), held(300_000, 1));
    let by_stack: Vec<_> = ledger.stacks().ids().map(|id| ledger.outstanding_of(id)).collect();
    assert_eq!(by_stack, [held(0, 0), held(300_000, 1)]);
    ledger.apply(&free(1, B));
    let totals = ledger.close_batch().totals;
    assert_eq!((ledger.outstanding(), totals.unmatched_frees), (held(0, 0), 0));
}

#[test]
fn a_block_resized_in_place_is_not_healed() {
    let (now, totals) = after(&[alloc(1, A, 8), give_up(1, A), resized(1, A, 16)]);
    assert_eq!((now, totals.healed, totals.freed), (held(16, 1), 0, held(8, 1)));
}

#[test]
fn a_block_in_the_middle_of_a_resize_is_outstanding() {
    assert_eq!(after(&[alloc(1, A, 8), give_up(1, A)]).0, held(8, 1));
}

#[test]
fn a_failed_resize_keeps_the_block_its_stack_and_its_birth() {
    let mut ledger = Ledger::new(FIRST);
    ledger.apply(&alloc(1, A, 4096));
    ledger.close_batch();
    ledger.apply(&give_up(1, A));
    assert_eq!(ledger.apply(&Event::TakeBack { tid: 1 }), Booked::TakenBack);
    assert_eq!(ledger.outstanding(), held(4096, 1));
    let totals = ledger.close_batch().totals;
    assert_eq!(totals, Totals::default());
    assert_eq!(ledger.apply(&free(1, A)), Booked::Gone { born: 0, bytes: 4096 });
}

#[test]
fn a_resize_to_nothing_frees() {
    let (now, totals) = after(&[alloc(1, A, 8), give_up(1, A), Event::Release { tid: 1 }]);
    assert_eq!((now, totals.freed), (held(0, 0), held(8, 1)));
}

#[test]
fn two_threads_resize_at_once_and_swap_addresses() {
    let (now, totals) = after(&[
        alloc(1, A, 10),
        alloc(2, B, 20),
        give_up(1, A),
        give_up(2, B),
        resized(2, A, 21),
        resized(1, B, 11),
    ]);
    assert_eq!((now, totals.healed, totals.undecided), (held(32, 2), 0, 0));
}

#[test]
fn another_thread_may_own_the_old_address_before_the_resize_is_told() {
    let (now, totals) = after(&[alloc(1, A, 10), give_up(1, A), alloc(2, A, 5), resized(1, B, 11)]);
    assert_eq!((now, totals.healed, totals.unmatched_frees), (held(16, 2), 0, 0));
}

#[test]
fn blocks_older_than_the_attach_are_unmatched_and_no_loss() {
    let (now, totals) = after(&[free(1, A), give_up(1, B), resized(1, B, 7)]);
    assert_eq!((now, totals.unmatched_frees), (held(7, 1), 2));
    assert_eq!((totals.healed, totals.undecided), (0, 0));
}

#[test]
fn a_resize_that_began_before_the_attach_is_a_new_block() {
    let (now, totals) = after(&[resized(1, A, 7)]);
    assert_eq!((now, totals.unmatched_frees), (held(7, 1), 0));
}

#[test]
fn a_deallocator_that_calls_another_frees_once() {
    let (now, totals) = after(&[alloc(1, A, 8), free(1, A), repeat(1, A)]);
    assert_eq!((now, totals.freed, totals.unmatched_frees), (held(0, 0), held(8, 1), 0));
}

#[test]
fn a_repeated_free_of_a_block_that_came_again_frees_it() {
    let (now, totals) = after(&[alloc(1, A, 8), free(1, A), alloc(2, A, 9), repeat(1, A)]);
    assert_eq!((now, totals.freed.blocks), (held(0, 0), 2));
}

#[test]
fn a_resize_that_calls_another_gives_up_once() {
    let again = Event::GiveUp { tid: 1, addr: A, repeat: true };
    let (now, totals) = after(&[alloc(1, A, 8), give_up(1, A), again, resized(1, B, 9)]);
    assert_eq!((now, totals.undecided, totals.freed), (held(9, 1), 0, held(8, 1)));
}

#[test]
fn an_address_handed_out_twice_means_that_a_free_was_missed() {
    let (now, totals) = after(&[alloc(1, A, 64), alloc(1, A, 32)]);
    assert_eq!((now, totals.healed, totals.struck_off), (held(32, 1), 1, held(64, 1)));
}

#[test]
fn a_block_taken_back_wins_over_one_whose_free_was_missed() {
    let (now, totals) =
        after(&[alloc(1, A, 64), give_up(1, A), alloc(2, A, 32), Event::TakeBack { tid: 1 }]);
    assert_eq!((now, totals.healed), (held(64, 1), 1));
}

#[test]
fn a_resize_that_never_ended_is_a_loss_when_the_thread_begins_another() {
    let (now, totals) = after(&[alloc(1, A, 64), alloc(1, B, 32), give_up(1, A), give_up(1, B)]);
    assert_eq!((now, totals.undecided, totals.struck_off), (held(32, 1), 1, held(64, 1)));
}

#[test]
fn a_new_image_discards_everything_and_what_was_given_up() {
    let mut ledger = Ledger::new(FIRST);
    for event in [alloc(1, A, 64), alloc(1, B, 32), give_up(1, A)] {
        ledger.apply(&event);
    }
    assert_eq!(ledger.apply(&exec(FIRST, 2)), Booked::Discarded(held(96, 2)));
    ledger.apply(&Event::TakeBack { tid: 1 });
    assert_eq!(ledger.outstanding(), held(0, 0));
    let closed = ledger.close_batch();
    assert_eq!((closed.totals.execs, closed.totals.discarded), (1, held(96, 2)));
    assert_eq!(closed.changed, []);
}

#[test]
fn sizes_beyond_four_gibibytes_are_exact() {
    let five = 5_u64 << 30;
    let events: Vec<_> = (1..=4).map(|n| alloc(1, n * A, five)).collect();
    assert_eq!(after(&events).0, held(21_474_836_480, 4));
    assert_eq!(after(&[alloc(1, A, 1 << 62)]).0, held(1 << 62, 1));
}

#[test]
fn more_memory_than_an_address_space_is_malformed_and_not_booked() {
    let (now, totals) = after(&[alloc(1, A, u64::MAX), alloc(1, B, 1), alloc(1, 0, 1)]);
    assert_eq!((now, totals.malformed), (held(1, 1), 2));
}

#[test]
fn only_stacks_with_another_figure_are_in_a_snapshot() {
    let mut ledger = Ledger::new(FIRST);
    ledger.apply(&alloc(1, A, 64));
    let first = ledger.close_batch();
    assert_eq!(first.changed, [(StackId(0), held(64, 1))]);
    for event in [alloc(1, B, 5), free(1, B)] {
        ledger.apply(&event);
    }
    let second = ledger.close_batch();
    assert_eq!((second.changed, second.outstanding), (vec![], held(64, 1)));
    assert_eq!(ledger.batch(), 2);
}
