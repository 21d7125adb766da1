//! Stopping a process until its probes are in place.
//!
//! The process stops with SIGSTOP on its way back from the kernel, before its next instruction.
//! Who continues it is the user side, which is told by a record; should that die, a process that
//! watches over it reads [`HELD`] and continues whoever is in there.

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_send_signal};
use tracer_common::count::Count;

use crate::{
    config,
    atomic,
    maps::{FIRST_HOLDS, HELD, N_HOLDS, STATE},
    target::Caller,
};

const SIGCONT: u32 = 18;
const SIGSTOP: u32 = 19;

/// A process that is being stopped, or one that is not to be.
pub struct Hold {
    /// Its key in [`HELD`], as a record has it; zero when it is not stopped.
    pub key: u64,
}

/// Stops the caller's process, if that is wanted and possible.
#[inline(always)]
pub fn begin(caller: &Caller) -> Hold {
    let none = Hold { key: 0 };
    if config::hold() == 0 {
        return none;
    }
    // SAFETY: a live map value of one word.
    let first_holds = STATE.get_ptr(FIRST_HOLDS).map_or(0, |holds| unsafe { *holds });
    if caller.tgid == config::target_tgid() && first_holds == 0 {
        return none;
    }
    let Some(n_holds) = STATE.get_ptr_mut(N_HOLDS) else { return none };
    // A number of its own: the process may be in its next hold before the end of this one is
    // noted.
    // SAFETY: a live map value, which is only used atomically.
    let n_holds = atomic::fetch_add(unsafe { &mut *n_holds }, 1);
    let key = (caller.tgid as u64) << 32 | n_holds & 0xffff_ffff;
    // SAFETY: asks for the time.
    if HELD.insert(key, unsafe { bpf_ktime_get_ns() }, 0).is_err() {
        return none;
    }
    // Before the record: whoever reads it continues the process, which must not come first.
    // SAFETY: sends a signal to the process that runs.
    if unsafe { bpf_send_signal(SIGSTOP) } != 0 {
        let _ = HELD.remove(key);
        return none;
    }
    Hold { key }
}

impl Hold {
    /// Takes the stop back when nobody was told of it. Answers what became of the telling.
    #[inline(always)]
    pub fn kept_if(self, told: Result<(), Count>) -> Result<(), Count> {
        if told.is_err() && self.key != 0 {
            // SAFETY: sends a signal to the process that runs, which discards the one before.
            unsafe { bpf_send_signal(SIGCONT) };
            let _ = HELD.remove(self.key);
        }
        told
    }
}
