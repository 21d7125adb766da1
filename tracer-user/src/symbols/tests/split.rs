//! Debug information that the compiler left beside the object.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::debug_files::{expect_full, frames, program, split};
use super::{Folder, functions};
use crate::symbols::{Bound, Frame, Object, ObjectKind, object_names};
use crate::target::elf::{Elf, Table};

const FORMS: [&str; 2] = ["-gdwarf-4", "-gdwarf-5"];

/// Compiles the program; the file that has its debug information.
fn compiled(folder: &Folder, flags: &[&str]) -> PathBuf {
    program(folder, &[&["-gsplit-dwarf"], flags].concat());
    let entries = fs::read_dir(folder.path(".")).expect("a folder");
    let mut files = entries.map(|entry| entry.expect("a file").path());
    let part = files.find(|path| path.extension().is_some_and(|end| end == "dwo"));
    part.expect("the compiler left it beside the program")
}

fn package(folder: &Folder, to: &Path) {
    let mut dwp = Command::new("dwp");
    dwp.arg("-e").arg(folder.path("program")).arg("-o").arg(to).current_dir(folder.path("."));
    let done = dwp.output().expect("dwp, which comes with the linker");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// `hidden` is named by its symbol, with the line that is known of the place.
#[track_caller]
fn expect_plain(frames: &[Frame]) {
    assert_eq!(functions(frames), ["hidden"]);
    assert_eq!(frames[0].line, Some(100));
}

#[test]
fn a_part_at_its_path_names_what_was_inlined() {
    for form in FORMS {
        for flags in [&[form][..], &[form, "-gz"], &[form, "-fdebug-types-section"]] {
            let folder = Folder::new();
            compiled(&folder, flags);
            expect_full(&frames(&folder));
        }
    }
}

#[test]
fn a_part_that_is_not_there_or_another_s_is_not_believed() {
    for form in FORMS {
        let folder = Folder::new();
        let part = compiled(&folder, &[form]);
        let other = Folder::new();
        // The same source, but with another function inlined at the same place.
        let changed = compiled(&other, &[form, "-Dhot=cold"]);
        assert_eq!(functions(&frames(&other)), ["cold", "hidden"]);
        fs::copy(changed, &part).expect("the folder is writable");
        expect_plain(&frames(&folder));
        fs::write(&part, "no object").expect("the folder is writable");
        expect_plain(&frames(&folder));
        fs::remove_file(&part).expect("it is there");
        expect_plain(&frames(&folder));
        // Nobody writes to it: who opened it would wait.
        nix::unistd::mkfifo(&part, nix::sys::stat::Mode::S_IRWXU).expect("the folder is writable");
        expect_plain(&frames(&folder));
    }
}

#[test]
fn parts_are_found_beside_a_program_that_was_moved() {
    let folder = Folder::new();
    let part = compiled(&folder, &[]);
    let elsewhere = Folder::new();
    for file in [&folder.path("program"), &part] {
        let name = file.file_name().expect("a file");
        fs::rename(file, elsewhere.path(".").join(name)).expect("on the same disk");
    }
    expect_full(&frames(&elsewhere));
}

#[test]
fn a_package_beside_the_object_names_what_was_inlined() {
    // Binutils' own tool packs no later version.
    let form = "-gdwarf-4";
    for place in ["program.dwp", ".debug/program.dwp"] {
        let folder = Folder::new();
        let part = compiled(&folder, &[form]);
        fs::create_dir_all(folder.path(".debug")).expect("the folder is writable");
        package(&folder, &folder.path(place));
        fs::remove_file(&part).expect("it is there");
        expect_full(&frames(&folder));
    }
}

#[test]
fn a_package_of_another_build_is_passed_over() {
    let other = Folder::new();
    compiled(&other, &["-gdwarf-4", "-Dhot=cold"]);
    let folder = Folder::new();
    let part = compiled(&folder, &["-gdwarf-4"]);
    package(&other, &folder.path("program.dwp"));
    expect_full(&frames(&folder));
    fs::remove_file(&part).expect("it is there");
    expect_plain(&frames(&folder));
}

#[test]
fn a_debug_file_may_leave_out_the_same() {
    let folder = Folder::new();
    let part = compiled(&folder, &[]);
    split(&folder);
    expect_full(&frames(&folder));
    fs::remove_file(&part).expect("it is there");
    expect_plain(&frames(&folder));
}

/// The compiler's own folder is the target's: the same path here is another file.
#[test]
fn a_part_is_looked_for_in_the_root_of_the_target() {
    let folder = Folder::new();
    let part = compiled(&folder, &[]);
    let below_root = folder.path("root").join(part.strip_prefix("/").expect("an absolute path"));
    fs::create_dir_all(below_root.parent().expect("a folder")).expect("the folder is writable");
    fs::rename(&part, &below_root).expect("on the same disk");
    std::os::unix::fs::symlink("/etc/passwd", &part).expect("a free name");
    let names = |root: &Path| {
        let file = File::open(folder.path("program")).expect("compiled");
        let elf = Elf::open(&file).expect("an object");
        let hidden = elf.functions(Table::Full, |name| name == "hidden").expect("symbols");
        let at = elf.file_offset(hidden[0].addr).expect("it is in the file");
        let object = Object {
            name: "/opt/program".to_owned(),
            kind: ObjectKind::File(Some(file)),
            root: Some(Rc::new(File::open(root).expect("a folder"))),
            may_be_generated: false,
            is_told: false.into(),
        };
        // The first instruction that is inlined there.
        let bound = Bound { address: 0, object: None, offset: at.0 + 4, space: None, seen: 0 };
        let found = object_names::lookup(&object, &[bound]).expect("an object");
        found.into_iter().flat_map(|(_, frames)| frames).collect::<Vec<_>>()
    };
    assert_eq!(functions(&names(&folder.path("root"))), ["hot", "hidden"]);
    assert_eq!(functions(&names(&folder.path("."))), ["hidden"]);
}
