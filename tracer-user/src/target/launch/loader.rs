//! Programs that are started by way of their loader, as in `ld.so ./program`.
//!
//! The kernel then knows the loader alone: what it calls the entry is the loader's, and the program
//! comes as any library does, before the libraries that it needs.

use super::super::elf::Elf;
use super::super::mappings::{FileId, Mapping, Mappings};
use super::super::objects::open_mapped;
use super::super::process::{Process, ProcessError};

/// Variables that loaders offer to debuggers: those of glibc, and musl's.
const OF_LOADERS: [&str; 3] = ["_rtld_global", "_r_debug", "_dl_debug_addr"];

/// The loader's file, if that is what was started; `entry` is what the kernel calls the entry.
pub(super) fn started(process: &Process, entry: u64) -> Result<Option<FileId>, ProcessError> {
    let mappings = process.mappings()?;
    let loader = mappings.at(entry).filter(|mapping| {
        elf(process, mapping).is_some_and(|elf| {
            !elf.is_program && elf.variables(OF_LOADERS).iter().any(Option::is_some)
        })
    });
    Ok(loader.map(|mapping| mapping.file))
}

/// The entry of the program that this loader has mapped; `None` before it has.
pub(super) fn entry_of_program(
    process: &Process,
    loader: FileId,
) -> Result<Option<u64>, ProcessError> {
    let Mappings { list, .. } = process.mappings()?;
    let code = list.iter().filter(|mapping| mapping.is_executable() && mapping.has_file());
    // The first file is the program's: once that is mapped, nothing else is looked at.
    Ok(code.filter(|mapping| mapping.file != loader).find_map(|mapping| {
        let elf = elf(process, mapping)?;
        let within = elf.file_offset(elf.entry)?.0.checked_sub(mapping.offset)?;
        Some(mapping.start + within).filter(|entry| *entry < mapping.end)
    }))
}

fn elf(process: &Process, mapping: &Mapping) -> Option<Elf> {
    Elf::open(&open_mapped(process.pid, mapping).ok()?).ok()
}
