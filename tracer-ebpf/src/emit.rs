//! Writing into the ring. Nothing else touches it.

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use tracer_common::{
    count::Count,
    event::{AddrRecord, AllocRecord, Head, Kind, RangeRecord, SpaceRecord},
};

use crate::{config, maps::EVENTS};

/// Bytes that wait to be read.
#[inline(always)]
pub fn waiting() -> u64 {
    EVENTS.query(BPF_RB_AVAIL_DATA as u64)
}

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
/// The last of the ring is left to releases: a block that is not booked is missing from a figure, a
/// release that is not booked is growth that is none.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn alloc(record: AllocRecord) -> Result<(), Count> {
    if waiting() > config::full_at() {
        return Err(Count::RingFull);
    }
    let mut entry = EVENTS.reserve::<AllocRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(FLAGS);
    Ok(())
}

/// Writes a system call that changes mappings.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn range(record: RangeRecord) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<RangeRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(FLAGS);
    Ok(())
}

/// Writes what happened to a process or a thread.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn space(record: SpaceRecord) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<SpaceRecord>(0).ok_or(Count::RingFull)?;
    entry.write(record);
    entry.submit(FLAGS);
    Ok(())
}

/// Writes a record that says whether its process is being stopped, and wakes the user side.
/// `record` stops it and is called when there is room: nobody waits who was not announced.
///
/// # Errors
/// [`Count::RingFull`] when there is no room.
#[inline(always)]
pub fn announce<T: 'static>(record: impl FnOnce() -> T) -> Result<(), Count> {
    let mut entry = EVENTS.reserve::<T>(0).ok_or(Count::RingFull)?;
    entry.write(record());
    entry.submit(WAKE);
    Ok(())
}

/// Writes bytes that are a record, head included.
///
/// # Errors
/// [`Count::StackLost`] when there is no room.
#[inline(always)]
pub fn stack(record: &[u8], at_once: bool) -> Result<(), Count> {
    let flags = if at_once { WAKE } else { FLAGS };
    EVENTS.output::<[u8]>(record, flags).map_err(|_| Count::StackLost)
}

/// Writes a mark.
///
/// # Errors
/// [`Count::RingFull`] when there is no room; nothing is counted, the caller asks again.
#[inline(always)]
pub fn mark(number: u64) -> Result<(), Count> {
    addr(Head { kind: Kind::Mark as u8, flags: 0, family: 0, tid: 0 }, number)
}
