//! Every reader of bytes that others write, as a function of these bytes: what the targets in fuzz/
//! call, and what a test runs over fuzz/corpus.
//!
//! Whatever the bytes are, a reader comes to an end soon, in bounded memory, and without a panic;
//! and what it answers is what its callers rely on, which is asserted here.

use std::fs::File;
use std::io::{Cursor, Write as _};
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};
use tracer_common::decode::{Event, decode};
use tracer_common::event::{MAX_FRAMES, MAX_PIECE, StackEnd};
use tracer_common::interpreter::{Function, Sent};
use tracer_common::unwind::Rule;

use crate::control::protocol;
use crate::interpreters;
use crate::probes;
use crate::report::{GroupBy, Options, flamegraph, folded, json, markdown, terminal};
use crate::residency;
use crate::symbols::by_time::MOST_NAMES;
use crate::symbols::demangle::Demangler;
use crate::symbols::split::Places;
use crate::symbols::{self, debug_files, generated, object_names};
use crate::target::allocators::{Allocators, Custom};
use crate::target::arrivals;
use crate::target::elf::{Elf, ObjectAddr};
use crate::target::mappings::{self, FileId, Mapping};
use crate::target::process::{self, Status};
use crate::unwind::{self, Table};

/// Reads bytes to their end.
pub type Reader = fn(&[u8]);

/// The readers, by the names of their targets and of their folders in the corpus.
pub const READERS: &[(&str, Reader)] = &[
    ("allocators", allocators),
    ("arrivals", arrivals),
    ("demangle", demangle),
    ("guard", guard),
    ("jitdump", jitdump),
    ("kernel_text", kernel_text),
    ("kernel_types", kernel_types),
    ("mark", mark),
    ("mini_debug", mini_debug),
    ("object", object),
    ("perf_map", perf_map),
    ("probe", probe),
    ("python", python),
    ("record", record),
    ("session", session),
    ("symbols", symbols),
    ("unwind_table", unwind_table),
    ("walk", walk),
];

/// An object: its allocators, and where their functions are probed. Described are those of a
/// library and of a program, beside the known ones.
pub fn allocators(bytes: &[u8]) {
    let Some(file) = file_of(bytes) else { return };
    let described = "name=own,alloc=take(size=0,count=1),free=give(ptr=0)".parse::<Custom>();
    for is_program in [false, true] {
        let mut search = Allocators::with(described.clone().into_iter().collect());
        let nowhere = FileId { dev_major: 0, dev_minor: 0, inode: 1 };
        let mapping = Mapping {
            start: 0,
            end: 0,
            perms: *b"r-xp",
            offset: 0,
            file: nowhere,
            path: "object".into(),
            deleted: false,
        };
        let Ok(found) = search.search_file(&file, &mapping, is_program) else { return };
        let len = bytes.len() as u64;
        for function in search.objects()[found].iter().flat_map(|object| &object.functions) {
            let places = [function.entry, function.site.offset];
            for place in places.iter().chain(&function.returns) {
                assert!(place.0 < len, "{function:?} is not in the file");
            }
        }
    }
}

/// What the kernel says of mappings: from where in the ring on and of which process, each four bytes,
/// then the records.
pub fn arrivals(bytes: &[u8]) {
    let (Some(from), Some(pid)) = (number(bytes, 0), number(bytes, 4)) else { return };
    for mapping in arrivals::told(&bytes[8..], from, pid) {
        assert!(mapping.file.inode != 0 && mapping.start <= mapping.end, "{mapping:?}");
    }
}

/// A symbol.
pub fn demangle(bytes: &[u8]) {
    let name = symbols::demangle::demangle(&String::from_utf8_lossy(bytes));
    assert!(name.len() <= symbols::demangle::LONGEST, "a name of {} bytes", name.len());
}

/// A message to who looks after targets: whether it comes with a file, then its bytes.
pub fn guard(bytes: &[u8]) {
    let Some((with_file, message)) = bytes.split_first() else { return };
    let file = (with_file & 1 == 1).then(|| file_of(b"an object")).flatten();
    if let Ok(Some(places)) = probes::heard(message, file.as_ref()) {
        assert!(file.is_some(), "places in no file");
        let written = places.iter().flat_map(|place| place.to_ne_bytes());
        assert!(written.eq(message[..places.len() * 8].iter().copied()), "other places");
    }
}

/// Addresses that names of generated code are looked up at, and how far these were written then.
const QUERIES: &[(u64, u64)] = &[
    (0, 0),
    (1, u64::MAX),
    (0x1000, 0),
    (0x1000, 20),
    (0x1000, u64::MAX),
    (0x1008, 40),
    (0x2000, 60),
    (0x7f00_0000_1000, 80),
    (u64::MAX, 0),
    (u64::MAX, u64::MAX),
];

/// The file `jit-<pid>.dump`.
pub fn jitdump(bytes: &[u8]) {
    let names = symbols::jitdump::lookup(|| bytes, QUERIES, &mut MOST_NAMES.clone()).names;
    assert!(names.keys().all(|query| QUERIES.contains(query)), "names that nobody asked for");
    assert!(names.values().all(|name| !name.is_empty()), "a name that is none");
}

/// The file `perf-<pid>.map`.
pub fn perf_map(bytes: &[u8]) {
    let names = symbols::perf_map::lookup(|| bytes, QUERIES, &mut MOST_NAMES.clone()).names;
    assert!(names.keys().all(|query| QUERIES.contains(query)), "names that nobody asked for");
    for name in names.values() {
        let name = generated::Name::read(name);
        assert!(!name.function.is_empty(), "{name:?}");
    }
}

/// What the kernel says of a process: the names in it are the target's.
pub fn kernel_text(bytes: &[u8]) {
    let mappings = mappings::parse(bytes);
    for mapping in &mappings.list {
        assert!(mapping.start < mapping.end, "{mapping:?}");
        let _ = mappings.at(mapping.start);
    }
    let _ = (process::started(bytes), process::auxiliary(bytes, 9));
    let arguments = process::cmdline(bytes);
    assert!(arguments.len() <= bytes.len(), "{arguments:?}");
    let _ = (Status::parse(bytes), residency::parse_rollup(bytes));
    let _ =
        (residency::parse_statm(bytes, 4096), generated::root_id(&String::from_utf8_lossy(bytes)));
}

/// The kernel's own type information.
pub fn kernel_types(bytes: &[u8]) {
    for field in ["pid", "tgid", "mm", ""] {
        let _ = probes::offset_in(bytes, "task_struct", field);
    }
}

/// A request to end a batch, or what came of it.
pub fn mark(bytes: &[u8]) {
    if let Ok(request) = protocol::parse(bytes) {
        assert!(request.label.len() <= protocol::MAX_LABEL, "{request:?}");
    }
    let _ = protocol::parse_reply(bytes);
}

/// The section `.gnu_debugdata`.
pub fn mini_debug(bytes: &[u8]) {
    const LARGEST: u64 = 1 << 20;
    if let Ok(file) = symbols::mini_debug::unpacked(bytes, LARGEST) {
        assert!(file.metadata().is_ok_and(|file| file.len() <= LARGEST), "it is too large");
        let _ = Elf::open(&file);
    }
}

/// An object: its tables, and the section `.gnu_debuglink`.
pub fn object(bytes: &[u8]) {
    let _ = debug_files::debug_link(bytes);
    let Ok(elf) = Elf::parse(bytes) else { return };
    if let Some((_, link)) = elf.section(".gnu_debuglink")
        && let Some(link) = debug_files::debug_link(link)
    {
        let paths = debug_files::by_link(link.name, Path::new("/opt/bin/app"));
        assert!(paths.iter().all(|path| path.is_relative()), "{paths:?}");
    }
    let _ = elf.build_id.as_deref().and_then(debug_files::by_build_id);
    let addrs = [0, 0x1000, elf.entry.0, u64::MAX].map(ObjectAddr);
    let _ = elf.functions_at(&addrs);
    for addr in addrs {
        let _ = elf.pointee(addr);
        if let Some(offset) = elf.file_offset(addr) {
            let _ = elf.object_addr(offset);
        }
        let code = elf.code(addr, 64).unwrap_or_default();
        assert!(code.len() <= 64, "more code than was asked for");
    }
}

/// A description of `--probe`, up to the end of its line, and the file name of an object.
pub fn probe(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (description, object) = text.split_once('\n').unwrap_or((&text, "libpool.so.3"));
    if let Ok(custom) = description.parse::<Custom>() {
        assert!(!custom.name.is_empty(), "{custom:?}");
        let _ = (custom.is_in(object), custom.missing(&[object]));
    }
}

/// The memory of a process that runs CPython: the version as four bytes, two functions of two words each,
/// and the memory.
pub fn python(bytes: &[u8]) {
    let Some(version) = number(bytes, 0) else { return };
    let Some((functions, memory)) = bytes[4..].split_first_chunk::<32>() else { return };
    let (functions, _) = functions.as_chunks::<8>();
    let word = |at: usize| u64::from_ne_bytes(functions[at]);
    let function = |at| {
        let function = Function { code: word(at), place: word(at + 1) };
        Sent { function, fingerprint: 0 }
    };
    interpreters::read_all(version.into(), memory, [function(0), function(2)]);
}

/// A record of the ring buffer.
pub fn record(bytes: &[u8]) {
    match decode(bytes) {
        Ok(Event::Stack { frames, .. }) => {
            assert!(frames.len() <= MAX_FRAMES, "too many frames");
            assert_eq!(frames.iter().count(), frames.len());
        }
        Ok(Event::Piece(piece)) => assert!(piece.bytes.len() <= MAX_PIECE, "too long a piece"),
        Ok(_) | Err(_) => {}
    }
}

/// The file `session.json`, and every form of the report that it is shown in.
pub fn session(bytes: &[u8]) {
    let Ok(session) = json::read(Cursor::new(bytes)) else { return };
    for group_by in [GroupBy::Stack, GroupBy::Function, GroupBy::Object] {
        let options = Options { top: 10, width: 80, color: true, group_by };
        let _ = terminal::render(&session, Path::new("folder"), &options);
        let _ = markdown::render(&session, &options);
    }
    let _ = folded::render(&session);
    let _ = (flamegraph::growth(&session), flamegraph::shrink(&session));
    let written = json::render(&session).expect("a session is JSON");
    assert!(json::read(Cursor::new(written)).is_ok(), "what was written is not read");
}

/// An object: names and lines of addresses, by its debug information and its symbols.
pub fn symbols(bytes: &[u8]) {
    let Some(file) = file_of(bytes) else { return };
    let Ok(elf) = Elf::open(&file) else { return };
    let addrs = [elf.entry.0, 0x1000, 0x1010, 0x401_000, 0x401_020, u64::MAX];
    // What it leaves to other files it may have itself.
    let open = |_: &Path| file.try_clone().into_iter().collect();
    let places = Places { object: Path::new("/opt/bin/app"), open: &open, folders: &[] };
    let (names, _) = object_names::found_at(&file, &places, &addrs, &mut Demangler::default());
    assert_eq!(names.len(), addrs.len());
}

/// An object: its unwind table.
pub fn unwind_table(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(bytes) else { return };
    let table = Table::compile(&elf);
    let rows = table.rows();
    assert!(rows.windows(2).all(|two| two[0].offset() < two[1].offset()), "rows have no order");
    assert!(
        rows.iter().all(|row| row.rule() == 0 || Rule::unpack(row.rule()).is_some()),
        "a row without a rule"
    );
    for row in rows {
        let _ = table.rule(row.offset().into());
        if let Some(around) = Table::around(&elf, row.offset().into()) {
            assert!(around.rows().len() <= 1 << 23, "a function of more rows than an object has");
        }
    }
}

/// A stack: how many rules there are, the rules, and the bytes.
pub fn walk(bytes: &[u8]) {
    let Some((n_rules, rest)) = bytes.split_first() else { return };
    let (rules, stack) = rest.split_at(rest.len().min(4 * usize::from(n_rules % 64)));
    let (rules, _) = rules.as_chunks();
    let rules: Vec<_> = rules.iter().map(|word| Rule::unpack(u32::from_ne_bytes(*word))).collect();
    for rule in rules.iter().flatten() {
        // The one that would be the word zero has none.
        assert!(rule.pack().is_none_or(|word| Rule::unpack(word) == Some(*rule)), "{rule:?}");
    }
    let (n_frames, end) = unwind::walked(&rules, stack);
    assert!(n_frames <= MAX_FRAMES && end != StackEnd::Unfinished, "{n_frames} frames, {end:?}");
}

/// Four bytes from here on as a number.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A file of these bytes, without a path.
fn file_of(bytes: &[u8]) -> Option<File> {
    let mut file = File::from(memfd_create(c"outlive-foreign", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all(bytes).ok()?;
    Some(file)
}
