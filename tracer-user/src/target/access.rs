//! May the user trace a process with rights of their own?
//!
//! The tool's binary may hold capabilities so that users need not be root. Those let it look into
//! every process of the machine, which its user is not to gain by it. What the user could do
//! without them is asked of the kernel: by a child process that gives the capabilities up.

use std::{fs, io};

use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, Gid, Uid, fork, getgid, getuid, setresgid, setresuid},
};

/// What is to be done with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To trace it from outside, as a debugger attaches to it.
    Attach,
    /// To trace it as the process that started it. Where Yama lets only ancestors trace, the
    /// child that asks is none, and the tool is.
    Started,
}

impl Access {
    /// A file that the kernel opens for who may do this: its check for `mem` is that of attaching,
    /// for `maps` the same without Yama's.
    const fn file(self) -> &'static str {
        match self {
            Self::Attach => "mem",
            Self::Started => "maps",
        }
    }
}

/// Could the user do this without the capabilities that the tool's file holds? Who is root could.
///
/// # Errors
/// When it cannot be asked.
pub fn user_may(access: Access, pid: u32) -> io::Result<bool> {
    let (uid, gid) = (getuid(), getgid());
    if uid.is_root() {
        return Ok(true);
    }
    let own = ambient(&fs::read_to_string("/proc/self/status")?);
    let path = std::ffi::CString::new(format!("/proc/{pid}/{}", access.file()))?;
    // SAFETY: the child makes system calls only, and ends without returning.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let answer = give_up(uid, gid, own).and_then(|()| {
                // SAFETY: the path ends with its NUL.
                if unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
            let code =
                answer.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
            // SAFETY: ends the process; nothing of the parent's is run on the way.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(true),
            WaitStatus::Exited(_, libc::EACCES | libc::EPERM) => Ok(false),
            WaitStatus::Exited(_, code) => Err(io::Error::from_raw_os_error(code)),
            _ => Err(io::ErrorKind::Interrupted.into()),
        },
    }
}

/// Capabilities that the user has by themselves and hands on to every program.
fn ambient(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapAmb:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Keeps the user's own rights only. Allocates nothing.
fn give_up(uid: Uid, gid: Gid, own: u64) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    /// Effective, permitted and inheritable capabilities.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Sets([u32; 3]);
    /// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities, in two parts.
    const VERSION: u32 = 0x2008_0522;
    let header = Header { version: VERSION, pid: 0 };
    let part = |shift: u32| Sets([(own >> shift) as u32, (own >> shift) as u32, 0]);
    let sets = [part(0), part(32)];
    // The ids of a set-user-id file go first, while they may still be changed.
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // SAFETY: the call reads a header and the two parts that its version means.
    let status = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_a_user_hands_on_are_their_own() {
        assert_eq!(ambient("CapBnd:\t00ff\nCapAmb:\t0000000000080000\n"), 1 << 19);
        assert_eq!(ambient("CapBnd:\t00ff\n"), 0);
    }
}
