//! Opens the very file that a process maps, not the one that has its path today.
//!
//! The path may lead elsewhere: in another mount namespace, after an upgrade, or nowhere
//! at all for a deleted file or a memfd. A probe on another inode fires never and says
//! nothing, so every way but the first is checked against the memory map.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::mappings::{self, FileId, Mapping};

/// Why the mapped file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is a file at the path and it is not the mapped one.
    #[error(
        "the file at {path} is not the one that the process maps (inode {inode} is mapped); \
         run outlive as root, which can open the mapped file itself"
    )]
    OtherFile {
        /// Where it was looked for.
        path: PathBuf,
        /// The mapped inode.
        inode: u64,
    },
    /// Nothing could be opened.
    #[error("{path} cannot be opened ({source}); run outlive as root")]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Opens the file behind a mapping of the process `pid`.
///
/// # Errors
/// When neither the mapping's own link can be followed nor the file found by its path.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> Result<File, OpenError> {
    // The kernel follows this link to the inode itself. Needs CAP_SYS_ADMIN or
    // CAP_CHECKPOINT_RESTORE (`proc_map_files_get_link`).
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(file) = File::open(link) {
        return Ok(file);
    }

    let relative = mapping.path.as_bytes().strip_prefix(b"/").unwrap_or_default();
    let by_path = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(std::ffi::OsStr::from_bytes(relative));
    let by_exe = PathBuf::from(format!("/proc/{pid}/exe"));

    let mut error = None;
    for path in [by_path, by_exe] {
        match File::open(&path) {
            Ok(file) if is_file(&file, mapping.file) => return Ok(file),
            Ok(_) => {
                let other = OpenError::OtherFile { path, inode: mapping.file.inode };
                error.get_or_insert(other);
            }
            Err(source) => {
                error.get_or_insert(OpenError::Open { path, source });
            }
        }
    }
    Err(error.unwrap_or_else(|| OpenError::OtherFile {
        path: mapping.path.clone().into(),
        inode: mapping.file.inode,
    }))
}

/// Opens a file by its path as a process sees it: links are followed within the process's root.
/// Answers how the process's memory map would name it as well.
///
/// # Errors
/// When there is no such file that can be read.
pub fn open_in_root(pid: u32, path: &Path) -> io::Result<(File, FileId)> {
    let file = open_below(&root_of(pid)?, path)?;
    let id = mapped_id(&file);
    Ok((file, id.ok_or(io::ErrorKind::InvalidInput)?))
}

/// The root of a process's file system. Held open it can be searched after the process has ended.
///
/// # Errors
/// When the process has ended, or is somebody else's.
pub fn root_of(pid: u32) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(format!("/proc/{pid}/root"))
}

/// Opens a file by its path below this root, out of which no link leads.
///
/// # Errors
/// When there is no such file that can be read.
pub fn open_below(root: &File, path: &Path) -> io::Result<File> {
    // Looked at before it is opened: that alone starts some devices, and lets go who waits at a pipe.
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let place = File::from(openat2(root, path, how)?);
    if !place.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path_of(&place))
}

/// A path by which the kernel finds this open file, for interfaces that take paths only.
/// Valid in this process, for as long as the file is open.
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Is it the file that the memory map means?
fn is_file(file: &File, id: FileId) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    if !metadata.is_file() {
        return false;
    }
    let device = metadata.dev();
    let same = metadata.ino() == id.inode
        && libc::major(device) == id.dev_major
        && libc::minor(device) == id.dev_minor;
    // On overlayfs and btrfs `stat` and the memory map disagree about the device; what the
    // map says of a mapping of our own is the same answer of the same kernel function.
    same || mapped_id(file) == Some(id)
}

/// The file as the kernel's memory map names it.
fn mapped_id(file: &File) -> Option<FileId> {
    // SAFETY: never read, only looked up in our own memory map.
    let map = unsafe { Mmap::map(file) }.ok()?;
    let own = mappings::parse(&std::fs::read("/proc/self/maps").ok()?);
    Some(own.at(map.as_ptr() as u64)?.file)
}
