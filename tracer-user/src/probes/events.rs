//! The kernel's events of system calls, to which programs can be attached that no other thread
//! interrupts.
//!
//! Newer kernels let a thread be preempted in a program on a raw tracepoint of system calls, and
//! leave the program out for every other thread of that CPU meanwhile: on a busy machine, of each
//! thousand calls some are not seen (seen on 7.2, not on 6.18). A program on the event of the same
//! tracepoint runs without preemption, at the price of a record that the kernel makes for it.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya::util::KernelVersion;

use crate::target::perf_event::PerfEvent;

/// Numbers of the two events.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyscallEvents {
    /// A system call begins.
    pub(super) enter: u64,
    /// A system call ends.
    pub(super) exit: u64,
}

/// Can a thread be preempted in a program on a raw tracepoint of system calls? It cannot be asked
/// for; a version that cannot be read counts as new.
pub(super) fn are_needed() -> bool {
    KernelVersion::current().map_or(true, |version| version >= KernelVersion::new(6, 19, 0))
}

impl SyscallEvents {
    /// The events of the kernel that runs.
    ///
    /// # Errors
    /// When its tracing file system can neither be read nor be mounted.
    pub(super) fn find() -> io::Result<Self> {
        let places = [
            File::open("/sys/kernel/tracing/events"),
            File::open("/sys/kernel/debug/tracing/events"),
            mount().and_then(|root| open_at(&root, c"events")),
        ];
        let mut missing = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            match place.and_then(|events| Self::read(&events)) {
                Ok(events) => return Ok(events),
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }

    fn read(events: &File) -> io::Result<Self> {
        let number = |path: &CStr| {
            let mut text = String::new();
            open_at(events, path)?.read_to_string(&mut text)?;
            text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        Ok(Self {
            enter: number(c"raw_syscalls/sys_enter/id")?,
            exit: number(c"raw_syscalls/sys_exit/id")?,
        })
    }
}

/// Runs the program at each event of this number, of every process, until the answer is closed.
pub(super) fn attach(number: u64, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const TRACEPOINT: u32 = 2;
    const SET_PROGRAM: libc::c_ulong = 0x4004_2408;
    // The program belongs to the event as such: it runs on every CPU, whichever is named.
    let event =
        PerfEvent { kind: TRACEPOINT, config: number, flags: 0, details: [0; 2] }.open(0)?;
    // SAFETY: takes two descriptors that are open, and no memory.
    let status = unsafe { libc::ioctl(event.as_raw_fd(), SET_PROGRAM, program.as_raw_fd()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
}

/// The tracing file system, mounted nowhere: it goes with the descriptor.
fn mount() -> io::Result<File> {
    const CREATE: libc::c_uint = 6;
    // SAFETY: takes a string that ends in NUL.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), 1) };
    let context = owned(context)?;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: this command takes no key and no value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, nothing, nothing, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes a descriptor that is open, and numbers.
    let root = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0) };
    Ok(File::from(owned(root)?))
}

fn open_at(dir: &File, path: &CStr) -> io::Result<File> {
    // SAFETY: takes a descriptor that is open and a string that ends in NUL.
    let fd =
        unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    Ok(File::from(owned(fd.into())?))
}

/// The answer of a system call that opens something.
fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel has just opened it for us; nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_is_an_error() {
        let nowhere = File::open("/proc/self").expect("a folder");
        let error = SyscallEvents::read(&nowhere).expect_err("no events there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
