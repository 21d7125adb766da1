//! Code without an unwind table that is known by its instructions.

use std::{fs::File, ops::Range, os::unix::fs::FileExt as _};

use tracer_common::unwind::{Rule, RuleKind};

use crate::target::process::Process;

/// Is this the code through which a signal handler returns? A C library without tables has it as
/// well; debuggers know it in the same way.
pub(super) fn returns_from_signal(file: &File, offset: u64) -> bool {
    let mut code = [0; 9];
    let Ok(()) = file.read_exact_at(&mut code, offset) else { return false };
    // mov $15, %rax; syscall. Or with %eax.
    code == [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]
        || code[..7] == [0xb8, 15, 0, 0, 0, 0x0f, 0x05]
}

/// Does this code begin a program? It hands on the stack pointer, as it was when the kernel made the
/// process. The entry of a library is often another function.
pub(super) fn starts_program(code: &[u8]) -> bool {
    // mov %rsp, %rdi
    code[..code.len().min(16)].windows(3).any(|code| code == [0x48, 0x89, 0xe7])
}

/// Bytes in front of where a call returns to that are looked at, and behind.
const CALL: usize = 7;
const NEXT: usize = 8;

/// Is what returns here the first of a thread, or of a stack that a program has made? `is_function`:
/// a function begins here.
pub(super) fn begins_thread(file: &File, return_offset: u64, is_function: bool) -> bool {
    let mut code = [0; CALL + NEXT];
    let Some(start) = return_offset.checked_sub(CALL as u64) else { return false };
    file.read_exact_at(&mut code, start).is_ok() && begins_thread_of(code, is_function)
}

fn begins_thread_of(code: [u8; CALL + NEXT], is_function: bool) -> bool {
    let (call, next) = code.split_at(CALL);
    // mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall: the thread ends with what it returned. So
    // does musl's clone.
    let ends = next == [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05];
    // nop; call; nop: Go's goroutines return behind the first byte of a function that does that.
    let is_goexit = call[CALL - 1] == 0x90 && next[0] == 0xe8 && next[5] == 0x90;
    // Nobody returns to where a function begins, unless it was put there: makecontext does so.
    ends || is_goexit || (is_function && !is_call(call))
}

/// Do these bytes end in a call?
fn is_call(code: &[u8]) -> bool {
    // call *operand: behind the opcode, 2 in the middle of the byte that says which.
    let indirect = |len: usize| {
        let at = code.len() - len;
        code[at] == 0xff && code[at + 1] >> 3 & 7 == 2
    };
    code[code.len() - 5] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// Bytes of a trampoline in front of where its call returns to, and behind.
const BEFORE: u64 = 6;
const WHOLE: usize = 11;

/// The rule of generated code that does nothing but call. `python3 -X perf` makes a copy of such code
/// for each function, so that the function has an address; it keeps no frame pointer.
pub(super) fn trampoline(process: &Process, return_addr: u64) -> Option<Rule> {
    let mut code = [0; WHOLE];
    let memory = process.memory().ok()?;
    memory.read_exact_at(&mut code, return_addr.checked_sub(BEFORE)?).ok()?;
    trampoline_of(code)
}

/// Does a page in this range begin with such code? Pages that are made for it do.
pub(super) fn has_trampolines(process: &Process, range: Range<u64>) -> bool {
    let Ok(memory) = process.memory() else { return false };
    let start = range.start.next_multiple_of(PAGE);
    (start..range.end).step_by(PAGE as usize).any(|at| {
        let mut code = [0; MARK.len() + WHOLE];
        memory.read_exact_at(&mut code, at).is_ok() && begins_with_trampoline(&code)
    })
}

/// What a function begins with that may be jumped to, where the processor is to watch that.
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PAGE: u64 = 4096;

fn begins_with_trampoline(code: &[u8]) -> bool {
    let code = code.strip_prefix(&MARK).unwrap_or(code);
    code.first_chunk().is_some_and(|code| trampoline_of(*code).is_some())
}

fn trampoline_of(code: [u8; WHOLE]) -> Option<Rule> {
    // sub $n, %rsp; call *%reg; add $n, %rsp; ret
    let [0x48, 0x83, 0xec, room, 0xff, 0xd0..=0xd7, 0x48, 0x83, 0xc4, given_back, 0xc3] = code
    else {
        return None;
    };
    if room != given_back || room % 8 != 0 || room > 0x7f {
        return None;
    }
    Some(Rule::plain(RuleKind::StackPointer, i32::from(room) + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_a_thread_is_known() {
        let code = |call: [u8; CALL], next: [u8; NEXT]| {
            let mut code = [0; CALL + NEXT];
            code[..CALL].copy_from_slice(&call);
            code[CALL..].copy_from_slice(&next);
            code
        };
        let called = [0, 0, 0x31, 0xed, 0x5f, 0x41, 0xff];
        let exits = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05];
        assert!(begins_thread_of(code(called, exits), false));
        assert!(!begins_thread_of(
            code(called, [0x89, 0xc7, 0x31, 0xc0, 0xb0, 61, 0x0f, 5]),
            false
        ));
        let nop = [0, 0, 0, 0, 0, 0, 0x90];
        assert!(begins_thread_of(code(nop, [0xe8, 1, 2, 3, 4, 0x90, 0, 0]), false));
        assert!(!begins_thread_of(code(nop, [0xe8, 1, 2, 3, 4, 0xc3, 0, 0]), false));
        let function = [0x53, 0x48, 0x89, 0xfb, 0, 0, 0, 0];
        assert!(begins_thread_of(code(nop, function), true));
        assert!(!begins_thread_of(code(nop, function), false));
        // Behind a call that does not return, another function may begin.
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd2],
            &[0xff, 0x50, 8],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            let mut before = [0x90; CALL];
            before[CALL - call.len()..].copy_from_slice(call);
            assert!(!begins_thread_of(code(before, function), true), "{call:x?}");
        }
    }

    #[test]
    fn a_trampoline_is_known_whole() {
        let code = |room, back| [0x48, 0x83, 0xec, room, 0xff, 0xd1, 0x48, 0x83, 0xc4, back, 0xc3];
        let rule = Rule::plain(RuleKind::StackPointer, 16);
        assert_eq!(trampoline_of(code(8, 8)), Some(rule));
        assert_eq!(trampoline_of(code(0x78, 0x78)).map(|rule| rule.cfa_offset), Some(0x80));
        assert_eq!(trampoline_of(code(8, 16)), None);
        assert_eq!(trampoline_of(code(4, 4)), None);
        // A negative number: it gives room back before the call.
        assert_eq!(trampoline_of(code(0xf8, 0xf8)), None);
        let marked = [&MARK[..], &code(8, 8)].concat();
        assert!(begins_with_trampoline(&marked) && begins_with_trampoline(&marked[4..]));
        assert!(!begins_with_trampoline(&marked[1..]) && !begins_with_trampoline(&MARK));
        for at in (0..WHOLE).filter(|at| ![3, 5, 9].contains(at)) {
            let mut other = code(8, 8);
            other[at] ^= 1;
            assert_eq!(trampoline_of(other), None, "byte {at}");
        }
    }
}
