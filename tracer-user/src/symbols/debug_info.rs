//! Debug information that says more than the symbolizer reads of it: parts that lie in other files, and
//! what functions of C++ lie in that have no linkage name.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{AbbreviationsCacheStrategy, EndianSlice, SectionId, UnitOffset};

use super::Frame;
use super::demangle::Demangler;
use super::linkage::{Symbols, is_mangled};
use super::scopes::{self, Place, Scopes, Units};
use super::sections::{Reader, Sections, reader, sections};
use super::split::{self, Beside, Missing, PackageSections, Places};
use crate::target::elf::Elf;

/// What was found of some addresses.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The functions at each address, innermost first; empty where others must be asked.
    pub(super) frames: Vec<Vec<Frame>>,
    /// Files that would have told more.
    pub(super) missing: Missing,
}

/// Looks up the addresses of which there is more to say. `None` when there are none.
pub(super) fn found_at<'s>(
    elf: &Elf,
    places: &Places<'_>,
    symbols: &'s Symbols<'s>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> Option<Found> {
    // Bytes of the target that make the reader panic must not cost the measurement.
    let found = catch_unwind(AssertUnwindSafe(|| match more_in(elf) {
        More::Nothing => None,
        more => resolve(elf, more, places, symbols, addrs, demangler),
    }));
    found.ok().flatten()
}

/// Of which units there is more to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Nothing,
    Split,
    All,
}

/// Most objects have nothing, and are spared that all of their units are parsed once more.
fn more_in(elf: &Elf) -> More {
    // The addresses that the parts refer to.
    let may_be_split = elf.has_section(SectionId::DebugAddr.name());
    // What several objects have in common and was moved to another file is left to the symbolizer.
    let is_shared = [".gnu_debugaltlink", ".debug_sup"].iter().any(|name| elf.has_section(name));
    let wanted = [SectionId::DebugInfo, SectionId::DebugAbbrev];
    let sections = sections(elf, |id| wanted.contains(&id).then_some(id.name()));
    let mut dwarf = sections.borrow(|bytes| reader(bytes));
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let mut units = dwarf.units();
    let mut more = More::Nothing;
    while let Ok(Some(header)) = units.next() {
        if !is_shared
            && let Ok(abbreviations) = dwarf.abbreviations(&header)
            && scopes::is_cpp(&header, &abbreviations)
        {
            return More::All;
        }
        if may_be_split && split::is_skeleton(&dwarf, &header) {
            more = More::Split;
            if is_shared {
                break;
            }
        }
    }
    more
}

fn resolve<'s>(
    elf: &Elf,
    more: More,
    places: &Places<'_>,
    symbols: &'s Symbols<'s>,
    addrs: &[u64],
    demangler: &mut Demangler,
) -> Option<Found> {
    let main = sections(elf, |id| Some(id.name()));
    // The context refers to these in the end, so they must outlive it.
    let (packages, parts): (Vec<Elf>, BTreeMap<u64, Elf>);
    let (of_packages, of_parts): (Vec<PackageSections<'_>>, BTreeMap<u64, Sections<'_>>);
    let mut beside = Beside::default();

    let mut dwarf = main.borrow(|bytes| reader(bytes));
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let dwarf = Arc::new(dwarf);
    let context = Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?;
    let (wanted, is_split) = split::wanted(&context, addrs);
    if wanted.is_empty() && more == More::Split {
        return None;
    }
    let mut missing = Missing::default();
    if !wanted.is_empty() {
        packages = split::packages(places);
        of_packages = packages.iter().filter_map(split::of_package).collect();
        let empty = EndianSlice::default();
        let units = of_packages.iter().map(|package| package.borrow(|bytes| reader(bytes), empty));
        beside.packages = units.filter_map(Result::ok).collect();

        let elsewhere: Vec<_> =
            wanted.iter().filter(|(id, _)| !beside.is_packaged(**id, &dwarf)).collect();
        parts = split::parts(&elsewhere, places);
        of_parts = parts.iter().map(|(id, elf)| (*id, split::of_part(elf))).collect();
        beside.parts = of_parts.iter().map(|(id, part)| (*id, part)).collect();
        let left: Vec<_> = elsewhere.iter().filter(|(id, _)| !parts.contains_key(id)).collect();
        let example = left.first().map(|(_, path)| path.to_path_buf()).unwrap_or_default();
        missing = Missing { count: left.len(), example };
    }

    let units = Units::of(dwarf);
    let scopes = Scopes::of(&units);
    let mut names = Names { context: &context, beside: &beside, symbols, scopes };
    let frames = addrs.iter().zip(is_split).map(|(addr, is_split)| {
        let is_asked = is_split || more == More::All;
        is_asked.then(|| names.frames_at(*addr, demangler)).flatten().unwrap_or_default()
    });
    Some(Found { frames: frames.collect(), missing })
}

/// What names the functions of one object.
struct Names<'u, 'a, 's> {
    context: &'u Context<Reader<'a>>,
    beside: &'u Beside<'a>,
    symbols: &'s Symbols<'s>,
    scopes: Scopes<'u, 'a>,
}

impl<'a> Names<'_, 'a, '_> {
    fn frames_at(&mut self, addr: u64, demangler: &mut Demangler) -> Option<Vec<Frame>> {
        let mut found = self.loaded(self.context.find_frames(addr)).ok()?;
        let mut frames = Vec::new();
        let mut entries = Vec::new();
        while let Some(frame) = found.next().ok()? {
            let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let at = frame.location.as_ref();
            frames.push(Frame {
                function: name.filter(|name| !name.is_empty()).map(Into::into),
                object: None,
                offset: 0,
                address: 0,
                file: at.and_then(|at| at.file).map(str::to_owned),
                line: at.and_then(|at| at.line),
                inlined: true,
            });
            entries.push(frame.dw_die_offset);
        }
        let outermost = frames.last_mut()?;
        outermost.inlined = false;
        // What is not named here may have a symbol.
        outermost.function.as_ref()?;
        for (frame, entry) in frames.iter_mut().zip(entries) {
            let Some(name) = frame.function.take() else { continue };
            let is_bare = !is_mangled(&name);
            let symbol = || self.symbols.whole(addr, &name, demangler);
            let whole = (is_bare && !frame.inlined).then(symbol).flatten();
            let entry = entry.filter(|_| is_bare && whole.is_none());
            let whole = whole.or_else(|| self.scoped(addr, entry?, demangler));
            frame.function = Some(whole.unwrap_or_else(|| demangler.name(&name)));
        }
        Some(frames)
    }

    /// The name of the function that has this entry, in the unit that this address is of.
    fn scoped(&mut self, addr: u64, entry: UnitOffset, names: &mut Demangler) -> Option<String> {
        let unit = self.loaded(self.context.find_dwarf_and_unit(addr))?;
        self.scopes.name(Place { unit, entry }, names)
    }

    /// What comes of this, with the parts that it asks for.
    fn loaded<L: LookupContinuation<Buf = Reader<'a>>>(
        &self,
        mut result: LookupResult<L>,
    ) -> L::Output {
        loop {
            match result {
                LookupResult::Output(output) => return output,
                LookupResult::Load { load: wanted, continuation } => {
                    result = continuation.resume(self.beside.load(&wanted).map(Arc::new));
                }
            }
        }
    }
}
