//! Symbols of functions that debug information has only the name of that is in the source.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::demangle::Demangler;
use crate::target::elf::{Elf, ObjectAddr};

/// What the symbol table of an object calls the functions at some addresses.
pub(super) struct Symbols<'a> {
    elf: Option<&'a Elf>,
    addrs: &'a [u64],
    found: OnceCell<HashMap<ObjectAddr, &'a [u8]>>,
}

impl<'a> Symbols<'a> {
    pub(super) const fn of(elf: Option<&'a Elf>, addrs: &'a [u64]) -> Self {
        Self { elf, addrs, found: OnceCell::new() }
    }

    /// The symbol that covers this address.
    pub(super) fn at(&self, addr: u64) -> Option<&'a [u8]> {
        let found = self.found.get_or_init(|| {
            let addrs: Vec<_> = self.addrs.iter().copied().map(ObjectAddr).collect();
            self.elf.map(|elf| elf.functions_at(&addrs)).unwrap_or_default()
        });
        found.get(&ObjectAddr(addr)).copied()
    }

    /// The whole name of the function at this address, which has this one in its source: what its symbol
    /// stands for. `None` where it has none, and where that is another function's: linkers and compilers
    /// give several the same code.
    pub(super) fn whole(&self, addr: u64, name: &str, names: &mut Demangler) -> Option<String> {
        let symbol = str::from_utf8(self.at(addr)?).ok()?;
        // Behind the point is which piece or copy it is, which debug information does not tell either.
        let symbol = symbol.split(['.', '@']).next()?;
        if symbol == name {
            return Some(names.name(name));
        }
        if !is_mangled(symbol) {
            return None;
        }
        let whole = names.name(symbol);
        (whole != symbol && ends_in(&whole, name)).then_some(whole)
    }
}

/// Is it a name of C++ or Rust that says all of it?
pub(super) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Is this the name of a function within the whole one? Arguments of templates are written in more than
/// one way.
fn ends_in(whole: &str, name: &str) -> bool {
    let plain = if name.starts_with("operator") {
        "operator"
    } else {
        name.split('<').next().filter(|plain| !plain.is_empty()).unwrap_or(name)
    };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    whole.match_indices(plain).any(|(at, _)| {
        let (before, behind) = (&whole.as_bytes()[..at], &whole.as_bytes()[at + plain.len()..]);
        !before.last().is_some_and(is_part) && !behind.first().is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_of_the_function_that_it_names() {
        for (whole, name) in [
            ("(anonymous namespace)::step(int)", "step"),
            ("void (anonymous namespace)::step<ns::T>(ns::T)", "step<ns::T>"),
            ("main::{lambda(int)#1}::operator()(int) const", "operator()"),
            ("A::operator<< <int>(int)", "operator<< <int>"),
            ("(anonymous namespace)::A::~A()", "~A"),
        ] {
            assert!(ends_in(whole, name), "{whole}, {name}");
        }
        for (whole, name) in [
            ("ns::substep(int)", "step"),
            ("ns::step_by(int)", "step"),
            ("ns::leak(int)", "step"),
            ("ns::A::A()", "~A"),
        ] {
            assert!(!ends_in(whole, name), "{whole}, {name}");
        }
    }
}
