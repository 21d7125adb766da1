//! Reading the ring buffer: bytes of the kernel side → events.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use aya::maps::{MapData, RingBuf};
use tracer_common::decode::{Event, decode};

/// The reader's end of the ring.
pub struct Intake {
    ring: RingBuf<MapData>,
    malformed: u64,
}

/// Why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// There was nothing more to read.
    Empty,
    /// As many records as were asked for have been read; there may be more.
    Full,
    /// The receiver wanted no more.
    Stopped,
}

impl Intake {
    /// Reads from this ring.
    pub fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring, malformed: 0 }
    }

    /// Hands over events in their order, at the most `limit` of them, so that a busy target
    /// cannot keep the caller from everything else. Answers how many records were read.
    pub fn read(
        &mut self,
        limit: usize,
        mut sink: impl FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> (usize, Paused) {
        for n_read in 0..limit {
            let Some(item) = self.ring.next() else { return (n_read, Paused::Empty) };
            match decode(&item) {
                Ok(event) => {
                    if sink(&event).is_break() {
                        return (n_read + 1, Paused::Stopped);
                    }
                }
                Err(error) => {
                    self.malformed += 1;
                    log::warn!("unreadable record in the ring buffer: {error}");
                }
            }
        }
        (limit, Paused::Full)
    }

    /// A descriptor that becomes readable when a record is written that asks for it, as those of
    /// processes do.
    ///
    /// # Errors
    /// When there can be no further descriptor.
    pub fn wakes(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring's descriptor is open for as long as the ring is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    /// Records that could not be decoded. Each is a loss.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}
