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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation as _, LookupResult, SplitDwarfLoad};
use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DebugInfo, Dwarf, DwarfPackage,
    DwarfPackageSections, DwarfSections, DwoId, EndianSlice, LittleEndian, Section as _, SectionId,
    UnitHeader, UnitType, constants,
};

use super::demangle::Demangler;
use super::{Frame, compressed, debug_files, strings};
use crate::target::elf::Elf;

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Sections<'a> = DwarfSections<Cow<'a, [u8]>>;
type PackageSections<'a> = DwarfPackageSections<Cow<'a, [u8]>>;

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

/// What was found of some addresses.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The functions at each address, innermost first; empty where others must be asked.
    pub(super) frames: Vec<Vec<Frame>>,
    /// Files that would have told more.
    pub(super) missing: Missing,
}

/// Files that were not found.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// How many.
    pub(super) count: usize,
    /// The path of one of them, as its skeleton has it.
    pub(super) example: PathBuf,
}

/// Looks up the addresses that lie in units whose debug information is elsewhere. `None` when there
/// are none.
pub(super) fn found_at(
    elf: &Elf,
    places: &Places<'_>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> Option<Found> {
    // Bytes of the target that make the reader panic must not cost the measurement.
    let found = catch_unwind(AssertUnwindSafe(|| {
        if has_skeletons(elf) { resolve(elf, places, addrs, demangler) } else { None }
    }));
    found.ok().flatten()
}

/// Most objects have none, and are spared that all of their units are looked at once more.
fn has_skeletons(elf: &Elf) -> bool {
    // The addresses that the parts refer to.
    if !elf.has_section(SectionId::DebugAddr.name()) {
        return false;
    }
    let wanted = [SectionId::DebugInfo, SectionId::DebugAbbrev];
    let sections = sections(elf, |id| wanted.contains(&id).then_some(id.name()));
    let dwarf = sections.borrow(|bytes| reader(bytes));
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if !matches!(header.type_(), UnitType::SplitCompilation(_))
            && id_of(&dwarf, &header).is_some()
        {
            return true;
        }
    }
    false
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

fn resolve(
    elf: &Elf,
    places: &Places<'_>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> Option<Found> {
    let main = sections(elf, |id| Some(id.name()));
    // The context refers to these in the end, so they must outlive it.
    let (packages, parts): (Vec<Elf>, BTreeMap<u64, Elf>);
    let (of_packages, of_parts): (Vec<PackageSections<'_>>, BTreeMap<u64, Sections<'_>>);
    let mut beside = Beside { packages: Vec::new(), parts: BTreeMap::new() };

    let mut dwarf = main.borrow(|bytes| reader(bytes));
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let context = Context::from_dwarf(dwarf).ok()?;
    let (wanted, is_split) = wanted(&context, addrs);
    if wanted.is_empty() {
        return None;
    }

    let files = package_paths(places.object).into_iter().flat_map(|path| (places.open)(&path));
    packages = files.filter_map(|file| opened(&file)).collect();
    of_packages = packages.iter().filter_map(of_package).collect();
    let empty = EndianSlice::default();
    let units = of_packages.iter().map(|package| package.borrow(|bytes| reader(bytes), empty));
    beside.packages = units.filter_map(Result::ok).collect();

    let parent = main.borrow(|bytes| reader(bytes));
    let is_packaged = |id: u64| beside.packaged(DwoId(id), &parent).is_some();
    let elsewhere: Vec<_> = wanted.iter().filter(|(id, _)| !is_packaged(**id)).collect();
    let found = elsewhere.iter().take(MOST_PARTS);
    let found = found.filter_map(|(id, path)| Some((**id, part(DwoId(**id), path, places)?)));
    parts = found.collect();
    of_parts = parts.iter().map(|(id, elf)| (*id, of_part(elf))).collect();
    beside.parts = of_parts.iter().map(|(id, part)| (*id, part)).collect();

    let frames = addrs.iter().zip(is_split).map(|(addr, is_split)| {
        let frames = is_split.then(|| frames_at(&context, *addr, &beside, demangler)).flatten();
        frames.unwrap_or_default()
    });
    let frames = frames.collect();
    let missing: Vec<_> = elsewhere.iter().filter(|(id, _)| !parts.contains_key(id)).collect();
    let example = missing.first().map(|(_, path)| path.to_path_buf()).unwrap_or_default();
    Some(Found { frames, missing: Missing { count: missing.len(), example } })
}

/// Debug information that was found beside the object.
struct Beside<'a> {
    packages: Vec<DwarfPackage<Reader<'a>>>,
    /// By their ids.
    parts: BTreeMap<u64, &'a Sections<'a>>,
}

impl<'a> Beside<'a> {
    fn load(&self, wanted: &SplitDwarfLoad<Reader<'a>>) -> Option<Dwarf<Reader<'a>>> {
        let id = wanted.dwo_id;
        self.packaged(id, &wanted.parent).or_else(|| {
            let mut dwarf = self.parts.get(&id.0)?.borrow(|bytes| reader(bytes));
            dwarf.make_dwo(&wanted.parent);
            begin_with(dwarf, id)
        })
    }

    fn packaged(&self, id: DwoId, parent: &Dwarf<Reader<'a>>) -> Option<Dwarf<Reader<'a>>> {
        let mut units = self.packages.iter().filter_map(|all| all.find_cu(id, parent).ok()?);
        units.find_map(|unit| begin_with(unit, id))
    }
}

/// The ids of the parts that tell of these addresses, and their paths; and for each address, whether
/// it has one.
fn wanted(context: &Context<Reader<'_>>, addrs: &[u64]) -> (BTreeMap<u64, PathBuf>, Vec<bool>) {
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

fn frames_at<'a>(
    context: &Context<Reader<'a>>,
    addr: u64,
    beside: &Beside<'a>,
    demangler: &mut Demangler,
) -> Option<Vec<Frame>> {
    let mut result = context.find_frames(addr);
    let mut found = loop {
        match result {
            LookupResult::Output(found) => break found.ok()?,
            LookupResult::Load { load: wanted, continuation } => {
                result = continuation.resume(beside.load(&wanted).map(Arc::new));
            }
        }
    };
    let mut frames = Vec::new();
    while let Some(frame) = found.next().ok()? {
        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
        let at = frame.location.as_ref();
        frames.push(Frame {
            function: name.filter(|name| !name.is_empty()).map(|name| demangler.name(&name)),
            object: None,
            offset: 0,
            address: 0,
            file: at.and_then(|at| at.file).map(str::to_owned),
            line: at.and_then(|at| at.line),
            inlined: true,
        });
    }
    let outermost = frames.last_mut()?;
    outermost.inlined = false;
    // What is not named here may have a symbol.
    outermost.function.is_some().then_some(frames)
}

fn reader(bytes: &[u8]) -> Reader<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

fn sections<'a>(elf: &'a Elf, name: impl Fn(SectionId) -> Option<&'static str>) -> Sections<'a> {
    let load = |id| Ok::<_, gimli::Error>(section(elf, name(id)));
    DwarfSections::load(load).unwrap_or_default()
}

fn of_part(elf: &Elf) -> Sections<'_> {
    sections(elf, SectionId::dwo_name)
}

fn of_package(elf: &Elf) -> Option<PackageSections<'_>> {
    DwarfPackageSections::load(|id| Ok::<_, gimli::Error>(section(elf, id.dwo_name()))).ok()
}

fn section<'a>(elf: &'a Elf, name: Option<&str>) -> Cow<'a, [u8]> {
    name.map(|name| compressed::section(elf, name)).unwrap_or_default()
}
