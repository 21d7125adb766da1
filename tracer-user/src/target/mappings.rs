//! `/proc/<pid>/maps` as data.
//!
//! The parser is total: names are bytes of the target's choosing, so a line that is not
//! understood is handed back with the rest and never fails the whole.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Names a file as the kernel's memory map does. Two mappings are of one file when this is
/// equal. Not what `stat` says on overlayfs or btrfs, whose device numbers differ there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Major number of the device.
    pub dev_major: u32,
    /// Minor number of the device.
    pub dev_minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// One line of the memory map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// `r`, `w`, `x` and `p` or `s`, as the kernel prints them.
    pub perms: [u8; 4],
    /// Offset in the file of the first address, in bytes.
    pub offset: u64,
    /// The mapped file; its inode is zero when there is none.
    pub file: FileId,
    /// Path, or a name such as `[heap]`; empty when there is none.
    pub path: OsString,
    /// The kernel said that the path leads nowhere any more.
    pub deleted: bool,
}

impl Mapping {
    /// May the target execute what is mapped here?
    pub fn is_executable(&self) -> bool {
        self.perms[2] == b'x'
    }

    /// Is there a file behind it?
    pub fn has_file(&self) -> bool {
        self.file.inode != 0
    }

    /// Does the address lie in it?
    pub fn contains(&self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }
}

/// What a memory map said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// The mappings, in the order of the file, which is that of the addresses.
    pub list: Vec<Mapping>,
    /// Lines that could not be understood.
    pub skipped: Vec<String>,
}

impl Mappings {
    /// The mapping that holds this address.
    pub fn at(&self, addr: u64) -> Option<&Mapping> {
        let after = self.list.partition_point(|mapping| mapping.start <= addr);
        self.list.get(after.checked_sub(1)?).filter(|mapping| mapping.contains(addr))
    }
}

/// Parses the bytes of a `maps` file.
pub fn parse(bytes: &[u8]) -> Mappings {
    let mut mappings = Mappings::default();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Some(mapping) => mappings.list.push(mapping),
            None => mappings.skipped.push(String::from_utf8_lossy(line).into_owned()),
        }
    }
    mappings
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = field(line)?;
    let (perms, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, rest) = field(rest)?;

    let (start, end) = range.split_once('-')?;
    let (dev_major, dev_minor) = device.split_once(':')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    if end <= start {
        return None;
    }

    // Blanks in front only fill the column: a name that starts with one keeps no trace of it.
    let name = &rest[rest.iter().take_while(|byte| **byte == b' ').count()..];
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    Some(Mapping {
        start,
        end,
        perms: perms.as_bytes().try_into().ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: FileId {
            dev_major: u32::from_str_radix(dev_major, 16).ok()?,
            dev_minor: u32::from_str_radix(dev_minor, 16).ok()?,
            inode: inode.parse().ok()?,
        },
        path: OsString::from_vec(unescape(name)),
        deleted,
    })
}

/// The text up to the next blank or the end, and what follows the blank.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let text = str::from_utf8(&line[..end]).ok().filter(|text| !text.is_empty())?;
    Some((text, line.get(end + 1..).unwrap_or_default()))
}

/// The kernel escapes newlines and nothing else (`seq_path(m, file, "\n")` in
/// `fs/proc/task_mmu.c`), so no other octal number may be read as one.
fn unescape(name: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = behind;
        } else {
            plain.push(*first);
            rest = behind;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Mapping {
        let mappings = parse(line.as_bytes());
        assert_eq!(mappings.skipped, Vec::<String>::new(), "{line}");
        assert_eq!(mappings.list.len(), 1, "{line}");
        mappings.list[0].clone()
    }

    #[test]
    fn a_library() {
        let line = "7f01c2a00000-7f01c2a26000 r-xp 00026000 fe:01 1234  \
                    /usr/lib/x86_64-linux-gnu/libc.so.6\n";
        assert_eq!(
            one(line),
            Mapping {
                start: 0x7f01_c2a0_0000,
                end: 0x7f01_c2a2_6000,
                perms: *b"r-xp",
                offset: 0x26000,
                file: FileId { dev_major: 0xfe, dev_minor: 1, inode: 1234 },
                path: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
                deleted: false,
            }
        );
    }

    #[test]
    fn an_inode_number_of_more_than_32_bits() {
        let mapping = one("7f00000000-7f00001000 r-xp 0 fd:00 4294967299 /usr/lib/libc.so.6");
        assert_eq!(mapping.file.inode, 4_294_967_299);
        let mapping = one("7f00000000-7f00001000 r-xp 0 fd:00 18446744073709551615 /x");
        assert_eq!(mapping.file.inode, u64::MAX);
    }

    #[test]
    fn odd_names() {
        let named = |name: &str| one(&format!("1000-2000 rw-p 00000000 00:00 7       {name}"));
        for name in [
            "/tmp/dir with space/a.out",
            "anon_inode:[io_uring]",
            "[anon: glibc: malloc arena]",
            "[anon:a b c]",
            "//anon",
            "/dev/zero",
            "/tmp/half\\",
            "/tmp/\\040not-a-blank",
            "",
        ] {
            assert_eq!((named(name).path, named(name).deleted), (name.into(), false), "{name}");
        }
        assert_eq!(named("/tmp/two\\012lines").path, "/tmp/two\nlines");
        let gone = named("/memfd:x y (deleted)");
        assert_eq!((gone.path, gone.deleted), ("/memfd:x y".into(), true));
    }

    #[test]
    fn no_name_and_no_blank_behind_the_inode() {
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0").path, "");
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0 ").path, "");
    }

    #[test]
    fn what_is_not_understood_is_told_and_does_not_harm_the_rest() {
        let mappings = parse(
            b"rubbish\n1000-2000 r-xp 0 00:00 0 [vdso]\n2000-1000 r-xp 0 00:00 0\n\
              3000-4000 r-xp 0 00:00 x\n4000-5000 r-x 0 00:00 0\n",
        );
        assert_eq!(mappings.list.len(), 1);
        assert_eq!(mappings.skipped.len(), 4);
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let mappings = parse(b"1000-2000 r-xp 0 00:00 9 /tmp/\xff");
        assert_eq!(mappings.list[0].path, OsString::from_vec(b"/tmp/\xff".to_vec()));
    }

    #[test]
    fn an_address_is_found_in_its_mapping_only() {
        let mappings = parse(b"1000-2000 r-xp 0 00:00 0 a\n3000-4000 r-xp 0 00:00 0 b\n");
        let name = |addr| mappings.at(addr).map(|mapping| mapping.path.clone());
        assert_eq!(name(0xfff), None);
        assert_eq!(name(0x1000), Some("a".into()));
        assert_eq!(name(0x1fff), Some("a".into()));
        assert_eq!(name(0x2000), None);
        assert_eq!(name(0x3fff), Some("b".into()));
        assert_eq!(name(0x4000), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_line_of_about_the_right_form_makes_it_panic(
            line in "[0-9a-f]{0,20}-?[0-9a-f]{0,20} ?[rwxp-]{0,5} [0-9a-f]{0,3} [0-9a-f:]{0,6} [0-9]{0,21} {0,3}[ -~\\n]{0,30}",
        ) {
            let mappings = parse(line.as_bytes());
            for mapping in &mappings.list {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
