//! Objects whose symbols were stripped: into a file beside them, or into a small table within.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use liblzma::read::XzEncoder;

use super::super::debug_files::find;
use super::{Folder, SINK, functions, names};
use crate::symbols::{Frame, Object, ObjectKind};
use crate::target::elf::Elf;

/// A program of which nothing but the debug file names `hidden`, and into which `hot` is inlined.
pub(super) fn program(folder: &Folder, flags: &[&str]) {
    let source = format!(
        "{}\n\
         #line 100 \"shown.c\"\n\
         static inline __attribute__((always_inline)) void hot(void) {{ sink(); }}\n\
         static __attribute__((noinline)) void hidden(void) {{\n\
         \x20   hot();\n\
         \x20   __asm__(\"\");\n\
         }}\n\
         int main(void) {{ hidden(); getchar(); return 0; }}\n",
        SINK.replace("void sink", "static void sink"),
    );
    folder.compile("program", &source, &[&["-O1", "-g"], flags].concat());
}

pub(super) fn objcopy(folder: &Folder, words: &[impl AsRef<OsStr>]) {
    let done = Command::new("objcopy").args(words).current_dir(folder.path(".")).output();
    let done = done.expect("objcopy, which comes with the C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Moves what names the program into `program.debug`, to which it has a link afterwards.
pub(super) fn split(folder: &Folder) {
    objcopy(folder, &["--only-keep-debug", "program", "program.debug"]);
    objcopy(folder, &["--strip-all", "--add-gnu-debuglink=program.debug", "program"]);
}

/// The frames at the place that the program prints.
pub(super) fn frames(folder: &Folder) -> Vec<Frame> {
    let mut program = folder.start("program");
    names(&program.process(), program.addr())
}

#[track_caller]
pub(super) fn expect_full(frames: &[Frame]) {
    assert_eq!(functions(frames), ["hot", "hidden"]);
    assert_eq!(frames.iter().map(|frame| frame.line).collect::<Vec<_>>(), [Some(100), Some(102)]);
    assert!(frames.iter().all(|frame| {
        frame.object.as_deref().is_some_and(|object| object.ends_with("/program"))
    }));
}

#[test]
fn a_linked_file_beside_the_object_names_it() {
    for folder_name in [".", ".debug"] {
        let folder = Folder::new();
        program(&folder, &[]);
        split(&folder);
        fs::create_dir_all(folder.path(folder_name)).expect("the folder is writable");
        let place = folder.path(folder_name).join("program.debug");
        fs::rename(folder.path("program.debug"), place).expect("on the same disk");
        expect_full(&frames(&folder));
    }
}

#[test]
fn without_a_build_id_the_checksum_decides() {
    let folder = Folder::new();
    program(&folder, &["-Wl,--build-id=none"]);
    split(&folder);
    expect_full(&frames(&folder));
    let mut debug = fs::read(folder.path("program.debug")).expect("it is there");
    debug.push(0);
    fs::write(folder.path("program.debug"), debug).expect("the folder is writable");
    assert_eq!(functions(&frames(&folder)), ["?"]);
}

#[test]
fn a_debug_file_of_another_build_is_not_believed() {
    let folder = Folder::new();
    program(&folder, &["-Wl,--build-id=0x0101010101010101"]);
    split(&folder);
    fs::rename(folder.path("program"), folder.path("kept")).expect("on the same disk");
    program(&folder, &["-Wl,--build-id=0x0202020202020202", "-O0"]);
    split(&folder);
    fs::rename(folder.path("kept"), folder.path("program")).expect("on the same disk");
    assert_eq!(functions(&frames(&folder)), ["?"]);
}

#[test]
fn a_file_below_the_root_of_the_target_is_found_by_build_id() {
    let folder = Folder::new();
    let id = "0xabcd010203040506";
    program(&folder, &[&format!("-Wl,--build-id={id}")]);
    objcopy(&folder, &["--only-keep-debug", "program", "program.debug"]);
    objcopy(&folder, &["--strip-all", "program"]);
    let place = folder.path("root/usr/lib/debug/.build-id/ab/cd010203040506.debug");
    fs::create_dir_all(place.parent().expect("a folder")).expect("the folder is writable");
    fs::rename(folder.path("program.debug"), &place).expect("on the same disk");

    let object = |root: &Path| Object {
        name: "/opt/program".to_owned(),
        kind: ObjectKind::Anonymous,
        root: Some(Rc::new(File::open(root).expect("a folder"))),
        may_be_generated: false,
        is_told: false.into(),
    };
    let elf = Elf::open(&File::open(folder.path("program")).expect("compiled")).expect("an object");
    let found = find(&elf, &object(&folder.path("root"))).expect("its debug file");
    let same = |file: &Path| Elf::open(&File::open(file).expect("a file")).expect("an object");
    assert_eq!(Elf::open(&found).expect("an object").build_id, same(&place).build_id);
    assert!(find(&elf, &object(&folder.path("."))).is_none());

    // A file in its place that is another one's, and a link that leads out of the root.
    let other = Folder::new();
    program(&other, &["-Wl,--build-id=0x0303030303030303"]);
    fs::copy(other.path("program"), &place).expect("writable");
    assert!(find(&elf, &object(&folder.path("root"))).is_none());
    fs::remove_file(&place).expect("it is there");
    std::os::unix::fs::symlink("/etc/passwd", &place).expect("a free name");
    assert!(find(&elf, &object(&folder.path("root"))).is_none());
}

#[test]
fn a_small_table_within_the_object_names_it() {
    let folder = Folder::new();
    program(&folder, &[]);
    // As distributions do it: of the symbols, those of functions alone.
    objcopy(&folder, &["--strip-debug", "--keep-symbol=hidden", "program", "table"]);
    let mut packed = Vec::new();
    let table = File::open(folder.path("table")).expect("just made");
    XzEncoder::new(table, 6).read_to_end(&mut packed).expect("it is packed");
    fs::write(folder.path("table.xz"), packed).expect("the folder is writable");
    objcopy(&folder, &["--strip-all", "program"]);
    assert_eq!(functions(&frames(&folder)), ["?"]);
    objcopy(&folder, &["--add-section", ".gnu_debugdata=table.xz", "program"]);
    assert_eq!(functions(&frames(&folder)), ["hidden"]);
}

#[test]
fn every_form_of_debug_information_gives_names_and_lines() {
    for form in ["-gdwarf-4", "-gdwarf-5", "-gz"] {
        let folder = Folder::new();
        program(&folder, &[form]);
        expect_full(&frames(&folder));
    }
}
