//! Names of generated code: `perf-<pid>.map`, which runtimes write for `perf`.
//!
//! Each line is a start, a size, both hexadecimal, and a name. The file grows without end,
//! is written while we read it, and holds what its writer pleases: it is read as a stream,
//! only the names that are asked for are kept, and what is not understood is passed over.

use std::io::{BufRead, Read as _};

use rustc_hash::FxHashMap;

/// Longer lines are read in pieces, of which the first names the function.
const LONGEST_LINE: u64 = 64 * 1024;

/// The names at `addrs`, which must be sorted. A later line replaces an earlier one, since
/// the memory of discarded code is used again.
pub(super) fn lookup(mut map: impl BufRead, addrs: &[u64]) -> FxHashMap<u64, String> {
    let mut names = FxHashMap::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match map.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return names,
            Ok(_) => {}
        }
        let Some((start, end, name)) = entry(&line) else { continue };
        let from = addrs.partition_point(|addr| *addr < start);
        for addr in addrs[from..].iter().take_while(|addr| **addr < end) {
            names.insert(*addr, String::from_utf8_lossy(name).into_owned());
        }
    }
}

/// Start, end and name.
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.trim_ascii().splitn(3, |byte| *byte == b' ');
    let start = number(fields.next()?)?;
    let size = number(fields.next()?)?;
    let name = fields.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    (!name.is_empty()).then_some((start, end, name))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(map: &[u8], addrs: &[u64]) -> Vec<(u64, String)> {
        let mut names: Vec<_> = lookup(map, addrs).into_iter().collect();
        names.sort();
        names
    }

    #[test]
    fn a_name_holds_for_its_range() {
        let map = b"1000 10 LazyCompile:~leakHere /app/leak.js:3\n0x2000 0x20 py::f:/a b.py\n";
        assert_eq!(
            names(map, &[0xfff, 0x1000, 0x100f, 0x1010, 0x201f, 0x2020]),
            [
                (0x1000, "LazyCompile:~leakHere /app/leak.js:3".to_owned()),
                (0x100f, "LazyCompile:~leakHere /app/leak.js:3".to_owned()),
                (0x201f, "py::f:/a b.py".to_owned()),
            ]
        );
    }

    #[test]
    fn the_last_line_counts() {
        let map = b"1000 10 old\n1008 10 new\n";
        assert_eq!(
            names(map, &[0x1000, 0x1008]),
            [(0x1000, "old".to_owned()), (0x1008, "new".to_owned())]
        );
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let map = b"\nrubbish\n1000\n1000 10\n1000 zz x\nffffffffffffffff 10 over\n\
            1000 10 \xff\x1b\n1000 10 half a line without its en";
        assert_eq!(names(map, &[0x1000]), [(0x1000, "half a line without its en".to_owned())]);
        assert_eq!(names(b"1000 10 a\xffb\n", &[0x1000]), [(0x1000, "a\u{fffd}b".to_owned())]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = lookup(bytes.as_slice(), &[0, 1, 0xfff, u64::MAX]);
        }
    }
}
