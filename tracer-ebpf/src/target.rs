//! Is this call one of a target's, and in which address space?

use aya_ebpf::{
    bindings::bpf_pidns_info,
    helpers::{bpf_get_current_pid_tgid, generated::bpf_get_ns_current_pid_tgid},
};

use tracer_common::event::FIRST_SPACE;

use crate::{config, maps::TARGETS};

/// Thread and process of the caller, in the namespace that the tracer chose.
pub struct Caller {
    /// Thread id.
    pub tid: u32,
    /// Process id (thread group).
    pub tgid: u32,
}

/// Who runs now. `None` when the caller lives in another pid namespace than the one that was
/// chosen, which the target never does.
#[inline(always)]
pub fn caller() -> Option<Caller> {
    let (dev, ino) = (config::pid_ns_dev(), config::pid_ns_ino());
    if dev == 0 {
        let ids = bpf_get_current_pid_tgid();
        return Some(Caller { tid: ids as u32, tgid: (ids >> 32) as u32 });
    }
    let mut info = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the pointer is to a local of the size that is passed.
    let status = unsafe {
        bpf_get_ns_current_pid_tgid(dev, ino, &raw mut info, size_of::<bpf_pidns_info>() as u32)
    };
    (status == 0).then_some(Caller { tid: info.pid, tgid: info.tgid })
}

/// Who runs now, when it is a target. A breakpoint of another tracer on the same byte runs our
/// programs for its process, whatever filter the link has.
#[inline(always)]
pub fn target() -> Option<Caller> {
    let caller = caller()?;
    let is_target = caller.tgid == config::target_tgid()
        || (config::follow() != 0 && TARGETS.get_ptr(caller.tgid).is_some());
    is_target.then_some(caller)
}

/// The address space of a target.
#[inline(always)]
pub fn space_of(target: &Caller) -> u64 {
    // SAFETY: a live map value of one word, which is written whole.
    TARGETS.get_ptr(target.tgid).map_or(FIRST_SPACE, |space| unsafe { *space })
}
