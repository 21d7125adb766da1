//! Names of code that a process generates: where it writes them, and what they say.
//!
//! There are two forms, both made for `perf`: a table of text in `/tmp` ([`perf_map`]), and a file
//! that the process maps executable to show that it writes one ([`jitdump`]).

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{BufReader, Read as _, Seek as _, Take};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::rc::Rc;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use rustc_hash::FxHashMap;

use super::by_time::MOST_NAMES;
use super::{Bound, jitdump, perf_map};
use crate::target::objects::path_of;
use crate::target::process::{Process, Status};

/// An address, and how far the names were written when it was seen: bytes of the table of text,
/// or the time.
pub(crate) type Query = (u64, u64);

/// Addresses that are bound before the table is looked for again where there was none.
const LOOK_AGAIN: u32 = 256;

/// Bits of a time in nanoseconds that are not told apart: 17 ms, about as late as the time itself
/// is taken. Fewer moments are fewer addresses to keep.
const MOMENT_BITS: u32 = 24;

/// Seconds by which a file may look older than the process that wrote it: the start of a process
/// is known in ticks, and the clock may be set.
const CLOCK_SLACK: i64 = 2;

/// Is it the file of generated code that runtimes map for `perf`? Its name is part of the form.
pub(super) fn is_dump(path: &OsStr) -> bool {
    let name = Path::new(path).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let number = name.strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// A process's own table of text, as far as it is there yet.
#[derive(Debug)]
pub(super) struct GeneratedNames {
    /// The process's `/tmp`.
    tmp: Option<Rc<File>>,
    file_name: String,
    /// Who may have written it: the process as whom it runs and ran, and the administrators, ours
    /// and those of its user namespace.
    owners: Vec<u32>,
    /// When the process started, in seconds of the wall clock.
    started: i64,
    /// The table, once it was found.
    found: Option<File>,
    /// Addresses bound since it was looked for.
    n_bound: Cell<u32>,
    /// Was it said that names are left out?
    pub(super) is_told: Cell<bool>,
}

impl GeneratedNames {
    pub(super) fn of(process: &Process, tmp: Option<Rc<File>>) -> Self {
        let status = process.status().ok();
        let pid = status.as_ref().map_or(process.pid, Status::inner_pid);
        let map = fs::read_to_string(format!("/proc/{}/uid_map", process.pid)).unwrap_or_default();
        let now = status.map(|status| status.uid);
        let owners = [Some(0), Some(process.uid), now, root_id(&map)];
        let (owners, started) = (owners.into_iter().flatten().collect(), started(process));
        let file_name = format!("perf-{pid}.map");
        let (found, n_bound, is_told) = (None, Cell::default(), Cell::default());
        let mut names = Self { tmp, file_name, owners, started, found, n_bound, is_told };
        names.found = names.open();
        names
    }

    /// The process has ended; what it wrote can still be read.
    pub(super) fn close(&mut self) {
        self.found = None;
    }

    /// How far the names are written now: the time where they are dumped, else the table's bytes.
    pub(super) fn progress(&mut self, is_dumped: bool) -> u64 {
        if is_dumped {
            return (now() | ((1 << MOMENT_BITS) - 1)).saturating_add(1);
        }
        if self.found.is_none() {
            self.n_bound.set(self.n_bound.get() + 1);
            if self.n_bound.get().is_multiple_of(LOOK_AGAIN) {
                self.found = self.open();
            }
        }
        let written = |file: &File| file.metadata().map_or(0, |file| file.len());
        self.found.as_ref().map_or(0, written)
    }

    /// The table, if the process wrote one.
    pub(super) fn open(&self) -> Option<File> {
        let path = path_of(self.tmp.as_ref()?).join(&self.file_name);
        // The target may have put anything there: no link is followed out of its root and
        // no pipe is waited for.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        self.is_own(&file.metadata().ok()?).then_some(file)
    }

    /// Numbers of processes are used again, in containers at every start, and everybody may write
    /// to `/tmp`: names of another program would be wrong names.
    fn is_own(&self, file: &Metadata) -> bool {
        file.is_file()
            && self.owners.contains(&file.uid())
            && self.started <= file.mtime().saturating_add(CLOCK_SLACK)
    }
}

/// Who is user 0 in a user namespace: lines of first user within, first user here, and how many.
pub(crate) fn root_id(uid_map: &str) -> Option<u32> {
    uid_map.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (within, here) = (fields.next()?, fields.next()?);
        (within == "0").then(|| here.parse().ok()).flatten()
    })
}

/// Nanoseconds of the clock that dumps are written by.
fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
    now.map_or(u64::MAX, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// The wall clock's seconds when this process started; zero when nobody knows.
fn started(process: &Process) -> i64 {
    let seconds = |clock| clock_gettime(clock).map(|now| now.tv_sec()).ok();
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().filter(|ticks| 0 < *ticks);
    let since_boot = ticks.zip(i64::try_from(process.start_time).ok()).map(|(per, at)| at / per);
    let age = seconds(ClockId::CLOCK_BOOTTIME).zip(since_boot).map(|(now, start)| now - start);
    seconds(ClockId::CLOCK_REALTIME).zip(age).map_or(0, |(now, age)| now - age)
}

/// Where the names of one process are.
pub(super) struct Tables<'a> {
    /// The dump, when there is one.
    pub(super) dump: Option<&'a File>,
    /// The table of text, when there is one.
    pub(super) map: Option<File>,
    /// Was it said that names are left out?
    pub(super) is_told: Option<&'a Cell<bool>>,
}

impl Tables<'_> {
    /// The names at these addresses, as they were when each was seen.
    pub(super) fn lookup(self, bounds: &[Bound]) -> FxHashMap<Query, Name> {
        let query = |bound: &Bound| (bound.address, bound.seen);
        let mut queries: Vec<Query> = bounds.iter().map(query).collect();
        queries.sort_unstable();
        queries.dedup();
        // What is written while we read is left for another time: a file that grows has no end.
        let len = |file: &File| file.metadata().map(|file| file.len()).unwrap_or_default();
        let mut room = MOST_NAMES;
        let (mut names, mut is_cut) = (FxHashMap::default(), false);
        if let Some(file) = self.dump {
            let len = len(file);
            let found = jitdump::lookup(|| first(file, len), &queries, &mut room);
            (names, is_cut) = (found.names, found.is_cut);
            queries.retain(|query| !names.contains_key(query));
        }
        if let Some(file) = &self.map {
            let len = len(file);
            let found = perf_map::lookup(|| first(file, len), &queries, &mut room);
            names.extend(found.names);
            is_cut |= found.is_cut;
        }
        if is_cut && self.is_told.is_some_and(|is_told| !is_told.replace(true)) {
            log::warn!(
                "generated code has more names than there is room for: some of it is not named"
            );
        }
        names.into_iter().map(|(query, name)| (query, Name::read(&name))).collect()
    }
}

/// The first bytes of this file; none where it cannot be read from its beginning.
fn first(mut file: &File, len: u64) -> BufReader<Take<&File>> {
    let len = file.rewind().map_or(0, |()| len);
    BufReader::new(file.take(len))
}

/// A name of generated code, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) function: String,
    /// Where the function begins.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// What V8 writes before the names of functions of scripts. Behind it is a mark for how well the
/// code is optimized, which is no matter here: the same function would have many names.
const V8_KINDS: &[&str] = &["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
const V8_MARKS: &[char] = &['~', '^', '*', '+', '-', '\''];
/// How the places of scripts begin, where the name before them may have blanks.
const V8_PLACES: &[&str] = &[" /", " file:", " node:"];
/// What a function without a name is called.
const ANONYMOUS: &str = "(anonymous)";

impl Name {
    /// `JS:*leak /app/leak.js:3:17` of V8 and `py::leak:/app/leak.py` of CPython have a function and
    /// a place. Any other name is a function's.
    pub(crate) fn read(text: &str) -> Self {
        let whole = || Self { function: text.to_owned(), file: None, line: None };
        v8(text).or_else(|| python(text)).unwrap_or_else(whole)
    }
}

fn v8(text: &str) -> Option<Name> {
    let rest = V8_KINDS.iter().find_map(|kind| text.strip_prefix(kind))?;
    let rest = rest.strip_prefix(V8_MARKS).unwrap_or(rest);
    let (rest, column) = rest.rsplit_once(':')?;
    let (rest, line) = rest.rsplit_once(':')?;
    let (line, _) = (line.parse().ok()?, column.parse::<u32>().ok()?);
    let blank = V8_PLACES.iter().filter_map(|place| rest.find(place)).min();
    let (function, file) = rest.split_at(blank.or_else(|| rest.rfind(' '))?);
    let function = if function.is_empty() { ANONYMOUS } else { function };
    Some(Name { function: function.to_owned(), file: Some(file[1..].to_owned()), line: Some(line) })
}

fn python(text: &str) -> Option<Name> {
    let (function, file) = text.strip_prefix("py::")?.split_once(':')?;
    if function.is_empty() {
        return None;
    }
    Some(Name { function: function.to_owned(), file: Some(file.to_owned()), line: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, function: &str, file: Option<&str>, line: Option<u32>) {
        let name = Name { function: function.to_owned(), file: file.map(str::to_owned), line };
        assert_eq!(Name::read(text), name, "{text}");
    }

    #[test]
    fn scripts_names_are_taken_apart() {
        let leak = Some("/app/leak.js");
        for mark in ["~", "^", "*", "+", ""] {
            check(&format!("JS:{mark}leakHere /app/leak.js:3:17"), "leakHere", leak, Some(3));
        }
        check(
            "LazyCompile:*leakHere /app/leak.js:3",
            "LazyCompile:*leakHere /app/leak.js:3",
            None,
            None,
        );
        check("JS:~ /app/leak.js:1:1", "(anonymous)", leak, Some(1));
        check("JS:*get size /my app/a b.js:3:17", "get size", Some("/my app/a b.js"), Some(3));
        check("JS:^join node:path:1171:7", "join", Some("node:path"), Some(1171));
        check("Script:~ file:///app/m.mjs:1:1", "(anonymous)", Some("file:///app/m.mjs"), Some(1));
        check("JS:*f evalmachine.<anonymous>:1:2", "f", Some("evalmachine.<anonymous>"), Some(1));
        check("py::leak_here:/app/a b.py", "leak_here", Some("/app/a b.py"), None);
        check("py::Cache.put:<string>", "Cache.put", Some("<string>"), None);
    }

    #[test]
    fn other_names_stay_whole() {
        for text in [
            "Builtin:ArrayMap",
            "RegExp:a b:1:2",
            "Ljava/lang/StringConcatHelper;::prepend",
            "int Leak.leakHere(int)",
            "instance void [App] Foo::bar()[Optimized]",
            "JS:*nameless",
            "JS:",
            "py::",
            "py::x",
            "py:::/app/a.py",
        ] {
            check(text, text, None, None);
        }
    }

    #[test]
    fn the_administrator_of_a_user_namespace_is_found() {
        assert_eq!(root_id("         0          0 4294967295\n"), Some(0));
        assert_eq!(root_id("1000 1000 1\n0 100000 65536\n"), Some(100_000));
        assert_eq!(root_id("1000 1000 1\n"), None);
        assert_eq!(root_id("0 x 1\n0\n"), None);
    }

    #[test]
    fn the_name_of_a_dump_is_its_form() {
        for (path, is) in [
            ("/tmp/jit-123.dump", true),
            ("jit-1.dump", true),
            ("/tmp/jit-.dump", false),
            ("/tmp/jit-12x.dump", false),
            ("/tmp/other-12.dump", false),
            ("/lib/libjit-1.dump.so", false),
        ] {
            assert_eq!(is_dump(OsStr::new(path)), is, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(text in "(JS:|py::|Eval:|)\\PC{0,30}(:[0-9]{0,12}){0,3}") {
            prop_assert!(Name::read(&text).function.len() <= text.len().max(ANONYMOUS.len()));
        }
    }
}
