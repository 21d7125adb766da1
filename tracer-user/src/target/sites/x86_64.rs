//! Sites in x86-64 code.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::{Code, Cost, IN_PLACE, N_ARGS, Site, SiteError};
use crate::target::elf::FileOffset;

/// Registers of the integer arguments, in order.
const ARG_REGISTERS: [Register; N_ARGS] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Chooses the site of this function.
pub(super) fn choose(code: &Code<'_>) -> Result<Site, SiteError> {
    let mut decoder = decoder(code.bytes);
    let mut factory = InstructionInfoFactory::new();
    let mut args = Arguments::new(code.args);
    let mut stepped = None;

    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            break;
        }
        let Some(bytes) = code.bytes.get(at..decoder.position()) else { break };
        let site = |cost| Site {
            offset: FileOffset(code.entry.0 + at as u64),
            distance: at as u64,
            cost,
            instruction: name(&instruction),
            arg_places: args.places,
        };
        let reachable_once = at == 0 || (code.whole && !is_branch_target(code.bytes, at));
        if !reachable_once {
            // What is jumped to before here is jumped to before anything behind as well.
            break;
        }
        if is_emulated(bytes) {
            return Ok(site(Cost::Emulated));
        }
        if stepped.is_none() && !is_refused(bytes, &instruction) {
            stepped = Some(site(Cost::SingleStepped));
        }
        if instruction.flow_control() != FlowControl::Next
            || touches_stack(&instruction, &mut factory)
            || !args.survive(&instruction, &mut factory)
        {
            break;
        }
    }

    stepped.ok_or_else(|| {
        let first = self::decoder(code.bytes).decode();
        if first.is_invalid() {
            SiteError::Undecodable
        } else {
            SiteError::Refused { instruction: name(&first) }
        }
    })
}

/// Addresses count from the function's entry.
fn decoder(bytes: &[u8]) -> Decoder<'_> {
    Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
}

fn name(instruction: &Instruction) -> String {
    format!("{:?}", instruction.mnemonic()).to_lowercase()
}

/// The instructions that every kernel from 5.15 on emulates (`branch_setup_xol_ops` and
/// `push_setup_xol_ops` in `arch/x86/kernel/uprobes.c`). Newer ones know more, such as long
/// nops; those are not worth a probe of the kernel.
fn is_emulated(bytes: &[u8]) -> bool {
    match bytes {
        // nop, push of a register, with REX.B for r8 to r15
        [0x90 | 0x50..=0x57] | [0x41, 0x50..=0x57] => true,
        // jmp rel8, jcc rel8
        [0xeb | 0x70..=0x7f, _] => true,
        // call rel32, jmp rel32; jcc rel32
        [0xe8 | 0xe9, _, _, _, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => true,
        _ => false,
    }
}

/// Instructions that the kernel refuses to probe (`uprobe_init_insn`): legacy segment
/// prefixes and `lock`, everything encoded with VEX or EVEX, and breakpoints.
fn is_refused(bytes: &[u8], instruction: &Instruction) -> bool {
    let prefixes = bytes.iter().take_while(|byte| {
        matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0 | 0x64..=0x67 | 0xf2 | 0xf3)
    });
    let first = bytes.get(prefixes.clone().count());
    prefixes.clone().any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
        || matches!(first, Some(0xc4 | 0xc5 | 0x62))
        || instruction.mnemonic() == Mnemonic::Int3
}

/// Is there a direct branch from within the function to a place behind its entry, up to and
/// including `site`?
fn is_branch_target(function: &[u8], site: usize) -> bool {
    decoder(function).iter().any(|instruction| {
        let near = (0..instruction.op_count()).any(|op| {
            matches!(instruction.op_kind(op), OpKind::NearBranch64 | OpKind::NearBranch32)
        });
        near && (1..=site as u64).contains(&instruction.near_branch_target())
    })
}

/// Does it move the stack pointer, or write where it points?
fn touches_stack(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let info = factory.info(instruction);
    let moves = info
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == Register::RSP && writes(used.access()));
    let stores = info
        .used_memory()
        .iter()
        .any(|used| used.base().full_register() == Register::RSP && writes(used.access()));
    moves || stores
}

fn writes(access: OpAccess) -> bool {
    match access {
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            true
        }
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => false,
    }
}

/// Which argument registers hold which arguments.
struct Arguments<'a> {
    needed: &'a [u8],
    /// `holds[register]` is the argument whose value is in the register.
    holds: [Option<u8>; N_ARGS],
    /// For each argument, a register that holds it.
    places: [u8; N_ARGS],
}

impl<'a> Arguments<'a> {
    fn new(needed: &'a [u8]) -> Self {
        Self { needed, holds: IN_PLACE.map(Some), places: IN_PLACE }
    }

    /// Follows one instruction; is each needed argument still in some argument register?
    fn survive(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
        let copied = copy(instruction).and_then(|(to, from)| Some((to, self.holds[from]?)));
        for used in factory.info(instruction).used_registers() {
            if writes(used.access())
                && let Some(register) = place(used.register().full_register())
            {
                self.holds[register] = None;
            }
        }
        if let Some((to, argument)) = copied {
            self.holds[to] = Some(argument);
        }
        self.needed.iter().all(|argument| {
            let Some(argument_place) = self.places.get_mut(usize::from(*argument)) else {
                return false;
            };
            // Its own register first: the others are copies.
            let own = usize::from(*argument);
            let mut candidates = std::iter::once(own).chain(0..N_ARGS);
            let found = candidates.find(|register| self.holds[*register] == Some(*argument));
            match found.and_then(|register| u8::try_from(register).ok()) {
                Some(register) => {
                    *argument_place = register;
                    true
                }
                None => false,
            }
        })
    }
}

/// `mov` of a whole argument register into another: (to, from).
fn copy(instruction: &Instruction) -> Option<(usize, usize)> {
    let registers = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register;
    if !registers {
        return None;
    }
    Some((place(instruction.op0_register())?, place(instruction.op1_register())?))
}

fn place(register: Register) -> Option<usize> {
    ARG_REGISTERS.iter().position(|arg| *arg == register)
}

#[cfg(test)]
mod tests;
