//! The compressed sections of an object, as they lie in its file.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::ReadRef as _;
use object::read::elf::{CompressionHeader as _, FileHeader as _, SectionHeader as _};

use super::{Elf, ElfError};

/// A section that is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// `ELFCOMPRESS_…` number of how.
    pub form: u32,
    /// Its bytes when it is unpacked, as it says.
    pub size: u64,
    /// What is in the file.
    pub packed: &'a [u8],
}

impl<Data: AsRef<[u8]>> Elf<Data> {
    /// The sections that are compressed, as their headers have it.
    ///
    /// # Errors
    /// When the section table or one of these headers is broken.
    pub fn compressed(&self) -> Result<Vec<Compressed<'_>>, ElfError> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        let mut compressed = Vec::new();
        for section in header.sections(LittleEndian, bytes)?.iter() {
            let Some((header, start, len)) = section.compression(LittleEndian, bytes)? else {
                continue;
            };
            let packed = bytes.read_bytes_at(start, len).unwrap_or_default();
            let (form, size) = (header.ch_type(LittleEndian), header.ch_size(LittleEndian));
            compressed.push(Compressed { form, size, packed });
        }
        Ok(compressed)
    }
}
