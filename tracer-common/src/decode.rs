//! Bytes of the ring buffer → events. Total: whatever the bytes are, the answer is an event
//! or a reason, never a panic.

mod frames;

pub use self::frames::Frames;

use crate::event::{
    AddrRecord, AllocRecord, FLAG_INSIDE, FLAG_OTHER_THREAD, FLAG_REPEAT, FLAG_RESIZED,
    FLAG_SHARES, Head, Kind, MAX_FRAMES, MAX_PIECE, PieceHead, RangeRecord, SpaceRecord, StackEnd,
    StackHead,
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
        /// Thread that called.
        tid: u32,
        /// The stack's hash.
        hash: u64,
        /// Its return addresses, innermost first.
        frames: Frames<'a>,
        /// Why there are no more.
        end: StackEnd,
    },
    /// A part of a stack whose frames are not all known.
    Piece(Piece<'a>),
    /// A batch ends here.
    Mark {
        /// The number that was asked for.
        number: u64,
    },
    /// Something about a process and its address space.
    Space(Space),
    /// A system call that changes mappings.
    Range(Range),
}

/// A part of a stack whose frames are not all known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Thread whose stack it is.
    pub tid: u32,
    /// What stands for the stack's hash.
    pub hash: u64,
    /// Return address whose call site has no rule.
    pub return_addr: u64,
    /// Stack pointer there.
    pub sp: u64,
    /// Frame pointer there.
    pub fp: u64,
    /// Where the bytes lay.
    pub addr: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A process or a thread, and its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What happened.
    pub turn: Turn,
    /// Thread that it happened to, or that called.
    pub tid: u32,
    /// Number of the address space.
    pub space: u64,
    /// Of a [`Turn::Fork`], the address space that is copied; of a [`Turn::Exec`], the one that
    /// is left.
    pub from: u64,
    /// Of a [`Turn::Born`], hash of the stack that made the process; zero when it was lost.
    pub stack: u64,
    /// Id of the process; zero of a [`Turn::Fork`] and a [`Turn::Thread`].
    pub pid: u32,
    /// Of a [`Turn::Born`], id of the process that made it.
    pub parent: u32,
    /// The hold that the process is in: it waits to be continued.
    pub hold: Option<Hold>,
    /// Of a [`Turn::Born`]: the address space is the parent's.
    pub shares: bool,
    /// Of a [`Turn::Exec`]: the thread that called was not the first of its process.
    pub by_other_thread: bool,
}

/// A turn in the life of a process or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// An address space is copied.
    Fork,
    /// A process begins.
    Born,
    /// A process replaces its image.
    Exec,
    /// A thread is seen for the first time.
    Thread,
    /// A process is stopped until the ring is read up to here.
    Pause,
}

impl Turn {
    const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Fork => Some(Self::Fork),
            Kind::Born => Some(Self::Born),
            Kind::Exec => Some(Self::Exec),
            Kind::Thread => Some(Self::Thread),
            Kind::Pause => Some(Self::Pause),
            _ => None,
        }
    }
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
    /// Of a [`Change::Map`], the hold that the process is in: it waits to be continued.
    pub hold: Option<Hold>,
}

/// A process that is being stopped until its probes are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold(pub u64);

impl Hold {
    /// The process.
    pub const fn process(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn of(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }
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
            _ => None,
        }
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
    /// A piece of more bytes than [`MAX_PIECE`].
    Piece {
        /// The number found.
        len: u64,
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
            Self::Piece { len } => write!(out, "piece of a stack of {len} bytes"),
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
            hold: if matches!(change, Change::Map) { Hold::of(word(bytes, 24)) } else { None },
        }));
    }
    if let Some(turn) = Turn::of(kind) {
        need(bytes, size_of::<SpaceRecord>())?;
        return Ok(Event::Space(Space {
            turn,
            tid,
            space: word(bytes, 8),
            from: word(bytes, 16),
            stack: word(bytes, 24),
            pid: half(bytes, 40),
            parent: half(bytes, 44),
            hold: Hold::of(word(bytes, 32)),
            shares: flags & FLAG_SHARES != 0,
            by_other_thread: flags & FLAG_OTHER_THREAD != 0,
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
            let frames = Frames::of(&bytes[size_of::<StackHead>()..][..n * 8]);
            Ok(Event::Stack { tid, hash: word(bytes, 8), frames, end })
        }
        Kind::Piece => {
            need(bytes, size_of::<PieceHead>())?;
            let len = word(bytes, 48);
            let n = usize::try_from(len).unwrap_or(usize::MAX);
            if n > MAX_PIECE {
                return Err(DecodeError::Piece { len });
            }
            need(bytes, size_of::<PieceHead>() + n)?;
            Ok(Event::Piece(Piece {
                tid,
                hash: word(bytes, 8),
                return_addr: word(bytes, 16),
                sp: word(bytes, 24),
                fp: word(bytes, 32),
                addr: word(bytes, 40),
                bytes: &bytes[size_of::<PieceHead>()..][..n],
            }))
        }
        _ => {
            need(bytes, size_of::<AddrRecord>())?;
            let addr = word(bytes, 8);
            Ok(match kind {
                Kind::Free => Event::Free { tid, addr, repeat },
                Kind::GiveUp => Event::GiveUp { tid, addr, repeat },
                Kind::TakeBack => Event::TakeBack { tid },
                Kind::Release => Event::Release { tid },
                _ => Event::Mark { number: addr },
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
mod tests;
