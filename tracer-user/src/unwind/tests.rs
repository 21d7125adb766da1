mod forms;
mod large;
mod other_unwinder;

use std::{fs, sync::LazyLock};

use proptest::prelude::*;
use tracer_common::{
    event::{MAX_FRAMES, StackEnd},
    unwind::{Rule, RuleKind, SavedFramePointer},
};

use super::{
    finish::{Copied, Finished, Frame, Site, finish},
    table::Table,
};
use crate::target::{
    elf::Elf,
    test_program::{Folder, remove_section_headers},
};

/// Where the stacks of these tests begin.
const SP: u64 = 0x7ffc_0000_1000;

fn stack(words: &[u64]) -> Copied {
    let mut copied = Copied::default();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert!(copied.push(SP, &bytes), "the first piece follows nothing");
    copied
}

fn at_sp(cfa_offset: i32) -> Site {
    Site::Said(Rule::plain(RuleKind::StackPointer, cfa_offset))
}

fn walk(words: &[u64], fp: u64, site: impl FnMut(u64) -> Site) -> (Vec<u64>, Finished) {
    let mut frames = vec![0x1000];
    let frame = Frame { return_addr: 0x1000, sp: SP, fp, context: 0 };
    let finished = finish(&mut frames, frame, &stack(words), site);
    (frames, finished)
}

#[test]
fn frames_are_left_by_their_rules_up_to_the_outermost() {
    // One frame of 16 bytes by the stack pointer, then one by the frame pointer, which the first
    // has saved.
    let by_fp = SP + 48;
    let words = [by_fp, 0x2000, 7, 7, 7, 7, 0, 0x3000];
    let (frames, finished) = walk(&words, 0xbad, |site| match site {
        0x1000 => Site::Said(Rule {
            saved: SavedFramePointer::AtCfa(-16),
            ..Rule::plain(RuleKind::StackPointer, 16)
        }),
        0x2000 => Site::Said(Rule::FRAME_POINTER),
        _ => Site::Said(Rule::OUTERMOST),
    });
    assert_eq!(frames, [0x1000, 0x2000, 0x3000]);
    assert_eq!(finished, Finished { end: StackEnd::Whole, misled_by: None });
}

#[test]
fn a_signal_is_left_for_the_interrupted_instruction() {
    // A `sigcontext` 16 bytes above the stack pointer: rbp at 80, rsp at 120, rip at 128.
    let mut words = [0_u64; 24];
    words[2 + 10] = 0xf00;
    words[2 + 15] = SP + 184;
    words[2 + 16] = 0x2000;
    words[23] = 0x3000;
    let signal = Rule::plain(RuleKind::Signal, 16);
    let (frames, finished) = walk(&words, 0xbad, |site| match site {
        0x1000 => Site::Said(signal),
        // Not the address behind a call: the rule of the instruction itself is asked for.
        0x2001 => at_sp(8),
        _ => Site::Said(Rule::OUTERMOST),
    });
    assert_eq!(frames, [0x1000, 0x2001, 0x3000]);
    assert_eq!(finished.end, StackEnd::Whole);
}

#[test]
fn a_stack_that_was_realigned_is_left_by_what_it_remembers() {
    // The frame pointer is saved where it points, the CFA eight bytes below.
    let fp = SP + 16;
    let words = [7, SP + 40, 0x99, 7, 0x2000];
    let rule = Rule {
        saved: SavedFramePointer::AtFramePointer(0),
        ..Rule::plain(RuleKind::FramePointerMemory, -8)
    };
    let (frames, _) = walk(&words, fp, |site| match site {
        0x1000 => Site::Said(rule),
        _ => Site::Said(Rule::UNKNOWN),
    });
    assert_eq!(frames, [0x1000, 0x2000]);
}

#[test]
fn a_stack_that_was_realigned_by_assembly_is_left_by_what_lies_at_the_stack_pointer() {
    let rule = Rule { beyond: 8, ..Rule::plain(RuleKind::StackPointerMemory, 8) };
    let words = [7, SP + 24, 7, 0x2000];
    let (frames, _) = walk(&words, 0xbad, |site| match site {
        0x1000 => Site::Said(rule),
        _ => Site::Said(Rule::OUTERMOST),
    });
    assert_eq!(frames, [0x1000, 0x2000]);
}

#[test]
fn a_register_of_interrupted_code_is_of_use_in_its_own_frame() {
    // The `sigcontext` lies at the stack pointer: its third word is r10.
    let mut words = [0_u64; 24];
    words[2] = SP + 184;
    words[15] = SP + 160;
    words[16] = 0x2000;
    words[22] = 0x3000;
    let interrupted = Rule { beyond: 0, ..Rule::plain(RuleKind::Interrupted, 16) };
    let sites = |site| match site {
        0x1000 => Site::Said(Rule::plain(RuleKind::Signal, 0)),
        _ => Site::Said(interrupted),
    };
    let (frames, finished) = walk(&words, 0xbad, sites);
    // The caller of the interrupted code may have anything in that register.
    assert_eq!(frames, [0x1000, 0x2001, 0x3000]);
    assert_eq!(finished, Finished { end: StackEnd::Broken, misled_by: None });
}

#[test]
fn a_guess_that_leads_into_no_code_is_taken_back() {
    let (frames, finished) = walk(&[7, 7, 0, 0xbad0], SP + 16, |site| match site {
        0x1000 => Site::Guessed,
        _ => Site::NoCode,
    });
    assert_eq!(frames, [0x1000]);
    assert_eq!(finished, Finished { end: StackEnd::Broken, misled_by: Some(0x1000) });
}

#[test]
fn a_guess_does_not_know_where_a_thread_begins() {
    let (frames, finished) = walk(&[7, 7], 0, |_| Site::Guessed);
    assert_eq!((frames.len(), finished.end), (1, StackEnd::Broken));
    // A zero in the place of the return address: where a table has led to it, there is no caller.
    let words = [7, 0];
    let (_, finished) = walk(&words, SP, |_| Site::Guessed);
    assert_eq!(finished.end, StackEnd::Broken);
    let (_, finished) = walk(&words, SP, |_| Site::Said(Rule::FRAME_POINTER));
    assert_eq!(finished.end, StackEnd::Whole);
}

#[test]
fn a_stack_of_more_frames_than_are_taken_says_so() {
    let words = vec![0x1000; MAX_FRAMES + 10];
    let (frames, finished) = walk(&words, 0, |_| at_sp(8));
    assert_eq!((frames.len(), finished.end), (MAX_FRAMES, StackEnd::DepthLimit));
}

#[test]
fn a_piece_that_does_not_follow_is_not_taken() {
    let mut copied = stack(&[1, 2]);
    assert!(!copied.push(SP + 8, &[0; 8]));
    assert!(copied.push(SP + 16, &[0; 8]));
    assert!(!copied.push(SP, &[0; 8]));
}

#[test]
fn a_frame_with_a_page_that_was_never_written_is_left() {
    let mut copied = stack(&[7]);
    let cfa = SP + 0x3000;
    assert!(copied.push(cfa - 16, &[0x2000_u64, 0x2000].map(u64::to_ne_bytes).concat()));
    let frame = Frame { return_addr: 0x1000, sp: SP, fp: 0, context: 0 };
    let mut frames = vec![0x1000];
    let finished = finish(&mut frames, frame, &copied, |site| match site {
        0x1000 => at_sp(0x3000),
        _ => Site::Said(Rule::OUTERMOST),
    });
    assert_eq!((frames, finished.end), (vec![0x1000, 0x2000], StackEnd::Whole));
    // What was not there is not read.
    let (frames, finished) = walk(&[7], 0, |_| at_sp(0x2000));
    assert_eq!((frames.len(), finished.end), (1, StackEnd::Broken));
}

proptest! {
    #[test]
    fn no_stack_and_no_rules_make_a_walk_panic_or_endless(
        words in proptest::collection::vec(
            prop_oneof![any::<u64>(), (0_u64..4096).prop_map(|at| SP + at)], 0..64),
        fp in (0_u64..1024).prop_map(|at| SP + at),
        rules in proptest::collection::vec(any::<u32>().prop_map(Rule::unpack), 1..16),
    ) {
        let (frames, finished) = walk(&words, fp, |site| {
            match rules[usize::try_from(site % rules.len() as u64).expect("small")] {
                Some(rule) => Site::Said(rule),
                None => Site::Guessed,
            }
        });
        prop_assert!(frames.len() <= MAX_FRAMES);
        prop_assert_ne!(finished.end, StackEnd::Unfinished);
    }
}

static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = "
        void take(void *);
        int plain(int x) { char room[100]; take(room); return x; }
        int any(int n) { char room[n]; take(room); return n; }
        void aligned(void) { char room[64] __attribute__((aligned(64))); take(room); }
    ";
    let flags = ["-shared", "-fPIC", "-O2", "-gdwarf-4"];
    fs::read(Folder::new().compile("library.so", source, &flags)).expect("just made")
});

#[test]
fn rows_have_an_order_and_an_end() {
    let table = Table::compile(&Elf::parse(LIBRARY.as_slice()).expect("an object"));
    let rows = table.rows();
    assert!(rows.len() > 10, "{rows:?}");
    assert!(rows.windows(2).all(|pair| pair[0].offset() < pair[1].offset()));
    assert_eq!(rows.last().map(|row| row.rule()), Some(0));
    let kinds: Vec<_> = rows.iter().filter_map(|row| Rule::unpack(row.rule())).collect();
    for kind in [RuleKind::StackPointer, RuleKind::FramePointer] {
        assert!(kinds.iter().any(|rule| rule.kind == kind), "{kind:?} in {kinds:?}");
    }
}

#[test]
fn rows_are_the_same_without_section_headers() {
    let mut bare = LIBRARY.clone();
    remove_section_headers(&mut bare);
    let [whole, bare] = [&LIBRARY, &bare].map(|bytes| Elf::parse(bytes).expect("an object"));
    assert!(bare.section(".text").is_none());
    assert_eq!(Table::compile(&bare), Table::compile(&whole));
}

#[test]
fn an_object_without_tables_has_no_rows() {
    let source = "int f(void) { return 1; }";
    let flags = ["-shared", "-fno-asynchronous-unwind-tables", "-nostdlib", "-O2"];
    let bytes = fs::read(Folder::new().compile("bare.so", source, &flags)).expect("just made");
    assert_eq!(Table::compile(&Elf::parse(bytes).expect("an object")), Table::default());
}

/// A table of functions of one byte each, which share an entry of `n_shared` instructions that say
/// nothing new.
fn sharing(n_functions: usize, n_shared: usize) -> Table {
    let source = format!(
        r#"__asm__(".text\ncode: .zero {n_functions}\n"
           ".section .eh_frame, \"a\", @progbits\n"
           "shared: .long 1f - 0f\n0: .long 0\n.byte 1\n.asciz \"zR\"\n"
           ".byte 1, 0x78, 16, 1, 0x1b, 0xc, 7, 8, 0x90, 1\n.fill {n_shared}, 2, 0x080e\n1:\n"
           ".set at, 0\n.rept {n_functions}\n"
           ".long 16\n2: .long 2b - shared\n.long code - . + at\n.long 1\n"
           ".byte 0, 0xe, 16 + 8 * (at % 2), 0\n.set at, at + 1\n.endr\n");"#
    );
    let flags = ["-shared", "-nostdlib", "-fno-asynchronous-unwind-tables"];
    let bytes = fs::read(Folder::new().compile("sharing.so", &source, &flags)).expect("just made");
    Table::compile(&Elf::parse(bytes).expect("an object"))
}

#[test]
fn what_functions_share_is_not_read_without_end() {
    // Each has another rule, and behind the last there is none.
    assert_eq!(sharing(1000, 1).rows().len(), 1001);
    let n_rows = sharing(1000, 10_000).rows().len();
    assert!((17..100).contains(&n_rows), "{n_rows} rows");
}

proptest! {
    #[test]
    fn no_table_makes_the_compiler_panic(
        changes in proptest::collection::vec(
            (any::<bool>(), any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        let mut bytes = LIBRARY.clone();
        let (at, len) = {
            let elf = Elf::parse(LIBRARY.as_slice()).expect("an object");
            let (_, section) = elf.section(".eh_frame").expect("a table");
            (section.as_ptr().addr() - LIBRARY.as_ptr().addr(), section.len())
        };
        for (in_table, index, byte) in changes {
            let place = if in_table { at + index.index(len) } else { index.index(bytes.len()) };
            bytes[place] = byte;
        }
        let Ok(elf) = Elf::parse(bytes) else { return Ok(()) };
        let table = Table::compile(&elf);
        let rows = table.rows();
        prop_assert!(rows.windows(2).all(|pair| pair[0].offset() < pair[1].offset()));
        prop_assert!(rows.iter().all(|row| row.rule() == 0 || Rule::unpack(row.rule()).is_some()));
    }
}
