//! Binds addresses to objects while the target still maps them.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use object::elf::ELFMAG;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::target::arrivals::Arrivals;
use crate::target::mappings::{FileId, Mapping, Mappings};
use crate::target::objects::open_mapped;
use crate::target::process::Process;

use super::generated::{GeneratedNames, Tables, is_dump};
use super::roots::Roots;
use super::vdso;

/// Number of an object, valid with the [`Binder`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u32);

impl ObjectId {
    /// The number as such.
    pub const fn number(self) -> u32 {
        self.0
    }
}

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
    /// The address space that it was seen in, where that makes a difference: outside files.
    pub space: Option<u64>,
    /// How far the names of generated code were written when it was seen; zero in files. The
    /// memory of code that was thrown away is used again.
    pub seen: u64,
}

impl Bound {
    /// A return address in an address space of which nothing can be known any more.
    pub const fn nowhere(space: u64, return_addr: u64) -> Self {
        let address = return_addr.saturating_sub(1);
        Self { address, object: None, offset: address, space: Some(space), seen: 0 }
    }
}

/// What executable memory came from.
#[derive(Debug)]
pub enum ObjectKind {
    /// A file; kept open, so its names can be read after it was deleted and unmapped, and
    /// its inode number is not given to another. `None` when it could not be opened. Of the vDSO, a
    /// copy.
    File(Option<File>),
    /// Other code that the kernel lends.
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
    /// The root of the process that mapped it first, below which its debug file may lie.
    pub root: Option<Rc<File>>,
    /// A file that is no object file. Runtimes that map generated code twice, to write it and to
    /// execute it, do so by way of a file in memory.
    pub may_be_generated: bool,
    /// Was it said that files of its debug information are missing?
    pub(super) is_told: Cell<bool>,
}

/// What makes two mappings one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    File(FileId),
    Name(String),
}

/// Binds the addresses of processes. Objects are shared by all of them.
#[derive(Debug, Default)]
pub struct Binder {
    objects: Vec<Object>,
    ids: FxHashMap<Key, ObjectId>,
    spaces: FxHashMap<u64, AddressMap>,
    roots: Roots,
}

/// One address space.
#[derive(Debug, Default)]
struct AddressMap {
    mappings: Mappings,
    /// Code that is not mapped any more, as far as nothing else is there now. A library may be
    /// closed before the stacks that it made are read.
    former: Vec<Mapping>,
    /// Pages where nothing was found in the memory map as it is held. Without it, each
    /// stack of a broken walk would have the map read again.
    missing: FxHashSet<u64>,
    /// Tells what is mapped between two looks, where that was asked for.
    arrivals: Option<Arrivals>,
    /// Of what it told, what nobody has asked for yet.
    fresh: Vec<Mapping>,
    /// Where its process writes the names of the code that it generates. Looked for when such
    /// code is first met.
    generated: Option<GeneratedNames>,
    /// The file of generated code that its process maps to show that it writes one.
    dump: Option<ObjectId>,
}

/// Mappings that are remembered of one address space after they are gone.
const MOST_FORMER: usize = 1000;

/// Objects up to which one is opened before an address of it is seen: a program that writes a new
/// library for each piece of work must not use up the tool's descriptors.
const MOST_AHEAD: usize = 512;

/// Enough to tell pages apart on every machine.
const PAGE_SHIFT: u32 = 12;

impl Binder {
    /// Reads the memory map of this process, which lives in this address space. Worth it whenever
    /// libraries may have come and gone; an address that is not in the map has it read by itself.
    pub fn refresh(&mut self, space: u64, process: &Process) {
        // When the process has ended, what is known stays true of the addresses it had.
        let Ok(mappings) = process.mappings() else { return };
        if mappings.list.is_empty() {
            return;
        }
        // Opened now: once the process has ended, its objects cannot be reached by way of it.
        let mut dump = None;
        for mapping in mappings.list.iter().filter(|at| at.is_executable() && at.has_file()) {
            let id = self.id(process, mapping);
            if is_dump(&mapping.path) {
                dump = Some(id);
            }
        }
        let map = self.spaces.entry(space).or_default();
        map.dump = dump.or(map.dump);
        let old = std::mem::replace(&mut map.mappings, mappings);
        map.former.extend(old.list.into_iter().filter(|at| at.is_executable() && at.has_file()));
        let now = &map.mappings.list;
        map.former
            .retain(|former| now.iter().all(|at| at.end <= former.start || former.end <= at.start));
        let excess = map.former.len().saturating_sub(MOST_FORMER);
        map.former.drain(..excess);
        map.missing.clear();
    }

    /// Listens from here on to what this process maps, so that a library that is closed at once
    /// keeps its names, and is told by [`Binder::arrived`].
    pub fn watch(&mut self, space: u64, process: &Process) {
        match Arrivals::watch(process.pid) {
            Ok(arrivals) => self.spaces.entry(space).or_default().arrivals = Some(arrivals),
            Err(error) => {
                log::info!("libraries that are closed at once will have no names: {error}");
            }
        }
    }

    /// Executable mappings of files that were made since the last call, where they are listened to.
    pub fn arrived(&mut self, space: u64, process: &Process) -> Vec<Mapping> {
        self.note_arrivals(space, process);
        self.spaces.get_mut(&space).map_or_else(Vec::new, |map| std::mem::take(&mut map.fresh))
    }

    fn note_arrivals(&mut self, space: u64, process: &Process) {
        let map = self.spaces.get_mut(&space);
        let Some(arrivals) = map.and_then(|map| map.arrivals.as_mut()) else { return };
        let arrived = arrivals.take();
        if arrived.is_empty() {
            return;
        }
        let mut dump = None;
        for mapping in &arrived {
            // While it is there to be opened.
            if self.objects.len() < MOST_AHEAD || is_dump(&mapping.path) {
                let id = self.id(process, mapping);
                dump = is_dump(&mapping.path).then_some(id).or(dump);
            }
        }
        let map = self.spaces.entry(space).or_default();
        map.dump = dump.or(map.dump);
        map.former.retain(|former| !arrived.contains(former));
        map.former.extend(arrived.iter().cloned());
        let excess = map.former.len().saturating_sub(MOST_FORMER);
        map.former.drain(..excess);
        map.missing.clear();
        map.fresh.extend(arrived);
    }

    /// The address space is no more: nothing will be bound in it.
    pub fn close(&mut self, space: u64) {
        if let Some(map) = self.spaces.remove(&space)
            && map.generated.is_some()
        {
            let AddressMap { mut generated, dump, .. } = map;
            generated.iter_mut().for_each(GeneratedNames::close);
            let kept = AddressMap { generated, dump, ..AddressMap::default() };
            self.spaces.insert(space, kept);
        }
    }

    /// Binds a return address of this process, which lives in this address space.
    pub fn bind(&mut self, space: u64, process: &Process, return_addr: u64) -> Bound {
        let address = return_addr.saturating_sub(1);
        let page = address >> PAGE_SHIFT;
        let needs_look = self
            .spaces
            .get(&space)
            .is_none_or(|map| map.mappings.at(address).is_none() && !map.missing.contains(&page));
        if needs_look {
            self.refresh(space, process);
            self.note_arrivals(space, process);
        }
        let map = self.spaces.entry(space).or_default();
        let mut mapping = map.mappings.at(address);
        if mapping.is_none() {
            // Looked for once; what is remembered will do from here on.
            map.missing.insert(page);
            mapping = map.former.iter().rev().find(|former| former.contains(address));
        }
        let Some(mapping) = mapping.cloned() else {
            return self.without_file(space, process, address, None);
        };
        if !mapping.is_executable() {
            // A walk that went astray: this was never called.
            return Bound { address, object: None, offset: address, space: Some(space), seen: 0 };
        }
        let object = self.id(process, &mapping);
        if !mapping.has_file() && mapping.path != vdso::NAME {
            return self.without_file(space, process, address, Some(object));
        }
        let offset = mapping.offset.wrapping_add(address - mapping.start);
        if self.object(object).is_some_and(|object| object.may_be_generated) {
            return Bound { offset, ..self.without_file(space, process, address, Some(object)) };
        }
        Bound { address, object: Some(object), offset, space: None, seen: 0 }
    }

    fn without_file(
        &mut self,
        space: u64,
        process: &Process,
        address: u64,
        object: Option<ObjectId>,
    ) -> Bound {
        let map = self.spaces.entry(space).or_default();
        let roots = &mut self.roots;
        let names =
            map.generated.get_or_insert_with(|| GeneratedNames::of(process, roots.tmp_of(process)));
        let seen = names.progress(map.dump.is_some());
        Bound { address, object, offset: address, space: Some(space), seen }
    }

    /// The executable mappings of files of this process, which lives in this address space, as they
    /// are now, and whose they are.
    pub fn code(&mut self, space: u64, process: &Process) -> Vec<(Mapping, ObjectId)> {
        self.refresh(space, process);
        let map = self.spaces.get(&space);
        let mappings = map.into_iter().flat_map(|map| &map.mappings.list);
        let code = mappings.filter(|at| at.is_executable() && at.has_file());
        let code: Vec<Mapping> = code.cloned().collect();
        code.into_iter().map(|mapping| (mapping.clone(), self.id(process, &mapping))).collect()
    }

    /// The code without a file in this range of the address space, as far as is known; nothing where
    /// there is some of a file as well.
    pub fn generated_code(&self, space: u64, range: Range<u64>) -> Vec<Range<u64>> {
        let map = self.spaces.get(&space);
        let mappings = map.into_iter().flat_map(|map| &map.mappings.list);
        let is_here =
            |at: &&Mapping| at.is_executable() && at.start < range.end && range.start < at.end;
        let here: Vec<&Mapping> = mappings.filter(is_here).collect();
        if here.iter().any(|at| at.has_file()) {
            return Vec::new();
        }
        here.iter().map(|at| at.start.max(range.start)..at.end.min(range.end)).collect()
    }

    /// The object of this number.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.0 as usize)
    }

    /// Where the process of this address space wrote the names of the code that it generated.
    pub(super) fn generated(&self, space: u64) -> Tables<'_> {
        let map = self.spaces.get(&space);
        let dump =
            map.and_then(|map| self.object(map.dump?)).and_then(|object| match &object.kind {
                ObjectKind::File(file) => file.as_ref(),
                ObjectKind::Kernel | ObjectKind::Anonymous => None,
            });
        let names = map.and_then(|map| map.generated.as_ref());
        let is_told = names.map(|names| &names.is_told);
        Tables { dump, map: names.and_then(GeneratedNames::open), is_told }
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
            ObjectKind::File(open_mapped(process.shown_as(), mapping).ok())
        } else if name == vdso::NAME {
            ObjectKind::File(vdso::copy(mapping).ok())
        } else if matches!(name.as_str(), "[vsyscall]" | "[uprobes]") {
            ObjectKind::Kernel
        } else {
            ObjectKind::Anonymous
        };
        let id = ObjectId(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        let root = mapping.has_file().then(|| self.roots.of(process)).flatten();
        let may_be_generated = match &kind {
            ObjectKind::File(Some(file)) => !is_object_file(file),
            ObjectKind::File(None) | ObjectKind::Kernel | ObjectKind::Anonymous => false,
        };
        self.objects.push(Object { name, kind, root, may_be_generated, is_told: Cell::new(false) });
        self.ids.insert(key, id);
        id
    }
}

fn is_object_file(file: &File) -> bool {
    let mut magic = [0; ELFMAG.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == ELFMAG
}
