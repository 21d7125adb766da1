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
