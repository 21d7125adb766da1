//! Names of symbols, read up to a bound: a table of strings without an end would be searched to its own
//! for each symbol that points into it.

use object::LittleEndian;
use object::elf::{FileHeader64, Sym64};
use object::read::elf::{SectionHeader as _, SectionTable, Sym as _, SymbolTable};

/// Of names that are looked for, the longest. Nobody gives an allocator a longer one.
const LONGEST_WANTED: usize = 4 << 10;
/// Of names that are shown, this much.
pub(crate) const LONGEST_SHOWN: usize = 16 << 10;

/// The strings that the names of a symbol table are among.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    pub(super) fn of(
        symbols: &SymbolTable<'a, FileHeader64<LittleEndian>>,
        sections: &SectionTable<'a, FileHeader64<LittleEndian>>,
        bytes: &'a [u8],
    ) -> Self {
        let section = sections.section(symbols.string_section()).ok();
        let strings = section.and_then(|section| section.data(LittleEndian, bytes).ok());
        Self(strings.unwrap_or_default())
    }

    /// The name of this symbol, unless it is too long to be one that is looked for.
    pub(super) fn wanted(self, symbol: &Sym64<LittleEndian>) -> Option<&'a [u8]> {
        let start = self.from(symbol, LONGEST_WANTED)?;
        start.iter().position(|byte| *byte == 0).map(|len| &start[..len])
    }

    /// As much of this symbol's name as is shown.
    pub(super) fn shown(self, symbol: &Sym64<LittleEndian>) -> Option<&'a [u8]> {
        self.from(symbol, LONGEST_SHOWN)?.split(|byte| *byte == 0).next()
    }

    /// So many bytes from the name's first on, or all that there are.
    fn from(self, symbol: &Sym64<LittleEndian>, limit: usize) -> Option<&'a [u8]> {
        let strings = self.0.get(symbol.st_name(LittleEndian) as usize..)?;
        Some(&strings[..strings.len().min(limit)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: u32) -> Sym64<LittleEndian> {
        let name = name.to_le_bytes();
        let mut bytes = [0; size_of::<Sym64<LittleEndian>>()];
        bytes[..name.len()].copy_from_slice(&name);
        *object::pod::from_bytes(&bytes).expect("long enough").0
    }

    #[test]
    fn no_more_is_read_of_a_name_than_its_bound() {
        let strings = [b"\0malloc\0".to_vec(), vec![b'x'; 1 << 20], b"\0end".to_vec()].concat();
        let names = Names(&strings);
        assert_eq!(names.wanted(&symbol(1)), Some(&b"malloc"[..]));
        assert_eq!(names.shown(&symbol(4)), Some(&b"loc"[..]));
        assert_eq!(names.wanted(&symbol(8)), None);
        assert_eq!(names.shown(&symbol(8)).map(<[u8]>::len), Some(LONGEST_SHOWN));
        let end = u32::try_from(strings.len()).expect("small");
        // The last one has no end, which a string must have.
        assert_eq!(names.wanted(&symbol(end - 3)), None);
        assert_eq!(names.shown(&symbol(end - 3)), Some(&b"end"[..]));
        assert_eq!((names.wanted(&symbol(end)), names.wanted(&symbol(end + 1))), (None, None));
        let longest = symbol(end - 4 - u32::try_from(LONGEST_WANTED).expect("small") + 1);
        assert_eq!(names.wanted(&longest).map(<[u8]>::len), Some(LONGEST_WANTED - 1));
    }
}
