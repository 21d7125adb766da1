//! Sections of debug information, as its readers want them.

use std::borrow::Cow;

use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};

use super::compressed;
use crate::target::elf::Elf;

pub(super) type Reader<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Sections<'a> = DwarfSections<Cow<'a, [u8]>>;

pub(super) fn reader(bytes: &[u8]) -> Reader<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

/// The sections that have these names in the object.
pub(super) fn sections<'a>(
    elf: &'a Elf,
    name: impl Fn(SectionId) -> Option<&'static str>,
) -> Sections<'a> {
    let load = |id| Ok::<_, gimli::Error>(section(elf, name(id)));
    DwarfSections::load(load).unwrap_or_default()
}

/// The bytes of one; none where it has no name.
pub(super) fn section<'a>(elf: &'a Elf, name: Option<&str>) -> Cow<'a, [u8]> {
    name.map(|name| compressed::section(elf, name)).unwrap_or_default()
}
