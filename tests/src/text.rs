//! Does a process run the code of its files, or are there breakpoints in it?

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// How many bytes of a process's code differ from the files that it maps: breakpoints.
pub fn changed_code_bytes(pid: i32) -> usize {
    changed_code(pid).len()
}

/// Where the code of a process differs from the files that it maps, in every executable mapping
/// of a file that can still be read.
pub fn changed_code(pid: i32) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap_or_else(|err| panic!("maps of {pid}: {err}"));
    let memory = File::open(format!("/proc/{pid}/mem"))
        .unwrap_or_else(|err| panic!("memory of {pid}: {err}"));
    maps.lines().filter_map(mapping).flat_map(|mapping| mapping.changed(&memory)).collect()
}

struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

/// An executable mapping of a file; none for other lines.
fn mapping(line: &str) -> Option<Mapping<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let (rights, offset) = (words.next()?, words.next()?);
    let path = words.nth(2)?.trim_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    (rights.contains('x') && path.starts_with('/')).then_some(())?;
    Some(Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path })
}

impl Mapping<'_> {
    fn changed(&self, memory: &File) -> Vec<u64> {
        let Ok(file) = File::open(self.path) else { return Vec::new() };
        let size = usize::try_from(self.end - self.start).unwrap_or_default();
        let (mut in_file, mut in_memory) = (vec![0; size], vec![0; size]);
        // The last page of a mapping reaches beyond the file's end.
        let n_read = read_up_to(&file, &mut in_file, self.offset);
        if memory.read_exact_at(&mut in_memory[..n_read], self.start).is_err() {
            return Vec::new();
        }
        let bytes = (self.start..).zip(in_file.iter().zip(&in_memory[..n_read]));
        bytes.filter(|(_, (file, memory))| file != memory).map(|(addr, _)| addr).collect()
    }
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> usize {
    let mut n_read = 0;
    while n_read < bytes.len() {
        match file.read_at(&mut bytes[n_read..], offset + n_read as u64) {
            Ok(0) | Err(_) => break,
            Ok(more) => n_read += more,
        }
    }
    n_read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_unchanged() {
        assert_eq!(changed_code_bytes(i32::try_from(std::process::id()).unwrap()), 0);
    }

    #[test]
    fn a_path_may_hold_spaces() {
        let line = "1000-3000 r-xp 00000800 fd:00 42                         /a b/c d.so";
        let found = mapping(line).unwrap();
        assert_eq!((found.start, found.end, found.offset), (0x1000, 0x3000, 0x800));
        assert_eq!(found.path, "/a b/c d.so");
        assert!(mapping("1000-3000 rw-p 00000000 00:00 0 ").is_none());
    }
}
