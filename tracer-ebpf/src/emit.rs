//! Writing into the ring. Nothing else touches it.

use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use tracer_common::{
    count::Count,
    event::{AddrRecord, AllocRecord, Head, Kind, RangeRecord, SpaceRecord},
};

use crate::maps::EVENTS;

/// The user side polls; waking it for a record would cost the target a microsecond.
const FLAGS: u64 = BPF_RB_NO_WAKEUP as u64;
/// For what cannot wait.
const WAKE: u64 = BPF_RB_FORCE_WAKEUP as u64;

/// Writes a record that carries an address.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn addr(head: Head, addr: u64) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<AddrRecord>(0).ok_or(Count::RingFull)?;
    entry.write(AddrRecord { head, addr });
    entry.submit(FLAGS);
    Ok(())
}

/// Writes an allocation.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn alloc(record: AllocRecord) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<AllocRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(FLAGS);
    Ok(())
}

/// Writes a system call that changes mappings. `wakes` when somebody waits for an answer.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn range(record: RangeRecord, wakes: bool) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<RangeRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(if wakes { WAKE } else { FLAGS });
    Ok(())
}

/// Writes what happened to a process or a thread. `wakes` when it should be known soon.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn space(record: SpaceRecord, wakes: bool) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<SpaceRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(if wakes { WAKE } else { FLAGS });
    Ok(())
}

/// Writes bytes that are a record, head included.
///
/// # Errors
/// [`Count::StackLost`] when there is no room.
#[inline(always)]
pub fn stack(record: &[u8]) -> Result<(), Count> {
    EVENTS.output::<[u8]>(record, FLAGS).map_err(|_| Count::StackLost)
}

/// Writes a mark.
///
/// # Errors
/// [`Count::RingFull`] when there is no room; nothing is counted, the caller asks again.
#[inline(always)]
pub fn mark(number: u64) -> Result<(), Count> {
    addr(Head { kind: Kind::Mark as u8, flags: 0, family: 0, tid: 0 }, number)
}
