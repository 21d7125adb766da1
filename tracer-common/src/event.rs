//! Records of the ring buffer. Flat, without padding, every length a multiple of eight.
//!
//! Order is truth: the ring orders records by reservation, a release of an address is
//! written before the target gives it up and an allocation after the target owns it, so
//! two owners of one address never overlap.

/// Frames of one stack that are kept at the most, the allocator's caller first.
pub const MAX_FRAMES: usize = 127;

/// What a record says. The numbers are the wire format and are never reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An allocation succeeded; written at the call's return. [`AllocRecord`].
    Alloc = 1,
    /// A block is given back; written at the call's entry. [`AddrRecord`].
    Free = 2,
    /// `realloc` was entered: the old block is given up until the call's end is known.
    /// [`AddrRecord`].
    GiveUp = 3,
    /// `realloc` failed: the block that this thread gave up is live again. [`AddrRecord`].
    TakeBack = 4,
    /// `realloc` to size zero freed the block that this thread gave up. [`AddrRecord`].
    Release = 5,
    /// The frames of a stack hash, sent once before the first record that names it.
    /// [`StackHead`] followed by the frames.
    Stack = 6,
    /// Everything that was written before it belongs to the batch it ends. [`AddrRecord`],
    /// whose address is the number that the user side asked for.
    Mark = 7,
    /// A process replaced its image by `exec` and has a new address space. [`SpaceRecord`].
    Exec = 8,
    /// `mmap` succeeded; written at the call's return, as all that gives memory. [`RangeRecord`].
    Map = 9,
    /// `munmap` or a `mremap` that leaves its old place was entered: the range is given up until
    /// the call's end is known. [`RangeRecord`].
    Unmap = 10,
    /// The `munmap` of this thread succeeded. [`RangeRecord`].
    Unmapped = 11,
    /// The `munmap` or `mremap` of this thread failed. [`RangeRecord`].
    UnmapFailed = 12,
    /// `mremap` succeeded. [`RangeRecord`].
    Remap = 13,
    /// `mprotect` succeeded. [`RangeRecord`].
    Protect = 14,
    /// `brk` returned; `addr` is where the program's break is now. [`RangeRecord`].
    Break = 15,
    /// A process is about to get a copy of the address space of this thread; written before the
    /// copy runs. [`SpaceRecord`].
    Fork = 16,
    /// A process begins, in an address space of its own or in its parent's; written before its
    /// first instruction. [`SpaceRecord`].
    Born = 17,
    /// What this thread does from here on, it does in this address space. [`SpaceRecord`].
    Thread = 18,
    /// The ring is half full and the process is being stopped until it is read up to here.
    /// [`SpaceRecord`].
    Pause = 19,
    /// A part of a stack, of which the [`Kind::Stack`] that follows is not finished.
    /// [`PieceHead`] followed by the bytes.
    Piece = 20,
    /// What the interpreter of this thread runs; written before the [`Kind::Stack`] of the same hash.
    /// [`FunctionsHead`] followed by three words for each frame.
    Functions = 21,
}

impl Kind {
    /// The kind of this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Alloc),
            2 => Some(Self::Free),
            3 => Some(Self::GiveUp),
            4 => Some(Self::TakeBack),
            5 => Some(Self::Release),
            6 => Some(Self::Stack),
            7 => Some(Self::Mark),
            8 => Some(Self::Exec),
            9 => Some(Self::Map),
            10 => Some(Self::Unmap),
            11 => Some(Self::Unmapped),
            12 => Some(Self::UnmapFailed),
            13 => Some(Self::Remap),
            14 => Some(Self::Protect),
            15 => Some(Self::Break),
            16 => Some(Self::Fork),
            17 => Some(Self::Born),
            18 => Some(Self::Thread),
            19 => Some(Self::Pause),
            20 => Some(Self::Piece),
            21 => Some(Self::Functions),
            _ => None,
        }
    }
}

/// Set on [`Kind::Alloc`]: the call was a `realloc` that gave up a block before, which is
/// now gone for good.
pub const FLAG_RESIZED: u8 = 1;
/// Set on [`Kind::Free`] and [`Kind::GiveUp`]: this thread's previous release was of the
/// same address and it allocated nothing since. One deallocator that calls another
/// (`free_sized` calling `free`) looks like this. Set as well on what a described function gives
/// back, and within it: the same block may have two addresses there.
pub const FLAG_REPEAT: u8 = 2;
/// Set on the records of system calls: an allocator call of this thread is in flight, so the
/// memory is what the allocator deals in.
pub const FLAG_INSIDE: u8 = 4;
/// Set on [`Kind::Born`]: the process lives in its parent's address space.
pub const FLAG_SHARES: u8 = 8;
/// Set on [`Kind::Exec`]: the thread that called was not the first of its process.
pub const FLAG_OTHER_THREAD: u8 = 16;

/// The address space of the process that the tracing begins with. Its later ones, and those of
/// other processes, are numbered from here upwards.
pub const FIRST_SPACE: u64 = 1;

/// First eight bytes of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// A [`Kind`].
    pub kind: u8,
    /// `FLAG_…` bits.
    pub flags: u8,
    /// Which allocator: the number that the user side put into the attach cookie.
    pub family: u16,
    /// Thread that made the call, as its kernel id in the tracer's pid namespace.
    pub tid: u32,
}
const _: () = assert!(size_of::<Head>() == 8);

/// A block that an allocator handed out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRecord {
    /// Kind, flags, family, thread.
    pub head: Head,
    /// Address that the caller received.
    pub addr: u64,
    /// Bytes that the caller asked for, not what the allocator rounded them up to.
    pub size: u64,
    /// Hash of the caller's stack, or zero when the stack was lost.
    pub stack: u64,
}
const _: () = assert!(size_of::<AllocRecord>() == 32);

/// A record that carries one number: an address, or the number of a mark.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrRecord {
    /// Kind, flags, family, thread.
    pub head: Head,
    /// The block's address; of a [`Kind::Mark`], its number.
    pub addr: u64,
}
const _: () = assert!(size_of::<AddrRecord>() == 16);

/// A system call that changes mappings. Lengths are what the caller said, not yet in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRecord {
    /// Kind, flags, thread.
    pub head: Head,
    /// Where the range begins; of a [`Kind::Break`], where it ends.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// Of a [`Kind::Remap`], where the range was before. Of a [`Kind::Map`], the hold that the
    /// process is in, as in a [`SpaceRecord`].
    pub from: u64,
    /// Of a [`Kind::Remap`], its bytes before.
    pub from_len: u64,
    /// Hash of the caller's stack, or zero when it was lost or is not wanted.
    pub stack: u64,
    /// `PROT_…` bits of the call.
    pub protection: u32,
    /// `MAP_…` or `MREMAP_…` bits of the call.
    pub flags: u32,
}
const _: () = assert!(size_of::<RangeRecord>() == 56);

/// A process or a thread, and its address space.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Kind, flags, thread.
    pub head: Head,
    /// Number of the address space that the record is about.
    pub space: u64,
    /// Of a [`Kind::Fork`], the address space that is copied; of a [`Kind::Exec`], the one
    /// that is left.
    pub from: u64,
    /// Of a [`Kind::Born`], hash of the stack that made the process; zero when it was lost.
    pub stack: u64,
    /// Zero, or number of the hold: the process is being stopped and waits to be continued by the
    /// user side. Its upper half is the process's id.
    pub hold: u64,
    /// Id of the process, in the tracer's pid namespace; zero where it has none yet.
    pub pid: u32,
    /// Of a [`Kind::Born`], id of the process that made it.
    pub parent: u32,
}
const _: () = assert!(size_of::<SpaceRecord>() == 48);

/// Why a stack has no further frame.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// The outermost frame of the thread was reached.
    Whole = 1,
    /// [`MAX_FRAMES`] frames were taken and there are more.
    DepthLimit = 2,
    /// The next frame could not be found: no rule, or not readable.
    Broken = 3,
    /// The kernel side has no rule for the last frame. The pieces that this thread has sent before
    /// have what is needed to go on, and the hash is none: it stands for the stack in the records
    /// of this thread that follow.
    Unfinished = 4,
    /// As unfinished, but what is needed to go on could not be sent: the ring was too full.
    Unsent = 5,
}

impl StackEnd {
    /// The end of this number, if there is one.
    pub const fn from_u32(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Whole),
            2 => Some(Self::DepthLimit),
            3 => Some(Self::Broken),
            4 => Some(Self::Unfinished),
            5 => Some(Self::Unsent),
            _ => None,
        }
    }
}

/// Start of a stack's record; `n_frames` return addresses of eight bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackHead {
    /// Kind, flags, family, thread.
    pub head: Head,
    /// [`crate::hash::StackHash`] over the frames.
    pub hash: u64,
    /// Return addresses that follow, the allocator's caller first.
    pub n_frames: u32,
    /// A [`StackEnd`].
    pub end: u32,
}
const _: () = assert!(size_of::<StackHead>() == 24);

/// Start of a piece of a stack; `len` bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHead {
    /// Kind and thread.
    pub head: Head,
    /// What stands for the stack's hash.
    pub hash: u64,
    /// Return address whose call site has no rule.
    pub return_addr: u64,
    /// Stack pointer and frame pointer there.
    pub sp: u64,
    /// See `sp`.
    pub fp: u64,
    /// Where the bytes lay.
    pub addr: u64,
    /// Their number.
    pub len: u64,
}
const _: () = assert!(size_of::<PieceHead>() == 56);

/// Start of what an interpreter runs; `n_functions` times two words follow, each a
/// [`crate::interpreter::Sent`], the innermost first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionsHead {
    /// Kind and thread.
    pub head: Head,
    /// Hash of the stack that they are on, or what stands for it.
    pub hash: u64,
    /// Frames that follow.
    pub n_functions: u32,
    /// Non-zero when there are more.
    pub is_cut: u32,
}
const _: () = assert!(size_of::<FunctionsHead>() == 24);

/// Bytes of one piece at the most.
pub const MAX_PIECE: usize = 4096;
