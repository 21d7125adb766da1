//! Folders as processes see them, each held open once: it cannot be reached any more when the
//! processes have ended, and thousands of them may have the same.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::target::objects::root_of;
use crate::target::process::Process;

/// What makes two folders one: the mount namespace, and device and inode.
type Key = (u64, u64, u64);

/// Every folder that was asked for.
#[derive(Debug, Default)]
pub(super) struct Roots(FxHashMap<Key, Rc<File>>);

impl Roots {
    /// The process's root. `None` when it cannot be reached.
    pub(super) fn of(&mut self, process: &Process) -> Option<Rc<File>> {
        self.shared(process, root_of(process.pid).ok()?)
    }

    /// The process's `/tmp`, which may be another than ours. `None` when there is none.
    pub(super) fn tmp_of(&mut self, process: &Process) -> Option<Rc<File>> {
        let tmp = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{}/root/tmp", process.pid));
        self.shared(process, tmp.ok()?)
    }

    fn shared(&mut self, process: &Process, folder: File) -> Option<Rc<File>> {
        let mounts = fs::metadata(format!("/proc/{}/ns/mnt", process.pid)).ok()?.ino();
        let metadata = folder.metadata().ok()?;
        let key = (mounts, metadata.dev(), metadata.ino());
        Some(self.0.entry(key).or_insert_with(|| Rc::new(folder)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_in_one_place_share_what_is_held_open() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut roots = Roots::default();
        let process = Process::open(child.id()).expect("it runs");
        let [root, again] =
            [roots.of(&process), roots.of(&process)].map(|root| root.expect("a root"));
        let tmp = roots.tmp_of(&process).expect("/tmp");
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(Rc::ptr_eq(&root, &again));
        assert!(!Rc::ptr_eq(&root, &tmp));
        assert_eq!(roots.0.len(), 2);
    }
}
