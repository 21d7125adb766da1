//! What fuzz targets begin with, and what once was a fault, is read on every change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use outlive::foreign::READERS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn every_input_is_read() {
    for (name, read) in READERS {
        let inputs = entries(&fuzz().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no inputs");
        for input in inputs {
            // Shown when it panics.
            println!("{}", input.display());
            read(&fs::read(&input).expect("a file"));
        }
    }
}

#[test]
fn every_reader_has_a_target_and_a_corpus() {
    let readers: BTreeSet<String> = READERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = |folder: &str| -> BTreeSet<String> {
        let paths = entries(&fuzz().join(folder));
        paths.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
    };
    assert_eq!(names("corpus"), readers);
    assert_eq!(names("targets"), readers);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("a manifest");
    let (_, targets) = manifest.split_once("[[bin]]").expect("targets");
    let lines = targets.lines().filter_map(|line| line.strip_prefix("name = \""));
    let listed: BTreeSet<String> =
        lines.map(|line| line.trim_end_matches('"').to_owned()).collect();
    assert_eq!(listed, readers);
}
