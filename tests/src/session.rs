//! `session.json` as a reader sees it. The harness has its own types on purpose: a field that
//! changes its name in the tool must break a test.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::truth::Amount;

/// A session file. Fields that no test reads are left to the format's own tests.
#[derive(Debug, Deserialize)]
pub struct Session {
    /// Name and version of the format.
    pub schema: String,
    /// The command line of the tool.
    pub command: Vec<String>,
    /// What was traced.
    pub target: Target,
    /// "pass", "growth", "inconclusive" or "error".
    pub verdict: String,
    /// The tool's exit code.
    pub exit_code: i32,
    /// Why the verdict is what it is.
    pub reasons: Vec<serde_json::Value>,
    /// What a reader should know beside the verdict.
    pub notices: Vec<Notice>,
    /// Number of warm-up batches.
    pub warmup: usize,
    /// Number of measured batches.
    pub measured: usize,
    /// Warm-up and measured batches in order.
    pub batches: Vec<Batch>,
    /// Growth over the measured batches.
    pub growth: Growth,
    /// Growth by stack.
    pub stacks: Vec<Stack>,
    /// Mapped memory by stack.
    pub mappings: Vec<Stack>,
    /// Every process that was traced, the target first.
    pub processes: Vec<Process>,
    /// How processes were stopped for their probes.
    pub holds: Stops,
    /// How processes were stopped because events came too fast.
    pub pauses: Stops,
    /// How far the stacks of blocks were walked.
    pub stack_quality: StackQuality,
    /// What was lost, by kind.
    pub losses: BTreeMap<String, u64>,
}

/// How far stacks were walked.
#[derive(Debug, Deserialize)]
pub struct StackQuality {
    /// To the start of their thread.
    pub whole: Share,
    /// Up to the number of frames that is taken.
    pub depth_limit: Share,
    /// Less far.
    pub broken: Share,
    /// Where those end.
    pub broken_in: Vec<BrokenIn>,
}

/// A share of all stacks.
#[derive(Debug, Deserialize)]
pub struct Share {
    /// Distinct stacks.
    pub stacks: u64,
    /// Bytes of theirs that are outstanding.
    pub bytes: u64,
}

/// Where stacks end.
#[derive(Debug, Deserialize)]
pub struct BrokenIn {
    /// The object of the last frame.
    pub object: Option<String>,
    /// Name of the reason.
    pub reason: String,
}

/// Something that a reader should know.
#[derive(Debug, Deserialize)]
pub struct Notice {
    /// Its stable name.
    pub name: String,
    /// The sentence.
    pub text: String,
}

/// One process of the tree.
#[derive(Debug, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// Its parent's.
    pub ppid: i32,
    /// The program.
    pub exe: String,
    /// When it was found to have ended.
    pub ended: Option<String>,
    /// How its memory changed.
    pub growth: ProcessGrowth,
    /// What went when it replaced its image.
    pub discarded_bytes: i64,
    /// How long it was stopped for its probes.
    pub held_s: f64,
    /// The stack that made it.
    pub made_by: Vec<Frame>,
}

/// How the memory of one process changed.
#[derive(Debug, Deserialize)]
pub struct ProcessGrowth {
    /// Bytes gained.
    pub heap_bytes: i64,
    /// Blocks gained.
    pub heap_blocks: i64,
    /// Bytes gained by its own mappings.
    pub mapped_bytes: i64,
}

/// How often and how long processes were stopped.
#[derive(Debug, Deserialize)]
pub struct Stops {
    /// How often.
    pub count: u64,
    /// The longest.
    pub longest_s: f64,
}

/// The traced process.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// Its process id.
    pub pid: i32,
}

/// One batch.
#[derive(Debug, Deserialize)]
pub struct Batch {
    /// "warmup" or "measured".
    pub kind: String,
    /// Outstanding bytes at its end.
    pub heap_bytes: i64,
    /// Outstanding blocks at its end.
    pub heap_blocks: i64,
    /// Blocks allocated in it.
    pub allocated_blocks: u64,
    /// Blocks freed in it.
    pub freed_blocks: u64,
    /// Frees of blocks that were made before the tool attached.
    pub unmatched_frees: u64,
    /// Frees of blocks that a process had from its parent when it was made.
    pub inherited_frees: u64,
    /// Resident bytes of the process at its end.
    pub rss_bytes: Option<u64>,
    /// What allocators have mapped at its end.
    pub arena_bytes: i64,
    /// What is mapped to be shared.
    pub shared_bytes: i64,
    /// Address space that cannot be used yet.
    pub reserved_bytes: i64,
    /// Stacks of threads.
    pub thread_stack_bytes: i64,
}

/// The end of the last measured batch against the end of the warm-up.
#[derive(Debug, Deserialize)]
pub struct Growth {
    /// Bytes gained.
    pub heap_bytes: i64,
    /// Bytes gained by the program's own mappings.
    pub mapped_bytes: i64,
    /// Bytes that went with processes that ended.
    pub ended_bytes: i64,
    /// Blocks that went with them.
    pub ended_blocks: i64,
    /// Blocks gained.
    pub heap_blocks: i64,
    /// Estimated bytes per batch.
    pub heap_bytes_per_batch: Option<f64>,
    /// Interval of that estimate.
    pub interval: Option<[f64; 2]>,
}

/// One stack's growth.
#[derive(Debug, Deserialize)]
pub struct Stack {
    /// Name of the allocator, or what a mapping is for.
    #[serde(alias = "kind")]
    pub family: String,
    /// Bytes gained.
    pub bytes: i64,
    /// Blocks gained.
    pub blocks: i64,
    /// "whole", "depth-limit" or "broken"; empty for a mapping.
    #[serde(default)]
    pub end: String,
    /// The frames, the allocator's caller first.
    pub frames: Vec<Frame>,
}

/// One frame.
#[derive(Debug, Deserialize)]
pub struct Frame {
    /// Function's name, demangled.
    pub function: Option<String>,
    /// File of the program or library.
    pub object: Option<String>,
    /// Within the instruction that the frame has not left, hexadecimal with `0x`.
    pub address: String,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Was its call inlined into the next frame?
    pub inlined: bool,
    /// Did an interpreter run it?
    #[serde(default)]
    pub interpreted: bool,
    /// Was it read when the thread had gone on?
    #[serde(default)]
    pub sampled: bool,
}

impl Frame {
    /// Is it this function, whatever its module, parameters and compiler's hash?
    fn is(&self, function: &str) -> bool {
        let Some(name) = &self.function else { return false };
        let bare = name.split(['(', '<']).next().unwrap_or_default();
        bare.split("::").any(|part| part == function)
    }
}

impl Session {
    /// Reads a session folder.
    pub fn read(folder: &Path) -> Self {
        let path = folder.join("session.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
    }

    /// The sum over the stacks that contain this function.
    pub fn growth_in(&self, function: &str) -> Amount {
        let has = |stack: &&Stack| stack.frames.iter().any(|frame| frame.is(function));
        self.stacks.iter().filter(has).map(Stack::amount).sum()
    }

    /// The sum over the mapping stacks that contain this function.
    pub fn mapped_in(&self, function: &str) -> Amount {
        let has = |stack: &&Stack| stack.frames.iter().any(|frame| frame.is(function));
        self.mappings.iter().filter(has).map(Stack::amount).sum()
    }

    /// The total that the verdict is about.
    pub fn total(&self) -> Amount {
        Amount { blocks: self.growth.heap_blocks, bytes: self.growth.heap_bytes }
    }

    /// What all processes gained until their end, or until the end of the last batch.
    pub fn total_of_processes(&self) -> Amount {
        self.processes.iter().map(Process::amount).sum()
    }

    /// The processes below the target.
    pub fn children(&self) -> &[Process] {
        &self.processes[1..]
    }

    /// All losses together.
    pub fn lost(&self) -> u64 {
        self.losses.values().sum()
    }

    /// The batches that count.
    pub fn measured_batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| batch.kind == "measured")
    }

    /// The stacks as text, for the message of a failed test.
    pub fn listing(&self) -> String {
        let line = |stack: &Stack| {
            let names: Vec<_> =
                stack.frames.iter().map(|frame| frame.function.as_deref().unwrap_or("?")).collect();
            format!("{} B {} blocks: {}\n", stack.bytes, stack.blocks, names.join(" < "))
        };
        self.stacks.iter().map(line).collect()
    }
}

impl Process {
    /// What its heap gained.
    pub const fn amount(&self) -> Amount {
        Amount { blocks: self.growth.heap_blocks, bytes: self.growth.heap_bytes }
    }
}

impl Stack {
    /// What it gained.
    pub fn amount(&self) -> Amount {
        Amount { blocks: self.blocks, bytes: self.bytes }
    }
}
