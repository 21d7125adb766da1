//! Allocators and resources that the user describes.
//!
//! `name=pool,alloc=pool_get(size=0),free=pool_put(ptr=0)`: a name, functions with the places of
//! their arguments counted from zero, and perhaps the file name of the object they are in.

use std::borrow::Cow;
use std::str::FromStr;

use tracer_common::cookie::Shape;

use super::functions::Description;
use crate::target::sites::N_ARGS;

/// A described allocator or resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    /// What it is called.
    pub name: String,
    /// File name of the object that has its functions, with `*` for anything. `None`: any.
    object: Option<String>,
    functions: Vec<Description>,
    /// Does it come with the tool? Then it has functions of every version of its library.
    is_shipped: bool,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomError {
    /// A word that is neither a shipped description nor a setting.
    #[error(
        "{0:?} is no description; give cuda, sqlite, openssl, or for example \
         name=pool,alloc=pool_get(size=0),free=pool_put(ptr=0)"
    )]
    Word(String),
    /// A setting that there is not.
    #[error("there is no {0:?} in a description; it has name, alloc, realloc, free and object")]
    Setting(String),
    /// A function without its arguments.
    #[error("{0:?} is no function with places of arguments, such as pool_get(size=0)")]
    Function(String),
    /// An argument that the function cannot have.
    #[error("{place:?} of {function}: {kind} takes {takes}, each with a number from 0 to 5")]
    Argument {
        /// Symbol.
        function: String,
        /// alloc, realloc or free.
        kind: &'static str,
        /// What it takes.
        takes: &'static str,
        /// What was given.
        place: String,
    },
    /// An argument is missing.
    #[error("{function} needs the place of {needs}")]
    Incomplete {
        /// Symbol.
        function: String,
        /// What is missing.
        needs: &'static str,
    },
    /// Something is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// Something that every description needs is not there.
    #[error("a description needs {0}")]
    Missing(&'static str),
}

/// CUDA's runtime and driver: device, managed, stream-ordered and pinned host memory.
const CUDA: &str = "name=cuda,\
    alloc=cudaMalloc(out=0,size=1),alloc=cudaMallocManaged(out=0,size=1),\
    alloc=cudaMallocAsync(out=0,size=1),alloc=cudaMallocFromPoolAsync(out=0,size=1),\
    alloc=cudaMallocHost(out=0,size=1),alloc=cudaHostAlloc(out=0,size=1),\
    alloc=cudaMallocPitch(out=0,size=2,count=3),\
    alloc=cuMemAlloc(out=0,size=1),alloc=cuMemAlloc_v2(out=0,size=1),\
    alloc=cuMemAllocManaged(out=0,size=1),alloc=cuMemAllocAsync(out=0,size=1),\
    alloc=cuMemAllocFromPoolAsync(out=0,size=1),alloc=cuMemAllocHost(out=0,size=1),\
    alloc=cuMemAllocHost_v2(out=0,size=1),alloc=cuMemHostAlloc(out=0,size=1),\
    alloc=cuMemAllocPitch(out=0,size=2,count=3),alloc=cuMemAllocPitch_v2(out=0,size=2,count=3),\
    free=cudaFree(ptr=0),free=cudaFreeAsync(ptr=0),free=cudaFreeHost(ptr=0),\
    free=cuMemFree(ptr=0),free=cuMemFree_v2(ptr=0),free=cuMemFreeAsync(ptr=0),\
    free=cuMemFreeHost(ptr=0)";

/// What SQLite hands to its callers, and takes from them.
const SQLITE: &str = "name=sqlite,\
    alloc=sqlite3_malloc(size32=0),alloc=sqlite3_malloc64(size=0),\
    realloc=sqlite3_realloc(ptr=0,size32=1),realloc=sqlite3_realloc64(ptr=0,size=1),\
    free=sqlite3_free(ptr=0)";

/// OpenSSL's allocator, the secure heap included.
const OPENSSL: &str = "name=openssl,\
    alloc=CRYPTO_malloc(size=0),alloc=CRYPTO_zalloc(size=0),\
    alloc=CRYPTO_secure_malloc(size=0),alloc=CRYPTO_secure_zalloc(size=0),\
    realloc=CRYPTO_realloc(ptr=0,size=1),realloc=CRYPTO_clear_realloc(ptr=0,size=2),\
    free=CRYPTO_free(ptr=0),free=CRYPTO_clear_free(ptr=0),\
    free=CRYPTO_secure_free(ptr=0),free=CRYPTO_secure_clear_free(ptr=0)";

impl Custom {
    /// Is it meant for an object of this file name?
    pub(crate) fn is_in(&self, object: &str) -> bool {
        self.object.as_ref().is_none_or(|pattern| matches(pattern, object))
    }

    /// Names of functions that should have been found and are not among these: all of them when
    /// none was found, and of a description that the user wrote every one.
    pub fn missing(&self, found: &[&str]) -> Vec<&str> {
        let names = || self.functions.iter().map(|function| &*function.name);
        let missing: Vec<&str> = names().filter(|name| !found.contains(name)).collect();
        if self.is_shipped && missing.len() < names().count() { Vec::new() } else { missing }
    }

    /// What the function of this name does, if the description has it.
    pub(super) fn function(&self, name: &str) -> Option<&Description> {
        self.functions.iter().find(|function| function.name == name)
    }
}

impl FromStr for Custom {
    type Err = CustomError;

    fn from_str(text: &str) -> Result<Self, CustomError> {
        let (text, is_shipped) = match text {
            "cuda" => (CUDA, true),
            "sqlite" => (SQLITE, true),
            "openssl" => (OPENSSL, true),
            own => (own, false),
        };
        let (mut name, mut object) = (None, None);
        let mut functions: Vec<Description> = Vec::new();
        for part in split(text) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| CustomError::Word(part.to_owned()))?;
            let once = match key {
                "name" => Some(&mut name),
                "object" => Some(&mut object),
                _ => None,
            };
            if let Some(once) = once {
                if once.replace(value.to_owned()).is_some() {
                    return Err(CustomError::Twice(key.to_owned()));
                }
                continue;
            }
            let function = function(key, value)?;
            if functions.iter().any(|known| known.name == function.name) {
                return Err(CustomError::Twice(function.name.into_owned()));
            }
            functions.push(function);
        }
        let name = name.filter(|name| !name.is_empty()).ok_or(CustomError::Missing("name=…"))?;
        if !functions.iter().any(|function| function.shape.returns_memory()) {
            return Err(CustomError::Missing("alloc=FUNCTION(size=…)"));
        }
        if functions.iter().all(|function| function.shape.returns_memory()) {
            return Err(CustomError::Missing("free=FUNCTION(ptr=…)"));
        }
        Ok(Self { name, object, functions, is_shipped })
    }
}

/// The parts between commas that no parentheses enclose.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |at: char| {
        match at {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at == ',' && depth == 0
    })
}

fn function(key: &str, text: &str) -> Result<Description, CustomError> {
    let (kind, takes) = match key {
        "alloc" => ("alloc", "size (or size32), and perhaps count and out"),
        "realloc" => ("realloc", "ptr, size (or size32), and perhaps count"),
        "free" => ("free", "ptr"),
        other => return Err(CustomError::Setting(other.to_owned())),
    };
    let (name, inside) = text
        .strip_suffix(')')
        .and_then(|text| text.split_once('('))
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| CustomError::Function(text.to_owned()))?;

    let (mut size, mut count, mut ptr, mut size_is_int) = (None, None, None, false);
    for place in inside.split(',').filter(|place| !place.is_empty()) {
        let wrong = || CustomError::Argument {
            function: name.to_owned(),
            kind,
            takes,
            place: place.to_owned(),
        };
        let (what, number) = place.split_once('=').ok_or_else(wrong)?;
        let number: u8 = number.parse().map_err(|_| wrong())?;
        if usize::from(number) >= N_ARGS {
            return Err(wrong());
        }
        let argument = match (kind, what) {
            ("alloc" | "realloc", "size" | "size32") => {
                size_is_int = what == "size32";
                &mut size
            }
            ("alloc" | "realloc", "count") => &mut count,
            ("realloc" | "free", "ptr") | ("alloc", "out") => &mut ptr,
            _ => return Err(wrong()),
        };
        if argument.replace(number).is_some() {
            return Err(CustomError::Twice(format!("{what} of {name}")));
        }
    }

    let needs = |needs| CustomError::Incomplete { function: name.to_owned(), needs };
    // What unwinds through a call must not find its return address replaced, and C++ may.
    let throws = name.starts_with("_Z");
    let shape = match (kind, size, count, ptr) {
        ("alloc" | "realloc", None, ..) => return Err(needs("size")),
        ("realloc" | "free", _, _, None) => return Err(needs("ptr")),
        ("alloc", _, None, None) => Shape::Alloc,
        ("alloc", _, Some(_), None) => Shape::AllocArray,
        ("alloc", _, None, Some(_)) => Shape::AllocOut,
        ("alloc", _, Some(_), Some(_)) => Shape::AllocOutArray,
        ("realloc", _, None, _) => Shape::Resize,
        ("realloc", _, Some(_), _) => Shape::ResizeArray,
        _ if throws => Shape::Free,
        _ => Shape::FreeCall,
    };
    Ok(Description {
        name: Cow::Owned(name.to_owned()),
        shape,
        size_arg: size.unwrap_or(0),
        count_arg: count.unwrap_or(0),
        ptr_arg: ptr.unwrap_or(0),
        throws,
        size_is_int,
    })
}

/// Does the text match, where each `*` of the pattern stands for anything? Each part between two
/// stars is taken where it comes first: what is behind has the most room then, so nothing need be
/// tried twice. The text is a name of the target's choosing.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, behind)) = text.split_once(part) else { return false };
        text = behind;
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Vec<(String, Shape, [u8; 3])> {
        let custom: Custom = text.parse().expect("a description");
        let places = |it: &Description| [it.size_arg, it.count_arg, it.ptr_arg];
        custom
            .functions
            .iter()
            .map(|function| (function.name.to_string(), function.shape, places(function)))
            .collect()
    }

    #[test]
    fn a_description_says_where_arguments_are() {
        let text = "name=pool,object=libpool.so*,alloc=get(size=1),alloc=many(size=0,count=2),\
                    alloc=store(out=0,size=3),realloc=grow(ptr=1,size=0),free=_Z3putPv(ptr=4)";
        let named = |name: &str, shape, places| (name.to_owned(), shape, places);
        assert_eq!(
            functions(text),
            [
                named("get", Shape::Alloc, [1, 0, 0]),
                named("many", Shape::AllocArray, [0, 2, 0]),
                named("store", Shape::AllocOut, [3, 0, 0]),
                named("grow", Shape::Resize, [0, 0, 1]),
                named("_Z3putPv", Shape::Free, [0, 0, 4]),
            ]
        );
        let custom: Custom = text.parse().expect("a description");
        assert!(custom.is_in("libpool.so.3"));
        assert!(!custom.is_in("libother.so"));
    }

    #[test]
    fn shipped_descriptions_are_descriptions() {
        for name in ["cuda", "sqlite", "openssl"] {
            assert_eq!(name.parse::<Custom>().expect("shipped").name, name);
        }
    }

    #[test]
    fn of_a_shipped_description_one_function_is_enough() {
        let sqlite: Custom = "sqlite".parse().expect("shipped");
        assert_eq!(sqlite.missing(&["sqlite3_free"]), [""; 0]);
        assert_eq!(sqlite.missing(&["malloc"]).len(), 5);
        let own: Custom = "name=x,alloc=f(size=0),free=g(ptr=0)".parse().expect("a description");
        assert_eq!(own.missing(&["f"]), ["g"]);
        assert_eq!(own.missing(&["f", "g"]), [""; 0]);
    }

    #[test]
    fn nonsense_is_said_to_be() {
        for (text, words) in [
            ("", "is no description"),
            ("pool", "is no description"),
            ("name=x", "needs alloc"),
            ("name=x,alloc=f(size=0)", "needs free"),
            ("alloc=f(size=0),free=g(ptr=0)", "needs name"),
            ("name=x,make=f(size=0)", "there is no \"make\""),
            ("name=x,alloc=f", "no function with places"),
            ("name=x,alloc=f()", "needs the place of size"),
            ("name=x,alloc=f(size=6)", "from 0 to 5"),
            ("name=x,alloc=f(ptr=0)", "alloc takes"),
            ("name=x,alloc=f(size=0,size=1)", "given twice"),
            ("name=x,alloc=f(size=0),free=f(ptr=0)", "given twice"),
            ("name=x,name=y", "given twice"),
        ] {
            let error = text.parse::<Custom>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, yes) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b*", "abc", true),
            ("*.so.*", "lib.so", false),
            ("lib*.so", "libé.so", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "abaa", false),
            ("a**", "a", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
        // Trying every way to place the stars would take longer than anybody waits.
        assert!(!matches(&format!("{}b", "a*".repeat(100)), &"a".repeat(250)));
    }
}
