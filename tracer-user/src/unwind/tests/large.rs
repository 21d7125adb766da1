//! Objects whose tables take long to compile.

use tracer_common::unwind::{Rule, RuleKind};

use super::super::{Covered, Site, Unwinder, table::Table};
use super::LIBRARY;
use crate::{
    symbols::Binder,
    target::{
        elf::Elf,
        test_program::{Folder, Program},
    },
};

const SPACE: u64 = 7;

#[test]
fn what_is_said_of_a_function_is_the_same_by_the_index() {
    let elf = Elf::parse(LIBRARY.as_slice()).expect("an object");
    let table = Table::compile(&elf);
    let described = table.rows().iter().filter(|row| row.rule() != 0);
    for offset in described.map(|row| u64::from(row.offset())) {
        let around = Table::around(&elf, offset).expect("it has an index");
        assert_eq!(around.rule(offset), table.rule(offset), "{offset:#x}");
    }
    let end = table.rows().last().expect("rows").offset().into();
    assert_eq!(Table::around(&elf, end).and_then(|around| around.rule(end)), None);
}

/// A program of 20,000 functions, which prints the address of one and waits.
fn program(folder: &Folder) -> (Program, u64) {
    let source = r#"
        #include <stdio.h>
        __asm__(".text\n.set number, 0\n.rept 20000\n.cfi_startproc\npush %rbx\n"
                ".cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\ncall one\npop %rbx\n"
                ".cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.endr\n"
                "one: .cfi_startproc\nret\n.cfi_endproc\n"
                "another: .cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\nret\n.cfi_endproc\n");
        extern char another[];
        int main(void) { printf("%p\n", (void *)another); fflush(stdout); return getchar(); }
    "#;
    let mut program = folder.run(source, &["-O1"]);
    let addr = program.addr();
    (program, addr)
}

/// Is there code of this address among what the kernel side is told?
fn tells_of(covered: &Covered, addr: u64) -> bool {
    covered.regions.iter().any(|(_, start, end, _)| (*start..*end).contains(&addr))
}

#[test]
fn nobody_waits_for_a_large_table() {
    let folder = Folder::new();
    let (program, addr) = program(&folder);
    let process = program.process();
    let (mut unwinder, mut binder) = (Unwinder::default(), Binder::default());
    let covered = unwinder.cover(SPACE, &process, &mut binder);
    assert!(!covered.regions.is_empty(), "the C library is there");
    assert!(!tells_of(&covered, addr));
    // Of a single function is known already how it is left.
    let bound = binder.bind(SPACE, &process, addr + 2);
    let rule = Site::Said(Rule::plain(RuleKind::StackPointer, 16));
    assert_eq!(unwinder.known(&bound, &binder), rule);

    let n_told = covered.tables.len();
    while !unwinder.compiled().contains(&SPACE) {
        std::thread::yield_now();
    }
    let covered = unwinder.cover(SPACE, &process, &mut binder);
    assert!(tells_of(&covered, addr));
    assert_eq!((n_told > 0, covered.tables.len()), (true, 1));
    assert!(covered.tables[0].rows.len() > 20_000);
    assert_eq!(unwinder.known(&bound, &binder), rule);
    // Once is enough.
    assert!(unwinder.cover(SPACE, &process, &mut binder).tables.is_empty());
    assert!(unwinder.compiled().is_empty());
}

#[test]
fn a_large_table_is_there_at_once_where_that_is_wanted() {
    let folder = Folder::new();
    let (program, addr) = program(&folder);
    let process = program.process();
    let (mut unwinder, mut binder) = (Unwinder::default(), Binder::default());
    let covered = unwinder.cover_at_once(SPACE, &process, &mut binder);
    assert!(tells_of(&covered, addr));
    assert!(covered.tables.iter().any(|table| table.rows.len() > 20_000));
}

#[test]
fn the_kernel_side_is_told_of_a_table_that_was_asked_first() {
    let folder = Folder::new();
    let (program, addr) = program(&folder);
    let process = program.process();
    let (mut unwinder, mut binder) = (Unwinder::default(), Binder::default());
    let bound = binder.bind(SPACE, &process, addr + 2);
    assert_ne!(unwinder.site(&bound, &binder), Site::Guessed);
    unwinder.settle();
    let covered = unwinder.cover(SPACE, &process, &mut binder);
    assert!(tells_of(&covered, addr));
    assert!(covered.tables.iter().any(|table| table.rows.len() > 20_000));
}
