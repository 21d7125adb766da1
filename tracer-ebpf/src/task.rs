//! Threads and processes come to an end.

use tracer_common::{
    count::Count,
    event::{Head, Kind},
};

use crate::{
    call, emit,
    target::{caller, target_tid},
};

/// Forgets the thread's slot, if it has one: it will not be needed, and its number may be
/// given to another thread.
#[inline(always)]
pub fn exit() {
    if let Some(caller) = caller() {
        call::forget(caller.tid);
    }
}

/// Tells the user side that the target's memory is a new one.
///
/// # Errors
/// [`Count::RingFull`] when it could not be told.
#[inline(always)]
pub fn exec() -> Result<(), Count> {
    let Some(tid) = target_tid() else { return Ok(()) };
    call::forget(tid);
    emit::addr(Head { kind: Kind::Exec as u8, flags: 0, family: 0, tid }, 0)
}
