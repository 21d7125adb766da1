//! Forms of unwind tables that people write, and the rules that they become.

use std::fs;

use tracer_common::unwind::{Rule, RuleKind, SavedFramePointer};

use super::super::{rule::rules_of_stubs, table::Table};
use crate::target::{
    elf::{Elf, ObjectAddr, Table as Symbols},
    test_program::Folder,
};

/// A library of this assembly: its table, and where its functions are.
struct Assembled {
    elf: Elf<Vec<u8>>,
    table: Table,
}

impl Assembled {
    fn new(assembly: &str, flags: &[&str]) -> Self {
        let lines: String = assembly.lines().map(|line| format!("\"{line}\\n\"\n")).collect();
        let source = format!("__asm__({lines});");
        let flags = [&["-shared", "-fPIC", "-nostdlib"], flags].concat();
        let folder = Folder::new();
        let path = folder.compile("forms.so", &source, &flags);
        let elf = Elf::parse(fs::read(path).expect("just made")).expect("an object");
        let table = Table::compile(&elf);
        Self { elf, table }
    }

    /// Of the byte so far behind a function's beginning.
    fn rule(&self, function: &str, within: u64) -> Option<Rule> {
        let functions = self.elf.functions(Symbols::Full, |name| name == function);
        let start = functions.expect("symbols").first().expect("it is there").addr.0;
        self.table.rule(self.elf.file_offset(ObjectAddr(start + within)).expect("it is code").0)
    }
}

fn in_memory(kind: RuleKind, cfa_offset: i32, beyond: u16) -> Rule {
    Rule { beyond, ..Rule::plain(kind, cfa_offset) }
}

#[test]
fn a_cfa_that_is_in_memory() {
    let assembled = Assembled::new(
        ".type f, @function
         f: .cfi_startproc
         nop
         .cfi_escape 0x0f, 5, 0x77, 40, 0x06, 0x23, 8
         nop
         .cfi_escape 0x0f, 3, 0x76, 0x78, 0x06
         nop
         .cfi_escape 0x0f, 6, 0x77, 40, 0x06, 0x23, 0x80, 8
         nop
         .cfi_escape 0x0f, 4, 0x77, 40, 0x94, 4
         nop
         .cfi_escape 0x0f, 3, 0x73, 40, 0x06
         nop
         .cfi_endproc",
        &[],
    );
    assert_eq!(assembled.rule("f", 0), Some(Rule::plain(RuleKind::StackPointer, 8)));
    let expected = [
        in_memory(RuleKind::StackPointerMemory, 40, 8),
        in_memory(RuleKind::FramePointerMemory, -8, 0),
        // Too far beyond, four bytes of memory, and a register that is not followed.
        Rule::UNKNOWN,
        Rule::UNKNOWN,
        Rule::UNKNOWN,
    ];
    for (within, expected) in (1..).zip(expected) {
        assert_eq!(assembled.rule("f", within), Some(expected), "byte {within}");
    }
}

#[test]
fn a_cfa_that_is_a_register_of_interrupted_code() {
    let assembled = Assembled::new(
        ".type f, @function
         f: .cfi_startproc
         nop
         .cfi_def_cfa %r10, 0
         nop
         .cfi_def_cfa %rax, 16
         .cfi_offset %rbp, -16
         nop
         .cfi_endproc",
        &[],
    );
    let interrupted = |place, beyond| in_memory(RuleKind::Interrupted, place, beyond);
    assert_eq!(assembled.rule("f", 1), Some(interrupted(16, 0)));
    let saved = SavedFramePointer::AtCfa(-16);
    assert_eq!(assembled.rule("f", 2), Some(Rule { saved, ..interrupted(104, 16) }));
}

/// Each call, of five bytes, is followed by an instruction of one.
const REMEMBERS: &str = ".text
    .type entry, @function
    entry: .cfi_startproc
    .cfi_def_cfa %rbx, 24
    call saves
    nop
    call saves_late
    nop
    call leaves
    nop
    call *%rax
    nop
    .cfi_endproc
    .type saves, @function
    saves: .cfi_startproc
    push %r12
    .cfi_def_cfa_offset 16
    push %rbx
    .cfi_def_cfa_offset 24
    .cfi_offset %rbx, -24
    call *%rax
    pop %rbx
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .type saves_late, @function
    saves_late: .cfi_startproc
    call *%rax
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    ret
    .cfi_endproc
    .type leaves, @function
    leaves: .cfi_startproc
    ret
    .cfi_endproc";

#[test]
fn a_cfa_that_is_kept_in_a_register_is_where_the_called_function_saves_it() {
    let assembled = Assembled::new(REMEMBERS, &[]);
    let elsewhere = in_memory(RuleKind::Interrupted, 88, 24);
    // The last byte of the call: what a return address stands for.
    let remembered = in_memory(RuleKind::StackPointerMemory, -24, 24);
    let expected = (0..20).map(|within| if within == 4 { remembered } else { elsewhere });
    for (within, expected) in (0..).zip(expected) {
        assert_eq!(assembled.rule("entry", within), Some(expected), "byte {within}");
    }
}

#[test]
fn code_is_not_looked_through_without_end() {
    let long =
        REMEMBERS.replacen("call *%rax\n    nop", "call *%rax\n    .fill 5 << 20, 1, 0x90", 1);
    assert_ne!(long, REMEMBERS);
    let assembled = Assembled::new(&long, &[]);
    let expected = in_memory(RuleKind::Interrupted, 88, 24);
    assert_eq!(assembled.rule("entry", 4), Some(expected));
}

#[test]
fn stubs_have_pushed_a_word_from_some_byte_on() {
    let rules = |start, end, from| rules_of_stubs(start..end, from).collect::<Vec<_>>();
    let [called, pushed] = [8, 16].map(|cfa| Rule::plain(RuleKind::StackPointer, cfa));
    let expected = [(0x1000, called), (0x100b, pushed), (0x1010, called), (0x101b, pushed)];
    assert_eq!(rules(0x1000, 0x1020, 11), expected);
    // A range that begins and ends in the middle.
    assert_eq!(rules(0x100c, 0x1018, 11), [(0x100c, pushed), (0x1010, called)]);
    assert_eq!(rules(0x1001, 0x1002, 11), [(0x1001, called)]);
    assert_eq!(rules(5, 5, 11), []);
    let last = u64::MAX - 20;
    assert_eq!(rules(last, u64::MAX, 1).len(), 3);
}

#[test]
fn what_a_linker_says_of_stubs_is_followed() {
    // What BFD's linker writes, and a program that has functions of others called.
    let assembled = Assembled::new(
        ".type f, @function
         f: .cfi_startproc
         call elsewhere@PLT
         call other@PLT
         .cfi_endproc",
        &["-fuse-ld=bfd"],
    );
    let (plt, code) = assembled.elf.section(".plt").expect("stubs");
    assert_eq!(code.len(), 3 * 16);
    for stub in [1, 2] {
        for within in 0..16 {
            let offset = assembled.elf.file_offset(ObjectAddr(plt.0 + 16 * stub + within));
            let rule = assembled.table.rule(offset.expect("it is code").0);
            let cfa_offset = if within < 11 { 8 } else { 16 };
            let expected = Rule::plain(RuleKind::StackPointer, cfa_offset);
            assert_eq!(rule, Some(expected), "byte {within} of stub {stub}");
        }
    }
}

#[test]
fn frames_of_many_megabytes() {
    let assembled = Assembled::new(
        ".type f, @function
         f: .cfi_startproc
         .cfi_offset %rbp, -48
         nop
         .cfi_def_cfa_offset 0x3fffff8
         nop
         .cfi_def_cfa_offset 0x4000000
         nop
         .cfi_endproc",
        &[],
    );
    let rule = |cfa_offset| {
        let saved = SavedFramePointer::AtCfa(-48);
        Rule { saved, ..Rule::plain(RuleKind::StackPointer, cfa_offset) }
    };
    assert_eq!(assembled.rule("f", 0), Some(rule(8)));
    assert_eq!(assembled.rule("f", 1), Some(rule(0x3ff_fff8)));
    assert_eq!(assembled.rule("f", 2), Some(Rule::UNKNOWN));
}
