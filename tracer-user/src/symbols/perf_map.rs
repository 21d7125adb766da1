//! Names of generated code: `perf-<pid>.map`, which runtimes write for `perf`.
//!
//! Each line is a start, a size, both hexadecimal, and a name. The file grows without end,
//! is written while we read it, and holds what its writer pleases: it is read as a stream,
//! only the names that are asked for are kept, and what is not understood is passed over.

use std::io::{BufRead, Read as _};

use super::by_time::{self, Found, Written};
use super::generated::Query;

/// Of a longer line this much is read.
const LONGEST_LINE: u64 = 16 * 1024;

/// The names at `queries`, which must be sorted, of a table that `open` opens at its beginning. The
/// memory of discarded code is used again, so a later line replaces an earlier one, as far as both were
/// there when the address was seen. What was not there yet is named by the first line that came:
/// runtimes write some time after.
pub(crate) fn lookup<Map: BufRead>(
    open: impl Fn() -> Map,
    queries: &[Query],
    room: &mut usize,
) -> Found {
    by_time::lookup(queries, room, |take| read(open(), take))
}

fn read(mut map: impl BufRead, take: &mut dyn FnMut(Written, &[u8]) -> bool) {
    let mut line = Vec::new();
    let mut place = 0;
    let mut number = 0;
    let mut begins = true;
    loop {
        line.clear();
        let len = match map.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(len) => len as u64,
        };
        let is_whole = line.ends_with(b"\n");
        if begins && let Some((start, end, name)) = entry(&line) {
            // It was there as soon as the table was longer than up to here.
            let written = Written { start, end, time: place + 1, number };
            if !take(written, name) {
                return;
            }
            number += 1;
        }
        begins = is_whole;
        place += len;
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
    use crate::symbols::by_time::MOST_NAMES;
    use proptest::prelude::*;

    /// The names at addresses that were seen when everything was written.
    fn names(map: &[u8], addrs: &[u64]) -> Vec<(u64, String)> {
        let queries: Vec<_> = addrs.iter().map(|addr| (*addr, u64::MAX)).collect();
        let names = lookup(|| map, &queries, &mut MOST_NAMES.clone()).names.into_iter();
        let mut names: Vec<_> = names.map(|((addr, _), name)| (addr, name.to_string())).collect();
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
    fn memory_that_is_used_again_keeps_the_name_that_it_had() {
        let map = b"1000 10 first\n1000 10 second\n1000 10 third\n";
        let second = b"1000 10 first\n".len() as u64;
        let seen = [0, 1, second, second + 1, u64::MAX].map(|seen| (0x1008, seen));
        let found = lookup(|| &map[..], &seen, &mut MOST_NAMES.clone()).names;
        let found = seen.map(|query| &*found[&query]);
        // What was seen before anything was written got the name that was written next.
        assert_eq!(found, ["first", "first", "first", "second", "third"]);
    }

    #[test]
    fn names_have_so_much_room_and_no_more() {
        let map = b"1000 10 four\n2000 10 five5\n";
        let queries = [(0x1000, 9), (0x1001, 9), (0x2000, 9)];
        for (room, n_names, left) in [(13, 3, 0), (12, 2, 4), (7, 1, 2), (4, 0, 4)] {
            let mut room = room;
            let found = lookup(|| &map[..], &queries, &mut room);
            assert_eq!((found.names.len(), room, found.is_cut), (n_names, left, n_names < 3));
        }
    }

    #[test]
    fn what_was_written_anew_between_two_looks_has_no_name() {
        let looks = std::cell::Cell::new(0);
        let open = || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                &b"1000 10 old\n2000 10 same\n"[..]
            } else {
                b"1000 20 new\n2000 10 same\n"
            }
        };
        let found = lookup(open, &[(0x1000, 99), (0x2000, 99)], &mut MOST_NAMES.clone());
        let names: Vec<_> = found.names.values().map(|name| &**name).collect();
        assert_eq!(names, ["same"]);
    }

    #[test]
    fn the_rest_of_a_long_line_is_no_line() {
        let mut map = b"1000 10 long".to_vec();
        map.resize(usize::try_from(LONGEST_LINE).expect("small"), b'x');
        map.extend(b"2000 10 rest\n3000 10 next\n");
        let names = names(&map, &[0x1000, 0x2000, 0x3000]);
        assert_eq!(names.iter().map(|(addr, _)| *addr).collect::<Vec<_>>(), [0x1000, 0x3000]);
        assert_eq!(names[1].1, "next");
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let map = b"\nrubbish\n1000\n1000 10\n1000 zz x\nffffffffffffffff 10 over\n\
            1000 10 \xff\x1b\n1000 10 half a line without its en";
        assert_eq!(names(map, &[0x1000]), [(0x1000, "half a line without its en".to_owned())]);
        assert_eq!(names(b"1000 10 a\xffb\n", &[0x1000]), [(0x1000, "a\u{fffd}b".to_owned())]);
        // What a name holds beside is for those who show it to make harmless.
        let map = b"1000 10 a\x1bb;<x>&\"y\"\n2000 10 c\0d\n";
        let odd = [(0x1000, "a\x1bb;<x>&\"y\"".to_owned()), (0x2000, "c\0d".to_owned())];
        assert_eq!(names(map, &[0x1000, 0x2000]), odd);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = names(&bytes, &[0, 1, 0xfff, u64::MAX]);
        }
    }
}
