//! What the kernel itself says of BPF programs and links.

use std::collections::BTreeSet;
use std::fs;
use std::io;

/// Ids of programs and of links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BpfIds {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Links: attachments of programs.
    pub links: BTreeSet<u32>,
}

impl BpfIds {
    /// Everything that is loaded on this machine.
    pub fn all() -> Self {
        const PROG_GET_NEXT_ID: libc::c_long = 11;
        const LINK_GET_NEXT_ID: libc::c_long = 31;
        Self { programs: walk(PROG_GET_NEXT_ID), links: walk(LINK_GET_NEXT_ID) }
    }

    /// What a process holds by file descriptors.
    pub fn held_by(pid: i32) -> Self {
        let folder = format!("/proc/{pid}/fdinfo");
        let entries = fs::read_dir(&folder).unwrap_or_else(|err| panic!("{folder}: {err}"));
        let mut held = Self::default();
        for entry in entries.filter_map(Result::ok) {
            // A descriptor may be closed meanwhile.
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let number = |key: &str| {
                let value = text.lines().find_map(|line| line.strip_prefix(key))?;
                value.trim().parse::<u32>().ok()
            };
            // A link tells its program as well, which some other descriptor may hold.
            held.programs.extend(number("prog_id:"));
            held.links.extend(number("link_id:"));
        }
        held
    }

    /// What is in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self { programs: &self.programs & &other.programs, links: &self.links & &other.links }
    }

    /// Is there nothing?
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.links.is_empty()
    }
}

fn walk(command: libc::c_long) -> BTreeSet<u32> {
    /// The part of the kernel's `bpf_attr` that these commands read and write.
    #[repr(C)]
    struct Attributes {
        start: u32,
        next: u32,
        open_flags: u32,
    }
    let mut ids = BTreeSet::new();
    let mut attributes = Attributes { start: 0, next: 0, open_flags: 0 };
    loop {
        // SAFETY: reads and writes the attributes, whose size is given.
        let status = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw mut attributes,
                size_of::<Attributes>() as libc::c_long,
            )
        };
        if status < 0 {
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "bpf ids: {error}");
            return ids;
        }
        ids.insert(attributes.next);
        attributes.start = attributes.next;
    }
}
