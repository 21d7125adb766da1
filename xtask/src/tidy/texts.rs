//! What texts say: words that do not belong, and files that must be there.

use std::collections::BTreeSet;
use std::path::Path;

use super::Source;

/// Left by who meant to come back. In two halves, so that this file is not a finding.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Places that exist on one machine only.
const PRIVATE: &[&str] = &[concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/wo", "rk/")];
/// Folders of this repository: what starts with one is a path in it.
const FOLDERS: &[&str] = &[
    "docs/",
    "demo/",
    "fuzz/",
    "tests/",
    "tracer-common/",
    "tracer-ebpf/",
    "tracer-user/",
    "xtask/",
];

pub(super) fn words(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    // Lock files name what others named; pictures carry their program.
    let ours = |source: &&Source| {
        !source.path.extension().is_some_and(|extension| extension == "lock" || extension == "svg")
    };
    for source in sources.iter().filter(ours) {
        for (idx, line) in source.text.lines().enumerate() {
            let found = UNFINISHED.iter().find(|word| has_word(line, word));
            if let Some(word) = found.or_else(|| PRIVATE.iter().find(|part| line.contains(**part)))
            {
                findings.push(format!("{}:{}: `{word}`", source.path.display(), idx + 1));
            }
        }
    }
    findings
}

/// Files that documents and comments name and that are not there.
pub(super) fn paths(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_document() || source.is_rust()) {
        // Expected output of tests is data, with hostile names among it.
        if source.path.starts_with("tests/golden") {
            continue;
        }
        let folder = source.path.parent().unwrap_or(Path::new(""));
        for (idx, line) in source.text.lines().enumerate() {
            if source.is_rust() && !line.trim_start().starts_with("//") {
                continue;
            }
            let named: BTreeSet<_> = named_files(line).collect();
            for named in named {
                if !root.join(named).exists() && !root.join(folder).join(named).exists() {
                    let path = source.path.display();
                    findings.push(format!("{path}:{}: no file {named}", idx + 1));
                }
            }
        }
    }
    findings
}

/// Words that are a path of this repository, a document, or the target of a link.
fn named_files(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
    let words = line.split(|c: char| c.is_whitespace() || "`()[]{}<>,;:\"'*|=".contains(c));
    let words = words.map(|word| word.trim_end_matches('.')).filter(|word| {
        FOLDERS.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len())
            || (word.ends_with(".md") && word.contains('/') && !word.starts_with(['/', '.', '$']))
    });
    links.chain(words.filter(|word| !word.contains(['$', '…', '\\'])))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(is_letter) && !line[at + word.len()..].starts_with(is_letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_links_are_found_in_prose() {
        let named = |line| named_files(line).collect::<Vec<_>>();
        assert_eq!(named("See `docs/guide.md`."), ["docs/guide.md"]);
        assert_eq!(named("a [picture](growth.svg#top)"), ["growth.svg"]);
        assert_eq!(named("written as summary.md into the folder"), [] as [&str; 0]);
        assert_eq!(named("[site](https://example.org/a.md)"), [] as [&str; 0]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word(concat!("// TO", "DO: later"), UNFINISHED[0]));
        assert!(!has_word(concat!("XX", "XX"), UNFINISHED[2]));
    }
}
