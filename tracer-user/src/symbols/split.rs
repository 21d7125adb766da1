//! Debug information that a compiler left beside the object (`-gsplit-dwarf`).
//!
//! The object keeps a skeleton of each unit: its lines and addresses, an id, and the path of the
//! `.dwo` file that has the rest, which is what tells of inlined functions. A package (`.dwp`) beside
//! the object has those of many units.
//!
//! Paths and files are of the target's choosing. A file is believed where it has the unit of the id
//! that the skeleton states, and only there; what has none keeps the names of its symbols.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use addr2line::{Context, SplitDwarfLoad};
use gimli::{
    AttributeValue, DebugInfo, Dwarf, DwarfPackage, DwarfPackageSections, DwoId, LittleEndian,
    Section as _, SectionId, UnitHeader, UnitType, constants,
};

use super::sections::{Reader, Sections, reader, section, sections};
use super::{debug_files, strings};
use crate::target::elf::Elf;

pub(super) type PackageSections<'a> = DwarfPackageSections<Cow<'a, [u8]>>;

/// `.dwo` files that are opened for one object. Each is mapped until the object is done with, and a
/// process may have 65,530 mappings.
const MOST_PARTS: usize = 8192;

/// Where files are looked for that belong to an object.
pub(crate) struct Places<'a> {
    /// The object's path in the target's root.
    pub(crate) object: &'a Path,
    /// The files at a path that may be read: in the target's root, then in ours.
    pub(crate) open: &'a dyn Fn(&Path) -> Vec<File>,
    /// Folders that the symbolizer looks in by itself.
    pub(crate) folders: &'a [PathBuf],
}

/// Files that were not found.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// How many.
    pub(super) count: usize,
    /// The path of one of them, as its skeleton has it.
    pub(super) example: PathBuf,
}

/// Does this unit leave its debug information to another file?
pub(super) fn is_skeleton(dwarf: &Dwarf<Reader<'_>>, header: &UnitHeader<Reader<'_>>) -> bool {
    !matches!(header.type_(), UnitType::SplitCompilation(_)) && id_of(dwarf, header).is_some()
}

/// The id of a unit that is a skeleton or a part.
fn id_of(dwarf: &Dwarf<Reader<'_>>, header: &UnitHeader<Reader<'_>>) -> Option<DwoId> {
    match header.type_() {
        UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
        // Before version 5 it is a unit like any other, with one attribute more.
        UnitType::Compilation if header.version() < 5 => {
            let abbreviations = dwarf.abbreviations(header).ok()?;
            let mut entries = header.entries(&abbreviations);
            match entries
                .next_entry()
                .ok()?
                .then(|| entries.current())??
                .attr_value(constants::DW_AT_GNU_dwo_id)?
            {
                AttributeValue::DwoId(id) => Some(id),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Debug information that was found beside the object.
#[derive(Default)]
pub(super) struct Beside<'a> {
    pub(super) packages: Vec<DwarfPackage<Reader<'a>>>,
    /// By their ids.
    pub(super) parts: BTreeMap<u64, &'a Sections<'a>>,
}

impl<'a> Beside<'a> {
    pub(super) fn load(&self, wanted: &SplitDwarfLoad<Reader<'a>>) -> Option<Dwarf<Reader<'a>>> {
        let id = wanted.dwo_id;
        self.packaged(id, &wanted.parent).or_else(|| {
            let mut dwarf = self.parts.get(&id.0)?.borrow(|bytes| reader(bytes));
            dwarf.make_dwo(&wanted.parent);
            begin_with(dwarf, id)
        })
    }

    pub(super) fn is_packaged(&self, id: u64, parent: &Dwarf<Reader<'a>>) -> bool {
        self.packaged(DwoId(id), parent).is_some()
    }

    fn packaged(&self, id: DwoId, parent: &Dwarf<Reader<'a>>) -> Option<Dwarf<Reader<'a>>> {
        let mut units = self.packages.iter().filter_map(|all| all.find_cu(id, parent).ok()?);
        units.find_map(|unit| begin_with(unit, id))
    }
}

/// The ids of the parts that tell of these addresses, and their paths; and for each address, whether
/// it has one.
pub(super) fn wanted(
    context: &Context<Reader<'_>>,
    addrs: &[u64],
) -> (BTreeMap<u64, PathBuf>, Vec<bool>) {
    let mut wanted = BTreeMap::new();
    let is_split = addrs.iter().map(|addr| {
        let mut is_split = false;
        for (load, _) in context.preload_units(*addr) {
            let path = |part: Option<Reader<'_>>| {
                part.map(|bytes| PathBuf::from(OsStr::from_bytes(bytes.slice())))
                    .unwrap_or_default()
            };
            wanted
                .entry(load.dwo_id.0)
                .or_insert_with(|| path(load.comp_dir).join(path(load.path)));
            is_split = true;
        }
        is_split
    });
    let is_split = is_split.collect();
    (wanted, is_split)
}

/// The packages beside the object.
pub(super) fn packages(places: &Places<'_>) -> Vec<Elf> {
    let files = package_paths(places.object).into_iter().flat_map(|path| (places.open)(&path));
    files.filter_map(|file| opened(&file)).collect()
}

/// The files that have these units.
pub(super) fn parts(wanted: &[(&u64, &PathBuf)], places: &Places<'_>) -> BTreeMap<u64, Elf> {
    let found = wanted.iter().take(MOST_PARTS);
    found.filter_map(|(id, path)| Some((**id, part(DwoId(**id), path, places)?))).collect()
}

/// Where a package may lie: where a debug file may, under the object's own name.
fn package_paths(object: &Path) -> Vec<PathBuf> {
    let Some(name) = object.file_name() else { return Vec::new() };
    let mut name = name.to_owned();
    name.push(".dwp");
    debug_files::by_link(&name, object)
}

/// The file that has the unit of this id: at its path, or beside the object, where those lie who were
/// copied together with it.
fn part(id: DwoId, path: &Path, places: &Places<'_>) -> Option<Elf> {
    let folder = places.object.parent();
    let beside = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let mut files = [Some(path.to_path_buf()), beside].into_iter().flatten();
    files.find_map(|path| {
        (places.open)(&path)
            .iter()
            .filter_map(opened)
            .find(|elf| begin_with(of_part(elf).borrow(|bytes| reader(bytes)), id).is_some())
    })
}

/// An object whose sections can be unpacked.
fn opened(file: &File) -> Option<Elf> {
    Elf::open(file).ok().filter(|elf| strings::may_be_read(elf, file))
}

/// The same, from the unit of this id on.
fn begin_with<'a>(mut dwarf: Dwarf<Reader<'a>>, id: DwoId) -> Option<Dwarf<Reader<'a>>> {
    let mut units = dwarf.units();
    while let Some(header) = units.next().ok()? {
        let Some(start) = header.debug_info_offset() else { continue };
        if id_of(&dwarf, &header) == Some(id) {
            // Units of types may come first.
            let info = dwarf.debug_info.reader().slice().get(start.0..)?;
            dwarf.debug_info = DebugInfo::new(info, LittleEndian);
            return Some(dwarf);
        }
    }
    None
}

pub(super) fn of_part(elf: &Elf) -> Sections<'_> {
    sections(elf, SectionId::dwo_name)
}

pub(super) fn of_package(elf: &Elf) -> Option<PackageSections<'_>> {
    DwarfPackageSections::load(|id| Ok::<_, gimli::Error>(section(elf, id.dwo_name()))).ok()
}
