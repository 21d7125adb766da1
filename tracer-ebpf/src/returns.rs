//! Return addresses that the kernel has replaced.
//!
//! A probe on the end of a function, ours or another tool's, makes the function return to a page of the
//! kernel's. What lay on the stack before is in a list that the kernel keeps for the thread
//! (`struct return_instance`, kernel/events/uprobes.c).

use core::num::NonZeroU64;

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;

use crate::{
    config,
    task::{field, probe_page},
};

/// Calls of one thread whose returns the kernel awaits at the most (`MAX_URETPROBE_DEPTH`).
pub const MOST: u32 = 64;

/// One of them.
#[derive(Clone, Copy)]
pub struct Return {
    // So that none is a word as well: the verifier refuses one that was not written.
    instance: NonZeroU64,
}

impl Return {
    /// The thread's latest.
    #[inline(always)]
    pub fn latest() -> Option<Self> {
        // SAFETY: the helper has no conditions.
        let task = unsafe { bpf_get_current_task_btf() } as u64;
        match field(task, config::task_probes()).ok()? {
            0 => None,
            probes => Self::behind(probes, config::probes_return()),
        }
    }

    /// The one before.
    #[inline(always)]
    pub fn next(self) -> Option<Self> {
        Self::behind(self.instance.get(), config::return_next())
    }

    #[inline(always)]
    fn behind(base: u64, offset: u64) -> Option<Self> {
        NonZeroU64::new(field(base, offset).ok()?).map(|instance| Self { instance })
    }

    /// Where on the stack the return address lies.
    #[inline(always)]
    pub fn place(self) -> Option<u64> {
        field(self.instance.get(), config::return_place()).ok()
    }

    /// The return address that lay there.
    #[inline(always)]
    pub fn addr(self) -> Option<u64> {
        field(self.instance.get(), config::return_addr()).ok()
    }
}

/// Is this an address that the kernel has put in place of a return address?
#[inline(always)]
pub fn is_replaced(return_addr: u64) -> bool {
    probe_page().is_ok_and(|page| page != 0 && page == return_addr & !0xfff)
}
