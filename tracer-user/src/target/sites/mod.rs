//! At which instruction of a function a probe costs least.
//!
//! A breakpoint on an instruction that the kernel emulates costs one trap; any other
//! instruction is single-stepped out of line, a second trap, up to twenty times as dear in
//! a virtual machine. So the probe goes to the first emulated instruction that every call
//! passes exactly once, while the arguments are still in registers and the return address
//! is still on top of the stack: a return probe may sit there as well.
//!
//! Only direct branches within the function are seen: that a jump table or a cold part
//! leads back between the entry and the first branch is not looked for.

mod returns;
mod x86_64;

use super::elf::{Elf, FileOffset, ObjectAddr};

/// Number of integer arguments that a site can name: those passed in registers.
pub const N_ARGS: usize = 6;

/// What a hit of a site costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One trap.
    Emulated,
    /// Two traps: the kernel steps the instruction out of line.
    SingleStepped,
}

/// Where to probe a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Place in the object's file.
    pub offset: FileOffset,
    /// Distance from the function's entry, in bytes.
    pub distance: u64,
    /// What a hit costs.
    pub cost: Cost,
    /// The probed instruction's mnemonic.
    pub instruction: String,
    /// `arg_places[n]` is the argument register (counted from zero) that holds argument `n`
    /// at the site. Differs from `n` where the function moved it before.
    pub arg_places: [u8; N_ARGS],
}

/// Why a function cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// The kernel refuses breakpoints on these instructions.
    #[error("the kernel cannot probe its first instruction ({instruction})")]
    Refused {
        /// Mnemonic, or why there is none.
        instruction: String,
    },
    /// There are no bytes at the symbol.
    #[error("its first instruction cannot be decoded")]
    Undecodable,
    /// A call of it may end where nobody would see it.
    #[error("where it returns cannot be found ({0})")]
    Returns(&'static str),
}

/// A function to choose a site in.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Machine that it is for, as in the ELF header.
    pub machine: u16,
    /// Its bytes, from the entry on. Not longer than the symbol's size, when that is known.
    pub bytes: &'a [u8],
    /// Are the bytes the whole function? If not, a branch back may have been missed.
    pub whole: bool,
    /// Place of the entry in the file.
    pub entry: FileOffset,
    /// Arguments that the probe reads, by number.
    pub args: &'a [u8],
}

/// Chooses the site of this function.
///
/// # Errors
/// When no instruction can be probed; see [`SiteError`].
pub fn choose(code: &Code<'_>) -> Result<Site, SiteError> {
    match code.machine {
        object::elf::EM_X86_64 => x86_64::choose(code),
        _ => Ok(Site {
            offset: code.entry,
            distance: 0,
            cost: Cost::SingleStepped,
            instruction: "entry".to_owned(),
            arg_places: IN_PLACE,
        }),
    }
}

/// The return instructions that a call of the function at `entry` may end at, those of
/// functions that it ends in a jump to included. It may end in a jump to a function of another
/// object as well, if that `is_probed` itself.
///
/// # Errors
/// When not all of them can be found.
pub fn returns<Data: AsRef<[u8]>>(
    elf: &Elf<Data>,
    entry: ObjectAddr,
    is_probed: &dyn Fn(&str) -> bool,
) -> Result<Vec<ObjectAddr>, SiteError> {
    match elf.machine {
        object::elf::EM_X86_64 => returns::find(elf, entry, is_probed),
        _ => Err(SiteError::Returns("not looked for on this machine")),
    }
}

/// Every argument is where the calling convention puts it.
const IN_PLACE: [u8; N_ARGS] = [0, 1, 2, 3, 4, 5];
