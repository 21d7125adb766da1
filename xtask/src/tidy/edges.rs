//! Who may use whom in tracer-user. This table is the one that docs/architecture.md shows.

use super::Source;

/// A module of tracer-user.
struct Module {
    name: &'static str,
    /// Modules of the same crate that it may use.
    may_use: &'static [&'static str],
}

const MODULES: &[Module] = &[
    // The words that everyone speaks.
    Module { name: "chain", may_use: &[] },
    Module { name: "exit", may_use: &[] },
    Module { name: "units", may_use: &[] },
    Module { name: "stacks", may_use: &[] },
    // The heart: no input, no output, no clock.
    Module { name: "ledger", may_use: &["stacks"] },
    Module { name: "batches", may_use: &["ledger", "stacks"] },
    Module { name: "growth", may_use: &["batches", "ledger", "stacks", "units"] },
    // A report is data in, bytes out.
    Module { name: "report", may_use: &["units"] },
    // The edge: each knows one part of the outer world.
    Module { name: "target", may_use: &["units"] },
    Module { name: "probes", may_use: &["chain", "target"] },
    Module { name: "intake", may_use: &["probes", "stacks"] },
    Module { name: "symbols", may_use: &["stacks", "target"] },
    Module { name: "unwind", may_use: &["symbols", "target"] },
    Module { name: "interpreters", may_use: &["symbols", "target"] },
    Module { name: "residency", may_use: &["units"] },
    Module { name: "control", may_use: &["units"] },
    // Every reader of bytes of others, for who feeds them.
    Module {
        name: "foreign",
        may_use: &[
            "control",
            "interpreters",
            "probes",
            "report",
            "residency",
            "symbols",
            "target",
            "unwind",
        ],
    },
    // Those that put it together.
    Module { name: "session", may_use: EVERYTHING_BELOW_SESSION },
    Module { name: "cli", may_use: EVERYTHING_BELOW_CLI },
    Module { name: "main", may_use: &["cli"] },
];

const EVERYTHING_BELOW_SESSION: &[&str] = &[
    "batches",
    "control",
    "exit",
    "growth",
    "intake",
    "interpreters",
    "ledger",
    "probes",
    "report",
    "residency",
    "stacks",
    "symbols",
    "target",
    "units",
    "unwind",
];

/// Words in, exit codes out: the errors of the edge decide the code, and `doctor` asks it.
const EVERYTHING_BELOW_CLI: &[&str] = &[
    "chain", "control", "exit", "growth", "probes", "report", "session", "symbols", "target",
    "units", "unwind",
];

/// Crates that only some modules may know.
const CRATES: &[(&str, &[&str])] = &[
    ("addr2line", &["symbols"]),
    ("aya", &["probes", "intake"]),
    ("aya_obj", &["probes", "intake"]),
    ("blazesym", &["symbols"]),
    ("clap", &["cli", "main"]),
    ("iced_x86", &["target"]),
    ("indicatif", &["cli", "session"]),
    ("inferno", &["report"]),
    ("object", &["target", "symbols"]),
    ("tokio", &["cli", "control", "intake", "session"]),
];

/// What makes a module impure.
const HEART: &[&str] = &["ledger", "batches", "growth", "stacks", "units"];
const NOT_IN_THE_HEART: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "libc",
    "log",
    "nix",
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(name) = module_of(source) else { continue };
        let path = source.path.display();
        let Some(module) = MODULES.iter().find(|module| module.name == name) else {
            findings.push(format!("{path}: `{name}` has no place in the table of modules"));
            continue;
        };
        for (number, code) in statements(source) {
            for used in own_modules(&code, name) {
                if used != name && !module.may_use.contains(&used) {
                    findings.push(format!("{path}:{number}: `{name}` may not use `{used}`"));
                }
            }
            for (krate, users) in CRATES {
                if names(&code, krate) && !users.contains(&name) {
                    findings.push(format!("{path}:{number}: `{name}` may not use {krate}"));
                }
            }
            for word in NOT_IN_THE_HEART {
                if HEART.contains(&name) && names(&code, word) {
                    findings.push(format!("{path}:{number}: `{name}` is pure, no {word}"));
                }
            }
        }
    }
    findings
}

/// The module of tracer-user that a file belongs to; none for its tests and its root.
fn module_of(source: &Source) -> Option<&str> {
    let rest = source.path.strip_prefix("tracer-user/src").ok()?;
    let is_test = rest.file_stem()?.to_str()?.ends_with("tests");
    // A model is what a property test compares with.
    let is_model = rest.file_name()? == "model.rs" && rest.starts_with("ledger");
    if !source.is_rust() || is_test || is_model || rest.as_os_str() == "lib.rs" {
        return None;
    }
    let first = rest.components().next()?.as_os_str().to_str()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The lines with their numbers, without comments; a `use` is one line however it is wrapped.
fn statements(source: &Source) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut in_use = false;
    for (idx, line) in source.without_tests().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        match statements.last_mut().filter(|_| in_use) {
            Some((_, whole)) => whole.push_str(code.trim()),
            None => statements.push((idx + 1, code.to_owned())),
        }
        in_use = (in_use || is_use(code)) && !code.contains(';');
    }
    statements
}

fn is_use(code: &str) -> bool {
    let code = code.trim_start();
    ["use ", "pub use ", "pub(crate) use "].iter().any(|start| code.starts_with(start))
}

/// Modules that a line names: `crate::a::…`, `crate::{a::…, b}`; in main, `outlive::…`.
fn own_modules<'a>(code: &'a str, module: &str) -> Vec<&'a str> {
    let prefix = if module == "main" { "outlive::" } else { "crate::" };
    let mut used = Vec::new();
    for rest in code.split(prefix).skip(1) {
        match rest.strip_prefix('{') {
            None => used.push(word_at_start(rest)),
            Some(group) => {
                let mut depth = 0;
                for part in group.split_inclusive(['{', '}', ',']) {
                    if depth == 0 {
                        used.push(word_at_start(part.trim_start()));
                    }
                    depth += i32::from(part.ends_with('{'));
                    depth -= i32::from(part.ends_with('}'));
                    if depth < 0 {
                        break;
                    }
                }
            }
        }
    }
    // What starts with a capital is an item of the crate's root or a variant, no module.
    used.retain(|name| name.starts_with(|first: char| first.is_ascii_lowercase()));
    used
}

fn word_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

/// Does the line name a crate or a path of the standard library, as a whole word that starts
/// a path or ends one?
fn names(code: &str, what: &str) -> bool {
    // `use super::{object::OBJECT, …}` names modules of ours.
    if is_use(code) && ["use super", "use crate", "use self"].iter().any(|own| code.contains(own)) {
        return false;
    }
    code.match_indices(what).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + what.len()..]);
        let starts = !before.ends_with(|c: char| is_word(c) || c == '.' || c == '"');
        // `crate::log::` or `self::object` is a module of ours.
        let ours = before.ends_with("::") && what.chars().all(|c| is_word(c) && !c.is_uppercase());
        let is_path = after.starts_with("::")
            || (is_use(code) && after.starts_with([';', ',', '}']))
            || what.starts_with(|c: char| c.is_uppercase()) && !after.starts_with(is_word);
        starts && !ours && is_path
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_a_line_are_found() {
        assert_eq!(own_modules("use crate::ledger::Ledger;", "growth"), ["ledger"]);
        assert_eq!(
            own_modules("use crate::{batches::{Table, Row}, units, Error};", "growth"),
            ["batches", "units"]
        );
        assert_eq!(own_modules("pub(crate) fn f() {}", "growth"), [] as [&str; 0]);
    }

    #[test]
    fn crates_are_found_as_words() {
        assert!(names("use aya::Ebpf;", "aya"));
        assert!(names("    let x = aya::maps::map();", "aya"));
        assert!(!names("use aya_obj::Object;", "aya"));
        assert!(!names("let object = object(3);", "object"));
        assert!(!names("use crate::log::Log;", "log"));
        assert!(!names("use super::{Error, object::OBJECT};", "object"));
        assert!(names("let t = Instant::now();", "Instant"));
    }

    #[test]
    fn a_forbidden_edge_is_a_finding() {
        let source = Source {
            path: "tracer-user/src/ledger/mod.rs".into(),
            text: "use crate::{\n    probes::Attached,\n};\nuse std::fs::File;\n".to_owned(),
        };
        assert_eq!(
            check(&[source]),
            [
                "tracer-user/src/ledger/mod.rs:1: `ledger` may not use `probes`",
                "tracer-user/src/ledger/mod.rs:4: `ledger` is pure, no std::fs",
            ]
        );
    }
}
