//! Registers and breakpoints of x86-64.

use libc::{c_long, user_regs_struct};

/// Did the system call that has just ended map code of a file?
pub(super) fn has_mapped_code(registers: &user_regs_struct) -> bool {
    // At the entry of a call the answer is -ENOSYS, so only its end looks like success.
    let error = (-4095..0).contains(&registers.rax.cast_signed());
    let protection = registers.rdx;
    // Only the lower half of the descriptor counts; -1 is a mapping without a file.
    let descriptor = registers.r8 as u32;
    registers.orig_rax.cast_signed() == libc::SYS_mmap
        && protection & u64::from(libc::PROT_EXEC.cast_unsigned()) != 0
        && descriptor != u32::MAX
        && !error
}

/// The word with its first byte replaced by a breakpoint.
pub(super) const fn with_breakpoint(word: c_long) -> c_long {
    (word & !0xff) | 0xcc
}

/// Has the breakpoint at `addr` just been hit?
pub(super) const fn is_behind_breakpoint(registers: &user_regs_struct, addr: u64) -> bool {
    registers.rip == addr + 1
}

/// The registers as they were before the breakpoint at `addr`.
pub(super) const fn before_breakpoint(
    mut registers: user_regs_struct,
    addr: u64,
) -> user_regs_struct {
    registers.rip = addr;
    registers
}
