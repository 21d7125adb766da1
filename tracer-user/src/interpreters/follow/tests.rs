use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::interpreters::memory::Flat;

/// Frames of 3.11, where the outermost one of a call is flagged.
const FLAGGED: Interpreter = Interpreter {
    space: 1,
    owner_at: 0x110,
    owner: 42,
    head: 0x100,
    behind: 8,
    len: 72,
    code: 32,
    instruction: 56,
    previous: 48,
    mark: 68,
    mark_from: 0,
    copy: 0,
    parts: 112,
    name_hash: 24,
};

/// Frames of 3.14 without a lock, where one that is nobody's lies behind a call.
const OWNED: Interpreter = Interpreter {
    space: 1,
    owner_at: 0x110,
    owner: 42,
    head: 0x100,
    behind: NOT_BEHIND,
    len: 80,
    code: 0,
    instruction: 56,
    previous: 8,
    mark: 78,
    mark_from: 3,
    copy: 72,
    parts: 112,
    name_hash: 24,
};

fn function(code: u64, instruction: u64) -> Sent {
    Sent { function: Function { code, place: instruction }, fingerprint: 0 }
}

fn flagged(frames: &[(u64, u64, u8)]) -> Flat {
    let mut memory = Flat { start: 0x100, bytes: vec![0; 0x8000] };
    memory.put(0x100, 0x200);
    memory.put(0x110, 42);
    memory.put(0x208, 0x1000);
    for (number, (code, instruction, mark)) in frames.iter().enumerate() {
        let at = 0x1000 + number as u64 * 0x80;
        let is_last = number + 1 == frames.len();
        memory.put(at + 32, *code);
        memory.put(at + 56, *instruction);
        memory.put(at + 48, if is_last { 0 } else { at + 0x80 });
        memory.put_byte(at + 68, *mark);
    }
    memory
}

#[test]
fn calls_end_with_a_flagged_frame() {
    let memory = flagged(&[(0x8000, 0x8100, 0), (0x8008, 0x8200, 1), (0x8010, 0x8300, 1)]);
    let run = follow(&memory, &FLAGGED).expect("it stands still");
    let outer = function(0x8008, 0x8201);
    assert_eq!(
        run.calls(),
        [vec![function(0x8000, 0x8100), outer], vec![function(0x8010, 0x8301)]]
    );
    assert!(!run.is_cut);
}

#[test]
fn calls_end_before_a_frame_that_is_nobody_s() {
    let mut memory = Flat { start: 0x100, bytes: vec![0; 0x8000] };
    memory.put(0x100, 0x1000);
    memory.put(0x110, 42);
    let owners = [0, 1, 3, 0, 3, 3];
    for (number, owner) in owners.into_iter().enumerate() {
        let at = 0x1000 + number as u64 * 0x80;
        memory.put(at, 0x8000 + number as u64 * 8 + 1);
        memory.put(at + 56, 0x9000);
        memory.put(at + 8, if number + 1 == owners.len() { 0 } else { at + 0x80 });
        memory.put_byte(at + 72, 5);
        memory.put_byte(at + 78, owner);
    }
    let run = follow(&memory, &OWNED).expect("it stands still");
    let calls = run.calls();
    // The last one was there before any call.
    let codes: Vec<Vec<u64>> =
        calls.iter().map(|call| call.iter().map(|at| at.function.code).collect()).collect();
    assert_eq!(codes, [vec![0x8000, 0x8008], vec![0x8018]]);
    let places = |at: &Sent| (at.function.copy(), at.function.instruction());
    assert!(calls.iter().flatten().all(|at| places(at) == (5, 0x9000)));
}

#[test]
fn a_frame_that_is_being_made_is_in_no_call() {
    let memory = flagged(&[(0x8000, 0x8100, 1), (0x8008, 0x8200, 0)]);
    let run = follow(&memory, &FLAGGED).expect("it stands still");
    assert_eq!(run.calls(), [vec![function(0x8000, 0x8101)]]);
}

#[test]
fn an_idle_thread_runs_nothing() {
    let memory = flagged(&[]);
    let mut idle = memory;
    idle.put(0x208, 0);
    assert_eq!(follow(&idle, &FLAGGED), Some(Run::default()));
}

#[test]
fn memory_that_is_another_thread_s_by_now_is_not_followed() {
    let mut memory = flagged(&[(0x8000, 0x8100, 1)]);
    memory.put(0x110, 43);
    assert_eq!(follow(&memory, &FLAGGED), None);
}

#[test]
fn frames_in_a_circle_are_cut() {
    let mut memory = flagged(&[(0x8000, 0x8100, 0)]);
    memory.put(0x1000 + 48, 0x1000);
    let run = follow(&memory, &FLAGGED).expect("it stands still");
    assert_eq!((run.functions.len(), run.is_cut), (MAX_FUNCTIONS, true));
    assert_eq!(run.calls().len(), 1);
}

/// Memory in which one word changes with each read of it.
struct Changing {
    memory: Flat,
    addr: u64,
    n_reads: Cell<u64>,
}

impl Memory for Changing {
    fn read(&self, addr: u64, buffer: &mut [u8]) -> Option<()> {
        self.memory.read(addr, buffer)?;
        let at = usize::try_from(self.addr.wrapping_sub(addr)).ok();
        if let Some(byte) = at.and_then(|at| buffer.get_mut(at)) {
            self.n_reads.set(self.n_reads.get() + 1);
            *byte = byte.wrapping_add(self.n_reads.get() as u8 * 8);
        }
        Some(())
    }
}

#[test]
fn frames_that_change_while_they_are_read_are_dropped() {
    let changing = |addr| {
        let memory = flagged(&[(0x8000, 0x8100, 0), (0x8008, 0x8200, 1)]);
        follow(&Changing { memory, addr, n_reads: Cell::new(0) }, &FLAGGED).is_some()
    };
    assert!(!changing(0x1000 + 32), "another function");
    assert!(!changing(0x1080 + 56), "the caller is elsewhere");
    assert!(changing(0x1000 + 56), "the innermost one goes on");
}

proptest! {
    #[test]
    fn no_memory_makes_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..4096), head in 0..0x1100_u64,
        links in proptest::collection::vec((0..0x1000_u64, 0..0x1000_u64), 0..60),
        interpreter in prop_oneof![Just(FLAGGED), Just(OWNED)],
    ) {
        let mut memory = Flat { start: 0x100, bytes };
        for (at, to) in links {
            memory.put(0x100 + at, 0x100 + to);
        }
        memory.put(0x110, 42);
        if let Some(run) = follow(&memory, &Interpreter { head, ..interpreter }) {
            prop_assert!(run.functions.len() <= MAX_FUNCTIONS);
            prop_assert!(run.calls().iter().map(Vec::len).sum::<usize>() <= MAX_FUNCTIONS);
        }
    }
}
