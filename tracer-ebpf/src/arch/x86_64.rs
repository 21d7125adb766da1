//! x86-64, System V calling convention.

use aya_ebpf::bindings::pt_regs;

/// The integer arguments that an allocator function can have.
pub struct Args([u64; 6]);

impl Args {
    /// Reads all of them: the verifier takes no variable offset into the registers, and the
    /// compiler would make one of a choice between plain reads.
    #[inline(always)]
    pub fn read(regs: &pt_regs) -> Self {
        // SAFETY: each pointer is to a field of a valid reference.
        unsafe {
            Self([
                (&raw const regs.rdi).read_volatile(),
                (&raw const regs.rsi).read_volatile(),
                (&raw const regs.rdx).read_volatile(),
                (&raw const regs.rcx).read_volatile(),
                (&raw const regs.r8).read_volatile(),
                (&raw const regs.r9).read_volatile(),
            ])
        }
    }

    /// The `n`th argument, from zero. Zero for a place that there is not.
    #[inline(always)]
    pub fn get(&self, n: u8) -> u64 {
        match n {
            0 => self.0[0],
            1 => self.0[1],
            2 => self.0[2],
            3 => self.0[3],
            4 => self.0[4],
            5 => self.0[5],
            _ => 0,
        }
    }
}

/// What a function that has just returned answered.
#[inline(always)]
pub fn returned(regs: &pt_regs) -> u64 {
    regs.rax
}

/// The stack pointer. At a probe before the first push, the return address lies there.
#[inline(always)]
pub fn stack_pointer(regs: &pt_regs) -> u64 {
    regs.rsp
}

/// The instruction that comes next.
#[inline(always)]
pub fn instruction_pointer(regs: &pt_regs) -> u64 {
    regs.rip
}

/// The frame pointer, if the code keeps one.
#[inline(always)]
pub fn frame_pointer(regs: &pt_regs) -> u64 {
    regs.rbp
}

/// Stack pointer at the entry of a call that has just returned with `sp`: the return address
/// has been popped.
#[inline(always)]
pub fn stack_pointer_before(sp: u64) -> u64 {
    sp.wrapping_sub(8)
}

/// Numbers of the system calls that change mappings.
pub const MMAP: u64 = 9;
/// See [`MMAP`].
pub const MPROTECT: u64 = 10;
/// See [`MMAP`].
pub const MUNMAP: u64 = 11;
/// See [`MMAP`].
pub const BRK: u64 = 12;
/// See [`MMAP`].
pub const MREMAP: u64 = 25;
/// See [`MMAP`].
pub const PKEY_MPROTECT: u64 = 329;

/// The first arguments of a system call.
pub struct SyscallArgs {
    /// The first.
    pub first: u64,
    /// The second.
    pub second: u64,
    /// The third.
    pub third: u64,
    /// The fourth.
    pub fourth: u64,
}

impl SyscallArgs {
    /// Those of the call that these registers were saved for.
    #[inline(always)]
    pub fn of(regs: &pt_regs) -> Self {
        Self { first: regs.rdi, second: regs.rsi, third: regs.rdx, fourth: regs.r10 }
    }
}

/// The number of the call that these registers were saved for.
#[inline(always)]
pub fn syscall_number(regs: &pt_regs) -> u64 {
    regs.orig_rax
}
