//! Every dependency's licence is one of those that deny.toml allows. `cargo deny` reads the
//! same file and checks more; this needs no network and nothing installed.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cmd::{CommandExt as _, Workspace};

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let file = workspace.root.join("deny.toml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let allowed = allowed(&text);
    ensure!(!allowed.is_empty(), "{}: no list of allowed licences", file.display());
    let mut findings = findings(&workspace.metadata, &allowed)?;
    let kernel_side = workspace
        .cargo()
        .args(["metadata", "--format-version=1", "--locked", "--manifest-path"])
        .arg(workspace.root.join("tracer-ebpf/Cargo.toml"))
        .text()?;
    findings.extend(self::findings(&serde_json::from_str(&kernel_side)?, &allowed)?);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// The strings of `allow = [ … ]`.
fn allowed(deny: &str) -> Vec<&str> {
    let list = deny.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .collect()
}

fn findings(metadata: &Value, allowed: &[&str]) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        match package["license"].as_str() {
            None => findings.push(format!("{name}: no licence in its manifest")),
            Some(licence) if !permits(licence, allowed) => {
                findings.push(format!("{name}: licence {licence} is not allowed by deny.toml"));
            }
            Some(_) => {}
        }
    }
    Ok(findings)
}

/// Is the expression true when exactly the allowed licences are? `/` is the old way to
/// write `OR`; `AND` binds tighter.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut permitted = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all_of(words, allowed);
    }
    permitted
}

fn all_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut permitted = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        permitted &= one(words, allowed);
    }
    permitted
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let permitted = any_of(words, allowed);
        words.next();
        return permitted;
    }
    // An exception only adds permissions.
    if words.next_if_eq(&"WITH").is_some() {
        words.next();
    }
    allowed.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0"];
        assert!(permits("MIT OR GPL-3.0", &allowed));
        assert!(permits("GPL-2.0/MIT", &allowed));
        assert!(permits("(MIT OR GPL-3.0) AND Unicode-3.0", &allowed));
        assert!(permits("Apache-2.0 WITH LLVM-exception OR BSL-1.0", &allowed));
        assert!(!permits("MIT AND GPL-3.0", &allowed));
        assert!(!permits("", &allowed));
    }

    #[test]
    fn the_allowed_list_is_read_with_its_comments() {
        let deny = "[licenses]\nallow = [\n    \"MIT\",\n    \"CDDL-1.0\", # \"inferno\"\n]\n";
        assert_eq!(allowed(deny), ["MIT", "CDDL-1.0"]);
    }
}
