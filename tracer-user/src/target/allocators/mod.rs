//! Which objects of the process define an allocator, and where to probe it.
//!
//! An object is an allocator because it defines the functions, never because of its name.
//! Every one that does is probed: which of them the process's calls reach is for its
//! loader to know, and the outermost call of a thread counts once.

mod custom;
mod error;
mod functions;
mod search;
mod symbols;

use std::ffi::OsString;
use std::fs::File;

use tracer_common::cookie::{Cookie, Shape};

pub use self::custom::{Custom, CustomError};
pub use self::error::{AllocatorError, Unreadable};
pub use self::functions::Description;
pub use self::search::{Allocators, ObjectIndex};
use self::symbols::Described;
use super::elf::{Elf, FileOffset, Function as ElfFunction, FunctionKind};
use super::mappings::FileId;
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
