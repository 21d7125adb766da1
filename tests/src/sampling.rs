//! A profiler beside the tool: interrupts every processor often and walks what runs there, as
//! `perf record -a -g` does.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

/// The head of the kernel's `perf_event_attr`, in its first published size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const SOFTWARE: u32 = 1;
/// With `SOFTWARE`: the processor's clock.
const CPU_CLOCK: u64 = 0;
/// Instruction pointer and call chain.
const SAMPLE: u64 = 1 | 1 << 5;
/// `sample_frequency` is a frequency, not a period.
const BY_FREQUENCY: u64 = 1 << 10;
/// A page for the head and a power of two for the samples.
const BUFFER: usize = 4096 * (1 + 64);

/// Samples until it is dropped. Nobody reads the samples: the newest overwrite the oldest.
#[derive(Debug)]
pub struct Sampling {
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    memory: *mut libc::c_void,
    /// Ends the sampling when closed.
    _event: File,
}

impl Sampling {
    /// Samples every processor so many times a second.
    pub fn start(frequency: u64) -> Self {
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |processor| {
            Buffer::open(processor, frequency)
                .unwrap_or_else(|err| panic!("cannot sample processor {processor}: {err}"))
        };
        Self { buffers: (0..n_processors).map(start).collect() }
    }

    /// Did any sample arrive?
    pub fn has_samples(&self) -> bool {
        self.buffers.iter().any(Buffer::has_samples)
    }
}

impl Buffer {
    fn open(processor: usize, frequency: u64) -> io::Result<Self> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: u32::try_from(size_of::<Attributes>()).unwrap_or_default(),
            config: CPU_CLOCK,
            sample_frequency: frequency,
            sample_type: SAMPLE,
            flags: BY_FREQUENCY,
            ..Attributes::default()
        };
        // SAFETY: the attributes are as long as their `size` says and live through the call.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, processor, -1, 0)
        };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us; nobody else knows it.
        let event = unsafe { File::from_raw_fd(fd) };
        // SAFETY: a new mapping where the kernel likes. Read-only: samples overwrite each other.
        let memory = unsafe {
            let fd = event.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), BUFFER, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { memory, _event: event })
    }

    fn has_samples(&self) -> bool {
        /// Place of `data_head` in `perf_event_mmap_page`.
        const DATA_HEAD: usize = 1024;
        // SAFETY: inside the first page of the mapping, which lives as long as `self`.
        let place = unsafe { self.memory.cast::<u8>().add(DATA_HEAD) };
        // SAFETY: aligned and mapped; the kernel may write at the same time, hence volatile.
        let head = unsafe { place.cast::<u64>().read_volatile() };
        head > 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this size; nothing refers to it after this.
        unsafe { libc::munmap(self.memory, BUFFER) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_arrive() {
        if !nix::unistd::geteuid().is_root() {
            panic!("sampling every processor needs root");
        }
        let sampling = Sampling::start(999);
        crate::process::eventually("a sample", || sampling.has_samples());
    }
}
