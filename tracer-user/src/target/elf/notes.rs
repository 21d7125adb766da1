//! The notes of an object: its build id.

use object::LittleEndian;
use object::elf::{NT_GNU_BUILD_ID, PT_NOTE, ProgramHeader64};
use object::read::elf::ProgramHeader as _;

pub(super) fn build_id(headers: &[ProgramHeader64<LittleEndian>], bytes: &[u8]) -> Option<Vec<u8>> {
    // Notes of more bytes than the file has are the same ones again and again.
    let mut left = bytes.len() as u64;
    for header in headers.iter().filter(|header| header.p_type(LittleEndian) == PT_NOTE) {
        left = left.checked_sub(header.p_filesz(LittleEndian))?;
        let Ok(Some(mut notes)) = header.notes(LittleEndian, bytes) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(LittleEndian) == NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}
