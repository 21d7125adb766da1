//! Code that a process maps, told by the kernel when it does.
//!
//! A library that is opened and closed between two looks into the memory map is in neither. The
//! kernel's performance events tell of every executable mapping of a file, with its path. They
//! are watched on every processor for all processes, since an event of one process covers only
//! the threads that it has at the time; each costs the one that maps a copy of some hundred bytes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::mappings::{FileId, Mapping};
use super::perf_event::PerfEvent;

/// Bytes of one processor's ring: some four hundred mappings.
const RING_BYTES: usize = 64 << 10;
/// The page before the ring, which says what is in it.
const PAGE: usize = 4096;
/// Places in that page: how far the kernel has written, and how far we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// Tells of executable mappings from the moment it was made.
#[derive(Debug)]
pub struct Arrivals {
    pid: u32,
    rings: Vec<Ring>,
}

/// The events of one processor. Closing the descriptor ends them.
#[derive(Debug)]
struct Ring {
    _event: File,
    records: Records,
}

/// Their memory, which the kernel writes.
#[derive(Debug)]
struct Records(MmapRaw);

impl Arrivals {
    /// Watches the process of this id.
    ///
    /// # Errors
    /// When the kernel refuses, which costs names and nothing else.
    pub fn watch(pid: u32) -> io::Result<Self> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let rings = processors(&online).map(Ring::open).collect::<io::Result<_>>()?;
        Ok(Self { pid, rings })
    }

    /// What it mapped since the last call, in the order of each processor. Events that found no
    /// room are missing.
    pub fn take(&mut self) -> Vec<Mapping> {
        let mut arrived = Vec::new();
        for ring in &mut self.rings {
            ring.records.read(|record| arrived.extend(parse(record, self.pid)));
        }
        arrived
    }
}

/// The numbers in a list such as `0-3,6`.
fn processors(list: &str) -> impl Iterator<Item = u32> {
    list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

impl Ring {
    fn open(processor: u32) -> io::Result<Self> {
        let event = File::from(MAPPINGS.open(processor)?);
        let memory = MmapOptions::new().len(PAGE + RING_BYTES).map_raw(&event)?;
        Ok(Self { _event: event, records: Records(memory) })
    }
}

impl Records {
    /// As the kernel would have written them, from this place in the ring on.
    fn of(bytes: &[u8], from: u64) -> io::Result<Self> {
        let mut memory = MmapOptions::new().len(PAGE + RING_BYTES).map_anon()?;
        let bytes = &bytes[..bytes.len().min(RING_BYTES)];
        for (place, byte) in (from..).zip(bytes) {
            memory[PAGE + place as usize % RING_BYTES] = *byte;
        }
        let records = Self(memory.into());
        records.number(TAIL).store(from, Ordering::Relaxed);
        records.number(HEAD).store(from + bytes.len() as u64, Ordering::Relaxed);
        Ok(records)
    }

    /// A number in the first page, which the kernel and we both write.
    fn number(&self, place: usize) -> &AtomicU64 {
        // SAFETY: within the first page of the mapping.
        let at = unsafe { self.0.as_mut_ptr().add(place) };
        // SAFETY: aligned, mapped as long as `self`, and only ever used as an atomic here.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn read(&mut self, mut use_record: impl FnMut(&[u8])) {
        const HEADER: u64 = 8;
        let head = self.number(HEAD).load(Ordering::Acquire);
        let mut tail = self.number(TAIL).load(Ordering::Relaxed);
        let mut record = Vec::new();
        while tail + HEADER <= head {
            self.copy(tail + 6, 2, &mut record);
            let size = u64::from(u16::from_ne_bytes([record[0], record[1]]));
            if size < HEADER || head < tail + size {
                // Not what a kernel writes; what follows cannot be found.
                tail = head;
                break;
            }
            self.copy(tail, size as usize, &mut record);
            use_record(&record);
            tail += size;
        }
        self.number(TAIL).store(tail, Ordering::Release);
    }

    /// Copies bytes of the ring, which may go on at its beginning.
    fn copy(&self, from: u64, len: usize, to: &mut Vec<u8>) {
        to.clear();
        for at in from..from + len as u64 {
            let place = PAGE + at as usize % RING_BYTES;
            // SAFETY: within the mapping.
            let byte = unsafe { self.0.as_ptr().add(place) };
            // SAFETY: the kernel has written this part and leaves it alone until the tail has
            // passed it.
            to.push(unsafe { byte.read_volatile() });
        }
    }
}

/// An event that counts nothing and tells of mappings.
const MAPPINGS: PerfEvent = PerfEvent {
    // A software event, and the one that does nothing.
    kind: 1,
    config: 9,
    // `mmap` and `mmap2`: executable mappings, with device and inode.
    flags: 1 << 8 | 1 << 23,
    details: [0; 2],
};

/// What a ring says of the process of this id that has these bytes from this place on.
pub(crate) fn told(bytes: &[u8], from: u32, pid: u32) -> Vec<Mapping> {
    let mut arrived = Vec::new();
    if let Ok(mut records) = Records::of(bytes, from.into()) {
        records.read(|record| arrived.extend(parse(record, pid)));
        // Read once, they are behind.
        records.read(|_| panic!("records are read twice"));
    }
    arrived
}

/// A record of a mapping of this process with a file; nothing for others.
fn parse(record: &[u8], pid: u32) -> Option<Mapping> {
    const MMAP2: u32 = 10;
    /// In the second field: a build id stands in the place of device and inode.
    const WITH_BUILD_ID: u16 = 1 << 14;
    let word = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let misc = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    if word(0)? != MMAP2 || misc & WITH_BUILD_ID != 0 || word(8)? != pid {
        return None;
    }
    let (start, len) = (long(16)?, long(24)?);
    let file = FileId { dev_major: word(40)?, dev_minor: word(44)?, inode: long(48)? };
    let name = record.get(72..)?.split(|byte| *byte == 0).next()?;
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    (file.inode != 0).then(|| Mapping {
        start,
        end: start.saturating_add(len),
        perms: *b"r-xp",
        offset: long(32).unwrap_or(0),
        file,
        path: OsString::from_vec(name.to_vec()),
        deleted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, name: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(10_u32.to_ne_bytes());
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend([pid, pid].map(u32::to_ne_bytes).concat());
        bytes.extend([0x7000_u64, 0x2000, 0x1000].map(u64::to_ne_bytes).concat());
        bytes.extend([0xfe_u32, 1].map(u32::to_ne_bytes).concat());
        bytes.extend([42_u64, 0].map(u64::to_ne_bytes).concat());
        bytes.extend([5_u32, 2].map(u32::to_ne_bytes).concat());
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(8) + 8, 0);
        bytes
    }

    #[test]
    fn a_record_is_a_mapping() {
        let mapping = parse(&record(7, b"/tmp/a b.so (deleted)"), 7).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7000, 0x9000, 0x1000));
        assert_eq!(mapping.file, FileId { dev_major: 0xfe, dev_minor: 1, inode: 42 });
        assert_eq!((mapping.path, mapping.deleted), ("/tmp/a b.so".into(), true));
        assert_eq!(parse(&record(7, b"/tmp/a.so"), 8), None);
        assert_eq!(parse(&record(7, b"/tmp/a.so")[..60], 7), None);
    }

    #[test]
    fn records_that_go_on_at_the_beginning_of_the_ring() {
        let bytes = [record(7, b"/tmp/a.so"), record(8, b"/tmp/b.so"), record(7, b"/tmp/c.so")];
        let sized = bytes.map(|mut record| {
            let size = u16::try_from(record.len()).unwrap().to_ne_bytes();
            record[6..8].copy_from_slice(&size);
            record
        });
        let bytes = sized.concat();
        for before_the_end in [0, 100, 200, 4096] {
            let from = u32::try_from(RING_BYTES).unwrap() * 5 - before_the_end;
            let paths: Vec<_> = told(&bytes, from, 7).into_iter().map(|it| it.path).collect();
            assert_eq!(paths, ["/tmp/a.so", "/tmp/c.so"]);
        }
        // What is no record hides what follows, and nothing else.
        let broken = [&bytes[..sized[0].len()], &[0; 8], &bytes].concat();
        assert_eq!(told(&broken, 0, 7).len(), 1);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(processors("0-3,6\n").collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
        assert_eq!(processors("0\n").collect::<Vec<_>>(), [0]);
        assert_eq!(processors("").count(), 0);
    }
}
