//! From addresses in the target to names.
//!
//! In two steps, because the target changes meanwhile: an address is bound to an object
//! and a place in it when its stack is first seen ([`Binder`]), while the mapping is there;
//! names are looked up later and together ([`symbolize`]), from the same file that was
//! mapped, whether or not it still has a path.

mod binder;
pub(crate) mod by_time;
mod compressed;
pub(crate) mod debug_files;
mod debug_info;
pub(crate) mod demangle;
pub(crate) mod generated;
pub(crate) mod jitdump;
mod linkage;
pub(crate) mod mini_debug;
pub(crate) mod object_names;
pub(crate) mod perf_map;
mod roots;
mod scopes;
mod sections;
pub(crate) mod split;
mod strings;
mod vdso;

use rustc_hash::FxHashMap;

pub use self::binder::{Binder, Bound, Object, ObjectId, ObjectKind};

/// One function at an address. An address has several when functions were inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its demangled name; `None` when nothing names it.
    pub function: Option<String>,
    /// Path of its object as the target's memory map shows it, or a name like `[vdso]`.
    pub object: Option<String>,
    /// Place of the call: address in the object, where there is an object, else `address`.
    pub offset: u64,
    /// Address of the call in the target: the return address minus one.
    pub address: u64,
    /// Source file of the call.
    pub file: Option<String>,
    /// Line of the call; of generated code, where the function begins.
    pub line: Option<u32>,
    /// Was it inlined into the next frame?
    pub inlined: bool,
}

/// The frames of addresses.
#[derive(Debug, Default)]
pub struct Names {
    frames: FxHashMap<Bound, Vec<Frame>>,
}

impl Names {
    /// The functions at this address, the innermost inlined one first. Empty when the
    /// address was not among those symbolized, otherwise never.
    pub fn frames(&self, bound: Bound) -> &[Frame] {
        self.frames.get(&bound).map_or(&[], Vec::as_slice)
    }
}

/// Looks up the names of these addresses. One object is looked at after the other, so the
/// memory it takes is that of the largest one's debug information.
pub fn symbolize(binder: &Binder, bounds: impl IntoIterator<Item = Bound>) -> Names {
    let mut by_object: FxHashMap<Option<ObjectId>, Vec<Bound>> = FxHashMap::default();
    let mut frames: FxHashMap<Bound, Vec<Frame>> = FxHashMap::default();
    for bound in bounds {
        // The entry is filled below; it keeps what comes twice from being looked up twice.
        if frames.insert(bound, Vec::new()).is_none() {
            by_object.entry(bound.object).or_default().push(bound);
        }
    }

    let mut without_object = Vec::new();
    for (id, bounds) in by_object {
        let object = id.and_then(|id| binder.object(id));
        match object.and_then(|object| object_names::lookup(object, &bounds)) {
            Some(names) => frames.extend(names),
            None => without_object.extend(bounds),
        }
    }

    let mut by_space: FxHashMap<Option<u64>, Vec<Bound>> = FxHashMap::default();
    for bound in without_object {
        by_space.entry(bound.space).or_default().push(bound);
    }
    for (space, bounds) in by_space {
        let tables = space.map(|space| binder.generated(space));
        let mut generated = tables.map(|tables| tables.lookup(&bounds)).unwrap_or_default();
        for bound in bounds {
            let mut frame = nameless(bound, bound.object.and_then(|id| binder.object(id)));
            if let Some(name) = generated.remove(&(bound.address, bound.seen)) {
                frame = Frame {
                    function: Some(name.function),
                    file: name.file,
                    line: name.line,
                    ..frame
                };
            }
            frames.insert(bound, vec![frame]);
        }
    }
    Names { frames }
}

/// What is known of an address without any symbol.
fn nameless(bound: Bound, object: Option<&Object>) -> Frame {
    Frame {
        function: None,
        object: object.map(|object| object.name.clone()).filter(|name| !name.is_empty()),
        offset: bound.offset,
        address: bound.address,
        file: None,
        line: None,
        inlined: false,
    }
}

#[cfg(test)]
mod tests;
