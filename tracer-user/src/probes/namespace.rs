//! What the target's process id is to the kernel programs.
//!
//! A program asks for the ids of its caller. The kernel answers with those of the initial pid
//! namespace, or, when it is told which, with those of the namespace that the caller lives in,
//! and of no other. So a tracer in the initial namespace uses the ids that it sees; any other
//! takes those that the target has in its own namespace, which may lie below the tracer's.

use std::{fs, io, os::unix::fs::MetadataExt as _};

use super::ProbeError;

/// Inode of the initial pid namespace: `PROC_PID_INIT_INO` of the kernel.
const INITIAL: u64 = 0xefff_fffc;

/// How the kernel programs know the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its process id.
    pub(super) pid: u32,
    /// Device of the pid namespace in which it has that id, encoded as the kernel encodes it;
    /// zero for the initial namespace.
    pub(super) dev: u64,
    /// Inode of that namespace; zero for the initial one.
    pub(super) ino: u64,
    /// Are ids of that namespace the ones that this process sees?
    pub(super) is_known_here: bool,
}

/// The identity of the process that this one knows as `pid`; zero is nobody.
pub(super) fn identify(pid: u32) -> Result<Identity, ProbeError> {
    let own = namespace("self")?.0;
    if pid == 0 || own == INITIAL {
        return Ok(Identity { pid, dev: 0, ino: 0, is_known_here: true });
    }
    let of_target = pid.to_string();
    let (ino, dev) = namespace(&of_target)?;
    let path = format!("/proc/{of_target}/status");
    let status = fs::read_to_string(&path);
    let status = status.map_err(|error| ProbeError::Read { path: path.clone(), error })?;
    let error = || ProbeError::Read { path, error: io::ErrorKind::InvalidData.into() };
    let pid = innermost(&status).ok_or_else(error)?;
    Ok(Identity { pid, dev, ino, is_known_here: ino == own })
}

/// The last of the process ids in a `status` file, which has one for each namespace from the
/// reader's down to the process's own.
fn innermost(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

/// Inode and device of the pid namespace of a process.
fn namespace(process: &str) -> Result<(u64, u64), ProbeError> {
    let path = format!("/proc/{process}/ns/pid");
    let meta = fs::metadata(&path).map_err(|error| ProbeError::Read { path, error })?;
    // The helper compares with `dev_t` of the kernel: major in the upper bits, 20 bits of minor.
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    Ok((meta.ino(), (u64::from(major) << 20) | u64::from(minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_in_the_process_s_own_namespace_is_the_last() {
        assert_eq!(innermost("Name:\tx\nNStgid:\t7\t6\t5\nNSpid:\t40\t30\t2\n"), Some(2));
        assert_eq!(innermost("NSpid:\t40\n"), Some(40));
        assert_eq!(innermost("Name:\tx\n"), None);
    }
}
