use proptest::prelude::*;

use super::*;

/// What a 3.13 begins with, by its `offsetof`.
const OF_3_13: &[u64] = &[
    u64::from_ne_bytes(*b"xdebugpy"),
    0x030d_05f0,
    0, // head
    283_320,
    0,
    632, // runtime
    194_968,
    0,
    7264,
    7344,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9, // interpreter
    304,
    0,
    8,
    16,
    72,
    152,
    160,
    5,
    6, // thread
    80,
    8,
    0,
    56,
    72,
    70, // frame
    208,
    112,
    120,
    128,
    136,
    68,
    52,
    96,
    104,
    200, // code
    16,
    8, // object
    1,
    2,
    3,
    4,
    1,
    2,
    3,
    1,
    2,
    3,
    1,
    2,
    3,
    1,
    2,
    1,
    2,
    3, // type, tuple, list, dict, float, int
    40,
    16,
    32, // bytes
    64,
    32,
    16,
    40, // text
    1,
    2, // collector
];

/// The same of a 3.14 whose threads run without a lock.
const OF_3_14: &[u64] = &[
    u64::from_ne_bytes(*b"xdebugpy"),
    0x030e_00f0,
    1, // head
    316_616,
    0,
    808, // runtime
    225_864,
    0,
    7272,
    7344,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11, // interpreter
    832,
    0,
    8,
    16,
    72,
    152,
    160,
    5,
    6, // thread
    88,
    8,
    0,
    56,
    80,
    78,
    64,
    72, // frame
    232,
    128,
    136,
    144,
    152,
    84,
    52,
    96,
    104,
    224,
    216, // code
    32,
    24, // object
    1,
    2,
    3,
    4,
    1,
    2,
    3,
    1,
    2,
    3,
    1,
    2,
    3,
    4,
    1,
    2,
    3,
    1,
    2,
    1,
    2,
    3, // type … int, with set
    56,
    32,
    48, // bytes
    80,
    48,
    32,
    56, // text
    1,
    2, // collector
];

fn head(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(HEAD, 0);
    bytes
}

#[test]
fn a_3_13_tells_its_offsets() {
    let layout = Layout::of(0x030d_05f0, &head(OF_3_13)).expect("a layout");
    let frame = FrameLayout {
        code: 0,
        previous: 8,
        instruction: 56,
        bytecode_index: None,
        entry: Entry::Owner { owner: 70, first: 3 },
    };
    let code = CodeLayout { parts: 112, first_line: 68, instructions: 200, copies: None };
    let expected = Layout {
        interpreters_head: 632,
        interpreter_next: 7264,
        threads_head: 7344,
        thread_next: 8,
        native_id: 160,
        current: Current::At(72),
        frame,
        code,
        object_type: 8,
        text: TextLayout { length: 16, state: 32, kind_shift: 2, ascii: 40, wide: 56 },
        bytes: BytesLayout { size: 16, data: 32 },
    };
    assert_eq!(layout, expected);
}

#[test]
fn a_3_14_without_a_lock_has_copies_of_its_code() {
    let layout = Layout::of(0x030e_00f0, &head(OF_3_14)).expect("a layout");
    assert_eq!((layout.interpreters_head, layout.threads_head), (808, 7344));
    assert_eq!(layout.frame.bytecode_index, Some(72));
    assert_eq!((layout.code.copies, layout.code.instructions), (Some(216), 224));
    assert_eq!((layout.object_type, layout.bytes.data), (24, 48));
    let text = TextLayout { length: 32, state: 48, kind_shift: 8, ascii: 56, wide: 72 };
    assert_eq!(layout.text, text);
    let locked: Vec<u64> =
        OF_3_14.iter().enumerate().map(|(at, word)| if at == 2 { 0 } else { *word }).collect();
    let layout = Layout::of(0x030e_00f0, &head(&locked)).expect("a layout");
    assert_eq!((layout.frame.bytecode_index, layout.code.copies), (None, None));
    assert_eq!(layout.text.kind_shift, 2);
}

#[test]
fn a_thread_is_followed_by_its_layout() {
    let of_3_11 = Layout::of(0x030b_02f0, &[]).expect("a layout").interpreter(7, 0x1000, 42);
    let expected = Interpreter {
        space: 7,
        owner_at: 0x1000 + 160,
        owner: 42,
        head: 0x1000 + 56,
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
    assert_eq!(of_3_11, expected);
    let of_3_14 =
        Layout::of(0x030e_00f0, &head(OF_3_14)).expect("a layout").interpreter(7, 0x1000, 42);
    assert_eq!((of_3_14.head, of_3_14.behind, of_3_14.len), (0x1000 + 72, NOT_BEHIND, 80));
    assert_eq!((of_3_14.mark, of_3_14.mark_from, of_3_14.copy), (78, 3, 72));
}

#[test]
fn what_is_not_known_is_not_read() {
    assert_eq!(Layout::of(0x030a_0df0, &[]), None);
    assert_eq!(Layout::of(0x030f_00f0, &head(OF_3_14)), None);
    assert_eq!(Layout::of(0x040d_00f0, &head(OF_3_13)), None);
    // Neither the cookie nor the version of somebody else.
    assert_eq!(Layout::of(0x030d_05f0, &head(&OF_3_13[1..])), None);
    assert_eq!(Layout::of(0x030d_05f0, &head(OF_3_14)), None);
    let cut = head(OF_3_13);
    assert_eq!(Layout::of(0x030d_05f0, &cut[..200]), None);
}

proptest! {
    #[test]
    fn no_offsets_lead_out_of_what_is_read(
        words in proptest::collection::vec(prop_oneof![0..200_u64, any::<u64>()], 120),
        minor in 13..15_u64,
    ) {
        let version = 3 << 24 | minor << 16;
        let mut words = words;
        words[0] = OF_3_13[0];
        words[1] = version;
        let Some(layout) = Layout::of(version, &head(&words)) else { return Ok(()) };
        let interpreter = layout.interpreter(1, u64::MAX, 1);
        prop_assert!(interpreter.len as usize <= MAX_FRAME);
        let last = [interpreter.code, interpreter.instruction, interpreter.previous];
        prop_assert!(last.iter().all(|offset| offset + 8 <= interpreter.len));
    }
}
