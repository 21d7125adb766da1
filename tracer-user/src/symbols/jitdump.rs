//! Names of generated code: the file `jit-<pid>.dump`, which runtimes write for `perf inject`.
//!
//! After a header come records, each with its length and the time when it was written. Those of
//! functions that were loaded hold address, size, name and the code itself. The form is in the
//! kernel's `tools/perf/Documentation/jitdump-specification.txt`.
//!
//! The file is the target's and may be large: it is read as a stream, code is passed over, only
//! the names that are asked for are kept. Lines are not read: V8 shifts the addresses that they
//! belong to by the header of the file that `perf inject` makes, and others do not.

use std::io::{self, BufRead, Read};

use super::by_time::{self, Found, Written};
use super::generated::Query;

const MAGIC: u32 = u32::from_ne_bytes(*b"DTiJ");
/// Bytes of the header that are understood.
const HEADER: usize = 40;
/// The time is the processor's counter, which nothing of ours can be compared with.
const FLAG_COUNTER: u64 = 1;
/// Number, length and time of a record.
const PREFIX: usize = 16;
/// Number of the record of a function that was loaded.
const LOADED: u32 = 0;
/// Process, thread, address twice, size, number of the function.
const BODY: usize = 40;
/// Bytes of a name that are read.
const LONGEST_NAME: u64 = 16 * 1024;

/// The names at `queries`, which must be sorted, of a dump that `open` opens at its beginning; as of the
/// time when each address was seen: the last that was written until then, else the first after.
pub(crate) fn lookup<Dump: BufRead>(
    open: impl Fn() -> Dump,
    queries: &[Query],
    room: &mut usize,
) -> Found {
    // What is cut off or broken ends the reading; what was read until then holds.
    by_time::lookup(queries, room, |take| drop(read(open(), take)))
}

fn read(mut dump: impl BufRead, take: &mut dyn FnMut(Written, &[u8]) -> bool) -> io::Result<()> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let header: [u8; HEADER] = bytes(&mut dump)?;
    let len = u64::from(word(&header, 8));
    if word(&header, 0) != MAGIC || len < HEADER as u64 {
        return Err(broken());
    }
    let has_time = long(&header, 32) & FLAG_COUNTER == 0;
    skip(&mut dump, len - HEADER as u64)?;
    let mut name = Vec::new();
    let mut number = 0;
    loop {
        let prefix: [u8; PREFIX] = bytes(&mut dump)?;
        let (kind, len) = (word(&prefix, 0), u64::from(word(&prefix, 4)));
        let mut left = len.checked_sub(PREFIX as u64).ok_or_else(broken)?;
        if kind == LOADED && BODY as u64 <= left {
            let body: [u8; BODY] = bytes(&mut dump)?;
            left -= BODY as u64;
            name.clear();
            let room = left.min(LONGEST_NAME);
            left -= dump.by_ref().take(room).read_until(0, &mut name)? as u64;
            let name = name.strip_suffix(b"\0").unwrap_or(&name);
            if !name.is_empty() {
                // Zero where it cannot be compared, so that the last one counts.
                let time = if has_time { long(&prefix, 8) } else { 0 };
                let start = long(&body, 16);
                let end = start.saturating_add(long(&body, 24));
                if !take(Written { start, end, time, number }, name) {
                    return Ok(());
                }
                number += 1;
            }
        }
        skip(&mut dump, left)?;
    }
}

fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn skip(from: &mut impl BufRead, len: u64) -> io::Result<()> {
    io::copy(&mut from.take(len), &mut io::sink()).map(drop)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::by_time::MOST_NAMES;
    use proptest::prelude::*;

    fn header(flags: u64) -> Vec<u8> {
        let words = [MAGIC, 1, 40, 62, 0, 4242].map(u32::to_ne_bytes).concat();
        [words, [7, flags].map(u64::to_ne_bytes).concat()].concat()
    }

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(PREFIX + body.len()).expect("short");
        [&kind.to_ne_bytes()[..], &len.to_ne_bytes(), &time.to_ne_bytes(), body].concat()
    }

    fn loaded(time: u64, start: u64, name: &[u8]) -> Vec<u8> {
        let numbers = [start, start, 0x10, 1].map(u64::to_ne_bytes).concat();
        let body = [&[0; 8][..], &numbers, name, b"\0", &[0x90; 0x10]].concat();
        record(LOADED, time, &body)
    }

    fn names(dump: &[u8], queries: &[Query]) -> Vec<String> {
        let names = lookup(|| dump, queries, &mut MOST_NAMES.clone()).names;
        let name = |query| names.get(query).map_or_else(String::new, |name| name.to_string());
        queries.iter().map(name).collect()
    }

    #[test]
    fn a_name_holds_for_its_range() {
        let dump = [
            header(0),
            loaded(5, 0x1000, b"f"),
            record(2, 6, &[1; 30]),
            loaded(7, 0x2000, b"g\xff"),
        ];
        let queries = [0xfff, 0x1000, 0x100f, 0x1010, 0x2000].map(|addr| (addr, 9));
        assert_eq!(names(&dump.concat(), &queries), ["", "f", "f", "", "g\u{fffd}"]);
    }

    #[test]
    fn memory_that_is_used_again_keeps_the_name_that_it_had() {
        // Threads that compile do not write in the order of their times.
        let dump = [header(0), loaded(30, 0x1000, b"c"), loaded(10, 0x1000, b"a")];
        let dump = [dump.concat(), loaded(20, 0x1000, b"b")].concat();
        let queries = [9, 10, 19, 20, 30, 99].map(|seen| (0x1000, seen));
        assert_eq!(names(&dump, &queries), ["a", "a", "a", "b", "c", "c"]);
        let counter = [header(1), loaded(30, 0x1000, b"a"), loaded(10, 0x1000, b"b")].concat();
        assert_eq!(names(&counter, &[(0x1000, 5)]), ["b"]);
    }

    #[test]
    fn what_is_cut_off_or_broken_ends_the_reading() {
        let whole = [header(0), loaded(5, 0x1000, b"f"), loaded(6, 0x2000, b"g")].concat();
        let queries = [(0x1000, 9), (0x2000, 9)];
        assert_eq!(names(&whole, &queries), ["f", "g"]);
        for len in 0..whole.len() {
            let names = names(&whole[..len], &queries);
            assert!(names[0].is_empty() || names[0] == "f", "{len}");
            assert!(names[1].is_empty() || "g".starts_with(&names[1]), "{len}");
        }
        let mut broken = whole.clone();
        broken[HEADER + 4] = 3;
        assert_eq!(names(&broken, &queries), ["", ""]);
        let mut other = whole;
        other[0] ^= 1;
        assert_eq!(names(&other, &queries), ["", ""]);
    }

    #[test]
    fn a_name_without_an_end_is_read_up_to_a_bound() {
        let long = vec![b'x'; 3 * usize::try_from(LONGEST_NAME).expect("small")];
        let dump = [header(0), loaded(5, 0x1000, &long), loaded(6, 0x2000, b"g")].concat();
        let names = names(&dump, &[(0x1000, 9), (0x2000, 9)]);
        assert_eq!((names[0].len() as u64, names[1].as_str()), (LONGEST_NAME, "g"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            has_header in any::<bool>(),
        ) {
            let dump = if has_header { [header(0), bytes].concat() } else { bytes };
            let _ = names(&dump, &[(0, 0), (1, 1), (0xfff, 9), (u64::MAX, u64::MAX)]);
        }
    }
}
