use super::*;
use crate::interpreters::memory::Flat;

/// 3.12's: an interpreter has its threads at 72, a thread the next one at 8 and its id at 144.
fn threads_of(words: &[(u64, u64)]) -> Option<Vec<ThreadState>> {
    let layout = Layout::of(0x030c_01f0, &[]).expect("a layout");
    let mut memory = Flat { start: 0, bytes: vec![0; 0x6000] };
    for (addr, word) in words {
        memory.put(*addr, *word);
    }
    threads(&memory, &layout, 0x100)
}

#[test]
fn every_thread_of_every_interpreter() {
    let words = [
        (0x100 + 40, 0x1000), // the runtime's first interpreter
        (0x1000, 0x2000),     // the next one
        (0x1000 + 72, 0x3000),
        (0x3000 + 8, 0x3400),
        (0x3000 + 144, 11),
        (0x3400 + 144, 12),
        (0x2000 + 72, 0x4000),
        (0x4000 + 144, 13),
    ];
    let state = |addr, id| ThreadState { addr, id };
    let expected = vec![state(0x3000, 11), state(0x3400, 12), state(0x4000, 13)];
    assert_eq!(threads_of(&words), Some(expected));
}

#[test]
fn a_runtime_that_has_not_begun_has_none() {
    assert_eq!(threads_of(&[]), Some(Vec::new()));
}

#[test]
fn lists_without_an_end_are_given_up() {
    let circle = [(0x100 + 40, 0x1000), (0x1000 + 72, 0x3000), (0x3000 + 8, 0x3000)];
    assert_eq!(threads_of(&circle), None);
    assert_eq!(threads_of(&[(0x100 + 40, 0x1000), (0x1000, 0x1000)]), None);
    // Out of what is mapped.
    assert_eq!(threads_of(&[(0x100 + 40, 0xdead_0000)]), None);
    assert_eq!(threads_of(&[(0x100 + 40, u64::MAX - 3)]), None);
}

#[test]
fn the_list_of_threads_is_that_of_the_first_interpreter() {
    let layout = Layout::of(0x030c_01f0, &[]).expect("a layout");
    let first = |words: &[(u64, u64)]| {
        let mut memory = Flat { start: 0, bytes: vec![0; 0x3000] };
        for (addr, word) in words {
            memory.put(*addr, *word);
        }
        first_thread(&memory, &layout, 0x100)
    };
    assert_eq!(first(&[(0x100 + 40, 0x1000), (0x1000, 0x2000)]), Some(0x2000 + 72));
    assert_eq!(first(&[(0x100 + 40, 0x1000)]), Some(0x1000 + 72));
    assert_eq!(first(&[(0x100 + 40, 0x1000), (0x1000, 0x1000)]), None, "a circle");
    assert_eq!(first(&[(0x100 + 40, u64::MAX - 3)]), None);
}
