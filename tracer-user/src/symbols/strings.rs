//! Tables of strings, before anybody looks for the end of one.
//!
//! Symbolizers search for it from wherever a symbol or an attribute points to. A table in which it never
//! comes would be gone through once for each of them.

use std::fs::File;

use super::compressed;
use crate::target::elf::Elf;

/// The tables that they read, of objects and of what compilers leave beside them.
const TABLES: [&str; 5] = [".strtab", ".dynstr", ".debug_str", ".debug_line_str", ".debug_str.dwo"];

/// Every string of twice this length is found. Compilers write names of some hundred thousand bytes
/// where templates have run wild.
const LONGEST: usize = 512 << 10;

/// May this object be given to who reads all of it: are its sections whole, and do its strings end, each
/// before it is a megabyte long?
pub(super) fn may_be_read(elf: &Elf, file: &File) -> bool {
    compressed::are_whole(elf, file)
        && TABLES.iter().all(|name| are_short(&compressed::section(elf, name)))
}

/// A longer string than two such parts is all of one of them. Others are not read to their end.
fn are_short(table: &[u8]) -> bool {
    table.chunks_exact(LONGEST).all(|part| part.contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_without_an_end_is_found() {
        let mut table = b"main\0printf\0".repeat(LONGEST / 4);
        assert!(are_short(&table));
        table[100..100 + LONGEST].fill(b'x');
        assert!(are_short(&table), "it is as long as may be");
        table[100..100 + 2 * LONGEST].fill(b'x');
        assert!(!are_short(&table));
        assert!(are_short(&vec![b'x'; LONGEST - 1]) && !are_short(&vec![b'x'; LONGEST]));
    }
}
