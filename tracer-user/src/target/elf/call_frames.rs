//! Where the unwind table lies that is loaded with the code. A program header leads there as well as
//! the name of a section: exceptions go by the first, and section headers may be gone (`sstrip`,
//! packers) or made up.

use gimli::{BaseAddresses, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr};

use super::{Elf, FileOffset, ObjectAddr};

type Header<'a> = ParsedEhFrameHdr<EndianSlice<'a, LittleEndian>>;

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// The entries of `.eh_frame`: where they are loaded, and their bytes.
    pub fn eh_frame(&self) -> Option<(ObjectAddr, &[u8])> {
        self.section(".eh_frame").or_else(|| self.eh_frame_without_sections())
    }

    fn eh_frame_without_sections(&self) -> Option<(ObjectAddr, &[u8])> {
        let at = self.eh_frame_header?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(at.0);
        let header = EhFrameHdr::new(self.loaded(at)?, LittleEndian).parse(&bases, 8).ok()?;
        let start = header.eh_frame_ptr().direct().ok()?;
        let bytes = self.loaded(ObjectAddr(start))?;
        // Without an index it ends where an entry of no length says so.
        let len = last_entry(&header, &bases).map_or(bytes.len(), |last| {
            let within = usize::try_from(last.wrapping_sub(start)).unwrap_or(usize::MAX);
            end_of_entry(bytes, within).unwrap_or(bytes.len()).min(bytes.len())
        });
        Some((ObjectAddr(start), &bytes[..len]))
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

/// Address of the entry that lies behind all others of the index.
fn last_entry(header: &Header<'_>, bases: &BaseAddresses) -> Option<u64> {
    let table = header.table()?;
    let mut entries = table.iter(bases);
    let mut last = None;
    while let Ok(Some((_, entry))) = entries.next() {
        last = last.max(entry.direct().ok());
    }
    last
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
    use crate::target::test_program::Folder;

    /// A library with a table, and the same without section headers.
    fn both(flags: &[&str]) -> [Vec<u8>; 2] {
        let source = "
            void take(void *);
            int f(int n) { char room[n]; take(room); return n; }
            int g(int n) { char room[100]; take(room); return n; }
        ";
        let flags = [&["-shared", "-fPIC", "-O2"], flags].concat();
        let whole = fs::read(Folder::new().compile("lib.so", source, &flags)).expect("just made");
        let mut bare = whole.clone();
        remove_section_headers(&mut bare);
        [whole, bare]
    }

    /// In the header of the file, their place (`e_shoff`), their number and that of their names.
    fn remove_section_headers(bytes: &mut [u8]) {
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
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
        assert!(Elf::parse(bare.as_slice()).expect("an object").eh_frame().is_none());
        bare.truncate(0x400);
        assert!(Elf::parse(bare).is_ok_and(|elf| elf.eh_frame().is_none()));
    }

    #[test]
    fn the_length_of_an_entry_is_not_believed() {
        assert_eq!(end_of_entry(&[8, 0, 0, 0, 1], 0), Some(12));
        assert_eq!(end_of_entry(&[8, 0, 0], 0), None);
        assert_eq!(end_of_entry(&[0xff; 16], 0), None);
        assert_eq!(end_of_entry(&[8, 0, 0, 0], usize::MAX), None);
    }
}
