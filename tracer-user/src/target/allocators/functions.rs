//! What the functions of known allocators do, and where their arguments are.
//!
//! Function names say it all: an allocator that offers `malloc` under a prefix has the same
//! arguments as the C library's.

use std::borrow::Cow;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use tracer_common::cookie::{Cookie, Shape};

use crate::target::sites::Site;

/// What a function of this name does, and where its arguments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name in the symbol table.
    pub name: Cow<'static, str>,
    /// What it does.
    pub shape: Shape,
    /// Which argument is the size in bytes, or of one element.
    pub size_arg: u8,
    /// Which argument is the number of elements.
    pub count_arg: u8,
    /// Which argument is the block, or where the block's address goes.
    pub ptr_arg: u8,
    /// May it throw an exception, or switch to another stack? Its return address must then stay
    /// what it is.
    pub throws: bool,
    /// Is the size an `int`?
    pub size_is_int: bool,
}

const fn describe(name: &'static str, shape: Shape, places: [u8; 3]) -> Description {
    let [size_arg, count_arg, ptr_arg] = places;
    let name = Cow::Borrowed(name);
    Description { name, shape, size_arg, count_arg, ptr_arg, throws: false, size_is_int: false }
}

/// The same, of a function that may throw.
const fn throwing(name: &'static str, shape: Shape, places: [u8; 3]) -> Description {
    let mut description = describe(name, shape, places);
    description.throws = true;
    description
}

/// The C library's allocator, with the place of size, count and pointer. A place that a
/// shape does not use is zero.
pub(super) const C: &[Description] = &[
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
    // jemalloc's own
    describe("mallocx", Shape::Alloc, [0, 0, 0]),
    describe("rallocx", Shape::Resize, [1, 0, 0]),
    describe("xallocx", Shape::ResizeInPlace, [1, 0, 0]),
    describe("dallocx", Shape::Free, [0, 0, 0]),
    describe("sdallocx", Shape::Free, [0, 0, 0]),
];

/// What is put before the names of [`C`].
const PREFIXES: &[&str] = &["_rjem_", "je_", "mi_", "tc_"];

/// Names of their own, of tcmalloc and mimalloc.
pub(super) const OTHERS: &[Description] = &[
    describe("tc_malloc_skip_new_handler", Shape::Alloc, [0, 0, 0]),
    throwing("tc_new", Shape::Alloc, [0, 0, 0]),
    throwing("tc_new_nothrow", Shape::Alloc, [0, 0, 0]),
    throwing("tc_new_aligned", Shape::Alloc, [0, 0, 0]),
    throwing("tc_new_aligned_nothrow", Shape::Alloc, [0, 0, 0]),
    throwing("tc_newarray", Shape::Alloc, [0, 0, 0]),
    throwing("tc_newarray_nothrow", Shape::Alloc, [0, 0, 0]),
    throwing("tc_newarray_aligned", Shape::Alloc, [0, 0, 0]),
    throwing("tc_newarray_aligned_nothrow", Shape::Alloc, [0, 0, 0]),
    describe("tc_delete", Shape::Free, [0, 0, 0]),
    describe("tc_delete_nothrow", Shape::Free, [0, 0, 0]),
    describe("tc_delete_sized", Shape::Free, [0, 0, 0]),
    describe("tc_delete_aligned", Shape::Free, [0, 0, 0]),
    describe("tc_delete_aligned_nothrow", Shape::Free, [0, 0, 0]),
    describe("tc_delete_sized_aligned", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray_nothrow", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray_sized", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray_aligned", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray_aligned_nothrow", Shape::Free, [0, 0, 0]),
    describe("tc_deletearray_sized_aligned", Shape::Free, [0, 0, 0]),
    describe("mi_free_size", Shape::Free, [0, 0, 0]),
    describe("mi_free_size_aligned", Shape::Free, [0, 0, 0]),
    describe("mi_free_aligned", Shape::Free, [0, 0, 0]),
    describe("mi_malloc_small", Shape::Alloc, [0, 0, 0]),
    describe("mi_zalloc_small", Shape::Alloc, [0, 0, 0]),
    describe("mi_zalloc", Shape::Alloc, [0, 0, 0]),
    describe("mi_mallocn", Shape::AllocArray, [1, 0, 0]),
    describe("mi_malloc_aligned", Shape::Alloc, [0, 0, 0]),
    describe("mi_malloc_aligned_at", Shape::Alloc, [0, 0, 0]),
    describe("mi_zalloc_aligned", Shape::Alloc, [0, 0, 0]),
    describe("mi_zalloc_aligned_at", Shape::Alloc, [0, 0, 0]),
    describe("mi_calloc_aligned", Shape::AllocArray, [1, 0, 0]),
    describe("mi_calloc_aligned_at", Shape::AllocArray, [1, 0, 0]),
    describe("mi_reallocn", Shape::ResizeArray, [2, 1, 0]),
    describe("mi_reallocf", Shape::Resize, [1, 0, 0]),
    describe("mi_rezalloc", Shape::Resize, [1, 0, 0]),
    describe("mi_recalloc", Shape::ResizeArray, [2, 1, 0]),
    describe("mi_expand", Shape::Resize, [1, 0, 0]),
    describe("mi_realloc_aligned", Shape::Resize, [1, 0, 0]),
    describe("mi_realloc_aligned_at", Shape::Resize, [1, 0, 0]),
    describe("mi_rezalloc_aligned", Shape::Resize, [1, 0, 0]),
    describe("mi_rezalloc_aligned_at", Shape::Resize, [1, 0, 0]),
    describe("mi_recalloc_aligned", Shape::ResizeArray, [2, 1, 0]),
    describe("mi_recalloc_aligned_at", Shape::ResizeArray, [2, 1, 0]),
    describe("mi_heap_malloc", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_malloc_small", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_zalloc", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_calloc", Shape::AllocArray, [2, 1, 0]),
    describe("mi_heap_mallocn", Shape::AllocArray, [2, 1, 0]),
    describe("mi_heap_malloc_aligned", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_malloc_aligned_at", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_zalloc_aligned", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_zalloc_aligned_at", Shape::Alloc, [1, 0, 0]),
    describe("mi_heap_calloc_aligned", Shape::AllocArray, [2, 1, 0]),
    describe("mi_heap_calloc_aligned_at", Shape::AllocArray, [2, 1, 0]),
    describe("mi_heap_realloc", Shape::Resize, [2, 0, 1]),
    describe("mi_heap_reallocn", Shape::ResizeArray, [3, 2, 1]),
    describe("mi_heap_reallocf", Shape::Resize, [2, 0, 1]),
    describe("mi_heap_rezalloc", Shape::Resize, [2, 0, 1]),
    describe("mi_heap_recalloc", Shape::ResizeArray, [3, 2, 1]),
    describe("mi_heap_realloc_aligned", Shape::Resize, [2, 0, 1]),
    describe("mi_heap_rezalloc_aligned", Shape::Resize, [2, 0, 1]),
    throwing("mi_new", Shape::Alloc, [0, 0, 0]),
    throwing("mi_new_nothrow", Shape::Alloc, [0, 0, 0]),
    throwing("mi_new_aligned", Shape::Alloc, [0, 0, 0]),
    throwing("mi_new_aligned_nothrow", Shape::Alloc, [0, 0, 0]),
    throwing("mi_new_n", Shape::AllocArray, [1, 0, 0]),
    throwing("mi_new_realloc", Shape::Resize, [1, 0, 0]),
    throwing("mi_new_reallocn", Shape::ResizeArray, [2, 1, 0]),
    throwing("mi_heap_alloc_new", Shape::Alloc, [1, 0, 0]),
    throwing("mi_heap_alloc_new_n", Shape::AllocArray, [2, 1, 0]),
];

/// Every form of `operator new`, by the start of its mangled name.
const NEW: Description = throwing("operator new", Shape::Alloc, [0, 0, 0]);
/// Every form of `operator delete`.
const DELETE: Description = describe("operator delete", Shape::Free, [0, 0, 0]);
/// Called before anything is thrown.
const THROW: Description = describe("__cxa_allocate_exception", Shape::Throw, [0, 0, 0]);

/// Is it a form of `operator new` or `operator delete`?
pub(super) fn is_operator(name: &str) -> bool {
    is_new(name) || is_delete(name)
}

/// `void *(size_t, …)`, single and array, on 64-bit targets.
fn is_new(name: &str) -> bool {
    const FORMS: [&str; 4] =
        ["", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t"];
    let form = name.strip_prefix("_Znwm").or_else(|| name.strip_prefix("_Znam"));
    form.is_some_and(|form| FORMS.contains(&form))
}

/// `void (void *, …)`, single and array.
fn is_delete(name: &str) -> bool {
    const FORMS: [&str; 6] = [
        "",
        "m",
        "RKSt9nothrow_t",
        "St11align_val_t",
        "mSt11align_val_t",
        "St11align_val_tRKSt9nothrow_t",
    ];
    let form = name.strip_prefix("_ZdlPv").or_else(|| name.strip_prefix("_ZdaPv"));
    form.is_some_and(|form| FORMS.contains(&form))
}

/// Is it a `malloc`, under whatever prefix?
pub(super) fn is_malloc(name: &str) -> bool {
    bare(name) == "malloc"
}

/// Does its name say which allocator it belongs to?
pub(super) fn is_prefixed(name: &str) -> bool {
    bare(name) != name
}

/// Of several names of one place, the one with the lowest rank is what people know it by.
pub(super) fn rank(name: &str) -> usize {
    C.iter().position(|description| description.name == name).unwrap_or(C.len())
}

fn bare(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// Descriptions by name. A large object has a million symbols, each of which is looked up.
type ByName = FxHashMap<&'static str, &'static Description>;

static C_BY_NAME: LazyLock<ByName> = LazyLock::new(|| by_name(C));
static OTHERS_BY_NAME: LazyLock<ByName> = LazyLock::new(|| by_name(OTHERS));

fn by_name(descriptions: &'static [Description]) -> ByName {
    let entry = |description: &'static Description| (&*description.name, description);
    descriptions.iter().map(entry).collect()
}

fn find(by_name: &ByName, name: &str) -> Option<&'static Description> {
    by_name.get(name).copied()
}

impl Description {
    /// What a function of this name does, when it is a known allocator's.
    pub fn of(name: &str) -> Option<Self> {
        let known = if let Some(other) = find(&OTHERS_BY_NAME, name) {
            other
        } else if is_new(name) {
            &NEW
        } else if is_delete(name) {
            &DELETE
        } else if name == THROW.name {
            &THROW
        } else {
            find(&C_BY_NAME, bare(name))?
        };
        Some(Self { name: Cow::Owned(name.to_owned()), ..known.clone() })
    }

    /// The arguments that its shape reads.
    pub(super) fn args(&self) -> Vec<u8> {
        self.places().into_iter().flatten().collect()
    }

    /// Size, count and pointer, where its shape reads them.
    fn places(&self) -> [Option<u8>; 3] {
        let (size, count, ptr) = (Some(self.size_arg), Some(self.count_arg), Some(self.ptr_arg));
        match self.shape {
            Shape::Throw => [None, None, None],
            Shape::Free | Shape::FreeCall => [None, None, ptr],
            Shape::Alloc => [size, None, None],
            Shape::AllocArray => [size, count, None],
            Shape::AllocOut | Shape::Resize | Shape::ResizeInPlace => [size, None, ptr],
            Shape::ResizeArray | Shape::AllocOutArray => [size, count, ptr],
        }
    }

    /// The cookie of a probe at `site`, where the arguments may have moved.
    pub(super) fn cookie(&self, site: &Site, family: u16) -> Cookie {
        let [size_arg, count_arg, ptr_arg] = self
            .places()
            .map(|argument| argument.map_or(0, |argument| site.arg_places[usize::from(argument)]));
        Cookie {
            shape: self.shape,
            size_arg,
            count_arg,
            ptr_arg,
            family,
            throws: self.throws,
            size_is_int: self.size_is_int,
        }
    }
}
