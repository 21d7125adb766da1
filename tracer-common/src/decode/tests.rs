use super::*;
use crate::interpreter::{Function, Sent};
use proptest::prelude::*;
use std::vec::Vec;

fn record(kind: Kind, flags: u8, words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::from([kind as u8, flags, 7, 0, 42, 0, 0, 0]);
    for word in words {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[test]
fn each_kind_decodes() {
    assert_eq!(
        decode(&record(Kind::Alloc, FLAG_RESIZED, &[0x1000, 64, 0xabc])),
        Ok(Event::Alloc {
            tid: 42,
            family: 7,
            addr: 0x1000,
            size: 64,
            stack: 0xabc,
            resized: true
        })
    );
    assert_eq!(
        decode(&record(Kind::Free, FLAG_REPEAT, &[0x1000])),
        Ok(Event::Free { tid: 42, addr: 0x1000, repeat: true })
    );
    assert_eq!(
        decode(&record(Kind::GiveUp, 0, &[0x1000])),
        Ok(Event::GiveUp { tid: 42, addr: 0x1000, repeat: false })
    );
    assert_eq!(decode(&record(Kind::TakeBack, 0, &[0])), Ok(Event::TakeBack { tid: 42 }));
    assert_eq!(decode(&record(Kind::Release, 0, &[0])), Ok(Event::Release { tid: 42 }));
    assert_eq!(decode(&record(Kind::Mark, 0, &[9])), Ok(Event::Mark { number: 9 }));
}

#[test]
fn a_system_call_decodes() {
    let words = [0x1000, 5000, 0x9000, 8192, 0xabc, 3 | (0x22 << 32)];
    let expected = |change, inside| Range {
        change,
        tid: 42,
        addr: 0x1000,
        len: 5000,
        from: 0x9000,
        from_len: 8192,
        stack: 0xabc,
        protection: 3,
        flags: 0x22,
        inside,
        hold: if change == Change::Map { Some(Hold(0x9000)) } else { None },
    };
    for (kind, change) in [
        (Kind::Map, Change::Map),
        (Kind::Unmap, Change::Unmap),
        (Kind::Unmapped, Change::Unmapped),
        (Kind::UnmapFailed, Change::UnmapFailed),
        (Kind::Remap, Change::Remap),
        (Kind::Protect, Change::Protect),
        (Kind::Break, Change::Break),
    ] {
        let outside = record(kind, 0, &words);
        assert_eq!(decode(&outside), Ok(Event::Range(expected(change, false))));
    }
    let inside = record(Kind::Map, FLAG_INSIDE, &words);
    assert_eq!(decode(&inside), Ok(Event::Range(expected(Change::Map, true))));
}

#[test]
fn a_turn_of_a_process_decodes() {
    let words = |hold| [7, 3, 0xabc, hold, 4711 | (815 << 32)];
    let expected = |turn, hold, shares| {
        Ok(Event::Space(Space {
            turn,
            tid: 42,
            space: 7,
            from: 3,
            stack: 0xabc,
            pid: 4711,
            parent: 815,
            hold,
            shares,
            by_other_thread: false,
        }))
    };
    for (kind, turn) in [
        (Kind::Fork, Turn::Fork),
        (Kind::Born, Turn::Born),
        (Kind::Exec, Turn::Exec),
        (Kind::Thread, Turn::Thread),
        (Kind::Pause, Turn::Pause),
    ] {
        assert_eq!(decode(&record(kind, 0, &words(0))), expected(turn, None, false));
    }
    let hold = 4711 << 32 | 5;
    let held = record(Kind::Born, FLAG_SHARES, &words(hold));
    assert_eq!(decode(&held), expected(Turn::Born, Some(Hold(hold)), true));
    assert_eq!(Hold(hold).process(), 4711);
}

#[test]
fn a_stack_brings_its_frames() {
    let counts = 2_u64 | (u64::from(StackEnd::Broken as u32) << 32);
    let bytes = record(Kind::Stack, 0, &[0xfeed, counts, 0x10, 0x20]);
    let Ok(Event::Stack { tid: 42, hash, frames, end }) = decode(&bytes) else {
        panic!("not a stack: {:?}", decode(&bytes));
    };
    assert_eq!((hash, end), (0xfeed, StackEnd::Broken));
    assert_eq!(frames.iter().collect::<Vec<_>>(), [0x10, 0x20]);
}

#[test]
fn what_is_no_record_is_named() {
    assert_eq!(decode(&[1, 0]), Err(DecodeError::Short { len: 2, needed: 8 }));
    assert_eq!(
        decode(&record(Kind::Alloc, 0, &[1])),
        Err(DecodeError::Short { len: 16, needed: 32 })
    );
    assert_eq!(decode(&[99; 32]), Err(DecodeError::Unknown { number: 99 }));
    let too_many = record(Kind::Stack, 0, &[1, 128 | (1 << 32)]);
    assert_eq!(decode(&too_many), Err(DecodeError::Frames { n_frames: 128 }));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
        let _ = decode(&bytes);
    }
}

#[test]
fn what_an_interpreter_runs_decodes() {
    let words = [0xabc, 2 | 1 << 32, 0x1000, 0x2000, 0x77, 0, 1, 0];
    let bytes = record(Kind::Functions, 0, &words);
    let Ok(Event::Functions(functions)) = decode(&bytes) else { panic!("{:?}", decode(&bytes)) };
    assert_eq!((functions.tid, functions.hash, functions.is_cut), (42, 0xabc, true));
    let found: Vec<_> = functions.iter().collect();
    let sent = |code, place, fingerprint| Sent { function: Function { code, place }, fingerprint };
    let expected = [sent(0x1000, 0x2000, 0x77), sent(0, 1, 0)];
    assert_eq!(found, expected);
    assert_eq!(decode(&bytes[..bytes.len() - 8]), Err(DecodeError::Short { len: 64, needed: 72 }));
    let too_many = record(Kind::Functions, 0, &[0xabc, 129]);
    assert_eq!(decode(&too_many), Err(DecodeError::Frames { n_frames: 129 }));
}
