//! Calls in an object's code.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::{Elf, ObjectAddr};

/// An instruction that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Address of the next instruction, to which is returned.
    pub after: u64,
    /// What is called, where the instruction says it.
    pub target: Option<u64>,
}

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// The calls in this range of addresses, which begins with an instruction, in their order.
    pub fn calls_in(&self, range: Range<u64>) -> Vec<Call> {
        let len = range.end.saturating_sub(range.start);
        let code = self.code(ObjectAddr(range.start), len).unwrap_or_default();
        let decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
        let calls = decoder.into_iter().filter_map(|instruction| {
            let target = match instruction.flow_control() {
                FlowControl::Call => Some(instruction.near_branch_target()),
                FlowControl::IndirectCall => None,
                _ => return None,
            };
            Some(Call { after: instruction.next_ip(), target })
        });
        calls.collect()
    }
}
