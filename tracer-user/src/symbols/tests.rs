mod cpp;
mod debug_files;
mod generated;
mod split;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use self::debug_files::objcopy;
use super::*;
use crate::target::elf::{Elf, Table};
use crate::target::process::Process;
use crate::target::test_program::Folder;

/// The only address space here.
const SPACE: u64 = 1;

/// Binds this return address and names it.
fn names(process: &Process, return_addr: u64) -> Vec<Frame> {
    let mut binder = Binder::default();
    let bound = binder.bind(SPACE, process, return_addr);
    symbolize(&binder, [bound, bound]).frames(bound).to_vec()
}

fn functions(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.function.as_deref().unwrap_or("?")).collect()
}

/// `sink` prints from where it was called.
const SINK: &str = r#"
    #include <stdio.h>
    __attribute__((noinline)) void sink(void) {
        printf("%p\n", __builtin_return_address(0)); fflush(stdout);
    }
"#;

#[test]
fn inlined_functions_and_lines() {
    let folder = Folder::new();
    let source = format!(
        "{SINK}\n\
         #line 100 \"shown.c\"\n\
         static inline __attribute__((always_inline)) void hot(void) {{ sink(); }}\n\
         __attribute__((noinline)) int outer(int n) {{\n\
         \x20   hot();\n\
         \x20   return n + 1;\n\
         }}\n\
         int main(void) {{ int n = outer(1); getchar(); return n; }}\n"
    );
    let mut program = folder.run(&source, &["-O2", "-g"]);
    let frames = names(&program.process(), program.addr());
    assert_eq!(functions(&frames), ["hot", "outer"]);
    assert_eq!(frames.iter().map(|frame| frame.inlined).collect::<Vec<_>>(), [true, false]);
    assert_eq!(frames.iter().map(|frame| frame.line).collect::<Vec<_>>(), [Some(100), Some(102)]);
    assert!(frames[0].file.as_deref().is_some_and(|file| file.ends_with("/shown.c")));
    let object = folder.path("program").to_string_lossy().into_owned();
    assert!(frames.iter().all(|frame| frame.object.as_deref() == Some(object.as_str())));
}

#[test]
fn a_function_in_pieces_has_its_name_in_each() {
    let folder = Folder::new();
    let source = format!(
        "{SINK}\n#include <stdlib.h>\n\
         __attribute__((cold, noinline, noreturn)) void seldom(void) {{\n\
         \x20   printf(\"%p\\n\", __builtin_return_address(0)); fflush(stdout);\n\
         \x20   getchar(); exit(0);\n\
         }}\n\
         __attribute__((noinline)) int in_pieces(int n) {{\n\
         \x20   sink();\n\
         \x20   if (n == 1) seldom();\n\
         \x20   return n + 1;\n\
         }}\n\
         int main(int n, char **v) {{ (void)v; return in_pieces(n); }}\n"
    );
    let mut program = folder.run(&source, &["-O2", "-g", "-freorder-blocks-and-partition"]);
    let process = program.process();
    let [often, seldom] = [program.addr(), program.addr()];
    assert!(0x40 < often.abs_diff(seldom), "the compiler made one piece: {often:x} {seldom:x}");
    for addr in [often, seldom] {
        assert_eq!(functions(&names(&process, addr)), ["in_pieces"]);
    }
}

#[test]
fn the_caller_at_a_function_s_end_is_not_the_next_function() {
    let folder = Folder::new();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((noreturn, noinline)) static void stop(void) {
            printf("%p\n", __builtin_return_address(0)); fflush(stdout); getchar(); exit(0);
        }
        __attribute__((noinline)) void calls_last(void) { stop(); }
        __attribute__((noinline)) void follows(void) { puts("no"); }
        int main(int n, char **v) { (void)v; if (n > 0) calls_last(); follows(); return 0; }
    "#;
    let mut program = folder.run(source, &["-O1", "-fno-toplevel-reorder"]);
    assert_eq!(functions(&names(&program.process(), program.addr())), ["calls_last"]);
}

#[test]
fn names_of_other_languages_are_demangled() {
    let folder = Folder::new();
    let source = format!(
        "{SINK}\
         void _ZN3app4execIPFvvEEEvT_(void) {{ sink(); __asm__(\"\"); }}\n\
         void _RNvCs1234_7mycrate5leaky(void) {{ sink(); __asm__(\"\"); }}\n\
         void _ZN7mycrate5leaky17h0123456789abcdefE(void) {{ sink(); __asm__(\"\"); }}\n\
         int main(void) {{ _ZN3app4execIPFvvEEEvT_(); _RNvCs1234_7mycrate5leaky();\n\
             _ZN7mycrate5leaky17h0123456789abcdefE(); getchar(); return 0; }}\n"
    );
    let mut program = folder.run(&source, &["-O1"]);
    let process = program.process();
    let mut next = || functions(&names(&process, program.addr())).join(" ");
    assert_eq!(next(), "void app::exec<void (*)()>(void (*)())");
    assert_eq!(next(), "mycrate::leaky");
    assert_eq!(next(), "mycrate::leaky");
}

/// A program whose function `leak_here` was renamed to these bytes, and where it was called from.
fn renamed(name: &[u8]) -> Vec<Frame> {
    let folder = Folder::new();
    let source = format!(
        "{SINK}void leak_here(void) {{ sink(); __asm__(\"\"); }}\n\
         void next(void) {{ leak_here(); __asm__(\"\"); }}\n\
         int main(void) {{ next(); getchar(); return 0; }}\n"
    );
    folder.compile("program", &source, &["-O1"]);
    let rename = [b"--redefine-sym=leak_here=", name].concat();
    objcopy(&folder, &[OsStr::from_bytes(&rename), OsStr::new("program")]);
    let mut program = folder.start("program");
    names(&program.process(), program.addr())
}

#[test]
fn a_name_may_hold_any_bytes() {
    assert_eq!(functions(&renamed(b"ns;leak here 42")), ["ns;leak here 42"]);
    assert_eq!(functions(&renamed("漏".repeat(200).as_bytes())), ["漏".repeat(200)]);
    assert_eq!(functions(&renamed(b"a\xffb")), ["a\u{fffd}b"]);
}

#[test]
fn a_replaced_program_is_named_from_what_runs() {
    let folder = Folder::new();
    let source = |name: &str| {
        format!(
            "{SINK}void {name}(void) {{ sink(); __asm__(\"\"); }}\n\
             int main(void) {{ {name}(); getchar(); return 0; }}\n"
        )
    };
    let mut program = folder.run(&source("right"), &["-O1"]);
    fs::remove_file(folder.path("program")).expect("it is there");
    folder.compile("program", &source("wrong"), &["-O1"]);
    assert_eq!(functions(&names(&program.process(), program.addr())), ["right"]);
}

#[test]
fn an_unmapped_library_and_an_ended_program_keep_their_names() {
    let folder = Folder::new();
    let plugin = format!("{SINK}void plugin_fn(void) {{ sink(); __asm__(\"\"); }}\n");
    folder.compile("plugin.so", &plugin, &["-O1", "-shared", "-fPIC"]);
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            void *plugin = dlopen("./plugin.so", RTLD_NOW);
            ((void (*)(void))dlsym(plugin, "plugin_fn"))();
            getchar(); dlclose(plugin); puts("closed"); fflush(stdout); getchar(); return 0;
        }
    "#;
    let mut program = folder.run(source, &["-ldl"]);
    let process = program.process();
    let mut binder = Binder::default();
    let addr = program.addr();
    let bound = binder.bind(SPACE, &process, addr);
    program.go_on();
    program.line();
    binder.refresh(SPACE, &process);
    assert_eq!(process.mappings().expect("it runs").at(addr), None, "it is unmapped now");
    assert_eq!(binder.bind(SPACE, &process, addr), bound, "a stack may be read late");
    fs::remove_file(folder.path("plugin.so")).expect("it is there");
    drop(program);
    let names = symbolize(&binder, [bound]);
    assert_eq!(functions(names.frames(bound)), ["plugin_fn"]);
    let object = names.frames(bound)[0].object.clone().unwrap_or_default();
    assert!(object.ends_with("/plugin.so"), "{object}");
}

#[test]
fn a_place_behind_every_symbol_is_object_and_offset() {
    let folder = Folder::new();
    let library = format!(
        "#include <stdio.h>\nvoid tiny(void) {{}}\n{}\
         __attribute__((noinline)) static void hidden(void) {{ sink(); __asm__(\"\"); }}\n\
         void (*entry)(void) = hidden;\n",
        SINK.replace("void sink", "static void sink"),
    );
    let flags = ["-O1", "-shared", "-fPIC", "-s", "-fno-toplevel-reorder"];
    folder.compile("stripped.so", &library, &flags);
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            void *library = dlopen("./stripped.so", RTLD_NOW);
            (*(void (**)(void))dlsym(library, "entry"))();
            getchar(); return 0;
        }
    "#;
    let mut program = folder.run(source, &["-ldl"]);
    let frames = names(&program.process(), program.addr());
    assert_eq!(functions(&frames), ["?"]);
    assert!(frames[0].object.as_deref().is_some_and(|name| name.ends_with("/stripped.so")));
    assert!((0x1000..0x10000).contains(&frames[0].offset), "{:#x}", frames[0].offset);
}

#[test]
fn a_symbol_without_a_size_names_nothing_behind_it() {
    let folder = Folder::new();
    let source = format!(
        "{SINK}\n\
         __asm__(\".type tiny, @function\\ntiny: ret\");\n\
         __attribute__((noinline)) static void hidden(void) {{ sink(); __asm__(\"\"); }}\n\
         int main(void) {{ hidden(); getchar(); return 0; }}\n"
    );
    let file = folder.compile("program", &source, &["-O1", "-fno-toplevel-reorder"]);
    objcopy(&folder, &["--strip-symbol=hidden", "program"]);
    let bytes = fs::read(&file).expect("the program");
    assert!(bytes.windows(6).any(|name| name == b"\0tiny\0"), "the symbol is there");
    let mut program = folder.start("program");
    let frames = names(&program.process(), program.addr());
    assert_eq!(functions(&frames), ["?"]);
}

#[test]
fn an_address_that_is_no_code_keeps_its_place_in_the_stack() {
    let folder = Folder::new();
    let source = "#include <stdio.h>\nstatic int data = 1;\n\
        int main(void) { printf(\"%p\\n\", (void *)&data); fflush(stdout); getchar(); return 0; }";
    let mut program = folder.run(source, &[]);
    let process = program.process();
    let mut binder = Binder::default();
    let addrs = [program.addr() + 1, 0, 1, u64::MAX];
    let bounds = addrs.map(|addr| binder.bind(SPACE, &process, addr));
    let names = symbolize(&binder, bounds);
    for bound in bounds {
        assert_eq!(bound.object, None, "{bound:?}");
        assert_eq!(functions(names.frames(bound)), ["?"]);
    }
}

#[test]
fn functions_of_the_vdso_have_names() {
    let folder = Folder::new();
    let mut program =
        folder.run("#include <stdio.h>\nint main(void) { getchar(); return 0; }", &[]);
    let process = program.process();
    let vdso = loop {
        // The loader has not run yet, but the kernel has mapped it.
        if let Some(addr) = process.auxv(libc::AT_SYSINFO_EHDR).expect("it runs") {
            break addr;
        }
    };
    let mut binder = Binder::default();
    let bound = binder.bind(SPACE, &process, vdso + 1);
    assert_eq!((bound.offset, bound.space), (0, None));
    let object = binder.object(bound.object.expect("it is executable")).expect("just bound");
    let ObjectKind::File(Some(file)) = &object.kind else { panic!("{object:?}") };
    let elf = Elf::open(file).expect("an object file");
    let time = elf.functions(Table::Dynamic, |name| name == "__vdso_time").expect("it has symbols");
    let time = time.first().expect("every kernel has it").addr.0;
    let frames = names(&process, vdso + time + 2);
    assert_eq!(frames[0].object.as_deref(), Some("[vdso]"));
    assert!(matches!(functions(&frames)[..], ["time" | "__vdso_time"]), "{frames:?}");
    assert_eq!(frames[0].offset, time + 1);
    program.go_on();
}
