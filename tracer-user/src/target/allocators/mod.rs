//! Which objects of the process define an allocator, and where to probe it.
//!
//! An object is an allocator because it defines the functions, never because of its name.
//! Every one that does is probed: which of them the process's calls reach is for its
//! loader to know, and the outermost call of a thread counts once.

mod custom;
mod error;
mod functions;
mod symbols;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustc_hash::FxHashMap;
use tracer_common::cookie::{Cookie, Shape};

pub use self::custom::{Custom, CustomError};
pub use self::error::{AllocatorError, Unreadable};
pub use self::functions::Description;
use self::symbols::{Described, custom_symbols, known_symbols};
use super::elf::{Elf, ElfError, FileOffset, Function as ElfFunction, FunctionKind};
use super::mappings::{FileId, Mapping};
use super::objects::{OpenError, open_in_root, open_mapped};
use super::process::{Process, ProcessError};
use super::sites::{self, Site, SiteError};

/// A function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its names; several when one place has several.
    pub names: Vec<String>,
    /// What the probe has to know.
    pub cookie: Cookie,
    /// Where it starts in the object's file.
    pub entry: FileOffset,
    /// Where to probe it.
    pub site: Site,
    /// Its return instructions, where those are probed instead of the return itself.
    pub returns: Vec<FileOffset>,
}

/// A function that is there and cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untraceable {
    /// Its names.
    pub names: Vec<String>,
    /// What it does.
    pub shape: Shape,
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

impl AllocatorObject {
    /// Names of all its functions, probed or not.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let probed = self.functions.iter().flat_map(|function| &function.names);
        let others = self.untraceable.iter().flat_map(|function| &function.names);
        probed.chain(others).map(String::as_str)
    }

    /// Names of the functions through which blocks pass unseen.
    pub fn blind_spots(&self) -> impl Iterator<Item = String> {
        let passes = self.untraceable.iter().filter(|function| function.shape != Shape::Throw);
        passes.map(|function| function.names.join("="))
    }

    /// Does it hand out memory? One that does not only makes exceptions.
    pub fn hands_out(&self) -> bool {
        self.functions.iter().any(|function| function.cookie.shape.returns_memory())
    }
}

/// The search for allocators, which may be repeated: objects come with `dlopen`.
#[derive(Debug, Default)]
pub struct Allocators {
    /// What the user describes beside the known allocators.
    custom: Vec<Custom>,
    /// What was looked at, with a mark of its content: inode numbers are given out again.
    seen: FxHashMap<FileId, Stamp>,
    n_families: u16,
    searched: Vec<String>,
    unreadable: Vec<Unreadable>,
}

/// Size and time of the last change in seconds and nanoseconds.
type Stamp = (u64, i64, i64);

impl Allocators {
    /// A search for the known allocators and these.
    pub fn with(custom: Vec<Custom>) -> Self {
        Self { custom, ..Self::default() }
    }

    /// The allocators of this process that no earlier call has returned.
    ///
    /// # Errors
    /// When the process's memory map cannot be read.
    pub fn find_new(&mut self, process: &Process) -> Result<Vec<AllocatorObject>, ProcessError> {
        let mappings = process.mappings()?;
        let program_headers = process.auxv(libc::AT_PHDR)?;
        let program = program_headers.and_then(|addr| mappings.at(addr)).map(|at| at.file);
        let found = self.search_all(process, &mappings.list, program);
        process.check_alive()?;
        Ok(found)
    }

    /// The allocators among these mappings that are there no more, and that no earlier call has
    /// returned. What is mapped still is left to [`Allocators::find_new`].
    ///
    /// # Errors
    /// When the process's memory map cannot be read.
    pub fn find_gone(
        &mut self,
        process: &Process,
        arrived: &[Mapping],
    ) -> Result<Vec<AllocatorObject>, ProcessError> {
        let now = process.mappings()?;
        let is_gone = |mapping: &&Mapping| !now.list.iter().any(|at| at.file == mapping.file);
        let gone: Vec<Mapping> = arrived.iter().filter(is_gone).cloned().collect();
        Ok(self.search_all(process, &gone, None))
    }

    /// The allocators in a file that the process has not mapped yet, by its path as the process
    /// sees it. They can be probed before their first call.
    ///
    /// # Errors
    /// When it cannot be read, or has no function to probe.
    pub fn find_ahead(
        &mut self,
        process: &Process,
        path: &Path,
    ) -> Result<Vec<AllocatorObject>, AllocatorError> {
        let failed = |reason: String| AllocatorError::Library { path: path.to_owned(), reason };
        let (file, id) =
            open_in_root(process.pid, path).map_err(|error| failed(error.to_string()))?;
        // Mapped nowhere: only the name and the file are looked at.
        let mapping = Mapping {
            start: 0,
            end: 0,
            perms: *b"r-xp",
            offset: 0,
            file: id,
            path: path.into(),
            deleted: false,
        };
        let found = self.search_file(&file, &mapping, false);
        let found = found.map_err(|error| failed(error.to_string()))?;
        if found.iter().all(|object| object.functions.is_empty()) {
            return Err(failed("it has no function of an allocator".to_owned()));
        }
        Ok(found)
    }

    fn search_all(
        &mut self,
        process: &Process,
        mappings: &[Mapping],
        program: Option<FileId>,
    ) -> Vec<AllocatorObject> {
        let mut found = Vec::new();
        let mut in_this_map = Vec::new();
        for mapping in mappings.iter().filter(|at| at.is_executable() && at.has_file()) {
            if in_this_map.contains(&mapping.file) {
                continue;
            }
            in_this_map.push(mapping.file);
            let name = mapping.path.to_string_lossy();
            match self.search(process, mapping, program == Some(mapping.file)) {
                Ok(objects) => found.extend(objects),
                // Code in something else than an object, such as an archive of classes.
                Err(SearchError::Elf(ElfError::NotElf)) => {}
                Err(error) => self
                    .unreadable
                    .push(Unreadable { path: name.into_owned(), reason: error.to_string() }),
            }
        }
        found
    }

    /// The allocators of this process, of which there must be one that hands out memory.
    ///
    /// # Errors
    /// When there is none, naming the objects that were searched.
    pub fn find(&mut self, process: &Process) -> Result<Vec<AllocatorObject>, AllocatorError> {
        let found = self.find_new(process)?;
        if found.iter().any(AllocatorObject::hands_out) { Ok(found) } else { Err(self.not_found()) }
    }

    /// That no search has found an allocator, with the objects it looked at.
    pub fn not_found(&self) -> AllocatorError {
        AllocatorError::None {
            searched: self.searched.clone(),
            unreadable: self.unreadable.clone(),
        }
    }

    /// What the user describes beside the known allocators.
    pub fn custom(&self) -> &[Custom] {
        &self.custom
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
    ) -> Result<Vec<AllocatorObject>, SearchError> {
        self.search_file(&open_mapped(process.pid, mapping)?, mapping, is_program)
    }

    fn search_file(
        &mut self,
        file: &File,
        mapping: &Mapping,
        is_program: bool,
    ) -> Result<Vec<AllocatorObject>, SearchError> {
        let metadata = file.metadata().map_err(ElfError::Read)?;
        let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if !metadata.is_file() || self.seen.insert(mapping.file, stamp) == Some(stamp) {
            return Ok(Vec::new());
        }
        self.searched.push(mapping.path.to_string_lossy().into_owned());
        let elf = Elf::open(file)?;
        let name = Path::new(&mapping.path).file_name().unwrap_or(&mapping.path).to_string_lossy();
        let known = known_symbols(&elf, is_program)?;
        let mut sets = vec![(name.clone().into_owned(), known)];
        for custom in self.custom.iter().filter(|custom| custom.is_in(&name)) {
            sets.push((custom.name.clone(), custom_symbols(&elf, custom)?));
        }
        let mut objects = Vec::new();
        for (family_name, described) in sets {
            let family = self.n_families;
            let (functions, untraceable) = probes(&elf, &described, family);
            if functions.is_empty() && untraceable.is_empty() {
                continue;
            }
            self.n_families += 1;
            objects.push(AllocatorObject {
                path: mapping.path.clone(),
                id: mapping.file,
                build_id: elf.build_id.clone(),
                family,
                family_name,
                functions,
                untraceable,
                file: file.try_clone().map_err(ElfError::Read)?,
            });
        }
        Ok(objects)
    }
}

#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// One probe for each place, whatever names it has: two names of one place are one call.
fn probes(elf: &Elf, described: &[Described], family: u16) -> (Vec<Function>, Vec<Untraceable>) {
    let mut places: Vec<(&ElfFunction, Description, Vec<String>)> = Vec::new();
    for (symbol, what) in described {
        match places.iter_mut().find(|(first, ..)| first.addr == symbol.addr) {
            Some((_, _, names)) if names.contains(&symbol.name) => {}
            Some((_, first, names)) => {
                first.throws |= what.throws;
                names.push(symbol.name.clone());
            }
            None => places.push((symbol, what.clone(), vec![symbol.name.clone()])),
        }
    }

    let mut functions = Vec::new();
    let mut untraceable = Vec::new();
    for (symbol, what, names) in places {
        match probe(elf, symbol, &what) {
            Ok((entry, site, returns)) => {
                let cookie = what.cookie(&site, family);
                functions.push(Function { names, cookie, entry, site, returns });
            }
            Err(reason) => untraceable.push(Untraceable { names, shape: what.shape, reason }),
        }
    }
    (functions, untraceable)
}

fn probe(
    elf: &Elf,
    symbol: &ElfFunction,
    what: &Description,
) -> Result<(FileOffset, Site, Vec<FileOffset>), UntraceableReason> {
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
        args: &what.args(),
    })?;
    let mut returns = Vec::new();
    if what.throws && what.shape.returns_memory() {
        // It may end in a jump to another object's allocator, which has its own probe.
        let is_probed = |name: &str| Description::of(name).is_some_and(|it| it.shape == what.shape);
        for addr in sites::returns(elf, symbol.addr, &is_probed)? {
            returns.push(elf.file_offset(addr).ok_or(UntraceableReason::NotCode)?);
        }
    }
    Ok((entry, site, returns))
}

#[cfg(test)]
mod tests;
