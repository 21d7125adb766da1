//! Bytes of the ring buffer → events. Total: whatever the bytes are, the answer is an event
//! or a reason, never a panic.

use crate::event::{
    AddrRecord, AllocRecord, FLAG_INSIDE, FLAG_REPEAT, FLAG_RESIZED, Head, Kind, MAX_FRAMES,
    RangeRecord, StackEnd, StackHead,
};

/// One record, decoded. Borrows the frames of a stack from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A block was handed out.
    Alloc {
        /// Thread that called.
        tid: u32,
        /// Number of the allocator.
        family: u16,
        /// Address of the block.
        addr: u64,
        /// Requested bytes.
        size: u64,
        /// Hash of the caller's stack; zero when it was lost.
        stack: u64,
        /// The block that this thread gave up before is gone for good.
        resized: bool,
    },
    /// A block was given back.
    Free {
        /// Thread that called.
        tid: u32,
        /// Address of the block.
        addr: u64,
        /// This thread released the same address just before.
        repeat: bool,
    },
    /// A `realloc` began.
    GiveUp {
        /// Thread that called.
        tid: u32,
        /// Address of the block.
        addr: u64,
        /// This thread released the same address just before.
        repeat: bool,
    },
    /// A `realloc` failed; the block that the thread gave up is live.
    TakeBack {
        /// Thread that called.
        tid: u32,
    },
    /// A `realloc` freed the block that the thread gave up.
    Release {
        /// Thread that called.
        tid: u32,
    },
    /// The frames of a stack.
    Stack {
        /// The stack's hash.
        hash: u64,
        /// Its return addresses, innermost first.
        frames: Frames<'a>,
        /// Why there are no more.
        end: StackEnd,
    },
    /// A batch ends here.
    Mark {
        /// The number that was asked for.
        number: u64,
    },
    /// The target's memory was replaced.
    Exec,
    /// A system call that changes mappings.
    Range(Range),
}

/// A system call that changes mappings. Lengths are what the caller said, not yet in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// What the call did.
    pub change: Change,
    /// Thread that called.
    pub tid: u32,
    /// Where the range begins; of a [`Change::Break`], where it ends.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// Of a [`Change::Remap`], where the range was before.
    pub from: u64,
    /// Of a [`Change::Remap`], its bytes before.
    pub from_len: u64,
    /// Hash of the caller's stack; zero when it was lost or is not wanted.
    pub stack: u64,
    /// `PROT_…` bits of the call.
    pub protection: u32,
    /// `MAP_…` or `MREMAP_…` bits of the call.
    pub flags: u32,
    /// An allocator call of the thread was in flight.
    pub inside: bool,
}

/// What a system call did to mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `mmap` succeeded.
    Map,
    /// A range is given up until the call's end is known.
    Unmap,
    /// The `munmap` of this thread succeeded.
    Unmapped,
    /// The `munmap` or `mremap` of this thread failed.
    UnmapFailed,
    /// `mremap` succeeded.
    Remap,
    /// `mprotect` succeeded.
    Protect,
    /// `brk` returned.
    Break,
}

impl Change {
    const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Map => Some(Self::Map),
            Kind::Unmap => Some(Self::Unmap),
            Kind::Unmapped => Some(Self::Unmapped),
            Kind::UnmapFailed => Some(Self::UnmapFailed),
            Kind::Remap => Some(Self::Remap),
            Kind::Protect => Some(Self::Protect),
            Kind::Break => Some(Self::Break),
            Kind::Alloc
            | Kind::Free
            | Kind::GiveUp
            | Kind::TakeBack
            | Kind::Release
            | Kind::Stack
            | Kind::Mark
            | Kind::Exec => None,
        }
    }
}

/// Return addresses as they lie in a record, which need not be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a>(&'a [u8]);

impl Frames<'_> {
    /// Number of frames.
    pub const fn len(&self) -> usize {
        self.0.len() / 8
    }

    /// Is there none?
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The return addresses, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.chunks_exact(8).map(|bytes| word(bytes, 0))
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its kind needs.
    Short {
        /// Bytes that there are.
        len: usize,
        /// Bytes that the kind needs.
        needed: usize,
    },
    /// No such kind, or no such stack end.
    Unknown {
        /// The number found.
        number: u32,
    },
    /// More frames than [`MAX_FRAMES`].
    Frames {
        /// The number found.
        n_frames: u32,
    },
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { len, needed } => write!(out, "record of {len} bytes, {needed} needed"),
            Self::Unknown { number } => write!(out, "record of unknown kind {number}"),
            Self::Frames { n_frames } => write!(out, "stack of {n_frames} frames"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Decodes one record. Bytes after the record's end are ignored: the ring pads to eight.
///
/// # Errors
/// When the bytes are too few or name an unknown kind; see [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    need(bytes, size_of::<Head>())?;
    let (number, flags) = (bytes[0], bytes[1]);
    let family = u16::from_ne_bytes([bytes[2], bytes[3]]);
    let tid = half(bytes, 4);
    let kind = Kind::from_u8(number).ok_or(DecodeError::Unknown { number: number.into() })?;
    let repeat = flags & FLAG_REPEAT != 0;
    if let Some(change) = Change::of(kind) {
        need(bytes, size_of::<RangeRecord>())?;
        return Ok(Event::Range(Range {
            change,
            tid,
            addr: word(bytes, 8),
            len: word(bytes, 16),
            from: word(bytes, 24),
            from_len: word(bytes, 32),
            stack: word(bytes, 40),
            protection: half(bytes, 48),
            flags: half(bytes, 52),
            inside: flags & FLAG_INSIDE != 0,
        }));
    }
    match kind {
        Kind::Alloc => {
            need(bytes, size_of::<AllocRecord>())?;
            Ok(Event::Alloc {
                tid,
                family,
                addr: word(bytes, 8),
                size: word(bytes, 16),
                stack: word(bytes, 24),
                resized: flags & FLAG_RESIZED != 0,
            })
        }
        Kind::Stack => {
            need(bytes, size_of::<StackHead>())?;
            let n_frames = half(bytes, 16);
            let end = half(bytes, 20);
            let n = n_frames as usize;
            if n > MAX_FRAMES {
                return Err(DecodeError::Frames { n_frames });
            }
            let end = StackEnd::from_u32(end).ok_or(DecodeError::Unknown { number: end })?;
            need(bytes, size_of::<StackHead>() + n * 8)?;
            let frames = Frames(&bytes[size_of::<StackHead>()..][..n * 8]);
            Ok(Event::Stack { hash: word(bytes, 8), frames, end })
        }
        _ => {
            need(bytes, size_of::<AddrRecord>())?;
            let addr = word(bytes, 8);
            Ok(match kind {
                Kind::Free => Event::Free { tid, addr, repeat },
                Kind::GiveUp => Event::GiveUp { tid, addr, repeat },
                Kind::TakeBack => Event::TakeBack { tid },
                Kind::Release => Event::Release { tid },
                Kind::Mark => Event::Mark { number: addr },
                _ => Event::Exec,
            })
        }
    }
}

fn need(bytes: &[u8], needed: usize) -> Result<(), DecodeError> {
    if bytes.len() < needed { Err(DecodeError::Short { len: bytes.len(), needed }) } else { Ok(()) }
}

/// Eight bytes at `at`; the caller has checked the length.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut buf = [0; 8];
    buf.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(buf)
}

/// Four bytes at `at`; the caller has checked the length.
fn half(bytes: &[u8], at: usize) -> u32 {
    let mut buf = [0; 4];
    buf.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn record(kind: Kind, flags: u8, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::from([kind as u8, flags, 7, 0, 42, 0, 0, 0]);
        for word in words {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn each_kind_decodes() {
        assert_eq!(
            decode(&record(Kind::Alloc, FLAG_RESIZED, &[0x1000, 64, 0xabc])),
            Ok(Event::Alloc {
                tid: 42,
                family: 7,
                addr: 0x1000,
                size: 64,
                stack: 0xabc,
                resized: true
            })
        );
        assert_eq!(
            decode(&record(Kind::Free, FLAG_REPEAT, &[0x1000])),
            Ok(Event::Free { tid: 42, addr: 0x1000, repeat: true })
        );
        assert_eq!(
            decode(&record(Kind::GiveUp, 0, &[0x1000])),
            Ok(Event::GiveUp { tid: 42, addr: 0x1000, repeat: false })
        );
        assert_eq!(decode(&record(Kind::TakeBack, 0, &[0])), Ok(Event::TakeBack { tid: 42 }));
        assert_eq!(decode(&record(Kind::Release, 0, &[0])), Ok(Event::Release { tid: 42 }));
        assert_eq!(decode(&record(Kind::Mark, 0, &[9])), Ok(Event::Mark { number: 9 }));
        assert_eq!(decode(&record(Kind::Exec, 0, &[0])), Ok(Event::Exec));
    }

    #[test]
    fn a_system_call_decodes() {
        let words = [0x1000, 5000, 0x9000, 8192, 0xabc, 3 | (0x22 << 32)];
        let expected = |change, inside| Range {
            change,
            tid: 42,
            addr: 0x1000,
            len: 5000,
            from: 0x9000,
            from_len: 8192,
            stack: 0xabc,
            protection: 3,
            flags: 0x22,
            inside,
        };
        for (kind, change) in [
            (Kind::Map, Change::Map),
            (Kind::Unmap, Change::Unmap),
            (Kind::Unmapped, Change::Unmapped),
            (Kind::UnmapFailed, Change::UnmapFailed),
            (Kind::Remap, Change::Remap),
            (Kind::Protect, Change::Protect),
            (Kind::Break, Change::Break),
        ] {
            let outside = record(kind, 0, &words);
            assert_eq!(decode(&outside), Ok(Event::Range(expected(change, false))));
        }
        let inside = record(Kind::Map, FLAG_INSIDE, &words);
        assert_eq!(decode(&inside), Ok(Event::Range(expected(Change::Map, true))));
    }

    #[test]
    fn a_stack_brings_its_frames() {
        let counts = 2_u64 | (u64::from(StackEnd::Broken as u32) << 32);
        let bytes = record(Kind::Stack, 0, &[0xfeed, counts, 0x10, 0x20]);
        let Ok(Event::Stack { hash, frames, end }) = decode(&bytes) else {
            panic!("not a stack: {:?}", decode(&bytes));
        };
        assert_eq!((hash, end), (0xfeed, StackEnd::Broken));
        assert_eq!(frames.iter().collect::<Vec<_>>(), [0x10, 0x20]);
    }

    #[test]
    fn what_is_no_record_is_named() {
        assert_eq!(decode(&[1, 0]), Err(DecodeError::Short { len: 2, needed: 8 }));
        assert_eq!(
            decode(&record(Kind::Alloc, 0, &[1])),
            Err(DecodeError::Short { len: 16, needed: 32 })
        );
        assert_eq!(decode(&[99; 32]), Err(DecodeError::Unknown { number: 99 }));
        let too_many = record(Kind::Stack, 0, &[1, 128 | (1 << 32)]);
        assert_eq!(decode(&too_many), Err(DecodeError::Frames { n_frames: 128 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
            let _ = decode(&bytes);
        }
    }
}
