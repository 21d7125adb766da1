//! The vDSO: functions that the kernel lends to every process, as an object file in its memory. It has
//! no path, but an unwind table and symbols.
//!
//! The tool's own is read: all 64-bit processes of a kernel have the same, and a target could have
//! changed what it sees of it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::target::mappings::{self, Mapping};

/// What the memory map calls it.
pub(super) const NAME: &str = "[vdso]";

/// A copy, as a file without a path, of the one that a process maps here.
///
/// # Errors
/// When ours is another, or cannot be read.
pub(super) fn copy(mapping: &Mapping) -> io::Result<File> {
    let ours = mappings::parse(&std::fs::read("/proc/self/maps")?);
    let ours = ours.list.into_iter().find(|ours| ours.path == NAME);
    let len = |mapping: &Mapping| mapping.end - mapping.start;
    let ours = ours.filter(|ours| len(ours) == len(mapping)).ok_or(io::ErrorKind::NotFound)?;
    let len = usize::try_from(len(&ours)).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; len];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, ours.start)?;
    let mut file = File::from(memfd_create(c"outlive-vdso", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(file)
}
