//! Binds addresses to objects while the target still maps them.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::os::unix::fs::OpenOptionsExt as _;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::target::arrivals::Arrivals;
use crate::target::mappings::{FileId, Mapping, Mappings};
use crate::target::objects::{open_mapped, path_of};
use crate::target::process::Process;

/// Number of an object, valid with the [`Binder`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u32);

/// An address, bound to what was there when it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bound {
    /// Where the target would find the call: the return address minus one, which lies in
    /// the calling instruction, whereas the return address may be the next function's.
    pub address: u64,
    /// The object that is executed there; `None` when nothing executable was mapped.
    pub object: Option<ObjectId>,
    /// Place in the object's file; the address itself when there is no file.
    pub offset: u64,
}

/// What executable memory came from.
#[derive(Debug)]
pub enum ObjectKind {
    /// A file; kept open, so its names can be read after it was deleted and unmapped, and
    /// its inode number is not given to another. `None` when it could not be opened.
    File(Option<File>),
    /// Code that the kernel lends: the vDSO.
    Kernel,
    /// Memory without a file, where code was generated.
    Anonymous,
}

/// Something that was mapped executable.
#[derive(Debug)]
pub struct Object {
    /// Its path, or its name in the memory map; empty when it has none.
    pub name: String,
    /// What it is.
    pub kind: ObjectKind,
}

/// What makes two mappings one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    File(FileId),
    Name(String),
}

/// Binds the addresses of one process.
#[derive(Debug)]
pub struct Binder {
    mappings: Mappings,
    objects: Vec<Object>,
    ids: FxHashMap<Key, ObjectId>,
    /// Pages where nothing was found in the memory map as it is held. Without it, each
    /// stack of a broken walk would have the map read again.
    missing: FxHashSet<u64>,
    /// Tells what is mapped between two looks; `None` where the kernel does not.
    arrivals: Option<Arrivals>,
    /// What it told, the latest last: mappings that may be gone by now.
    past: VecDeque<Mapping>,
    /// Of these, what nobody has asked for yet.
    fresh: Vec<Mapping>,
    /// The target's `/tmp`, which may be another than ours. Held open because it cannot be
    /// reached any more when the target has ended.
    tmp: Option<File>,
    perf_map_name: String,
}

/// Enough to tell pages apart on every machine.
const PAGE_SHIFT: u32 = 12;

/// Mappings that are remembered when they are gone.
const MOST_PAST: usize = 1024;

impl Binder {
    /// A binder for this process, as it is now.
    pub fn new(process: &Process) -> Self {
        let tmp = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{}/root/tmp", process.pid));
        let pid = process.status().map_or(process.pid, |status| status.inner_pid());
        let arrivals = Arrivals::watch(process.pid);
        let arrivals = arrivals.inspect_err(|error| {
            log::info!("libraries that are closed at once will have no names: {error}");
        });
        let mut binder = Self {
            arrivals: arrivals.ok(),
            past: VecDeque::new(),
            fresh: Vec::new(),
            mappings: Mappings::default(),
            objects: Vec::new(),
            ids: FxHashMap::default(),
            missing: FxHashSet::default(),
            tmp: tmp.ok(),
            perf_map_name: format!("perf-{pid}.map"),
        };
        binder.refresh(process);
        binder
    }

    /// Reads the memory map again. Worth it whenever libraries may have come and gone; an
    /// address that is not in the map has it read by itself.
    pub fn refresh(&mut self, process: &Process) {
        // When the process has ended, what is known stays true of the addresses it had.
        if let Ok(mappings) = process.mappings()
            && !mappings.list.is_empty()
        {
            self.mappings = mappings;
            self.missing.clear();
            self.open_objects(process);
        }
    }

    /// Executable mappings of files that were made since the last call.
    pub fn arrived(&mut self, process: &Process) -> Vec<Mapping> {
        self.note_arrivals(process);
        std::mem::take(&mut self.fresh)
    }

    fn note_arrivals(&mut self, process: &Process) {
        let arrived = self.arrivals.as_mut().map_or_else(Vec::new, Arrivals::take);
        for mapping in &arrived {
            // While it is there to be opened.
            self.id(process, mapping);
            self.past.retain(|past| past != mapping);
            if self.past.len() == MOST_PAST {
                self.past.pop_front();
            }
            self.past.push_back(mapping.clone());
        }
        if !arrived.is_empty() {
            self.missing.clear();
        }
        self.fresh.extend(arrived);
    }

    /// What is mapped at this address, or was.
    fn at(&self, address: u64) -> Option<&Mapping> {
        let gone = || self.past.iter().rev().find(|mapping| mapping.contains(address));
        self.mappings.at(address).or_else(gone)
    }

    /// Opens what can be executed now: once the process has ended, its objects cannot be
    /// reached by way of it any more.
    fn open_objects(&mut self, process: &Process) {
        let executable = |mapping: &&Mapping| mapping.is_executable() && mapping.has_file();
        let mappings: Vec<Mapping> =
            self.mappings.list.iter().filter(executable).cloned().collect();
        for mapping in &mappings {
            self.id(process, mapping);
        }
    }

    /// Binds a return address.
    pub fn bind(&mut self, process: &Process, return_addr: u64) -> Bound {
        let address = return_addr.saturating_sub(1);
        if self.mappings.at(address).is_none() && !self.missing.contains(&(address >> PAGE_SHIFT)) {
            self.refresh(process);
            self.note_arrivals(process);
        }
        let Some(mapping) = self.at(address) else {
            self.missing.insert(address >> PAGE_SHIFT);
            return Bound { address, object: None, offset: address };
        };
        if !mapping.is_executable() {
            // A walk that went astray: this was never called.
            return Bound { address, object: None, offset: address };
        }
        let offset = if mapping.has_file() {
            mapping.offset.wrapping_add(address - mapping.start)
        } else {
            address
        };
        let mapping = mapping.clone();
        Bound { address, object: Some(self.id(process, &mapping)), offset }
    }

    /// The object of this number.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.0 as usize)
    }

    /// The names of generated code that the target wrote, if it does.
    pub(super) fn perf_map(&self) -> Option<BufReader<File>> {
        let path = path_of(self.tmp.as_ref()?).join(&self.perf_map_name);
        // The target may have put anything there: no link is followed out of its root and
        // no pipe is waited for.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        file.metadata().ok()?.is_file().then(|| BufReader::new(file))
    }

    fn id(&mut self, process: &Process, mapping: &Mapping) -> ObjectId {
        let name = mapping.path.to_string_lossy().into_owned();
        let key = match mapping.has_file() {
            true => Key::File(mapping.file),
            false => Key::Name(name.clone()),
        };
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let kind = if mapping.has_file() {
            ObjectKind::File(open_mapped(process.pid, mapping).ok())
        } else if matches!(name.as_str(), "[vdso]" | "[vsyscall]" | "[uprobes]") {
            ObjectKind::Kernel
        } else {
            ObjectKind::Anonymous
        };
        let id = ObjectId(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        self.objects.push(Object { name, kind });
        self.ids.insert(key, id);
        id
    }
}
