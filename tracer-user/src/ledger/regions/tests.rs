use tracer_common::decode::{Change, Range};

use super::*;

const READ_WRITE: u32 = 3;
const PRIVATE: u32 = 0x22;
const BASE: u64 = 0x10_0000;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

const NOTHING: Range = Range {
    change: Change::Map,
    tid: 1,
    addr: 0,
    len: 0,
    from: 0,
    from_len: 0,
    stack: 7,
    protection: READ_WRITE,
    flags: PRIVATE,
    inside: false,
    hold: None,
};

fn map(addr: u64, len: u64) -> Range {
    Range { addr, len, ..NOTHING }
}

/// A `munmap` that succeeds.
fn unmap(addr: u64, len: u64) -> [Range; 2] {
    let given = Range { change: Change::Unmap, addr, len, ..NOTHING };
    [given, Range { change: Change::Unmapped, ..given }]
}

/// A `mremap` that succeeds.
fn remap(from: u64, from_len: u64, addr: u64, len: u64) -> [Range; 2] {
    let given = Range { change: Change::Unmap, addr: from, len: from_len, ..NOTHING };
    [
        given,
        Range { change: Change::Remap, addr, len, from, from_len, stack: 8, flags: 1, ..NOTHING },
    ]
}

fn apply(calls: impl IntoIterator<Item = Range>) -> Regions {
    let mut regions = Regions::default();
    for call in calls {
        regions.apply(&call);
    }
    regions
}

fn bytes(regions: &Regions, purpose: Purpose) -> u64 {
    regions.sums.outstanding().0.held(purpose).bytes
}

/// Bytes and pieces of the program's own mappings.
fn own(regions: &Regions) -> (u64, u64) {
    let held = regions.sums.outstanding().0.held(Purpose::Own);
    (held.bytes, held.blocks)
}

#[test]
fn a_hole_in_a_mapping_leaves_two() {
    let mut regions =
        apply([map(BASE, 10 * PAGE)].into_iter().chain(unmap(BASE + 3 * PAGE, 4 * PAGE)));
    assert_eq!(own(&regions), (6 * PAGE, 2));
    for call in unmap(BASE, 3 * PAGE).into_iter().chain(unmap(BASE + 7 * PAGE, 3 * PAGE)) {
        regions.apply(&call);
    }
    assert_eq!(own(&regions), (0, 0));
}

#[test]
fn one_unmap_spans_several_mappings_and_the_gaps_between() {
    let maps = [map(BASE, PAGE), map(BASE + 2 * PAGE, PAGE), map(BASE + 4 * PAGE, 4 * PAGE)];
    let regions = apply(maps.into_iter().chain(unmap(BASE, 6 * PAGE)));
    assert_eq!(own(&regions), (2 * PAGE, 1));
}

#[test]
fn lengths_count_in_whole_pages() {
    let first = [map(BASE, 5000)].into_iter().chain(unmap(BASE, 8192));
    let second = [map(BASE, 8192)].into_iter().chain(unmap(BASE, 5000));
    assert_eq!(own(&apply(first.chain(second))), (0, 0));
    let huge = Range { flags: PRIVATE | MAP_HUGETLB, ..map(2 * MIB, 1) };
    assert_eq!(own(&apply([huge])), (2 * MIB, 1));
}

#[test]
fn neighbours_of_two_calls_are_two_mappings() {
    assert_eq!(own(&apply([map(BASE, PAGE), map(BASE + PAGE, PAGE)])), (2 * PAGE, 2));
}

#[test]
fn a_mapping_that_moved_is_unmapped_where_it_is() {
    let to = 64 * MIB;
    let moved = || [map(BASE, MIB)].into_iter().chain(remap(BASE, MIB, to, 4 * MIB));
    assert_eq!(own(&apply(moved())).0, 4 * MIB);
    assert_eq!(own(&apply(moved().chain(remap(to, 4 * MIB, to, MIB)))), (MIB, 1));
    assert_eq!(own(&apply(moved().chain(unmap(to, 4 * MIB)))), (0, 0));
}

#[test]
fn the_old_place_of_a_moving_mapping_may_be_taken_before_the_call_ends() {
    let [given, ended] = remap(BASE, MIB, 64 * MIB, MIB);
    let other = Range { tid: 2, stack: 9, ..map(BASE, MIB) };
    let regions = apply([map(BASE, MIB), given, other, ended]);
    let (_, origins) = regions.sums.outstanding();
    let bytes: Vec<_> = origins.iter().map(|(origin, held)| (origin.stack, held.bytes)).collect();
    assert_eq!(bytes, [(7, MIB), (9, MIB)]);
}

#[test]
fn remapping_nothing_maps_a_second_time() {
    let shared = Range { flags: MAP_SHARED | MAP_ANONYMOUS, ..map(BASE, MIB) };
    let regions = apply([shared].into_iter().chain(remap(BASE, 0, 64 * MIB, MIB)));
    assert_eq!(bytes(&regions, Purpose::Shared), 2 * MIB);
}

#[test]
fn a_call_that_fails_changes_nothing() {
    let [given, _] = unmap(BASE, 2 * MIB);
    let failed = Range { change: Change::UnmapFailed, ..given };
    let regions = apply([map(BASE, MIB), given, failed]);
    assert_eq!(own(&regions), (MIB, 1));
}

#[test]
fn a_reservation_becomes_memory_where_it_is_mapped_over() {
    let reserve = Range { protection: 0, ..map(BASE, 64 * MIB) };
    let commit = |index: u64| Range { stack: 8, ..map(BASE + index * MIB, MIB) };
    let mut regions = apply([reserve].into_iter().chain((0..32).map(commit)));
    assert_eq!((own(&regions), bytes(&regions, Purpose::Reserved)), ((32 * MIB, 32), 32 * MIB));
    for index in 32..64 {
        regions.apply(&commit(index));
    }
    let (_, origins) = regions.sums.outstanding();
    assert_eq!(origins.len(), 1);
    assert_eq!((origins[0].0.stack, origins[0].1.bytes), (8, 64 * MIB));
}

#[test]
fn a_reservation_becomes_memory_where_it_may_be_used() {
    let reserve = Range { protection: 0, flags: PRIVATE | MAP_NORESERVE, ..map(BASE, 64 * MIB) };
    let protect =
        |protection| Range { change: Change::Protect, protection, stack: 8, ..map(BASE, MIB) };
    let mut regions = apply([reserve, protect(READ_WRITE)]);
    assert_eq!((own(&regions), bytes(&regions, Purpose::Reserved)), ((MIB, 1), 63 * MIB));
    regions.apply(&protect(0));
    assert_eq!((own(&regions), bytes(&regions, Purpose::Reserved)), ((0, 0), 64 * MIB));
}

#[test]
fn mappings_are_told_apart() {
    let calls = [
        Range { flags: PRIVATE | MAP_STACK, protection: 0, ..map(BASE, MIB) },
        Range { flags: 2, ..map(2 * MIB, MIB) },
        Range { flags: MAP_SHARED | MAP_ANONYMOUS, ..map(4 * MIB, MIB) },
        Range { inside: true, ..map(6 * MIB, MIB) },
        Range { inside: true, protection: 0, ..map(8 * MIB, MIB) },
        // An allocator gives back what it holds, in a call that makes no block.
        Range { protection: 0, ..map(8 * MIB, MIB / 2) },
    ];
    let regions = apply(calls);
    let sums = Purpose::ALL.map(|purpose| bytes(&regions, purpose) / MIB);
    assert_eq!(sums, [0, 1, 1, 1, 1, 0, 1]);
}

#[test]
fn the_break_moves_both_ways() {
    let brk = |addr, inside| Range { change: Change::Break, inside, ..map(addr, 0) };
    let known = [brk(BASE, false), brk(BASE + 33 * PAGE, true), brk(BASE + 34 * PAGE, false)];
    let mut regions = apply(known);
    assert_eq!((own(&regions).0, bytes(&regions, Purpose::Arena)), (PAGE, 33 * PAGE));
    regions.apply(&brk(BASE + PAGE, false));
    assert_eq!((own(&regions).0, bytes(&regions, Purpose::Arena)), (0, PAGE));
    regions.apply(&brk(BASE - MIB / 2, false));
    assert_eq!(bytes(&regions, Purpose::Arena), 0);
}

#[test]
fn what_is_older_than_the_tracing_is_nobodys_error() {
    let mut regions = Regions::default();
    regions.set_break(BASE);
    let grown = Range { change: Change::Break, addr: BASE + PAGE, ..NOTHING };
    let calls = unmap(64 * MIB, MIB).into_iter().chain(remap(80 * MIB, MIB, 96 * MIB, 2 * MIB));
    for call in calls.chain([grown]) {
        regions.apply(&call);
    }
    // Only what came to it since.
    assert_eq!(own(&regions).0, MIB + PAGE);
    regions.discard();
    assert_eq!(regions.sums.outstanding().1, []);
}
