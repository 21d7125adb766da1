//! Roots of file systems, as processes see them, each held open once.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::target::objects::root_of;
use crate::target::process::Process;

/// What makes two roots one: the mount namespace, and device and inode of the folder.
type Key = (u64, u64, u64);

/// Every root that was asked for.
#[derive(Debug, Default)]
pub(super) struct Roots(FxHashMap<Key, Rc<File>>);

impl Roots {
    /// The process's root. `None` when it cannot be reached.
    pub(super) fn of(&mut self, process: &Process) -> Option<Rc<File>> {
        let mounts = fs::metadata(format!("/proc/{}/ns/mnt", process.pid)).ok()?.ino();
        let root = root_of(process.pid).ok()?;
        let folder = root.metadata().ok()?;
        let key = (mounts, folder.dev(), folder.ino());
        Some(self.0.entry(key).or_insert_with(|| Rc::new(root)).clone())
    }
}
