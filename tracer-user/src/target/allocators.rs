//! Which objects of the process define an allocator, and where to probe it.
//!
//! An object is an allocator because it defines the functions, never because of its name.
//! Every one that does is probed: which of them the process's calls reach is for its
//! loader to know, and the outermost call of a thread counts once.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustc_hash::FxHashMap;
use tracer_common::cookie::{Cookie, Shape};

use super::Class;
use super::elf::{Elf, ElfError, FileOffset, Function as ElfFunction, FunctionKind, Table};
use super::mappings::{FileId, Mapping};
use super::objects::{OpenError, open_mapped};
use super::process::{Process, ProcessError};
use super::sites::{self, Site, SiteError};

/// What a function of this name does, and where its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name in the symbol table.
    pub name: &'static str,
    /// What it does.
    pub shape: Shape,
    /// Which argument is the size in bytes, or of one element.
    pub size_arg: u8,
    /// Which argument is the number of elements.
    pub count_arg: u8,
    /// Which argument is the block, or where the block's address goes.
    pub ptr_arg: u8,
}

const fn describe(name: &'static str, shape: Shape, places: [u8; 3]) -> Description {
    let [size_arg, count_arg, ptr_arg] = places;
    Description { name, shape, size_arg, count_arg, ptr_arg }
}

/// The C library's allocator, with the place of size, count and pointer. A place that a
/// shape does not use is zero.
pub const FUNCTIONS: &[Description] = &[
    describe("free", Shape::Free, [0, 0, 0]),
    describe("cfree", Shape::Free, [0, 0, 0]),
    describe("free_sized", Shape::Free, [0, 0, 0]),
    describe("free_aligned_sized", Shape::Free, [0, 0, 0]),
    describe("malloc", Shape::Alloc, [0, 0, 0]),
    describe("calloc", Shape::AllocArray, [1, 0, 0]),
    describe("realloc", Shape::Resize, [1, 0, 0]),
    describe("reallocarray", Shape::ResizeArray, [2, 1, 0]),
    describe("posix_memalign", Shape::AllocOut, [2, 0, 0]),
    describe("aligned_alloc", Shape::Alloc, [1, 0, 0]),
    describe("memalign", Shape::Alloc, [1, 0, 0]),
    describe("valloc", Shape::Alloc, [0, 0, 0]),
    describe("pvalloc", Shape::Alloc, [0, 0, 0]),
];

impl Description {
    /// The arguments that its shape reads.
    fn args(&self) -> Vec<u8> {
        match self.shape {
            Shape::Free => vec![self.ptr_arg],
            Shape::Alloc => vec![self.size_arg],
            Shape::AllocArray => vec![self.size_arg, self.count_arg],
            Shape::AllocOut | Shape::Resize => vec![self.size_arg, self.ptr_arg],
            Shape::ResizeArray => vec![self.size_arg, self.count_arg, self.ptr_arg],
        }
    }

    /// The cookie of a probe at `site`, where the arguments may have moved.
    fn cookie(&self, site: &Site, family: u16) -> Cookie {
        let at = |argument: u8| site.arg_places[usize::from(argument)];
        let (size, count, ptr) = (self.size_arg, self.count_arg, self.ptr_arg);
        let (size_arg, count_arg, ptr_arg) = match self.shape {
            Shape::Free => (0, 0, at(ptr)),
            Shape::Alloc => (at(size), 0, 0),
            Shape::AllocArray => (at(size), at(count), 0),
            Shape::AllocOut | Shape::Resize => (at(size), 0, at(ptr)),
            Shape::ResizeArray => (at(size), at(count), at(ptr)),
        };
        Cookie { shape: self.shape, size_arg, count_arg, ptr_arg, family }
    }
}

/// A function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its names, the first as [`FUNCTIONS`] has it; several when one place has several.
    pub names: Vec<&'static str>,
    /// What the probe has to know.
    pub cookie: Cookie,
    /// Where it starts in the object's file.
    pub entry: FileOffset,
    /// Where to probe it.
    pub site: Site,
}

/// A function that is there and cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untraceable {
    /// Its names.
    pub names: Vec<&'static str>,
    /// Why not.
    pub reason: UntraceableReason,
}

/// Why a function cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntraceableReason {
    /// The symbol is a resolver; which code it picked is not in the file.
    #[error("its code is picked at load time (IFUNC)")]
    Indirect,
    /// The symbol's address is not code of this file.
    #[error("its symbol does not point into executable code")]
    NotCode,
    /// No instruction of it can carry a probe.
    #[error(transparent)]
    Site(#[from] SiteError),
}

/// An object of the process that defines an allocator.
#[derive(Debug)]
pub struct AllocatorObject {
    /// The mapped file itself. A probe attached by [`super::objects::path_of`] needs it open.
    pub file: File,
    /// Path as the process's memory map shows it.
    pub path: OsString,
    /// The file, as the memory map names it.
    pub id: FileId,
    /// Build id, when there is one.
    pub build_id: Option<Vec<u8>>,
    /// Number of the allocator, as in the cookies.
    pub family: u16,
    /// The object's file name: what the allocator is called.
    pub family_name: String,
    /// What to probe.
    pub functions: Vec<Function>,
    /// What cannot be probed.
    pub untraceable: Vec<Untraceable>,
}

/// Why there is no allocator to trace.
#[derive(Debug, thiserror::Error)]
pub enum AllocatorError {
    /// The process could not be asked.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// None of its objects defines one.
    #[error(
        "no allocator symbol in {}; outlive needs malloc and free in a mapped object, and cannot \
         trace a stripped static program", list(.searched, .unreadable)
    )]
    None {
        /// Objects that were searched.
        searched: Vec<String>,
        /// Objects that could not be.
        unreadable: Vec<Unreadable>,
    },
}

impl AllocatorError {
    /// Whose fault it is.
    pub const fn class(&self) -> Class {
        match self {
            Self::Process(error) => error.class(),
            Self::None { .. } => Class::Environment,
        }
    }
}

/// A mapped object that could not be searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Path as shown.
    pub path: String,
    /// Why not.
    pub reason: String,
}

fn list(searched: &[String], unreadable: &[Unreadable]) -> String {
    let unread = unreadable.iter().map(|object| format!("{} ({})", object.path, object.reason));
    let names: Vec<_> = searched.iter().cloned().chain(unread).collect();
    if names.is_empty() { "any object (no file is mapped)".to_owned() } else { names.join(", ") }
}

/// The search for allocators, which may be repeated: objects come with `dlopen`.
#[derive(Debug, Default)]
pub struct Allocators {
    /// What was looked at, with a mark of its content: inode numbers are given out again.
    seen: FxHashMap<FileId, Stamp>,
    n_families: u16,
    searched: Vec<String>,
    unreadable: Vec<Unreadable>,
}

/// Size and time of the last change in seconds and nanoseconds.
type Stamp = (u64, i64, i64);

impl Allocators {
    /// The allocators of this process that no earlier call has returned.
    ///
    /// # Errors
    /// When the process's memory map cannot be read.
    pub fn find_new(&mut self, process: &Process) -> Result<Vec<AllocatorObject>, ProcessError> {
        let mappings = process.mappings()?;
        let program_headers = process.auxv(libc::AT_PHDR)?;
        let program = program_headers.and_then(|addr| mappings.at(addr)).map(|at| at.file);
        let mut found = Vec::new();
        let mut in_this_map = Vec::new();
        for mapping in mappings.list.iter().filter(|at| at.is_executable() && at.has_file()) {
            if in_this_map.contains(&mapping.file) {
                continue;
            }
            in_this_map.push(mapping.file);
            let name = mapping.path.to_string_lossy();
            match self.search(process, mapping, program == Some(mapping.file)) {
                Ok(object) => found.extend(object),
                // Code in something else than an object, such as an archive of classes.
                Err(SearchError::Elf(ElfError::NotElf)) => {}
                Err(error) => self
                    .unreadable
                    .push(Unreadable { path: name.into_owned(), reason: error.to_string() }),
            }
        }
        process.check_alive()?;
        Ok(found)
    }

    /// The allocators of this process, of which there must be one that hands out memory.
    ///
    /// # Errors
    /// When there is none, naming the objects that were searched.
    pub fn find(&mut self, process: &Process) -> Result<Vec<AllocatorObject>, AllocatorError> {
        let found = self.find_new(process)?;
        let hands_out = |object: &AllocatorObject| {
            object.functions.iter().any(|function| function.cookie.shape.returns_memory())
        };
        if found.iter().any(hands_out) { Ok(found) } else { Err(self.not_found()) }
    }

    /// That no search has found an allocator, with the objects it looked at.
    pub fn not_found(&self) -> AllocatorError {
        AllocatorError::None {
            searched: self.searched.clone(),
            unreadable: self.unreadable.clone(),
        }
    }

    /// Mapped objects that could not be searched, so far.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    fn search(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        is_program: bool,
    ) -> Result<Option<AllocatorObject>, SearchError> {
        let file = open_mapped(process.pid, mapping)?;
        let metadata = file.metadata().map_err(ElfError::Read)?;
        let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if !metadata.is_file() || self.seen.insert(mapping.file, stamp) == Some(stamp) {
            return Ok(None);
        }
        self.searched.push(mapping.path.to_string_lossy().into_owned());
        let elf = Elf::open(&file)?;
        let symbols = symbols(&elf, is_program)?;
        let family = self.n_families;
        let (functions, untraceable) = probes(&elf, &symbols, family);
        if functions.is_empty() && untraceable.is_empty() {
            return Ok(None);
        }
        self.n_families += 1;
        Ok(Some(AllocatorObject {
            path: mapping.path.clone(),
            id: mapping.file,
            build_id: elf.build_id.clone(),
            family,
            family_name: Path::new(&mapping.path)
                .file_name()
                .unwrap_or(&mapping.path)
                .to_string_lossy()
                .into_owned(),
            functions,
            untraceable,
            file,
        }))
    }
}

#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Elf(#[from] ElfError),
}

fn is_described(name: &str) -> bool {
    FUNCTIONS.iter().any(|description| description.name == name)
}

/// The symbols of an object that may be its allocator's functions.
fn symbols(elf: &Elf, is_program: bool) -> Result<Vec<ElfFunction>, ElfError> {
    let mut symbols = elf.functions(Table::Dynamic, is_described)?;
    if !is_program && !elf.is_program {
        return Ok(symbols);
    }
    symbols.extend(elf.functions(Table::Full, is_described)?);
    // A local function may be anything that happens to have the name. In a program without
    // a loader it is the C library's when there is no other: the linker of a static PIE
    // makes some of those local.
    let has_library_within = is_program && !elf.asks_for_loader;
    let shared: Vec<String> = symbols
        .iter()
        .filter(|symbol| symbol.is_shared)
        .map(|symbol| symbol.name.clone())
        .collect();
    symbols.retain(|symbol| {
        symbol.is_shared || (has_library_within && !shared.contains(&symbol.name))
    });
    Ok(symbols)
}

/// One probe for each place, whatever names it has: two names of one place are one call.
fn probes(elf: &Elf, symbols: &[ElfFunction], family: u16) -> (Vec<Function>, Vec<Untraceable>) {
    let mut places: Vec<(&ElfFunction, &Description, Vec<&'static str>)> = Vec::new();
    for description in FUNCTIONS {
        for symbol in symbols.iter().filter(|symbol| symbol.name == description.name) {
            match places.iter_mut().find(|(first, ..)| first.addr == symbol.addr) {
                Some((_, _, names)) if names.contains(&description.name) => {}
                Some((_, _, names)) => names.push(description.name),
                None => places.push((symbol, description, vec![description.name])),
            }
        }
    }

    let mut functions = Vec::new();
    let mut untraceable = Vec::new();
    for (symbol, description, names) in places {
        match probe(elf, symbol, description) {
            Ok((entry, site)) => {
                let cookie = description.cookie(&site, family);
                functions.push(Function { names, cookie, entry, site });
            }
            Err(reason) => untraceable.push(Untraceable { names, reason }),
        }
    }
    (functions, untraceable)
}

fn probe(
    elf: &Elf,
    symbol: &ElfFunction,
    description: &Description,
) -> Result<(FileOffset, Site), UntraceableReason> {
    /// Enough for every allocator's entry; a function that is longer is scanned in part.
    const LONGEST_SCAN: u64 = 64 * 1024;
    /// Of a function whose size the symbol does not say, only the entry is looked at.
    const LONGEST_INSTRUCTION: u64 = 15;

    match symbol.kind {
        FunctionKind::Plain => {}
        FunctionKind::Indirect => return Err(UntraceableReason::Indirect),
    }
    let size_known = symbol.size > 0;
    let limit = if size_known { symbol.size.min(LONGEST_SCAN) } else { LONGEST_INSTRUCTION };
    let bytes = elf.code(symbol.addr, limit).ok_or(UntraceableReason::NotCode)?;
    let entry = elf.file_offset(symbol.addr).ok_or(UntraceableReason::NotCode)?;
    let site = sites::choose(&sites::Code {
        machine: elf.machine,
        bytes,
        whole: bytes.len() as u64 == symbol.size,
        entry,
        args: &description.args(),
    })?;
    Ok((entry, site))
}

#[cfg(test)]
mod tests;
