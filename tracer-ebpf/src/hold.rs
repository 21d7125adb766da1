//! Stopping a process until its probes are in place.
//!
//! The process stops with SIGSTOP on its way back from the kernel, before its next instruction.
//! Who continues it is the user side, which is told by a record; should that die, a process that
//! watches over it reads [`HELD`] and continues whoever is in there.

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_send_signal_thread};
use tracer_common::{
    event::{Head, Kind, SpaceRecord},
    state::{FIRST_HOLDS, N_HOLDS},
};

use crate::{
    atomic, config, emit,
    maps::{HELD, STATE},
    target::Caller,
};

const SIGSTOP: u32 = 19;

/// Stops the caller's process, if that is wanted and possible. Answers the number of the hold, as a
/// record has it; zero when it is not stopped.
#[inline(always)]
pub fn begin(caller: &Caller) -> u64 {
    if config::hold() == 0 {
        return 0;
    }
    // SAFETY: a live map value of one word.
    let first_holds = STATE.get_ptr(FIRST_HOLDS).map_or(0, |holds| unsafe { *holds });
    if caller.tgid == config::target_tgid() && first_holds == 0 {
        return 0;
    }
    stop(caller)
}

/// Stops the caller's process when more waits in the ring than it should, until that is read.
#[inline(always)]
pub fn pause(caller: &Caller) {
    if config::pause_at() == 0 || emit::waiting() < config::pause_at() {
        return;
    }
    // Where there is no room even for this, the loss is counted by who makes it.
    let _ = emit::announce(|| SpaceRecord {
        head: Head { kind: Kind::Pause as u8, flags: 0, family: 0, tid: caller.tid },
        space: 0,
        from: 0,
        stack: 0,
        hold: stop(caller),
        pid: caller.tgid,
        parent: 0,
    });
}

#[inline(always)]
fn stop(caller: &Caller) -> u64 {
    let Some(n_holds) = STATE.get_ptr_mut(N_HOLDS) else { return 0 };
    // A number of its own: the process may be in its next hold before the end of this one is
    // noted.
    // SAFETY: a live map value, which is only used atomically.
    let n_holds = atomic::fetch_add(unsafe { &mut *n_holds }, 1);
    let hold = (caller.tgid as u64) << 32 | n_holds & 0xffff_ffff;
    // SAFETY: asks for the time.
    if HELD.insert(hold, unsafe { bpf_ktime_get_ns() }, 0).is_err() {
        return 0;
    }
    // Before the record is there to be read: whoever reads it continues the process, which must
    // not come first.
    // To the thread, because a signal for the process may wait for a thread that was preempted
    // while the others go on. What it does, it does to the process.
    // SAFETY: sends a signal to the thread that runs.
    if unsafe { bpf_send_signal_thread(SIGSTOP) } != 0 {
        let _ = HELD.remove(hold);
        return 0;
    }
    hold
}
