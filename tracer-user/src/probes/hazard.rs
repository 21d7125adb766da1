//! Would a return probe kill a process that filters its system calls?
//!
//! From kernel 6.11 on, x86-64 leaves a probed function through a system call of the kernel's
//! own. Until a fix, a seccomp filter that had never heard of that call ended the process for
//! it. Whether this kernel has the fix is tried on a process of ours before a filtered target
//! is touched.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, Pid, fork, pipe},
};
use tracer_common::cookie::{Cookie, Shape};

use super::{AttachSite, LoadPlan, ProbeError, Probes};

/// Number of the system call by which a return probe comes back.
const SYS_URETPROBE: u32 = 335;
/// What the sacrifice ends with when it has come through.
const ALIVE: i32 = 0;

/// Does a process survive a return probe under a filter that kills it for any call it does not
/// know?
///
/// # Errors
/// When it cannot be tried.
pub fn filtered_processes_survive() -> Result<bool, ProbeError> {
    let ask = |error: io::Error| ProbeError::Ask { what: "trial of a filtered process", error };
    let (ready_read, ready_write) = pipe().map_err(|error| ask(error.into()))?;
    let (go_read, go_write) = pipe().map_err(|error| ask(error.into()))?;
    // SAFETY: the child makes system calls only, and ends without returning.
    match unsafe { fork() }.map_err(|error| ask(error.into()))? {
        ForkResult::Child => sacrifice(ready_write.as_raw_fd(), go_read.as_raw_fd()),
        ForkResult::Parent { child } => {
            drop((ready_write, go_read));
            let outcome = probe(child, ready_read, go_write);
            // It has ended, or is ended here: nobody waits for it any more.
            let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
            let status = waitpid(child, None).map_err(|error| ask(error.into()))?;
            outcome?;
            Ok(status == WaitStatus::Exited(child, ALIVE))
        }
    }
}

/// Probes the child, tells it to go on, and waits until it has ended.
fn probe(child: Pid, ready: OwnedFd, go: OwnedFd) -> Result<(), ProbeError> {
    let ask = |error: io::Error| ProbeError::Ask { what: "trial of a filtered process", error };
    let (mut ready, mut go) = (File::from(ready), File::from(go));
    let mut byte = [0];
    ready.read_exact(&mut byte).map_err(ask)?;
    let pid = child.as_raw().cast_unsigned();
    let plan = LoadPlan {
        pid,
        ring_bytes: 1 << 16,
        max_threads: 1,
        min_size: 0,
        follow: false,
        hold: false,
        pause: false,
    };
    let mut probes = Probes::load(&plan)?;
    let own = File::open("/proc/self/exe").map_err(ask)?;
    let site =
        AttachSite { offset: offset_of_probed().map_err(ask)?, cookie: COOKIE, is_end: false };
    probes.attach(pid, "outlive itself", &own, &[site])?;
    go.write_all(&byte).map_err(ask)?;
    // The pipe's other end closes with the child, however it ends.
    let mut rest = Vec::new();
    ready.read_to_end(&mut rest).map_err(ask)?;
    Ok(())
}

const COOKIE: Cookie = Cookie {
    shape: Shape::Alloc,
    size_arg: 0,
    count_arg: 0,
    ptr_arg: 0,
    family: 0,
    size_is_int: false,
    throws: false,
};

static CALLS: AtomicU32 = AtomicU32::new(0);

/// The function that is probed. Its work keeps the compiler from leaving out the call.
#[inline(never)]
extern "C" fn probed() -> u32 {
    CALLS.fetch_add(1, Ordering::Relaxed)
}

/// Where [`probed`] lies in the tool's own file.
fn offset_of_probed() -> io::Result<u64> {
    let addr = probed as *const () as u64;
    let mappings = crate::target::mappings::parse(&std::fs::read("/proc/self/maps")?);
    let mapping = mappings.at(addr).ok_or(io::ErrorKind::NotFound)?;
    Ok(addr - mapping.start + mapping.offset)
}

/// The child: filters its own calls, waits until it is probed, and calls the probed function.
fn sacrifice(ready: RawFd, go: RawFd) -> ! {
    let mut byte = 0_u8;
    let at = (&raw mut byte).cast::<libc::c_void>();
    // SAFETY: the buffer is one valid byte.
    let is_ready = filter() && unsafe { libc::write(ready, at, 1) } == 1;
    // SAFETY: the buffer is one valid byte.
    let met = is_ready && unsafe { libc::read(go, at, 1) } == 1;
    if met {
        probed();
    }
    // SAFETY: ends the process; nothing of the parent's is run on the way.
    unsafe { libc::_exit(if met { ALIVE } else { 1 }) }
}

/// Lets the kernel kill this process for the call of a return probe, and for no other.
fn filter() -> bool {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let insn = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        insn(LOAD_NUMBER, 0, 0, 0),
        insn(JUMP_EQUAL, 0, 1, SYS_URETPROBE),
        insn(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        insn(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let length = u16::try_from(program.len()).unwrap_or(0);
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only.
    let no_more_rights = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program is valid for the call, which copies it.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    no_more_rights == 0 && filtered == 0
}
