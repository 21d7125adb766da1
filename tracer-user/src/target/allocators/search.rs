//! The search for allocators in the objects of processes, each object once.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use super::symbols::{custom_symbols, known_symbols};
use super::{AllocatorError, AllocatorObject, Custom, Unreadable, probes};
use crate::target::elf::{Elf, ElfError};
use crate::target::mappings::{FileId, Mapping};
use crate::target::objects::{OpenError, open_in_root, open_mapped};
use crate::target::process::{Process, ProcessError};

/// Place of an object in the list of those that were found.
pub type ObjectIndex = usize;

/// The search for allocators, which may be repeated: objects come with `dlopen` and with other
/// processes.
#[derive(Debug, Default)]
pub struct Allocators {
    /// What the user describes beside the known allocators.
    custom: Vec<Custom>,
    /// What was looked at, and what was found in it.
    seen: FxHashMap<FileId, Seen>,
    /// What was looked at, or could not be.
    tried: FxHashSet<FileId>,
    objects: Vec<AllocatorObject>,
    searched: Vec<String>,
    unreadable: Vec<Unreadable>,
}

#[derive(Debug)]
struct Seen {
    /// Tells whether the file is still the same: inode numbers are given out again.
    stamp: Stamp,
    objects: Range<ObjectIndex>,
}

/// Size and time of the last change in seconds and nanoseconds.
type Stamp = (u64, i64, i64);

impl Allocators {
    /// A search for the known allocators and these.
    pub fn with(custom: Vec<Custom>) -> Self {
        Self { custom, ..Self::default() }
    }

    /// The allocators that this process maps now.
    ///
    /// # Errors
    /// When the process's memory map cannot be read.
    pub fn look(&mut self, process: &Process) -> Result<Vec<ObjectIndex>, ProcessError> {
        let mappings = process.mappings()?;
        let program_headers = process.auxv(libc::AT_PHDR)?;
        let program = program_headers.and_then(|addr| mappings.at(addr)).map(|at| at.file);
        let found = self.search_all(process, &mappings.list, program);
        process.check_alive()?;
        Ok(found)
    }

    /// The allocators among these mappings that are there no more. What is mapped still is left to
    /// [`Allocators::look`].
    ///
    /// # Errors
    /// When the process's memory map cannot be read.
    pub fn look_at_gone(
        &mut self,
        process: &Process,
        arrived: &[Mapping],
    ) -> Result<Vec<ObjectIndex>, ProcessError> {
        let now = process.mappings()?;
        let is_gone = |mapping: &&Mapping| !now.list.iter().any(|at| at.file == mapping.file);
        let gone: Vec<Mapping> = arrived.iter().filter(is_gone).cloned().collect();
        Ok(self.search_all(process, &gone, None))
    }

    /// Was a file of this number looked at before? Inode numbers are given out again, so no is
    /// certain and yes is not.
    pub fn has_tried(&self, file: FileId) -> bool {
        self.tried.contains(&file)
    }

    /// The allocators in a file that the process has not mapped yet, by its path as the process
    /// sees it. They can be probed before their first call.
    ///
    /// # Errors
    /// When it cannot be read, or has no function to probe.
    pub fn look_ahead(
        &mut self,
        process: &Process,
        path: &Path,
    ) -> Result<Vec<ObjectIndex>, AllocatorError> {
        let failed = |reason: String| AllocatorError::Library { path: path.to_owned(), reason };
        let (file, id) =
            open_in_root(process.shown_as(), path).map_err(|error| failed(error.to_string()))?;
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
        if self.objects[found.clone()].iter().all(|object| object.functions.is_empty()) {
            return Err(failed("it has no function of an allocator".to_owned()));
        }
        Ok(found.collect())
    }

    /// The allocators of this process, of which there must be one that hands out memory.
    ///
    /// # Errors
    /// When there is none, naming the objects that were searched.
    pub fn find(&mut self, process: &Process) -> Result<Vec<ObjectIndex>, AllocatorError> {
        let found = self.look(process)?;
        let hands_out = found.iter().any(|index| self.objects[*index].hands_out());
        if hands_out { Ok(found) } else { Err(self.not_found()) }
    }

    /// Everything that was found so far, in any process.
    pub fn objects(&self) -> &[AllocatorObject] {
        &self.objects
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

    fn search_all(
        &mut self,
        process: &Process,
        mappings: &[Mapping],
        program: Option<FileId>,
    ) -> Vec<ObjectIndex> {
        let mut found = Vec::new();
        let mut in_this_map = Vec::new();
        for mapping in mappings.iter().filter(|at| at.is_executable() && at.has_file()) {
            if in_this_map.contains(&mapping.file) {
                continue;
            }
            in_this_map.push(mapping.file);
            self.tried.insert(mapping.file);
            match self.search(process, mapping, program == Some(mapping.file)) {
                Ok(objects) => found.extend(objects),
                // Code in something else than an object, such as an archive of classes.
                Err(SearchError::Elf(ElfError::NotElf)) => {}
                Err(error) => {
                    let path = mapping.path.to_string_lossy().into_owned();
                    let it = Unreadable { path, reason: error.to_string() };
                    if !self.unreadable.contains(&it) {
                        self.unreadable.push(it);
                    }
                }
            }
        }
        found
    }

    fn search(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        is_program: bool,
    ) -> Result<Range<ObjectIndex>, SearchError> {
        self.search_file(&open_mapped(process.shown_as(), mapping)?, mapping, is_program)
    }

    /// The allocators in this file, which is mapped like this.
    pub(crate) fn search_file(
        &mut self,
        file: &File,
        mapping: &Mapping,
        is_program: bool,
    ) -> Result<Range<ObjectIndex>, SearchError> {
        let metadata = file.metadata().map_err(ElfError::Read)?;
        let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let begin = self.objects.len();
        if !metadata.is_file() {
            return Ok(begin..begin);
        }
        if let Some(seen) = self.seen.get(&mapping.file).filter(|seen| seen.stamp == stamp) {
            return Ok(seen.objects.clone());
        }
        // Also when it cannot be read: it is not looked at again.
        self.seen.insert(mapping.file, Seen { stamp, objects: begin..begin });
        self.searched.push(mapping.path.to_string_lossy().into_owned());
        let elf = Elf::open(file)?;
        let name = Path::new(&mapping.path).file_name().unwrap_or(&mapping.path).to_string_lossy();
        let known = known_symbols(&elf, is_program)?;
        let mut sets = vec![(name.clone().into_owned(), known)];
        for custom in self.custom.iter().filter(|custom| custom.is_in(&name)) {
            sets.push((custom.name.clone(), custom_symbols(&elf, custom)?));
        }
        for (family_name, described) in sets {
            let family = u16::try_from(self.objects.len()).unwrap_or(u16::MAX);
            let (functions, untraceable) = probes(&elf, &described, family);
            if functions.is_empty() && untraceable.is_empty() {
                continue;
            }
            self.objects.push(AllocatorObject {
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
        let objects = begin..self.objects.len();
        self.seen.insert(mapping.file, Seen { stamp, objects: objects.clone() });
        Ok(objects)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Elf(#[from] ElfError),
}
