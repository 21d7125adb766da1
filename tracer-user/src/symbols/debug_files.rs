//! The file beside an object that holds what was stripped from it.
//!
//! It is found as debuggers find it: by the object's build id below `/usr/lib/debug/.build-id`,
//! or by the name in its section `.gnu_debuglink`, beside the object, in `.debug` beside it, and
//! below `/usr/lib/debug`. The root of the target is searched first, then ours. A file of another
//! build has the same names at other addresses, so none is taken without a proof: equal build
//! ids, or the checksum that the object states.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::Object;
use crate::target::elf::Elf;
use crate::target::objects::{open_below, path_of};

/// Where debug files lie, in any root.
pub(super) const DEBUG: &str = "usr/lib/debug";

/// Files above this size are not read whole for their checksum.
const LARGEST_SUMMED: u64 = 2 << 30;

/// Shortest build id that is looked for: its first byte is a folder's name.
const SHORTEST_ID: usize = 2;
/// Longest one; linkers write 20 bytes, or what they are told.
const LONGEST_ID: usize = 64;

/// What an object says of the file that was split from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// A file name without folders.
    pub(crate) name: &'a OsStr,
    /// CRC-32 of the file.
    checksum: u32,
}

/// The debug file of this object; `None` when there is none, or none that can be proven to be it.
pub(super) fn find(elf: &Elf, object: &Object) -> Option<File> {
    let own = File::open("/").ok();
    let roots = [object.root.as_deref(), own.as_ref()];
    let link = elf.section(".gnu_debuglink").and_then(|(_, bytes)| debug_link(bytes));
    let id = elf.build_id.as_deref();
    roots.into_iter().flatten().find_map(|root| {
        let by_id = id.and_then(by_build_id).and_then(|path| open_below(root, &path).ok());
        by_id.filter(|file| has_id(file, id)).or_else(|| {
            let link = link.as_ref()?;
            let paths = by_link(link.name, Path::new(&object.name));
            paths.iter().find_map(|path| {
                let file = open_below(root, path).ok()?;
                is_meant(&file, id, link.checksum).then_some(file)
            })
        })
    })
}

/// The files at this path that the tool's user may read: in the target's root, and in ours.
pub(super) fn at(object: &Object, path: &Path) -> Vec<File> {
    let own = File::open("/").ok();
    let roots = [object.root.as_deref(), own.as_ref()].into_iter().flatten();
    let files = roots.filter_map(|root| open_below(root, path).ok());
    files.filter(may_be_read).collect()
}

/// Folders in which more may be looked for, by path.
pub(super) fn folders(object: &Object) -> Vec<PathBuf> {
    let below_root = object.root.as_deref().map(|root| path_of(root).join(DEBUG));
    below_root.into_iter().chain([Path::new("/").join(DEBUG)]).collect()
}

pub(crate) fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    if !(SHORTEST_ID..=LONGEST_ID).contains(&id.len()) {
        return None;
    }
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(DEBUG).join(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..])))
}

/// Where a linked file may lie; relative to a root.
pub(crate) fn by_link(name: &OsStr, object: &Path) -> Vec<PathBuf> {
    let Some(folder) = object.parent().and_then(|folder| folder.strip_prefix("/").ok()) else {
        return Vec::new();
    };
    let beside = folder.join(name);
    let paths = [
        folder.join(".debug").join(name),
        Path::new(DEBUG).join(&beside),
        Path::new(DEBUG).join(name),
    ];
    // The object may bear the name that it states itself.
    let is_self = object.file_name() == Some(name);
    (!is_self).then_some(beside).into_iter().chain(paths).collect()
}

/// The section `.gnu_debuglink`: a name, its end, padding up to four bytes, a checksum.
pub(crate) fn debug_link(section: &[u8]) -> Option<Link<'_>> {
    let len = section.iter().position(|byte| *byte == 0)?;
    let name = OsStr::from_bytes(&section[..len]);
    let at = (len + 1).next_multiple_of(4);
    let checksum = section.get(at..at + 4)?.try_into().map(u32::from_le_bytes).ok()?;
    // A name only, never a path: `..` would lead anywhere.
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    (is_name && !name.as_bytes().contains(&b'/')).then_some(Link { name, checksum })
}

/// May the tool's user read it? The capabilities of the tool's file, by which it was opened, are
/// not theirs; the kernel leaves those aside here.
fn may_be_read(file: &File) -> bool {
    access(&path_of(file), AccessFlags::R_OK).is_ok()
}

fn has_id(file: &File, id: Option<&[u8]>) -> bool {
    id.is_some()
        && may_be_read(file)
        && Elf::open(file).is_ok_and(|elf| elf.build_id.as_deref() == id)
}

/// Is it the file that the link means? Build ids decide where both have one; the checksum is
/// what is left where they have none.
fn is_meant(file: &File, id: Option<&[u8]>, checksum: u32) -> bool {
    let Some(elf) = Elf::open(file).ok().filter(|_| may_be_read(file)) else { return false };
    match (id, elf.build_id.as_deref()) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => sum(file) == Some(checksum),
    }
}

fn sum(mut file: &File) -> Option<u32> {
    if file.metadata().ok()?.len() > LARGEST_SUMMED {
        return None;
    }
    file.rewind().ok()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(hasher.finalize()),
            n_read => hasher.update(&bytes[..n_read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_is_a_name_and_a_checksum() {
        let link = debug_link(b"a.debug\0\x01\x02\x03\x04").expect("whole");
        assert_eq!(link, Link { name: OsStr::new("a.debug"), checksum: 0x0403_0201 });
        let padded = debug_link(b"ab\0\0\xff\0\0\0 behind").expect("whole");
        assert_eq!(padded, Link { name: OsStr::new("ab"), checksum: 0xff });
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_none() {
        for name in ["..", ".", "/etc/x", "a/b", "a/", ""] {
            let mut section = [name.as_bytes(), b"\0"].concat();
            section.resize(section.len().next_multiple_of(4) + 4, 0);
            assert_eq!(debug_link(&section), None, "{name}");
        }
        for cut in [&b"a.debug"[..], b"a.debug\0\x01\x02\x03", b""] {
            assert_eq!(debug_link(cut), None);
        }
    }

    #[test]
    fn the_file_is_looked_for_where_debuggers_look() {
        let paths = by_link(OsStr::new("app.debug"), Path::new("/opt/bin/app"));
        let expected = [
            "opt/bin/app.debug",
            "opt/bin/.debug/app.debug",
            "usr/lib/debug/opt/bin/app.debug",
            "usr/lib/debug/app.debug",
        ];
        assert_eq!(paths, expected.map(PathBuf::from));
        assert_eq!(by_link(OsStr::new("x"), Path::new("[vdso]")), Vec::<PathBuf>::new());
        let own = by_link(OsStr::new("app"), Path::new("/opt/app"));
        assert_eq!(own[0], Path::new("opt/.debug/app"));
        assert_eq!(
            by_build_id(&[0xab, 0x01, 0xff]),
            Some("usr/lib/debug/.build-id/ab/01ff.debug".into())
        );
        assert_eq!(by_build_id(&[0xab]), None);
        assert_eq!(by_build_id(&[0; 65]), None);
    }

    proptest! {
        #[test]
        fn no_section_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(link) = debug_link(&bytes) {
                prop_assert!(!link.name.is_empty());
                for path in by_link(link.name, Path::new("/opt/bin/app")) {
                    prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                }
            }
        }
    }
}
