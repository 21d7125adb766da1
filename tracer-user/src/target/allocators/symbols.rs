//! Which symbols of an object are functions of an allocator.

use super::Custom;
use super::functions::{self, Description};
use crate::target::elf::{Elf, ElfError, Function as ElfFunction, Table};

/// Functions that continue on another stack. An allocator beside one of them may be left in the
/// middle of a call.
const STACK_SWITCHES: &[&str] = &[
    "swapcontext",
    "setcontext",
    "jump_fcontext",
    "ontop_fcontext",
    "bthread_jump_fcontext",
    "co_switch",
];

/// The C library itself has them for others; what it defines does not use them.
fn is_c_library(elf: &Elf) -> Result<bool, ElfError> {
    let start = |name: &str| name == "__libc_start_main";
    Ok(!elf.functions(Table::Dynamic, start)?.is_empty())
}

/// A symbol, and what a function of its name does.
pub(super) type Described = (ElfFunction, Description);

/// The symbols of an object that are a known allocator's functions.
pub(super) fn known_symbols(elf: &Elf, is_program: bool) -> Result<Vec<Described>, ElfError> {
    let is_described = |name: &str| Description::of(name).is_some();
    let mut symbols = elf.functions(Table::Dynamic, is_described)?;
    let everything = elf.functions(Table::Full, is_described)?;
    if is_program || elf.is_program {
        symbols.extend(everything);
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
    } else {
        // An allocator that a library keeps to itself has a name that nothing else has.
        symbols
            .extend(everything.into_iter().filter(|symbol| functions::is_prefixed(&symbol.name)));
    }
    // The usual `operator new` calls `malloc`, which is enough. One that stands beside the
    // `malloc` of its object may hand out memory by itself.
    let has_malloc = symbols.iter().any(|symbol| functions::is_malloc(&symbol.name));
    let mut described: Vec<Described> = symbols
        .into_iter()
        .filter(|symbol| has_malloc || !functions::is_operator(&symbol.name))
        .filter_map(|symbol| Description::of(&symbol.name).map(|what| (symbol, what)))
        .collect();
    described.sort_by_key(|(symbol, _)| functions::rank(&symbol.name));
    // The kernel forgets a replaced return address when a call on a higher stack follows, and
    // ends the target when it returns there after all (SIGILL).
    if has_malloc && elf.names_any(STACK_SWITCHES)? && !is_c_library(elf)? {
        for (_, what) in described.iter_mut().filter(|(_, what)| what.shape.returns_memory()) {
            what.throws = true;
        }
    }
    Ok(described)
}

/// The symbols of an object that the user describes. Whoever names a function means it,
/// wherever it is.
pub(super) fn custom_symbols(elf: &Elf, custom: &Custom) -> Result<Vec<Described>, ElfError> {
    let mut described = Vec::new();
    for table in [Table::Dynamic, Table::Full] {
        for symbol in elf.functions(table, |name| custom.function(name).is_some())? {
            let what = custom.function(&symbol.name).cloned();
            described.extend(what.map(|what| (symbol, what)));
        }
    }
    Ok(described)
}
