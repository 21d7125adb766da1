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
            next = follow(elf, &instruction, &mut waiting, is_probed)?;
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
    is_probed: &dyn Fn(&str) -> bool,
) -> Result<Option<u64>, SiteError> {
    match instruction.flow_control() {
        // What follows a call that never returns is looked at in vain: it is other code, whose
        // returns are told by their stack pointer.
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
        // The procedure linkage table.
        FlowControl::IndirectBranch
            if instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::RIP =>
        {
            let slot = ObjectAddr(instruction.memory_displacement64());
            match elf.pointee(slot) {
                Ok(Some(Pointee::Here(addr))) => waiting.push(addr.0),
                Ok(Some(Pointee::Elsewhere(name))) if is_probed(&name) => {}
                _ => return Err(SiteError::Returns("it ends in a jump to another object")),
            }
            Ok(None)
        }
        FlowControl::IndirectBranch => Err(SiteError::Returns("it jumps to a computed address")),
        FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => Ok(None),
    }
}
