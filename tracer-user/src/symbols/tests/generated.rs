//! Code that a program generates, named by what it writes of it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Folder, SPACE, functions};
use crate::symbols::{Binder, Bound, Frame, symbolize};
use crate::target::test_program::Program;

/// Prints where it has memory for code. Maps the file `jit-1.dump` executable, if there is one.
const GENERATES: &str = r#"
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/mman.h>
    int main(void) {
        int dump = open("jit-1.dump", O_RDONLY);
        if (dump >= 0)
            mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0);
        printf("%p\n", mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        fflush(stdout); getchar(); return 0;
    }
"#;

/// The table of a program; removed when dropped.
struct Table(PathBuf);

impl Table {
    fn of(program: &Program) -> Self {
        Self(PathBuf::from(format!("/tmp/perf-{}.map", program.pid())))
    }

    fn append(&self, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        writeln!(file.expect("/tmp is writable"), "{line}").expect("a line");
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn frame(binder: &Binder, bound: Bound) -> Frame {
    symbolize(binder, [bound]).frames(bound)[0].clone()
}

fn name(binder: &Binder, bound: Bound) -> String {
    frame(binder, bound).function.unwrap_or_default()
}

#[test]
fn generated_code_is_named_by_the_target_s_table() {
    let folder = Folder::new();
    let mut program = folder.run(GENERATES, &[]);
    let process = program.process();
    let code = program.addr();
    let mut binder = Binder::default();
    let [inside, outside] = [code + 8, code + 0x100].map(|addr| binder.bind(SPACE, &process, addr));
    assert!(inside.object.is_some());
    let table = Table::of(&program);
    table.append(&format!("{code:x} 20 JS:*leakHere /app/leak.js:3:17"));
    drop(program);
    let names = symbolize(&binder, [inside, outside]);
    assert_eq!(functions(names.frames(inside)), ["leakHere"]);
    let leak = &names.frames(inside)[0];
    assert_eq!((leak.file.as_deref(), leak.line), (Some("/app/leak.js"), Some(3)));
    assert_eq!(functions(names.frames(outside)), ["?"]);
    assert_eq!(names.frames(outside)[0].object, None);
}

#[test]
fn memory_that_is_used_for_other_code_has_the_name_of_its_time() {
    let folder = Folder::new();
    let mut program = folder.run(GENERATES, &[]);
    let process = program.process();
    let code = program.addr();
    let table = Table::of(&program);
    let mut binder = Binder::default();
    table.append(&format!("{code:x} 20 first"));
    let first = binder.bind(SPACE, &process, code + 8);
    assert_eq!(binder.bind(SPACE, &process, code + 8), first, "nothing was written between");
    table.append(&format!("{code:x} 20 second"));
    let second = binder.bind(SPACE, &process, code + 8);
    table.append(&format!("{code:x} 20 third"));
    assert_eq!((name(&binder, first), name(&binder, second)), ("first".into(), "second".into()));
}

#[test]
fn a_table_that_an_earlier_process_of_this_number_left_is_not_read() {
    let folder = Folder::new();
    let mut program = folder.run(GENERATES, &[]);
    let process = program.process();
    let code = program.addr();
    let table = Table::of(&program);
    table.append(&format!("{code:x} 20 stale"));
    let file = OpenOptions::new().write(true).open(&table.0).expect("just made");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("our own file");
    let mut binder = Binder::default();
    let bound = binder.bind(SPACE, &process, code + 8);
    assert_eq!(name(&binder, bound), "");
    // The process begins to write after all, its own table.
    fs::write(&table.0, format!("{code:x} 20 fresh\n")).expect("our own file");
    assert_eq!(name(&binder, bound), "fresh");
}

#[test]
fn a_table_of_another_user_is_not_read() {
    let folder = Folder::new();
    let mut program = folder.run(GENERATES, &[]);
    let process = program.process();
    let code = program.addr();
    let table = Table::of(&program);
    table.append(&format!("{code:x} 20 planted"));
    let mut binder = Binder::default();
    let bound = binder.bind(SPACE, &process, code + 8);
    if std::os::unix::fs::chown(&table.0, Some(65534), None).is_ok() {
        assert_eq!(name(&binder, bound), "");
        std::os::unix::fs::chown(&table.0, Some(process.uid), None).expect("back");
    }
    assert_eq!(name(&binder, bound), "planted");
}

#[test]
fn code_that_is_mapped_twice_is_named_too() {
    let folder = Folder::new();
    let source = GENERATES
        .replace(
            "#include <fcntl.h>",
            "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <unistd.h>",
        )
        .replace(
            "int dump =",
            "int code = memfd_create(\"twice\", 0); (void)!ftruncate(code, 4096); int dump =",
        )
        .replace("MAP_PRIVATE | MAP_ANONYMOUS, -1, 0", "MAP_SHARED, code, 0");
    let mut program = folder.run(&source, &[]);
    let process = program.process();
    let code = program.addr();
    let mut binder = Binder::default();
    let [inside, outside] = [code + 8, code + 0x100].map(|addr| binder.bind(SPACE, &process, addr));
    let table = Table::of(&program);
    table.append(&format!("{code:x} 20 twice"));
    assert_eq!(name(&binder, inside), "twice");
    let nameless = frame(&binder, outside);
    assert_eq!((nameless.object.as_deref(), nameless.offset), (Some("/memfd:twice"), 0xff));
}

/// A dump in which a function was loaded at this time.
fn record(time: u64, start: u64, name: &[u8]) -> Vec<u8> {
    let body = [&[0; 8][..], &[start, start, 0x20, 1].map(u64::to_ne_bytes).concat(), name, b"\0"];
    let body = body.concat();
    let len = u32::try_from(16 + body.len()).expect("short");
    [&[0; 4][..], &len.to_ne_bytes(), &time.to_ne_bytes(), &body].concat()
}

#[test]
fn a_dump_that_the_program_maps_names_its_code() {
    let folder = Folder::new();
    let path = folder.path("jit-1.dump");
    let header =
        [b"DTiJ".to_vec(), [1_u32, 40, 62, 0, 1].map(u32::to_ne_bytes).concat(), vec![0; 16]];
    fs::write(&path, header.concat()).expect("the folder is writable");
    let mut program = folder.run(GENERATES, &[]);
    let process = program.process();
    let code = program.addr();
    let mut binder = Binder::default();
    let bound = binder.bind(SPACE, &process, code + 8);
    let mut dump = OpenOptions::new().append(true).open(&path).expect("just made");
    dump.write_all(&record(5, code, b"before")).expect("room");
    dump.write_all(&record(u64::MAX / 2, code, b"after")).expect("room");
    // It is found without its path, and after the program has ended.
    fs::remove_file(&path).expect("it is there");
    binder.close(SPACE);
    drop(program);
    assert_eq!(name(&binder, bound), "before");
}

#[test]
fn a_dump_that_comes_late_is_found() {
    let folder = Folder::new();
    let path = folder.path("jit-1.dump");
    let source = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/mman.h>
        int main(void) {
            printf("%p\n", mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            fflush(stdout); getchar();
            mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open("jit-1.dump", O_RDONLY), 0);
            puts("mapped"); fflush(stdout); getchar(); return 0;
        }
    "#;
    let mut program = folder.run(source, &[]);
    let process = program.process();
    let code = program.addr();
    let mut binder = Binder::default();
    binder.watch(SPACE, &process);
    let bound = binder.bind(SPACE, &process, code + 8);
    let header =
        [b"DTiJ".to_vec(), [1_u32, 40, 62, 0, 1].map(u32::to_ne_bytes).concat(), vec![0; 16]];
    fs::write(&path, [header.concat(), record(5, code, b"late")].concat()).expect("writable");
    program.go_on();
    program.line();
    binder.arrived(SPACE, &process);
    if !nix::unistd::geteuid().is_root() {
        // Others may not be told of mappings, and see it at the next look.
        binder.refresh(SPACE, &process);
    }
    drop(program);
    assert_eq!(name(&binder, bound), "late");
}
