//! Where the unwind table lies that is loaded with the code, and the index to it. A program header leads
//! there as well as the name of a section: exceptions go by the first, and section headers may be gone
//! (`sstrip`, packers) or made up.

use super::{Elf, FileOffset, ObjectAddr};

/// How linkers write an index: the table's address relative to the field, the number of entries as a
/// plain number, and addresses relative to the index. They leave it out rather than write another.
const WRITTEN: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER: usize = 12;

/// An index to the entries of a table, by the first address that each is for.
struct Index<'a> {
    /// Where it is loaded.
    at: u64,
    /// What is described, and where the entry is; both relative to `at`.
    entries: &'a [[u8; 8]],
}

impl Index<'_> {
    /// Both parts of an entry, as addresses.
    fn parts(&self, entry: &[u8; 8]) -> (u64, u64) {
        let [a, b, c, d, e, f, g, h] = *entry;
        let addr = |bytes| self.at.wrapping_add_signed(i32::from_le_bytes(bytes).into());
        (addr([a, b, c, d]), addr([e, f, g, h]))
    }
}

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// The entries of `.eh_frame`: where they are loaded, and their bytes.
    pub fn eh_frame(&self) -> Option<(ObjectAddr, &[u8])> {
        self.section(".eh_frame").or_else(|| self.eh_frame_without_sections())
    }

    fn eh_frame_without_sections(&self) -> Option<(ObjectAddr, &[u8])> {
        let (start, index) = self.index()?;
        let bytes = self.loaded(start)?;
        // Without entries in the index it ends where an entry of no length says so.
        let last = index.entries.iter().map(|entry| index.parts(entry).1).max();
        let len = last.map_or(bytes.len(), |last| {
            let within = usize::try_from(last.wrapping_sub(start.0)).unwrap_or(usize::MAX);
            end_of_entry(bytes, within).unwrap_or(bytes.len()).min(bytes.len())
        });
        Some((start, &bytes[..len]))
    }

    /// Has the table an index? Then [`Elf::eh_frame_entry`] finds what there is of an address.
    pub fn has_index(&self) -> bool {
        self.index().is_some_and(|(_, index)| !index.entries.is_empty())
    }

    /// Where the entry of `.eh_frame` is loaded that may be for this address.
    pub fn eh_frame_entry(&self, addr: ObjectAddr) -> Option<ObjectAddr> {
        let (_, index) = self.index()?;
        let after = index.entries.partition_point(|entry| index.parts(entry).0 <= addr.0);
        let entry = index.entries.get(after.checked_sub(1)?)?;
        Some(ObjectAddr(index.parts(entry).1))
    }

    /// Where the table is loaded, and its index.
    fn index(&self) -> Option<(ObjectAddr, Index<'_>)> {
        let at = self.eh_frame_header?.0;
        let (header, entries) = self.loaded(ObjectAddr(at))?.split_first_chunk::<HEADER>()?;
        let [written @ .., a, b, c, d, e, f, g, h] = *header;
        if written != WRITTEN {
            return None;
        }
        let start = at.wrapping_add(4).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
        let n_entries = u32::from_le_bytes([e, f, g, h]) as usize;
        let (entries, _) = entries.as_chunks();
        Some((ObjectAddr(start), Index { at, entries: &entries[..n_entries.min(entries.len())] }))
    }

    /// The code that this object was compiled to, as a range of its file: the section `.text`, or all
    /// of its largest executable segment.
    pub fn main_code(&self) -> Option<(FileOffset, u64)> {
        if let Some((start, code)) = self.section(".text") {
            return Some((self.file_offset(start)?, code.len() as u64));
        }
        let executable = self.segments.iter().filter(|segment| segment.executable);
        let largest = executable.max_by_key(|segment| segment.file_size)?;
        Some((FileOffset(largest.offset), largest.file_size))
    }

    /// The bytes from this address on that are loaded with it from the file.
    fn loaded(&self, addr: ObjectAddr) -> Option<&[u8]> {
        let bytes = self.data.as_ref();
        let start = usize::try_from(self.file_offset(addr)?.0).ok()?;
        let segment = self.segments.iter().find(|segment| {
            addr.0.checked_sub(segment.addr).is_some_and(|within| within < segment.file_size)
        })?;
        let end = usize::try_from(segment.offset.checked_add(segment.file_size)?).ok()?;
        bytes.get(start..end.min(bytes.len()))
    }
}

/// Where an entry ends that begins here: behind its length and as many bytes.
fn end_of_entry(bytes: &[u8], start: usize) -> Option<usize> {
    const LENGTH_OF_EIGHT_BYTES: u32 = u32::MAX;
    let length = bytes.get(start..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    if length == LENGTH_OF_EIGHT_BYTES {
        return None;
    }
    start.checked_add(4)?.checked_add(usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::target::{
        elf::Table,
        test_program::{Folder, remove_section_headers},
    };

    /// A library with a table, and the same without section headers.
    fn both(flags: &[&str]) -> [Vec<u8>; 2] {
        let source = "
            void take(void *);
            int f(int n) { char room[n]; take(room); return n; }
            int g(int n) { char room[100]; take(room); return n; }
        ";
        let flags = [&["-shared", "-fPIC", "-O2"], flags].concat();
        let folder = Folder::new();
        let whole = fs::read(folder.compile("lib.so", source, &flags)).expect("just made");
        let mut bare = whole.clone();
        remove_section_headers(&mut bare);
        [whole, bare]
    }

    #[test]
    fn a_table_is_found_without_section_headers() {
        for flags in [&[][..], &["-Wl,--no-ld-generated-unwind-info"], &["-nostartfiles"]] {
            let [whole, bare] = both(flags);
            let [whole, bare] = [whole, bare].map(|bytes| Elf::parse(bytes).expect("an object"));
            assert!(bare.section(".eh_frame").is_none());
            let (at, bytes) = whole.eh_frame().expect("a section");
            let (found_at, found) = bare.eh_frame().expect("a table");
            assert_eq!(found_at, at);
            // What ends the section is no entry.
            let n_entries = bytes.strip_suffix(&[0; 4]).unwrap_or(bytes);
            assert_eq!(found, n_entries, "{flags:?}");
        }
    }

    #[test]
    fn code_is_found_without_section_headers() {
        let [whole, bare] = both(&[]).map(|bytes| Elf::parse(bytes).expect("an object"));
        let (start, len) = whole.main_code().expect("a section");
        let (found_start, found_len) = bare.main_code().expect("a segment");
        assert!(found_start <= start && start.0 + len <= found_start.0 + found_len);
    }

    #[test]
    fn an_object_without_either_has_no_table() {
        let [_, mut bare] = both(&["-Wl,--no-eh-frame-hdr"]);
        let elf = Elf::parse(bare.as_slice()).expect("an object");
        assert!(elf.eh_frame().is_none() && !elf.has_index());
        bare.truncate(0x400);
        assert!(Elf::parse(bare).is_ok_and(|elf| elf.eh_frame().is_none()));
    }

    #[test]
    fn the_index_leads_to_the_entry_of_a_function() {
        let [whole, _] = both(&[]);
        let elf = Elf::parse(whole).expect("an object");
        assert!(elf.has_index());
        let (start, bytes) = elf.eh_frame().expect("a table");
        let functions = elf.functions(Table::Dynamic, |_| true).expect("symbols");
        assert_eq!(functions.len(), 2);
        for function in functions {
            let entry = |addr| elf.eh_frame_entry(ObjectAddr(addr)).expect("an entry");
            let first = entry(function.addr.0);
            assert_eq!(first, entry(function.addr.0 + function.size - 1));
            assert_ne!(first, entry(function.addr.0 - 1));
            // Its third word is the function's first address, relative to itself.
            let within = usize::try_from(first.0 - start.0).expect("small") + 8;
            let field = bytes[within..].first_chunk().expect("a whole entry");
            let named =
                (start.0 + within as u64).wrapping_add_signed(i32::from_le_bytes(*field).into());
            assert_eq!(named, function.addr.0);
        }
        assert_eq!(elf.eh_frame_entry(ObjectAddr(0)), None);
    }

    #[test]
    fn the_length_of_an_entry_is_not_believed() {
        assert_eq!(end_of_entry(&[8, 0, 0, 0, 1], 0), Some(12));
        assert_eq!(end_of_entry(&[8, 0, 0], 0), None);
        assert_eq!(end_of_entry(&[0xff; 16], 0), None);
        assert_eq!(end_of_entry(&[8, 0, 0, 0], usize::MAX), None);
    }
}
