//! The pid namespace of the tracer, which decides what a process id means.

use std::{fs, os::unix::fs::MetadataExt as _};

use super::ProbeError;

/// Inode of the initial pid namespace: `PROC_PID_INIT_INO` of the kernel.
const INITIAL: u64 = 0xefff_fffc;

/// A pid namespace as the kernel programs are told of it.
pub(super) struct PidNamespace {
    /// Device, encoded as the kernel encodes it; zero for the initial namespace.
    pub(super) dev: u64,
    /// Inode; zero for the initial namespace.
    pub(super) ino: u64,
}

/// The namespace this process lives in.
pub(super) fn of_tracer() -> Result<PidNamespace, ProbeError> {
    let path = "/proc/self/ns/pid";
    let meta = fs::metadata(path).map_err(|error| ProbeError::Read { path, error })?;
    if meta.ino() == INITIAL {
        return Ok(PidNamespace { dev: 0, ino: 0 });
    }
    // The helper compares with `dev_t` of the kernel: major in the upper bits, 20 bits of minor.
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    Ok(PidNamespace { dev: (u64::from(major) << 20) | u64::from(minor), ino: meta.ino() })
}
