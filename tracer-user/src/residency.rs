//! How much memory of a process is resident: what the kernel says, beside what its
//! allocators have handed out.

use std::fs;
use std::io;

/// Resident memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Resident pages, shared ones in full.
    pub rss: u64,
    /// Resident pages, shared ones divided by the number of their users. `None` when the
    /// kernel does not say, as for the fields below.
    pub pss: Option<u64>,
    /// Resident pages that belong to no file.
    pub anonymous: Option<u64>,
    /// Pages that were swapped out.
    pub swap: Option<u64>,
}

/// Reads the resident memory of the process `pid`.
///
/// # Errors
/// When neither `smaps_rollup` nor `statm` can be read: the process has ended.
pub fn read(pid: u32) -> io::Result<Residency> {
    let rollup = fs::read(format!("/proc/{pid}/smaps_rollup"));
    // Refused to others than the owner, and empty for a process that is about to end.
    if let Some(residency) = rollup.ok().and_then(|bytes| parse_rollup(&bytes)) {
        return Ok(residency);
    }
    let statm = fs::read(format!("/proc/{pid}/statm"))?;
    // SAFETY: asks for a constant; touches no memory.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let rss = u64::try_from(page_size).ok().and_then(|size| parse_statm(&statm, size));
    rss.map(|rss| Residency { rss, ..Residency::default() })
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn parse_rollup(bytes: &[u8]) -> Option<Residency> {
    let text = String::from_utf8_lossy(bytes);
    let bytes_of = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Residency {
        rss: bytes_of("Rss")?,
        pss: bytes_of("Pss"),
        anonymous: bytes_of("Anonymous"),
        swap: bytes_of("Swap"),
    })
}

pub(crate) fn parse_statm(bytes: &[u8], page_size: u64) -> Option<u64> {
    let text = str::from_utf8(bytes).ok()?;
    text.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(page_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rollup() {
        let text = b"55d0c0000000-7ffe00000000 ---p 00000000 00:00 0     [rollup]\n\
            Rss:                1844 kB\nPss:                 201 kB\nPss_Dirty:  92 kB\n\
            Anonymous:            92 kB\nAnonHugePages:         0 kB\nSwap:    4 kB\n\
            SwapPss:               4 kB\n";
        assert_eq!(
            parse_rollup(text),
            Some(Residency {
                rss: 1844 * 1024,
                pss: Some(201 * 1024),
                anonymous: Some(92 * 1024),
                swap: Some(4096),
            })
        );
        assert_eq!(parse_rollup(b""), None);
    }

    #[test]
    fn a_statm() {
        assert_eq!(parse_statm(b"1386 231 212 5 0 109 0\n", 4096), Some(231 * 4096));
        assert_eq!(parse_statm(b"1386", 4096), None);
    }

    #[test]
    fn ourselves() {
        let residency = read(std::process::id()).expect("we run");
        assert!(residency.rss > 100_000, "{residency:?}");
        assert!(residency.pss.is_none_or(|pss| pss <= residency.rss));
    }

    #[test]
    fn nobody() {
        assert!(read(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_rollup(&bytes);
            let _ = parse_statm(&bytes, 4096);
            let with_key = [b"Rss:".as_slice(), &bytes, b" kB"].concat();
            let _ = parse_rollup(&with_key);
        }
    }
}
