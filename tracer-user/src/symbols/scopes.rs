//! Whole names of functions that debug information has no linkage name of.
//!
//! Compilers leave it out for what no other unit can call: functions in anonymous namespaces, members of
//! types in them, lambdas. What is left is the name as it is in the source, `step`, and which `step` it is,
//! the entries say that it lies in.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugInfoOffset, DwTag, Dwarf, DwarfFileType, Unit, UnitHeader,
    UnitOffset, UnitRef, constants,
};
use rustc_hash::FxHashMap;

use super::demangle::{Demangler, LONGEST};
use super::sections::Reader;

/// Entries that lead from one that has code to the one that is declared in its scope. Compilers need three.
const MOST_STEPS: usize = 16;
/// Scopes within each other. What is deeper counts as part of the last one.
const DEEPEST: usize = 64;

/// An entry of debug information.
#[derive(Clone, Copy)]
pub(super) struct Place<'u, 'a> {
    pub(super) unit: UnitRef<'u, Reader<'a>>,
    pub(super) entry: UnitOffset,
}

/// The id of the split unit that it is, and where it begins.
type UnitKey = (Option<u64>, usize);

impl Place<'_, '_> {
    fn unit_key(&self) -> UnitKey {
        let start = self.unit.header.debug_info_offset().map_or(usize::MAX, |start| start.0);
        (self.unit.dwo_id.map(|id| id.0), start)
    }
}

/// The units of an object, by where they begin: entries may refer to another unit's.
pub(super) struct Units<'a> {
    dwarf: Arc<Dwarf<Reader<'a>>>,
    list: OnceCell<Vec<Listed<'a>>>,
}

struct Listed<'a> {
    start: usize,
    header: UnitHeader<Reader<'a>>,
    unit: OnceCell<Option<Box<Unit<Reader<'a>>>>>,
}

impl<'a> Units<'a> {
    pub(super) const fn of(dwarf: Arc<Dwarf<Reader<'a>>>) -> Self {
        Self { dwarf, list: OnceCell::new() }
    }

    fn entry(&self, at: DebugInfoOffset) -> Option<Place<'_, 'a>> {
        let list = self.list.get_or_init(|| {
            let mut list = Vec::new();
            let mut headers = self.dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if let Some(start) = header.debug_info_offset() {
                    list.push(Listed { start: start.0, header, unit: OnceCell::new() });
                }
            }
            list
        });
        let index = list.partition_point(|unit| unit.start <= at.0).checked_sub(1)?;
        let listed = &list[index];
        let unit = listed.unit.get_or_init(|| self.dwarf.unit(listed.header).ok().map(Box::new));
        let unit = UnitRef::new(&self.dwarf, unit.as_deref()?);
        Some(Place { unit, entry: at.to_unit_offset(&unit.header)? })
    }
}

/// What an entry says of itself.
struct Said<'a> {
    tag: DwTag,
    name: Option<Reader<'a>>,
    linkage_name: Option<Reader<'a>>,
    /// Another entry that says the rest.
    rest: Option<AttributeValue<Reader<'a>>>,
    is_elsewhere: bool,
}

impl<'a> Said<'a> {
    fn at(place: Place<'_, 'a>) -> Option<Self> {
        let Place { unit, entry } = place;
        let mut entries = unit.entries_raw(Some(entry)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let mut said = Self {
            tag: abbreviation.tag(),
            name: None,
            linkage_name: None,
            rest: None,
            is_elsewhere: false,
        };
        for attribute in abbreviation.attributes() {
            let attribute = entries.read_attribute(*attribute).ok()?;
            match attribute.name() {
                constants::DW_AT_name => said.name = unit.attr_string(attribute.value()).ok(),
                constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => {
                    said.linkage_name = unit.attr_string(attribute.value()).ok();
                }
                constants::DW_AT_abstract_origin | constants::DW_AT_specification => {
                    said.rest = Some(attribute.value());
                }
                constants::DW_AT_signature => said.is_elsewhere = true,
                _ => {}
            }
        }
        Some(said)
    }
}

/// A namespace, type or function that others lie in.
#[derive(Clone, Copy)]
struct Scope {
    start: u32,
    end: u32,
    /// The place of the one that it lies in.
    parent: Option<u32>,
}

/// Scopes of the units that were asked for.
pub(super) struct Scopes<'u, 'a> {
    units: &'u Units<'a>,
    /// Of each unit, in the order of their beginnings. None where it is not of C++, or broken.
    of_units: FxHashMap<UnitKey, Rc<[Scope]>>,
    /// What precedes the names of what lies in a scope, and of its operator for calls.
    prefixes: FxHashMap<(UnitKey, u32, bool), Option<Rc<str>>>,
}

impl<'u, 'a> Scopes<'u, 'a> {
    pub(super) fn of(units: &'u Units<'a>) -> Self {
        Self { units, of_units: FxHashMap::default(), prefixes: FxHashMap::default() }
    }

    /// The name of a function of C++ with what it lies in. `None` where that is not known.
    pub(super) fn name(&mut self, place: Place<'u, 'a>, names: &mut Demangler) -> Option<String> {
        self.name_within(place, DEEPEST, false, names)
    }

    /// The same of any scope, where so many more may be gone through; `is_called` is a type that has an
    /// operator for calls in it.
    fn name_within(
        &mut self,
        mut place: Place<'u, 'a>,
        n_left: usize,
        is_called: bool,
        names: &mut Demangler,
    ) -> Option<String> {
        let n_left = n_left.checked_sub(1)?;
        let mut said = Said::at(place)?;
        for _ in 0..MOST_STEPS {
            let Some(rest) = said.rest.take() else { break };
            place = self.referred(place, rest)?;
            let more = Said::at(place)?;
            said = Said {
                name: said.name.or(more.name),
                linkage_name: said.linkage_name.or(more.linkage_name),
                is_elsewhere: said.is_elsewhere || more.is_elsewhere,
                ..more
            };
        }
        if let Some(symbol) = said.linkage_name {
            return Some(names.name(&symbol.to_string_lossy()));
        }
        let own = match (said.name, said.tag) {
            (Some(name), _) => name.to_string_lossy(),
            (None, constants::DW_TAG_namespace) => "(anonymous namespace)".into(),
            (None, constants::DW_TAG_subprogram) => return None,
            _ if said.is_elsewhere => return None,
            _ if is_called => "{lambda}".into(),
            _ => "{unnamed type}".into(),
        };
        let is_call = own == "operator()";
        let name = format!("{}{own}", self.prefix(place, n_left, is_call, names)?);
        (name.len() <= LONGEST).then_some(name)
    }

    fn referred(
        &self,
        from: Place<'u, 'a>,
        reference: AttributeValue<Reader<'a>>,
    ) -> Option<Place<'u, 'a>> {
        match reference {
            AttributeValue::UnitRef(entry) => Some(Place { entry, ..from }),
            AttributeValue::DebugInfoRef(at)
                if from.unit.dwarf.file_type == DwarfFileType::Main =>
            {
                self.units.entry(at)
            }
            _ => None,
        }
    }

    /// What precedes the name of this entry.
    fn prefix(
        &mut self,
        place: Place<'u, 'a>,
        n_left: usize,
        is_call: bool,
        names: &mut Demangler,
    ) -> Option<Rc<str>> {
        let unit = place.unit_key();
        let scopes = self.of_units.entry(unit).or_insert_with(|| scopes_of(place.unit).into());
        let Some(start) = innermost(scopes, place.entry) else { return Some("".into()) };
        if let Some(known) = self.prefixes.get(&(unit, start, is_call)) {
            return known.clone();
        }
        let scope = Place { entry: UnitOffset(start as usize), ..place };
        let name = self.name_within(scope, n_left, is_call, names);
        let prefix = name.map(|name| format!("{name}::").into());
        self.prefixes.insert((unit, start, is_call), prefix.clone());
        prefix
    }
}

/// Where the innermost of these begins that this entry lies in.
fn innermost(scopes: &[Scope], entry: UnitOffset) -> Option<u32> {
    let entry = u32::try_from(entry.0).ok()?;
    let mut at = scopes.partition_point(|scope| scope.start < entry).checked_sub(1)?;
    while scopes[at].end <= entry {
        at = scopes[at].parent? as usize;
    }
    Some(scopes[at].start)
}

fn scopes_of(unit: UnitRef<'_, Reader<'_>>) -> Vec<Scope> {
    if is_cpp(&unit.header, &unit.abbreviations) {
        read_scopes(unit).unwrap_or_default()
    } else {
        Vec::new()
    }
}

fn read_scopes(unit: UnitRef<'_, Reader<'_>>) -> Option<Vec<Scope>> {
    let mut scopes: Vec<Scope> = Vec::new();
    // How deep they lie, and where they are in the list.
    let mut open: Vec<(isize, u32)> = Vec::new();
    let mut entries = unit.entries_raw(None).ok()?;
    while !entries.is_empty() {
        let (start, depth) = (u32::try_from(entries.next_offset().0).ok()?, entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
        entries.skip_attributes(abbreviation.attributes()).ok()?;
        while let Some((_, at)) = open.pop_if(|(other, _)| depth <= *other) {
            scopes[at as usize].end = start;
        }
        if abbreviation.has_children() && is_scope(abbreviation.tag()) && open.len() < DEEPEST {
            let parent = open.last().map(|(_, at)| *at);
            open.push((depth, u32::try_from(scopes.len()).ok()?));
            scopes.push(Scope { start, end: u32::MAX, parent });
        }
    }
    Some(scopes)
}

const fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        constants::DW_TAG_namespace
            | constants::DW_TAG_class_type
            | constants::DW_TAG_structure_type
            | constants::DW_TAG_union_type
            | constants::DW_TAG_subprogram
    )
}

/// Is this unit of C++?
pub(super) fn is_cpp(header: &UnitHeader<Reader<'_>>, abbreviations: &Abbreviations) -> bool {
    let root = header.entry(abbreviations, header.root_offset());
    let language = root.ok().and_then(|root| root.attr_value(constants::DW_AT_language));
    matches!(
        language,
        Some(AttributeValue::Language(
            constants::DW_LANG_C_plus_plus
                | constants::DW_LANG_C_plus_plus_03
                | constants::DW_LANG_C_plus_plus_11
                | constants::DW_LANG_C_plus_plus_14
                | constants::DW_LANG_C_plus_plus_17
                | constants::DW_LANG_C_plus_plus_20
                | constants::DW_LANG_ObjC_plus_plus
        ))
    )
}
