//! The file system that a machine boots from: a cpio archive in the "newc" form.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cmd::{CommandExt as _, command};

const FOLDER: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;

/// Files so far.
#[derive(Clone, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    /// Paths that are there: each once, since a later one would replace an earlier.
    seen: BTreeSet<PathBuf>,
}

impl Archive {
    /// Adds a file and the folders that lead to it.
    pub(super) fn file(&mut self, path: &str, content: &[u8], mode: u32) {
        self.put(Path::new(path), content, REGULAR | mode);
    }

    /// Adds a copy of a file under another path.
    pub(super) fn copy_as(&mut self, from: &Path, to: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| from.display().to_string())?;
        // A script of the sources need not be executable there.
        let mode = fs::metadata(from).with_context(|| from.display().to_string())?;
        let mode =
            mode.permissions().mode() & 0o777 | if content.starts_with(b"#!") { 0o111 } else { 0 };
        self.put(to, &content, REGULAR | mode);
        Ok(())
    }

    /// Adds a program and the libraries that the loader would give it.
    pub(super) fn program(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.copy_as(from, to)?;
        // It fails for what is linked statically, which needs nothing.
        let text = command("ldd").arg(from).text().unwrap_or_default();
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let library = Path::new(library);
            if library.is_file() {
                self.copy_as(library, library)?;
            }
        }
        Ok(())
    }

    /// Adds a folder with everything in it, programs with their libraries.
    pub(super) fn tree(&mut self, dir: &Path) -> Result<()> {
        for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                self.tree(&path)?;
            } else {
                self.program(&path, &path)?;
            }
        }
        Ok(())
    }

    /// The whole archive, with the mount points that the first process needs.
    pub(super) fn finish(mut self) -> Vec<u8> {
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/root"] {
            self.put(Path::new(folder), &[], FOLDER);
        }
        self.entry("TRAILER!!!", &[], 0);
        self.bytes
    }

    fn put(&mut self, path: &Path, content: &[u8], mode: u32) {
        if !self.seen.insert(path.to_path_buf()) {
            return;
        }
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("/")) {
            self.put(parent, &[], FOLDER);
        }
        let name = path.to_string_lossy();
        self.entry(name.trim_start_matches('/'), content, mode);
    }

    fn entry(&mut self, name: &str, content: &[u8], mode: u32) {
        self.inode += 1;
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        let (size, name_size) = (content.len(), name.len() + 1);
        let inode = self.inode;
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{size:08x}{0:08x}{0:08x}\
             {0:08x}{0:08x}{name_size:08x}{0:08x}",
            0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_first() {
        let mut archive = Archive::default();
        archive.file("/a/b", b"hello", 0o644);
        archive.file("/a/b", b"again", 0o644);
        let text = String::from_utf8(archive.bytes).expect("ASCII");
        assert_eq!(text.len() % 4, 0);
        assert_eq!(text.matches("070701").count(), 2);
        assert!(text.find("\0") < text.find("a/b"), "{text}");
        assert!(text.contains("hello") && !text.contains("again"));
        // 110 bytes of header, "a/b" and its end, two of padding; then the content.
        let at = text.rfind("070701").expect("the file");
        assert_eq!(&text[at + 116..at + 121], "hello");
        assert_eq!(&text[at + 54..at + 62], "00000005");
    }
}
