//! Sessions for tests.

use std::collections::BTreeMap;

use super::model::*;

/// A session of these stacks: bytes gained, and functions from the allocator's caller outwards.
pub(crate) fn session(stacks: &[(i64, &[&str])]) -> Session {
    let stacks: Vec<_> = stacks.iter().map(|(bytes, functions)| stack(*bytes, functions)).collect();
    let sum = |keep: fn(i64) -> u64| {
        stacks.iter().fold(0_u64, |sum, stack| sum.saturating_add(keep(stack.bytes)))
    };
    let grown_bytes = sum(|bytes| bytes.max(0).unsigned_abs());
    let shrunk_bytes = sum(|bytes| bytes.min(0).unsigned_abs());
    let net = i64::try_from(i128::from(grown_bytes) - i128::from(shrunk_bytes)).unwrap_or(i64::MAX);
    let blocks = stacks.iter().map(|stack| stack.blocks).sum();
    let grows = 0 < net;
    Session {
        schema: SCHEMA.to_owned(),
        tool: Tool { name: "outlive".to_owned(), version: "0.1.0".to_owned() },
        command: [
            "outlive",
            "test",
            "-p",
            "4242",
            "--warmup",
            "1",
            "--batches",
            "4",
            "--",
            "./one-batch.sh",
        ]
        .map(str::to_owned)
        .to_vec(),
        started: "2026-01-02T03:04:05+00:00".to_owned(),
        duration_s: 12.5,
        target: Target {
            pid: 4242,
            exe: "/opt/server".to_owned(),
            cmdline: vec!["./server".to_owned(), "--port".to_owned(), "80".to_owned()],
            kernel: "6.12.0".to_owned(),
        },
        verdict: if grows { Verdict::Growth } else { Verdict::Pass },
        exit_code: u8::from(grows),
        reasons: vec![if grows {
            "over-budget: growth is at least 6.25 KiB per batch, over the budget of 0 B per batch"
                .to_owned()
        } else {
            "within-budget: growth is at most 0 B per batch, within the budget of 0 B per batch"
                .to_owned()
        }],
        notices: vec![],
        budget: Budget { heap_bytes_per_batch: 0 },
        warmup: 1,
        measured: 4,
        batches: (0..5).map(|index| batch(index, net)).collect(),
        growth: Growth {
            heap_bytes: net,
            heap_blocks: blocks,
            heap_bytes_per_batch: net as f64 / 4.0,
            interval: Some([net as f64 / 4.0; 2]),
            grown_bytes,
            shrunk_bytes,
            mapped_bytes: 0,
            ended_bytes: 0,
            ended_blocks: 0,
        },
        stacks,
        mappings: vec![],
        processes: vec![process(4242, 1, "/opt/server", net)],
        processes_omitted: 0,
        holds: Holds::default(),
        pauses: Holds::default(),
        stack_quality: StackQuality {
            whole: Share { stacks: 12, bytes: 500_000 },
            ..StackQuality::default()
        },
        losses: [
            "events",
            "stacks",
            "threads",
            "abandoned",
            "unreadable",
            "skipped",
            "malformed",
            "healed",
            "undecided",
            "late_probes",
            "removed_probes",
            "processes",
        ]
        .map(|key| (key.to_owned(), 0))
        .into(),
    }
}

/// Batch `index` of five, of which all but the first grew by a quarter of `net`.
pub(crate) fn batch(index: u32, net: i64) -> Batch {
    let grown = u64::try_from(net).unwrap_or(0) / 4;
    Batch {
        index,
        kind: if index == 0 { Kind::Warmup } else { Kind::Measured },
        label: format!("batch {index}"),
        units: BTreeMap::from([("sessions".to_owned(), 12.0)]),
        duration_s: 1.5,
        heap_bytes: grown.saturating_mul(index.into()).saturating_add(500_000),
        heap_blocks: 1000,
        allocated_bytes: 2_000_000,
        allocated_blocks: 4000,
        freed_blocks: 3900,
        unmatched_frees: u64::from(index == 0),
        inherited_frees: 0,
        rss_bytes: (index != 1).then_some(30_000_000),
        pss_bytes: (index != 1).then_some(20_000_000),
        anonymous_bytes: None,
        swap_bytes: None,
        mapped_bytes: 0,
        arena_bytes: 1_000_000,
        shared_bytes: 0,
        thread_stack_bytes: 0,
        file_bytes: 0,
        reserved_bytes: 0,
        retained_bytes: None,
    }
}

fn stack(bytes: i64, functions: &[&str]) -> Stack {
    Stack {
        family: "libc".to_owned(),
        bytes,
        blocks: bytes.signum() * 100,
        per_batch: vec![bytes / 4; 4],
        end: Some(if functions.is_empty() { StackEnd::Broken } else { StackEnd::Whole }),
        frames: (0_u32..)
            .zip(functions)
            .map(|(depth, function)| frame(depth, function).into())
            .collect(),
    }
}

fn mapping(kind: &str, bytes: i64, functions: &[&str]) -> Mapping {
    let Stack { bytes, blocks, per_batch, frames, .. } = stack(bytes, functions);
    Mapping { kind: kind.to_owned(), bytes, blocks, per_batch, frames }
}

/// A name with `+` is one of an object.
fn frame(depth: u32, name: &str) -> Frame {
    let object = name.split_once("+0x");
    Frame {
        function: object.is_none().then(|| name.to_owned()),
        object: Some(format!("/opt/{}", object.map_or("server", |(object, _)| object))),
        offset: object.and_then(|(_, offset)| u64::from_str_radix(offset, 16).ok()),
        address: format!("0x{:x}", 0x55_0000_1000_u64 + u64::from(depth)),
        file: (depth == 0 && object.is_none()).then(|| "src/server.c".to_owned()),
        line: (depth == 0 && object.is_none()).then_some(42),
        inlined: false,
        interpreted: false,
        sampled: false,
    }
}

/// A server that leaks on two paths.
pub(crate) fn leaking() -> Session {
    let mut session = session(&[
        (25_600, &["strdup", "remember_name", "open_session", "serve", "main"]),
        (
            4096,
            &[
                "void std::vector<app::Entry>::_M_realloc_insert<app::Entry>(app::Entry&&)",
                "app::Cache<std::pair<std::string, int>, std::less<std::string>>::insert(std::string const&)",
                "serve",
                "main",
            ],
        ),
        (64, &["plugin.so+0x1234", "main"]),
        (-1000, &["flush", "serve", "main"]),
    ]);
    session.mappings = vec![
        mapping("own", 40_960, &["map_tiles", "serve", "main"]),
        mapping("arena", 8192, &["remember_name", "open_session", "serve", "main"]),
        mapping("thread_stack", -4096, &["main"]),
    ];
    for batch in session.batches.iter_mut().skip(1) {
        batch.mapped_bytes = 40_960 / 4 * u64::from(batch.index);
    }
    session.notices = vec![Notice {
        name: "older-blocks".to_owned(),
        text: "1 free was of blocks older than the attach; they are not in the figures".to_owned(),
    }];
    session
}

/// A server that keeps nothing.
pub(crate) fn clean() -> Session {
    session(&[])
}

/// A measurement with losses, and names that try to be something else.
pub(crate) fn nasty() -> Session {
    let mut session = session(&[
        (6400, &["ns;leak here 42", "a\x1bb;<x>&\"y\"", "c\0d|e`f`", "# main"]),
        (100, &["\u{fffd}\u{202e}|](javascript:x)", "函数函数", "# main"]),
    ]);
    session.verdict = Verdict::Inconclusive;
    session.exit_code = 3;
    session.reasons = vec!["lost: 7 records found the ring buffer full".to_owned()];
    session.losses.insert("events".to_owned(), 7);
    session.command = vec![
        "outlive".to_owned(),
        "test".to_owned(),
        "--".to_owned(),
        "sh".to_owned(),
        "-c".to_owned(),
        "echo 'a b' | `x`\x1b".to_owned(),
    ];
    session.target.exe = "/tmp/<b>\x1b]0;x".to_owned();
    session
}

/// Figures near the end of their range.
pub(crate) fn huge() -> Session {
    session(&[
        (1 << 62, &["a", "main"]),
        ((1 << 62) - 1, &["b", "main"]),
        (-(1 << 62), &["c", "main"]),
    ])
}

/// A target with a worker, and with helpers that have ended.
pub(crate) fn tree() -> Session {
    let mut session = leaking();
    session.growth.ended_bytes = 300;
    session.holds = Holds { count: 9, longest_s: 0.0061, total_s: 0.0173 };
    let ended = |pid, bytes| Process {
        ended: Some("2026-01-02T03:04:06.000+00:00".to_owned()),
        made_by: vec![
            Frame { function: Some("start_helper".to_owned()), ..Frame::default() }.into(),
        ],
        ..process(pid, 4242, "/bin/helper", bytes)
    };
    session.processes.extend([
        ended(5000, 100),
        process(5001, 4242, "/bin/worker", 7),
        ended(5002, 200),
        process(5003, 5001, "/bin/deep", 0),
        process(5004, 5002, "/bin/orphan", -5),
    ]);
    session
}

/// A process that runs and has gained this much.
pub(crate) fn process(pid: u32, ppid: u32, exe: &str, heap_bytes: i64) -> Process {
    Process {
        pid,
        ppid,
        exe: exe.to_owned(),
        started: "2026-01-02T03:04:05.000+00:00".to_owned(),
        ended: None,
        growth: ProcessGrowth {
            heap_bytes,
            heap_blocks: i64::from(heap_bytes != 0),
            mapped_bytes: 0,
        },
        discarded_bytes: 0,
        held_s: 0.0,
        made_by: vec![],
    }
}
