//! Where x86-64 code returns.
//!
//! A function that may throw must not have its return address replaced. What is probed instead
//! are the `ret` instructions that can be reached from its entry without a call, within it or
//! behind a jump to another function.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use super::SiteError;
use crate::target::elf::{Elf, ObjectAddr, Pointee};

/// Instructions that are looked at. An `operator new` with its slow paths has some hundreds.
const LIMIT: usize = 20_000;
/// Bytes that are decoded in one go.
const WINDOW: u64 = 4096;

/// The return instructions that are reached from `entry`.
pub(super) fn find<Data: AsRef<[u8]>>(
    elf: &Elf<Data>,
    entry: ObjectAddr,
    is_probed: &dyn Fn(&str) -> bool,
) -> Result<Vec<ObjectAddr>, SiteError> {
    let mut seen = BTreeSet::new();
    let mut returns = BTreeSet::new();
    let mut waiting = vec![entry.0];
    let mut left = ALL_CALLED_LIMIT;
    while let Some(start) = waiting.pop() {
        let mut next = Some(start);
        while let Some(addr) = next {
            if !seen.insert(addr) {
                break;
            }
            if seen.len() > LIMIT {
                return Err(SiteError::Returns("too much code"));
            }
            let instruction = decode(elf, addr)?;
            next = follow(elf, &instruction, &mut waiting, &mut left, is_probed)?;
            if is_return(&instruction) {
                returns.insert(ObjectAddr(addr));
            }
        }
    }
    Ok(returns.into_iter().collect())
}

fn decode<Data: AsRef<[u8]>>(elf: &Elf<Data>, addr: u64) -> Result<Instruction, SiteError> {
    let bytes = elf.code(ObjectAddr(addr), WINDOW).ok_or(SiteError::Returns("no code there"))?;
    let instruction = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(SiteError::Returns("an instruction cannot be decoded"));
    }
    Ok(instruction)
}

fn is_return(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Return
}

/// The instruction after this one, if it is reached; other places it leads to are to be
/// looked at later.
fn follow<Data: AsRef<[u8]>>(
    elf: &Elf<Data>,
    instruction: &Instruction,
    waiting: &mut Vec<u64>,
    left: &mut usize,
    is_probed: &dyn Fn(&str) -> bool,
) -> Result<Option<u64>, SiteError> {
    match instruction.flow_control() {
        FlowControl::Call if never_returns(elf, instruction.near_branch_target(), 0, left) => {
            Ok(None)
        }
        // What follows another call that never returns is looked at in vain: it is other code,
        // whose returns are told by their stack pointer.
        FlowControl::Next
        | FlowControl::XbeginXabortXend
        | FlowControl::Call
        | FlowControl::IndirectCall => Ok(Some(instruction.next_ip())),
        FlowControl::ConditionalBranch => {
            waiting.push(instruction.near_branch_target());
            Ok(Some(instruction.next_ip()))
        }
        FlowControl::UnconditionalBranch => {
            waiting.push(instruction.near_branch_target());
            Ok(None)
        }
        FlowControl::IndirectBranch => match linked(elf, instruction) {
            Some(Pointee::Here(addr)) => {
                waiting.push(addr.0);
                Ok(None)
            }
            Some(Pointee::Elsewhere(name)) if is_probed(&name) => Ok(None),
            Some(Pointee::Elsewhere(_)) => {
                Err(SiteError::Returns("it ends in a jump to another object"))
            }
            None => Err(SiteError::Returns("it jumps to a computed address")),
        },
        FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => Ok(None),
    }
}

/// Functions of other objects that never return.
const ENDS: &[&str] = &[
    "__assert_fail",
    "__cxa_rethrow",
    "__cxa_throw",
    "__stack_chk_fail",
    "_ZSt17__throw_bad_allocv",
    "_ZSt9terminatev",
    "_Unwind_Resume",
    "_exit",
    "abort",
    "exit",
];
/// Instructions of a called function that are looked at to see whether it returns, and how deep
/// in the calls that it makes.
const CALLED_LIMIT: usize = 500;
const CALLED_DEPTH: u32 = 3;
/// Instructions of called functions that are looked at for one function. Functions that call each
/// other many times would take as many as there are ways through them.
const ALL_CALLED_LIMIT: usize = 200_000;

/// Is it certain that a call of the function at `entry` does not return? Behind such a call
/// other code follows, which is not part of the function. `left` instructions are looked at.
fn never_returns<Data: AsRef<[u8]>>(
    elf: &Elf<Data>,
    entry: u64,
    depth: u32,
    left: &mut usize,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![entry];
    while let Some(addr) = waiting.pop() {
        if !seen.insert(addr) {
            continue;
        }
        let Some(fewer) = left.checked_sub(1) else { return false };
        *left = fewer;
        let Ok(instruction) = decode(elf, addr) else { return false };
        if seen.len() > CALLED_LIMIT || is_return(&instruction) {
            return false;
        }
        match instruction.flow_control() {
            FlowControl::IndirectBranch => match linked(elf, &instruction) {
                Some(Pointee::Here(addr)) => waiting.push(addr.0),
                Some(Pointee::Elsewhere(name)) if ENDS.contains(&name.as_str()) => {}
                _ => return false,
            },
            FlowControl::Call
                if depth < CALLED_DEPTH
                    && never_returns(elf, instruction.near_branch_target(), depth + 1, left) => {}
            FlowControl::UnconditionalBranch => waiting.push(instruction.near_branch_target()),
            FlowControl::ConditionalBranch => {
                waiting.extend([instruction.near_branch_target(), instruction.next_ip()]);
            }
            FlowControl::Exception => {}
            _ => waiting.push(instruction.next_ip()),
        }
    }
    true
}

/// What a jump through a pointer of the linkage table leads to.
fn linked<Data: AsRef<[u8]>>(elf: &Elf<Data>, instruction: &Instruction) -> Option<Pointee> {
    let is_linked =
        instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RIP;
    let slot = ObjectAddr(instruction.memory_displacement64());
    if is_linked { elf.pointee(slot).ok()? } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::target::elf::Table;
    use crate::target::test_program::Folder;

    #[test]
    fn behind_a_call_that_never_returns_is_other_code() {
        let folder = Folder::new();
        // The function at hand is followed by one that jumps to another object.
        let source = "__asm__(\".globl gives, fails, other\\n.type gives, @function\\n\"\n\
            \"gives: test %rdi, %rdi\\n jz 1f\\n ret\\n1: call fails\\n\"\n\
            \"other: jmp puts@plt\\n\"\n\
            \".type fails, @function\\nfails: sub $8, %rsp\\n call abort@plt\\n nop\\n ret\\n\");\n";
        let path = folder.compile("ends.so", source, &["-shared", "-fPIC"]);
        let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
        let gives = &elf.functions(Table::Dynamic, |name| name == "gives").expect("symbols")[0];
        let found = find(&elf, gives.addr, &|_| false).expect("its returns");
        // After test (3 bytes) and jz (2).
        assert_eq!(found, [ObjectAddr(gives.addr.0 + 5)]);
    }

    #[test]
    fn functions_that_call_each_other_are_not_followed_without_end() {
        let folder = Folder::new();
        // As many ways through it as 400 to the power of the depth.
        let source = "__asm__(\".globl gives\\n.type gives, @function\\n\"\n\
            \"gives: .rept 400\\n call gives\\n .endr\\n ret\\n\");\n";
        let path = folder.compile("calls.so", source, &["-shared", "-fPIC", "-Wl,-Bsymbolic"]);
        let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
        let gives = &elf.functions(Table::Dynamic, |name| name == "gives").expect("symbols")[0];
        let found = find(&elf, gives.addr, &|_| false).expect("its returns");
        assert_eq!(found, [ObjectAddr(gives.addr.0 + 400 * 5)]);
    }
}
