//! The compressed sections of an object, as they lie in its file.

use object::LittleEndian;
use object::elf::{FileHeader64, SectionHeader64};
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
        let mut all = Vec::new();
        for section in header.sections(LittleEndian, bytes)?.iter() {
            all.extend(compressed(section, bytes)?);
        }
        Ok(all)
    }

    /// The sections of this name in the order of the file. Object files may have several.
    pub fn sections_of(&self, name: &str) -> Vec<Stored<'_>> {
        let bytes = self.data.as_ref();
        let header = FileHeader64::<LittleEndian>::parse(bytes);
        let sections = header.and_then(|header| header.sections(LittleEndian, bytes));
        let Ok(sections) = sections else { return Vec::new() };
        let is_meant = |section: &&SectionHeader64<LittleEndian>| {
            sections.section_name(LittleEndian, section).is_ok_and(|found| found == name.as_bytes())
        };
        let stored =
            |section: &SectionHeader64<LittleEndian>| match compressed(section, bytes).ok()? {
                Some(compressed) => Some(Stored::Compressed(compressed)),
                None => section.data(LittleEndian, bytes).ok().map(Stored::Plain),
            };
        sections.iter().filter(is_meant).filter_map(stored).collect()
    }
}

/// A section as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// These are its bytes.
    Plain(&'a [u8]),
    /// Its bytes have to be unpacked.
    Compressed(Compressed<'a>),
}

fn compressed<'a>(
    section: &SectionHeader64<LittleEndian>,
    bytes: &'a [u8],
) -> Result<Option<Compressed<'a>>, ElfError> {
    let Some((header, start, len)) = section.compression(LittleEndian, bytes)? else {
        return Ok(None);
    };
    let packed = bytes.read_bytes_at(start, len).unwrap_or_default();
    let (form, size) = (header.ch_type(LittleEndian), header.ch_size(LittleEndian));
    Ok(Some(Compressed { form, size, packed }))
}
