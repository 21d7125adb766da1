//! The kernel's performance events.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

/// What an event is of, in the terms of the kernel's `perf_event_attr`.
#[derive(Clone, Copy, Debug)]
pub struct PerfEvent {
    /// Its type.
    pub kind: u32,
    /// Which one of its type.
    pub config: u64,
    /// The flags that the kernel has as single bits.
    pub flags: u64,
    /// `config1` and `config2`, of which each type makes something else.
    pub details: [u64; 2],
}

impl PerfEvent {
    /// Opens it on this processor, for all processes, until the answer is closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(self, processor: u32) -> io::Result<OwnedFd> {
        self.open_for(-1, i64::from(processor))
    }

    /// Opens it on all processors, for the calling thread, until the answer is closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_for_self(self) -> io::Result<OwnedFd> {
        self.open_for(0, -1)
    }

    fn open_for(self, thread: i64, processor: i64) -> io::Result<OwnedFd> {
        /// `perf_event_attr`, in its second published size.
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            kind: u32,
            size: u32,
            config: u64,
            sampling: [u64; 3],
            flags: u64,
            wakeup: u64,
            details: [u64; 2],
        }
        const CLOSE_ON_EXEC: u64 = 1 << 3;
        let attributes = Attributes {
            kind: self.kind,
            size: size_of::<Attributes>() as u32,
            config: self.config,
            flags: self.flags,
            details: self.details,
            ..Attributes::default()
        };
        // SAFETY: the attributes are as long as their `size` says and live through the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                processor,
                -1_i64,
                CLOSE_ON_EXEC,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just made it for us; nobody else knows it.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
