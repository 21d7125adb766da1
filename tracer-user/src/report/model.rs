//! The whole result as plain data: what `session.json` holds, and what every form is made of.
//! Nothing of the inner types is in it, so that they may change while old files stay readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use super::quality::{BreakReason, BrokenIn, Share, StackEnd, StackQuality};

/// Name and version of the file format.
pub const SCHEMA: &str = "outlive.session/1";

/// A measurement of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// [`SCHEMA`].
    pub schema: String,
    /// What measured.
    pub tool: Tool,
    /// The exact command line, word by word.
    pub command: Vec<String>,
    /// When it began, as RFC 3339 with the offset.
    pub started: String,
    /// Seconds from the attach to the end.
    pub duration_s: f64,
    /// What was measured.
    pub target: Target,
    /// What is said of it.
    pub verdict: Verdict,
    /// Exit code of the tool.
    pub exit_code: u8,
    /// Why the verdict is what it is, each `name: sentence`; the name never changes.
    pub reasons: Vec<String>,
    /// What should be known beside the verdict.
    pub notices: Vec<Notice>,
    /// What growth was accepted.
    pub budget: Budget,
    /// Batches of warm-up that were asked for.
    pub warmup: u32,
    /// Batches that were measured after it.
    pub measured: u32,
    /// Every batch, warm-up included, in order.
    pub batches: Vec<Batch>,
    /// Growth over the measured batches.
    pub growth: Growth,
    /// Stacks whose outstanding memory changed over the measured batches, most gained first.
    pub stacks: Vec<Stack>,
    /// Stacks whose mapped memory changed over the measured batches, most gained first.
    #[serde(default)]
    pub mappings: Vec<Mapping>,
    /// Every process that was traced, the target first, the others in the order of their
    /// beginnings.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Processes that have ended and are not in the list, because there were too many.
    #[serde(default)]
    pub processes_omitted: u64,
    /// How processes were stopped until their probes were in place.
    #[serde(default)]
    pub holds: Holds,
    /// How processes were stopped because the buffer for events was half full.
    #[serde(default)]
    pub pauses: Holds,
    /// How far the stacks of blocks were walked.
    #[serde(default)]
    pub stack_quality: StackQuality,
    /// What was lost, by kind; every kind is there, also at zero.
    pub losses: BTreeMap<String, u64>,
}

/// What measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `outlive`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Process id in the tool's pid namespace.
    pub pid: u32,
    /// Path of the program, as the target sees it.
    pub exe: String,
    /// Its words.
    pub cmdline: Vec<String>,
    /// Release of the kernel.
    pub kernel: String,
}

/// What is said of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Growth within the budget.
    Pass,
    /// Growth over the budget.
    Growth,
    /// It cannot be said.
    Inconclusive,
    /// The measurement failed.
    Error,
}

impl Verdict {
    /// As the session file spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Growth => "growth",
            Self::Inconclusive => "inconclusive",
            Self::Error => "error",
        }
    }
}

/// Something that should be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Stable name; never changes.
    pub name: String,
    /// A sentence for people.
    pub text: String,
}

/// What growth was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Outstanding bytes of all allocators together, per batch.
    pub heap_bytes_per_batch: u64,
}

/// One batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Place in the sequence, from zero, warm-up included.
    pub index: u32,
    /// Does it count?
    pub kind: Kind,
    /// Name for people.
    pub label: String,
    /// Work done, by unit. Finite numbers only: JSON has no others.
    pub units: BTreeMap<String, f64>,
    /// Seconds it took.
    pub duration_s: f64,
    /// Requested bytes outstanding at its end.
    pub heap_bytes: u64,
    /// Blocks outstanding at its end.
    pub heap_blocks: u64,
    /// Requested bytes of the blocks made in it.
    pub allocated_bytes: u64,
    /// Blocks made in it.
    pub allocated_blocks: u64,
    /// Known blocks freed in it.
    pub freed_blocks: u64,
    /// Frees of blocks older than the attach.
    pub unmatched_frees: u64,
    /// Frees of blocks that a process had inherited with a copy of its parent's memory.
    #[serde(default)]
    pub inherited_frees: u64,
    /// Resident bytes at its end; `null` when they could not be read.
    pub rss_bytes: Option<u64>,
    /// The same with shared pages divided by the number of their users.
    #[serde(default)]
    pub pss_bytes: Option<u64>,
    /// Resident bytes of no file.
    #[serde(default)]
    pub anonymous_bytes: Option<u64>,
    /// Bytes that were swapped out.
    #[serde(default)]
    pub swap_bytes: Option<u64>,
    /// Private memory that the program itself has mapped since the tracing began, in whole
    /// pages, as the fields below; mapped is not resident.
    #[serde(default)]
    pub mapped_bytes: u64,
    /// What allocators have mapped to cut blocks from.
    #[serde(default)]
    pub arena_bytes: u64,
    /// Mapped to be shared with child processes.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Stacks of threads, guards included.
    #[serde(default)]
    pub thread_stack_bytes: u64,
    /// Mapped files.
    #[serde(default)]
    pub file_bytes: u64,
    /// Address space that cannot be used yet, of the program and of allocators.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Held by allocators and not outstanding: `arena_bytes` minus `heap_bytes`, which is
    /// caches, fragments and the blocks' own headers. `null` unless the target was traced from
    /// its start with blocks of every size.
    #[serde(default)]
    pub retained_bytes: Option<u64>,
}

/// Does a batch count?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Not compared.
    Warmup,
    /// Compared.
    Measured,
}

/// Growth over the measured batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Requested bytes outstanding at the last measured end minus at the end of the warm-up.
    pub heap_bytes: i64,
    /// The same of blocks.
    pub heap_blocks: i64,
    /// Slope over the measured batches, Theil–Sen; 0 when nothing was measured.
    pub heap_bytes_per_batch: f64,
    /// Where the true slope lies, `[low, high]`; `null` for fewer than three measured batches.
    pub interval: Option<[f64; 2]>,
    /// Bytes gained by the stacks that grew.
    pub grown_bytes: u64,
    /// Bytes lost by the stacks that shrank.
    pub shrunk_bytes: u64,
    /// Private memory that the program itself has mapped, in whole pages, at the last measured
    /// end minus at the end of the warm-up. Never a part of `heap_bytes`.
    #[serde(default)]
    pub mapped_bytes: i64,
    /// Requested bytes that were outstanding in processes when they ended, of those that ended in
    /// a measured batch. Their memory went with them, so it is no part of `heap_bytes`; with it
    /// the sum over `processes` is complete.
    #[serde(default)]
    pub ended_bytes: u64,
    /// The same of blocks.
    #[serde(default)]
    pub ended_blocks: u64,
}

/// One process of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its id in the tool's pid namespace.
    pub pid: u32,
    /// Id of its parent when it was first seen.
    pub ppid: u32,
    /// Path of the program that it runs, or ran last.
    pub exe: String,
    /// When it was first traced, as RFC 3339.
    pub started: String,
    /// When it was found to have ended; `null` while it runs.
    pub ended: Option<String>,
    /// How its memory changed over the measured batches, up to its end.
    pub growth: ProcessGrowth,
    /// Requested bytes that were outstanding when it replaced its image, and went with it.
    pub discarded_bytes: u64,
    /// Seconds that it was stopped until its probes were in place.
    pub held_s: f64,
    /// The stack that made it, from the system call's caller outwards; empty when it is not known.
    #[serde(deserialize_with = "super::frames::deserialize")]
    pub made_by: Vec<Arc<Frame>>,
}

/// How the memory of one process changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGrowth {
    /// Requested bytes outstanding at the last measured end, or at the process's own, minus at the
    /// end of the warm-up.
    pub heap_bytes: i64,
    /// The same of blocks.
    pub heap_blocks: i64,
    /// The same of private memory that the program itself has mapped.
    pub mapped_bytes: i64,
}

/// How processes were stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holds {
    /// How often.
    pub count: u64,
    /// The longest, in seconds.
    pub longest_s: f64,
    /// All together, in seconds.
    pub total_s: f64,
}

/// One stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The allocator that it called, by name.
    pub family: String,
    /// Requested bytes that it gained; negative when it gave back.
    pub bytes: i64,
    /// Blocks that it gained.
    pub blocks: i64,
    /// Bytes that it gained in each measured batch; the sum is `bytes`.
    pub per_batch: Vec<i64>,
    /// How it ends; `null` in files that were written before this was known.
    #[serde(default)]
    pub end: Option<StackEnd>,
    /// From the allocator's caller outwards, inlined calls as frames of their own. Empty when
    /// the stack was lost.
    #[serde(deserialize_with = "super::frames::deserialize")]
    pub frames: Vec<Arc<Frame>>,
}

/// One stack that mapped memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// What for: `own`, `shared`, `thread_stack`, `file`, `arena`, `reserved` or
    /// `arena_reserved`.
    pub kind: String,
    /// Bytes that it gained, in whole pages; negative when it gave back.
    pub bytes: i64,
    /// Mappings that it gained; one that was cut in two counts twice.
    pub blocks: i64,
    /// Bytes that it gained in each measured batch; the sum is `bytes`.
    pub per_batch: Vec<i64>,
    /// From the system call's caller outwards; of an allocator's, from the allocator's caller.
    #[serde(deserialize_with = "super::frames::deserialize")]
    pub frames: Vec<Arc<Frame>>,
}

/// One frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Demangled name; `null` when there is none.
    pub function: Option<String>,
    /// Path of the mapped file, as the target sees it; `null` outside files.
    pub object: Option<String>,
    /// Place in the object, as its symbols count; `null` without an object, and of a function that
    /// the object's interpreter ran.
    pub offset: Option<u64>,
    /// The return address in the target, hexadecimal with `0x`.
    pub address: String,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Was the call of this function inlined into the next frame?
    pub inlined: bool,
    /// Is it a function of a script that the object's interpreter ran? Left out where it is `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
    /// Is it one that was read a moment after the allocation, and may be another
    /// than the one that allocated? Left out where it is `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
}
