//! Every map: who writes it, who reads it, and why it has its size.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf},
};
use tracer_common::{
    count::Count,
    event::{FunctionsHead, MAX_FRAMES, MAX_PIECE, PieceHead, StackHead},
    interpreter::{Interpreter, MAX_FRAME, MAX_FUNCTIONS, Sent, Threads},
    state,
    unwind::{CHUNK_ROWS, CallSite, ChunkKey, Region},
};

use crate::{
    call::{Call, Slot},
    stack,
};

/// Records for the user side, in the order in which they became true. One ring for all
/// CPUs, because its reservation order is the order of events. The user side sets the size.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(32 << 20, 0);

/// Counters by [`Count`]; written here, summed over CPUs by the user side.
#[map]
pub static COUNTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Count::N as u32, 0);

/// The call in flight of each thread, by thread id. An entry stays until its thread ends,
/// so that a call costs a look-up and not an insertion. The user side sets the size.
#[map]
pub static SLOTS: HashMap<u32, Slot> = HashMap::with_max_entries(16_384, 0);

/// Calls in flight on stacks that their thread has left, by thread id and a small number.
/// Rare, so its memory is taken when it is needed (`BPF_F_NO_PREALLOC`).
#[map]
pub static PARKED: HashMap<u64, Call> = HashMap::with_max_entries(4096, 1);

/// Hashes of stacks whose frames were sent. When it is full, further stacks are sent each
/// time they are met: slower, nothing lost.
#[map]
pub static SENT_STACKS: HashMap<u64, u8> = HashMap::with_max_entries(262_144, 0);

/// The rule of each call site that was met, packed: found in the tables once, or written by the
/// user side where there is no table. The ones that are not used go out.
#[map]
pub static RULES: LruHashMap<CallSite, u32> = LruHashMap::with_max_entries(1 << 17, 0);

/// What of each address space is code, and of which object. The user side writes it. Memory is taken
/// as it is needed (`BPF_F_NO_PREALLOC`), which this kind demands.
#[map]
pub static REGIONS: LpmTrie<[u8; 16], Region> = LpmTrie::with_max_entries(1 << 18, 1);

/// The unwind table of each object, in parts, shared by all processes that map it. The user side
/// writes it. Room for 16 million rows in 128 MiB; taken as it is needed (`BPF_F_NO_PREALLOC`).
#[map]
pub static TABLES: HashMap<ChunkKey, [u64; CHUNK_ROWS]> = HashMap::with_max_entries(1 << 16, 1);

/// Where each thread that is known to run an interpreter has its frames, by thread id. Written by the
/// user side; the threads that are gone go out when there is no room.
#[map]
pub static INTERPRETERS: LruHashMap<u32, Interpreter> = LruHashMap::with_max_entries(4096, 0);

/// Where each address space with an interpreter has the list of its threads. The user side writes it.
#[map]
pub static THREADS: LruHashMap<u64, Threads> = LruHashMap::with_max_entries(1024, 0);

/// The address space of each process that is a target, by the process's id. The first one is
/// written by the user side, with those that it finds; the others by the programs. The user
/// side takes out who has ended.
#[map]
pub static TARGETS: HashMap<u32, u64> = HashMap::with_max_entries(16_384, 0);

/// Processes that were made and have not run yet, by the id of their thread in the initial pid
/// namespace.
#[map]
pub static BIRTHS: HashMap<u32, Birth> = HashMap::with_max_entries(1024, 0);

/// What is known of a process that has not run yet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Birth {
    /// Its address space.
    pub space: u64,
    /// The address space of its parent.
    pub from: u64,
    /// Hash of the stack that made it.
    pub stack: u64,
    /// Its parent.
    pub parent: u32,
    /// Non-zero when the address space is the parent's.
    pub shares: u32,
}

/// Processes that are being stopped, by process (upper half) and a number, with the time since
/// when in nanoseconds of the monotonic clock. The user side takes out whom it has continued.
#[map]
pub static HELD: HashMap<u64, u64> = HashMap::with_max_entries(1024, 0);

/// Single words; see [`state`].
#[map]
pub static STATE: Array<u64> = Array::with_max_entries(state::N, 0);

/// Buffers for walking a stack. A program can be preempted by a program of another thread
/// on the same CPU, so one buffer per CPU is not enough: each has a flag that claims it.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(N_SCRATCH, 0);

/// Buffers per CPU: as many threads can be preempted in a walk there. Eight busy threads of a
/// slow machine need more than four. A walk that finds all taken loses its stack, and counts it.
pub const N_SCRATCH: u32 = 16;

/// Bytes of stack that one read copies; a read of this size costs little more than one of
/// a single word.
pub const WINDOW: usize = MAX_PIECE;

/// What one walk needs.
#[repr(C)]
pub struct Scratch {
    /// Non-zero while a walk uses the buffer.
    pub busy: u64,
    /// Where the walk is.
    pub walk: stack::State,
    /// The record as it is sent: head, then frames.
    pub head: StackHead,
    /// Return addresses, innermost first. One more than fits a record, so that the bound
    /// is a power of two.
    pub frames: [u64; MAX_FRAMES + 1],
    /// The record of a piece: head, then the window.
    pub piece: PieceHead,
    /// A part of the thread's stack.
    pub window: [u64; WINDOW / 8],
    /// Rules that were used lately.
    pub recent: [stack::Recent; stack::N_RECENT],
    /// Where the following of an interpreter's frames is.
    pub following: stack::Following,
    /// One of its frames.
    pub frame: [u64; MAX_FRAME / 8],
    /// The record of them: head, then frames.
    pub functions: FunctionsHead,
    /// The frames, innermost first.
    pub listed: [Sent; MAX_FUNCTIONS],
}
