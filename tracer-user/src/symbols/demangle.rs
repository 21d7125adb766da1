//! From symbols to names that people read.
//!
//! What is not understood stays as it is. A symbol is bytes of the target's choosing, and a few of
//! them can stand for a name without end: both are bounded.

use std::fmt::{self, Write};
use std::time::Duration;

use cpp_demangle::{ParseOptions, Symbol};
use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashMap;

/// Bytes of a name at the most; what is beyond is cut off.
pub(crate) const LONGEST: usize = 16 * 1024;

/// How deep names of C++ may lie within each other, as the reader counts it: a template in a template is
/// about ten deeper. It is the reader's own bound.
const DEEPEST: u32 = 96;
/// The same once there is no patience left.
const SHALLOW: u32 = 32;
/// Time of one thread that the symbols of one object may take, those that are not slow left out. Behind
/// some symbols the reader tries out every way to understand them, which are twice as many for each four
/// further levels: of 64 bytes, half a second, and each may have another name.
const PATIENCE: Duration = Duration::from_secs(1);
/// What takes less is not slow: a hundred times as long as usual.
const SLOW: Duration = Duration::from_millis(1);

/// Demangles the symbols of one object, each once.
#[derive(Debug)]
pub(crate) struct Demangler {
    known: FxHashMap<String, String>,
    left: Duration,
}

impl Default for Demangler {
    fn default() -> Self {
        Self { known: FxHashMap::default(), left: PATIENCE }
    }
}

impl Demangler {
    /// The name that this symbol stands for, as [`demangle`] has it.
    pub(crate) fn name(&mut self, symbol: &str) -> String {
        self.name_by(symbol, thread_time)
    }

    /// The same, by this clock.
    fn name_by(&mut self, symbol: &str, clock: impl Fn() -> Duration) -> String {
        if let Some(name) = self.known.get(symbol) {
            return name.clone();
        }
        let before = clock();
        let deepest = if self.left.is_zero() { SHALLOW } else { DEEPEST };
        let name = demangle_to(symbol, deepest);
        let spent = clock().saturating_sub(before);
        if SLOW <= spent {
            self.left = self.left.saturating_sub(spent);
        }
        self.known.insert(symbol.to_owned(), name.clone());
        name
    }
}

/// Time that this thread has run: what others do makes no symbol slow.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The name that this symbol stands for, in C++ and Rust, and in Swift where the tool was built for
/// it; any other symbol without its version.
pub(crate) fn demangle(symbol: &str) -> String {
    demangle_to(symbol, DEEPEST)
}

fn demangle_to(symbol: &str, deepest: u32) -> String {
    let symbol = without_hash(without_version(symbol));
    if symbol.len() <= LONGEST {
        let mut name = Bounded(String::new());
        if let Ok(rust) = rustc_demangle::try_demangle(symbol)
            // The plain form writes the compiler's hash, which differs from build to build.
            && write!(name, "{rust:#}").is_ok()
        {
            return name.0;
        }
        let mut name = Bounded(String::new());
        let options = ParseOptions::default().recursion_limit(deepest);
        if symbol.starts_with("_Z")
            && let Ok(cpp) = Symbol::new_with_options(symbol, &options)
            && cpp.structured_demangle(&mut name, &cpp_demangle::DemangleOptions::new()).is_ok()
        {
            return name.0;
        }
        if let Some(swift) = swift(symbol) {
            return swift;
        }
    }
    symbol[..symbol.floor_char_boundary(LONGEST)].to_owned()
}

/// Swift's own demangler is in C++, which not everybody wants in a tool that runs as root: it is
/// a feature of the build. It recurses as deep as a symbol asks for, so long ones are not given
/// to it.
#[cfg(feature = "swift")]
fn swift(symbol: &str) -> Option<String> {
    use symbolic_common::{Language, Name, NameMangling};
    use symbolic_demangle::{Demangle as _, DemangleOptions};

    const LONGEST_SWIFT: usize = 1024;
    let is_swift = ["$s", "_$s", "$S", "_$S"].iter().any(|start| symbol.starts_with(start));
    if !is_swift || LONGEST_SWIFT < symbol.len() {
        return None;
    }
    let name = Name::new(symbol, NameMangling::Mangled, Language::Swift);
    let name = name.demangle(DemangleOptions::complete())?;
    // Every function is in a module; what has none was no symbol of Swift.
    (name.contains('.') && name.len() <= LONGEST).then_some(name)
}

#[cfg(not(feature = "swift"))]
const fn swift(_: &str) -> Option<String> {
    None
}

/// Linkers write `name@version` and `name@@version` for what has versions.
fn without_version(symbol: &str) -> &str {
    match symbol.split_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        Some(_) | None => symbol,
    }
}

/// LLVM's link-time optimization writes `name.llvm.HASH`; the hash differs from build to build.
fn without_hash(symbol: &str) -> &str {
    match symbol.rsplit_once(".llvm.") {
        Some((name, hash))
            if !name.is_empty()
                && !hash.is_empty()
                && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name
        }
        Some(_) | None => symbol,
    }
}

/// Text that refuses to grow beyond [`LONGEST`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use proptest::prelude::*;

    fn check(symbol: &str, name: &str) {
        assert_eq!(demangle(symbol), name, "{symbol}");
    }

    #[test]
    fn names_of_cpp() {
        check("_ZN3app4execIPFvvEEEvT_", "void app::exec<void (*)()>(void (*)())");
        check("_ZN3app4execIPFiiEEEvT_", "void app::exec<int (*)(int)>(int (*)(int))");
        check("_Znwm", "operator new(unsigned long)");
        check("_ZN12_GLOBAL__N_14leakEi", "(anonymous namespace)::leak(int)");
        check("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const");
        check("_ZN5Cache3putEi.cold", "Cache::put(int) [clone .cold]");
        check("_ZN5Cache3putEi.llvm.1234567890", "Cache::put(int)");
        check("leak.llvm.9876543210", "leak");
        check("leak.llvm.text", "leak.llvm.text");
        check(
            "_ZNSt6vectorIiE4growEv.constprop.0",
            "std::vector<int>::grow() [clone .constprop.0]",
        );
    }

    #[test]
    fn names_of_rust_have_no_hash() {
        check("_ZN7mycrate5leaky17h0123456789abcdefE", "mycrate::leaky");
        check("_ZN7mycrate5leaky17h0123456789abcdefE.llvm.1234567890", "mycrate::leaky");
        check("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
        check(
            "_ZN63_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
        );
        check("_RNvCs1234_7mycrate5leaky", "mycrate::leaky");
        check(
            "_RINvCs1234_7mycrate5leakyINtNtCs9_5alloc3vec3VechEEB2_",
            "mycrate::leaky::<alloc::vec::Vec<u8>>",
        );
    }

    #[cfg(feature = "swift")]
    #[test]
    fn names_of_swift() {
        check("$s4main4leakyyF", "main.leak() -> ()");
        check("_$s4main4leakyyF", "main.leak() -> ()");
        check(
            "$s4main5CacheC3put3key5valueySS_SitF",
            "main.Cache.put(key: Swift.String, value: Swift.Int) -> ()",
        );
        check("$s4main1fyyFyycfU_", "closure #1 () -> () in main.f() -> ()");
        for symbol in ["$s", "$sxxxx", "$save", "_$stop", "$s4mai"] {
            check(symbol, symbol);
        }
        let long = format!("$s4main{}yyF", "4leak".repeat(1000));
        check(&long, &long);
    }

    #[test]
    fn versions_are_no_part_of_a_name() {
        check("memcpy@@GLIBC_2.14", "memcpy");
        check("memcpy@GLIBC_2.2.5", "memcpy");
        check("_ZNKSs4sizeEv@@GLIBCXX_3.4", "std::string::size() const");
        check("@odd", "@odd");
    }

    #[test]
    fn what_is_not_understood_stays() {
        for symbol in
            ["main", "_Z", "_ZN", "_R", "runtime.mallocgc", "main.(*T).leak", "\u{1b}\u{fffd}"]
        {
            check(symbol, symbol);
        }
    }

    #[test]
    fn a_symbol_that_stands_for_an_endless_name_stays() {
        // Each parameter's type is twice as long as the one before.
        let number = |n: u32| char::from_digit(n, 36).expect("a digit").to_ascii_uppercase();
        let doubled = |n| format!("S_IS{0}_S{0}_E", number(n));
        let symbol = format!("_Z1f1aIccE{}", (0..34).map(doubled).collect::<String>());
        assert_eq!(demangle(&symbol), symbol);
        let short = format!("_Z1f1aIccE{}", doubled(0));
        assert_eq!(demangle(&short), "f(a<char, char>, a<a<char, char>, a<char, char> >)");
        let endless = format!("_ZN{}E", "9".repeat(100_000));
        assert_eq!(demangle(&endless), endless[..LONGEST]);
        assert_eq!(demangle(&"é".repeat(LONGEST)).len(), LONGEST);
    }

    /// As deep as templates lie within each other in programs, and one that goes no deeper than where
    /// patience has an end.
    const DEEP: &str = "_Z1fN2ns3mapINS_3mapINS_3mapINS_3mapIiE1tEE1tEE1tEE1tE";
    const DEEP_NAME: &str = "f(ns::map<ns::map<ns::map<ns::map<int>::t>::t>::t>::t)";

    #[test]
    fn symbols_that_take_time_leave_the_others_names() {
        let seconds = Cell::new(0);
        let slow = || {
            seconds.set(seconds.get() + 1);
            Duration::from_secs(seconds.get())
        };
        let quick = || Duration::ZERO;
        let mut demangler = Demangler::default();
        assert_eq!(demangler.name_by(DEEP, quick), DEEP_NAME);
        assert_eq!(demangler.name_by("_ZN3app1aEv", slow), "app::a()");
        // There is no patience any more.
        let other = DEEP.replace("_Z1f", "_Z1g");
        assert_eq!(demangler.name_by(&other, quick), other);
        assert_eq!(demangler.name_by("_ZN3app1bEv", quick), "app::b()");
        // What is known is known, and asks no clock.
        let clock = || panic!("it was demangled again");
        assert_eq!(demangler.name_by(DEEP, clock), DEEP_NAME);
        assert_eq!(demangler.name_by(&other, clock), other);
    }

    #[test]
    fn a_shallow_look_does_not_try_out_every_way() {
        let options = ParseOptions::default().recursion_limit(SHALLOW);
        for n_pieces in [8, 20, 24] {
            // Twice as many ways for each piece.
            let symbol = format!("_Zcv{}", "T_I".repeat(n_pieces));
            let why = Symbol::new_with_options(&symbol, &options).map(drop);
            assert_eq!(why, Err(cpp_demangle::error::Error::TooMuchRecursion), "{n_pieces}");
        }
    }

    proptest! {
        #[test]
        fn no_symbol_makes_it_panic(
            head in "_ZN|_R|_Z|_ZNK|_RNv|\\$s|",
            rest in "[0-9A-Za-z_$.@]{0,60}|\\PC{0,40}",
        ) {
            let name = demangle(&format!("{head}{rest}"));
            prop_assert!(name.len() <= LONGEST);
        }
    }
}
