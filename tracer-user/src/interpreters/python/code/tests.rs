use proptest::prelude::*;

use tracer_common::interpreter::Sent;

use super::*;
use crate::interpreters::memory::Flat;
use crate::interpreters::python::{Codes, Named, Python};
use crate::target::elf::ObjectAddr;

/// The tables of these two functions are CPython 3.11's own, and so are the answers: `co_lines`.
///
/// ```python
/// def long():
///     …                      # lines 2 to 71
///     a = 1
///     …                      # three thousand lines
///     b = 2
///     return (a +
///             …              # 200 spaces
///             b)
/// ```
#[rustfmt::skip]
const LONG: &[u8] = &[
    128, 0, 240, 78, 2, 0, 9, 10, 128, 65, 240, 114, 93, 1, 0, 9, 10, 128, 65, 216, 12, 13, 240, 2,
    0, 73, 3, 74, 3, 241, 3, 1, 13, 74, 3, 240, 0, 1, 5, 75, 3,
];

/// With a comprehension, a `try` and a `with`, whose clean-up has no line.
#[rustfmt::skip]
const SHORT: &[u8] = &[
    128, 0, 225, 18, 19, 243, 3, 1, 9, 21, 217, 18, 19, 136, 81, 243, 3, 0, 10, 11, 217, 18, 19,
    240, 3, 0, 5, 6, 240, 0, 1, 9, 21, 240, 4, 8, 5, 21, 216, 15, 16, 216, 12, 13, 241, 3, 2, 16,
    10, 228, 12, 13, 136, 97, 240, 6, 0, 15, 16, 243, 7, 3, 13, 17, 241, 5, 5, 16, 17, 247, 14, 0,
    14, 15, 139, 81, 249, 242, 21, 1, 9, 21, 247, 20, 0, 14, 15, 141, 81, 251, 143, 81, 143, 81,
    143, 81, 137, 81, 253,
];

fn check(table: &[u8], answers: &[(u64, u64, Option<u32>)]) {
    for (start, end, line) in answers {
        for distance in *start..*end {
            assert_eq!(line_at(table, 1, distance), *line, "at {distance}");
        }
    }
    let end = answers.last().expect("some").1;
    assert_eq!(line_at(table, 1, end), None, "behind the end");
}

#[test]
fn lines_that_are_far_apart() {
    let (a, b) = (Some(72), Some(3073));
    let answers = [
        (0, 2, Some(1)),
        (2, 6, a),
        (6, 10, b),
        (10, 12, Some(3074)),
        (12, 14, Some(3075)),
        (14, 20, Some(3074)),
    ];
    check(LONG, &answers);
}

#[test]
fn lines_that_go_back_and_instructions_without_a_line() {
    let line = Some;
    let answers = [
        (0, 2, line(1)),
        (2, 6, line(3)),
        (6, 14, line(2)),
        (14, 20, line(3)),
        (20, 28, line(2)),
        (28, 32, line(3)),
        (32, 36, line(2)),
        (36, 38, line(4)),
        (38, 40, line(5)),
        (40, 42, line(6)),
        (42, 46, line(5)),
        (46, 58, line(7)),
        (58, 60, line(10)),
        (60, 68, line(7)),
        (68, 72, line(5)),
        (72, 96, line(12)),
        (96, 100, None),
        (100, 106, line(2)),
        (106, 134, line(12)),
        (134, 142, None),
        (142, 194, line(12)),
        (194, 206, None),
    ];
    check(SHORT, &answers);
}

#[test]
fn an_entry_without_columns() {
    // Code 13, two instructions, five lines further; then one line back.
    assert_eq!(line_at(&[0x80 | 13 << 3 | 1, 10, 0x80 | 13 << 3, 3], 100, 3), Some(105));
    assert_eq!(line_at(&[0x80 | 13 << 3 | 1, 10, 0x80 | 13 << 3, 3], 100, 4), Some(104));
}

const TYPES: Types<u64> = Types { code: 0x7000, text: 0x7100, bytes: 0x7200 };

const LAYOUT: fn() -> Layout = || Layout::of(0x030c_01f0, &[]).expect("a layout");

/// A `str` of 3.12.
fn string(text: &str) -> Vec<u8> {
    let widest = text.chars().map(u32::from).max().unwrap_or(0);
    let (kind, is_ascii) = match widest {
        0..0x80 => (1, true),
        0x80..0x100 => (1, false),
        0x100..0x1_0000 => (2, false),
        _ => (4, false),
    };
    let mut bytes = vec![0; 64];
    bytes[0] = 1;
    bytes[8..16].copy_from_slice(&TYPES.text.to_ne_bytes());
    bytes[16..24].copy_from_slice(&(text.chars().count() as u64).to_ne_bytes());
    let state = kind << 2 | 1 << 5 | u32::from(is_ascii) << 6;
    bytes[32..36].copy_from_slice(&state.to_ne_bytes());
    bytes.truncate(if is_ascii { 40 } else { 56 });
    for char in text.chars() {
        bytes.extend(&u32::from(char).to_le_bytes()[..kind as usize]);
    }
    bytes.resize(bytes.len().max(64), 0);
    bytes
}

fn read(bytes: Vec<u8>) -> Option<String> {
    text(&Flat { start: 0x1000, bytes }, &LAYOUT(), TYPES.text, 0x1000)
}

#[test]
fn texts_of_every_width() {
    for text in ["", "leak_here", "naïve", "ключ", "a🐍b", "<module>"] {
        assert_eq!(read(string(text)).as_deref(), Some(text));
    }
    assert_eq!(read(string(&"x".repeat(5000))), Some("x".repeat(1024)));
}

#[test]
fn what_is_no_text_is_not_read() {
    let mut bytes = string("leak_here");
    bytes[32] &= !(1 << 5);
    assert_eq!(read(bytes), None, "its characters lie elsewhere");
    let mut bytes = string("leak_here");
    bytes[32] |= 3 << 2;
    assert_eq!(read(bytes), None, "no width");
    let mut bytes = string("leak_here");
    bytes[16..24].fill(0xff);
    assert_eq!(read(bytes), None, "no length");
}

/// A code object of 3.12 with ten instructions, its name, its file and its table of lines.
fn code() -> Flat {
    let mut memory = Flat { start: 0x1000, bytes: vec![0; 0x400] };
    memory.put(0x1000, 1);
    memory.put(0x1008, TYPES.code);
    memory.put(0x1300, 1);
    memory.put(0x1308, TYPES.bytes);
    memory.put(0x1010, 10);
    memory.put_byte(0x1000 + 68, 7);
    for (offset, addr) in [(112, 0x1200_u64), (120, 0x1240), (128, 0x1280), (136, 0x1300)] {
        memory.put(0x1000 + offset, addr);
    }
    for (addr, bytes) in [(0x1200_u64, string("a.py")), (0x1280, string("made"))] {
        for (at, byte) in (addr..).zip(bytes) {
            memory.put_byte(at, byte);
        }
    }
    memory.put(0x1240 + 24, 0xade);
    memory.put(0x1280 + 24, 0x5eed);
    memory
}

fn parts(memory: &Flat) -> Option<Parts> {
    Parts::read(memory, &LAYOUT(), &TYPES, 0x1000)
}

#[test]
fn code_that_was_thrown_away_is_none() {
    let mut memory = code();
    assert!(parts(&memory).is_some());
    // The next free place, and the end of those.
    for first_word in [0x7f12_3456_7890, 0] {
        memory.put(0x1000, first_word);
        assert_eq!(parts(&memory), None, "{first_word:#x}");
    }
    // Counts of objects that are never thrown away, in 3.11, 3.12 and 3.14.
    for count in [999_999_999, 0xffff_ffff, 4 << 48 | 3 << 30] {
        memory.put(0x1000, count);
        assert!(parts(&memory).is_some(), "{count:#x}");
    }
}

#[test]
fn another_name_at_the_same_place_is_another_code() {
    let mut memory = code();
    let before = parts(&memory);
    memory.put(0x1280 + 24, 0x0dd);
    assert_ne!(parts(&memory), before);
}

#[test]
fn a_name_that_was_thrown_away_is_not_read() {
    let mut memory = code();
    let read = |memory: &Flat| Code::read(memory, &LAYOUT(), &TYPES, &parts(memory)?);
    assert_eq!(read(&memory).expect("code").name.as_ref(), "made");
    memory.put(0x1280, 0x7f12_3456_7890);
    assert_eq!(read(&memory), None);
}

#[test]
fn an_instruction_outside_is_of_other_code() {
    let memory = code();
    let parts = parts(&memory).expect("code");
    let distance = |instruction: u64| {
        parts.distance(&memory, &LAYOUT(), Function::new(0x1000, instruction, 0, 0, 0))
    };
    let first = 0x1000 + 192;
    assert_eq!(distance(first - 4), None);
    assert_eq!(distance(first - 2), Some(-2));
    assert_eq!(distance(first + 18), Some(18));
    assert_eq!(distance(first + 20), None);
}

/// What the function is called that the kernel side saw with this fingerprint, and whether that is
/// certain. `None` when its code is gone.
fn named(codes: &mut Codes, memory: &Flat, fingerprint: u64) -> Option<(String, bool)> {
    let Types { code, text, bytes } = TYPES;
    let types = Types { code: ObjectAddr(code), text: ObjectAddr(text), bytes: ObjectAddr(bytes) };
    let python = Python { layout: LAYOUT(), runtime: ObjectAddr(0), types };
    let function = Function::new(0x1000, 0x1000 + 192, 0, 0, 0);
    match python.name(memory, 0, Sent { function, fingerprint }, codes) {
        Named::Function(function) => Some((function.name.to_string(), function.is_certain)),
        Named::MadeUp => panic!("it has a file"),
        Named::Gone => None,
    }
}

#[test]
fn code_in_the_place_of_what_was_seen_is_not_taken_for_it() {
    let mut memory = code();
    let codes = &mut Codes::default();
    let seen = parts(&memory).expect("code").fingerprint();
    let certain = Some(("made".to_owned(), true));
    assert_eq!(named(codes, &memory, seen), certain);
    let mut renamed = code();
    renamed.put(0x1240 + 24, 0xb0b);
    assert_eq!(named(codes, &renamed, seen), None);
    // Another one takes its place, with a table of its own.
    memory.put(0x1380, 1);
    memory.put(0x1388, TYPES.bytes);
    memory.put(0x1000 + 136, 0x1380);
    assert_eq!(named(codes, &memory, seen), None);
    assert_eq!(named(codes, &memory, parts(&memory).expect("code").fingerprint()), certain);
    assert_eq!(named(codes, &memory, 0), Some(("made".to_owned(), false)), "nobody saw it");
}

#[test]
fn code_that_looks_like_what_was_seen_is_marked() {
    let mut memory = code();
    let codes = &mut Codes::default();
    let seen = parts(&memory).expect("code").fingerprint();
    assert_eq!(named(codes, &memory, seen), Some(("made".to_owned(), true)));
    // The whole name had no hash yet.
    memory.put(0x1280 + 24, 0x0dd);
    assert_eq!(named(codes, &memory, seen), Some(("made".to_owned(), true)));
    // All of its parts were thrown away, and others are in their places; only its own name is the same.
    memory.put(0x1280 + 24, 0x0ff);
    memory.put_byte(0x1280 + 40, b'f');
    assert_eq!(named(codes, &memory, seen), Some(("fade".to_owned(), false)));
}

proptest! {
    #[test]
    fn no_table_makes_it_panic(
        table in proptest::collection::vec(any::<u8>(), 0..300), first in any::<u32>(),
        distance in any::<u64>(),
    ) {
        let _ = line_at(&table, first, distance);
        let _ = line_at(&table, first, distance % 600);
    }

    #[test]
    fn no_memory_makes_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0x1000..0x1200_u64,
        instruction in any::<u64>(),
    ) {
        let (memory, layout) = (Flat { start: 0x1000, bytes }, LAYOUT());
        let object_type = memory.word(at + 8).unwrap_or(0);
        let types = Types { code: object_type, text: object_type, bytes: object_type };
        let _ = text(&memory, &layout, object_type, at);
        if let Some(parts) = Parts::read(&memory, &layout, &types, at) {
            let function = Function::new(at, instruction, 0, 0, 0);
            let _ = parts.distance(&memory, &layout, function);
            let _ = Code::read(&memory, &layout, &types, &parts);
            let nearby = Parts { pointers: [at; N_PARTS], ..parts };
            let _ = Code::read(&memory, &layout, &types, &nearby);
        }
    }
}
