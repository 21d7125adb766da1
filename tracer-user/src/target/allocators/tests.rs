use tracer_common::cookie::Shape;

use super::symbols::known_symbols;
use super::*;
use crate::target::process::Process;
use crate::target::sites::{Cost, N_ARGS};
use crate::target::test_program::{Folder, Program};

/// Prints where its `malloc` is and waits.
const PRINT_MALLOC: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    int main(void) { printf("%p\n", (void *)malloc); fflush(stdout); getchar(); return 0; }
"#;

/// The same, with a `malloc` of its own.
const OWN_MALLOC: &str = r#"
    #include <stdio.h>
    #include <stddef.h>
    static char heap[1 << 20];
    static size_t used;
    void *malloc(size_t n) { void *p = heap + used; used += (n + 15) & ~15ul; return p; }
    void free(void *p) { (void)p; }
    int main(void) { printf("%p\n", (void *)malloc); fflush(stdout); getchar(); return 0; }
"#;

fn named<'a>(objects: &'a [AllocatorObject], name: &str) -> Vec<&'a Function> {
    let functions = objects.iter().flat_map(|object| &object.functions);
    functions.filter(|function| function.names.iter().any(|known| known == name)).collect()
}

/// Where in its file the process has the code at `addr`.
fn file_offset(process: &Process, addr: u64) -> FileOffset {
    let mappings = process.mappings().expect("it runs");
    let mapping = mappings.at(addr).expect("it is mapped");
    FileOffset(mapping.offset + addr - mapping.start)
}

fn check_malloc(mut program: Program) {
    let addr = program.addr();
    let process = program.process();
    let mut search = Allocators::default();
    search.find(&process).expect("it has malloc");
    let objects = search.objects();
    let entry = file_offset(&process, addr);
    let found = named(objects, "malloc");
    assert!(found.iter().any(|function| function.entry == entry), "{entry:?} {found:?}");
}

#[test]
fn every_description_fits_in_a_cookie() {
    let all: Vec<_> = functions::C.iter().chain(functions::OTHERS).collect();
    for (index, description) in all.iter().enumerate() {
        assert!(description.args().iter().all(|arg| usize::from(*arg) < N_ARGS));
        assert!(all[index + 1..].iter().all(|other| other.name != description.name));
    }
}

#[test]
fn a_cookie_follows_moved_arguments_and_leaves_the_rest_zero() {
    let site = Site {
        offset: FileOffset(0),
        distance: 0,
        cost: Cost::Emulated,
        instruction: String::new(),
        arg_places: [5, 4, 3, 2, 1, 0],
    };
    let cookie = |name: &str| {
        let cookie = Description::of(name).expect("in the table").cookie(&site, 7);
        assert_eq!(cookie.family, 7);
        (cookie.size_arg, cookie.count_arg, cookie.ptr_arg)
    };
    assert_eq!(cookie("free"), (0, 0, 5));
    assert_eq!(cookie("malloc"), (5, 0, 0));
    assert_eq!(cookie("memalign"), (4, 0, 0));
    assert_eq!(cookie("calloc"), (4, 5, 0));
    assert_eq!(cookie("realloc"), (4, 0, 5));
    assert_eq!(cookie("reallocarray"), (3, 4, 5));
    assert_eq!(cookie("posix_memalign"), (3, 0, 5));
}

#[test]
fn the_c_library_of_this_machine() {
    let folder = Folder::new();
    let mut program = folder.run(PRINT_MALLOC, &[]);
    program.addr();
    let process = program.process();
    let mut allocators = Allocators::default();
    let found = allocators.find(&process).expect("a C library");
    let objects = allocators.objects();
    assert_eq!(objects.len(), 1, "the loader's own allocator is not offered to others");
    let libc = &objects[0];
    assert!(libc.family_name.starts_with("libc.so"), "{}", libc.family_name);
    assert_eq!(libc.untraceable, []);

    for function in &libc.functions {
        let Site { distance, cost, instruction, .. } = &function.site;
        println!("{:?} +{distance} {instruction} {cost:?}", function.names);
    }
    for name in ["malloc", "calloc", "realloc", "free"] {
        let functions = named(objects, name);
        assert_eq!(functions.len(), 1, "{name}");
        assert_eq!(functions[0].site.cost, Cost::Emulated, "{name}");
    }
    let mut entries: Vec<_> = libc.functions.iter().map(|function| function.entry).collect();
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), libc.functions.len(), "no place is probed twice");

    let n_known = objects.len();
    assert_eq!(allocators.look(&process).expect("it still runs"), found);
    assert_eq!(allocators.objects().len(), n_known, "what is known is not searched again");
}

#[test]
fn the_place_is_right_however_the_program_was_linked() {
    for flags in [
        ["-pie", "-fPIE"].as_slice(),
        &["-no-pie"],
        &["-Wl,-z,noseparate-code"],
        &["-no-pie", "-Wl,-Ttext-segment=0x600000"],
        &["-O2", "-rdynamic"],
    ] {
        let folder = Folder::new();
        check_malloc(folder.run(OWN_MALLOC, flags));
    }
}

#[test]
fn a_static_program_has_it_in_its_full_symbol_table() {
    for flags in [["-static"].as_slice(), &["-static-pie", "-fPIE"]] {
        let folder = Folder::new();
        check_malloc(folder.run(PRINT_MALLOC, flags));
    }
}

#[test]
fn a_stripped_static_program_is_refused_by_name() {
    let folder = Folder::new();
    let mut program = folder.run(PRINT_MALLOC, &["-static", "-s"]);
    program.addr();
    let error = Allocators::default().find(&program.process()).expect_err("no symbols");
    assert_eq!(error.class(), crate::target::Class::Environment);
    let text = error.to_string();
    assert!(text.starts_with("no allocator symbol in /"), "{text}");
    assert!(text.contains("/program; outlive needs malloc and free"), "{text}");
}

#[test]
fn a_deleted_program_and_a_deleted_library_are_still_read() {
    let folder = Folder::new();
    let mut program = folder.run(OWN_MALLOC, &[]);
    let path = folder.path("program");
    std::fs::remove_file(&path).expect("it is there");
    std::fs::write(&path, "another file").expect("the folder is writable");
    let addr = program.addr();
    let process = program.process();
    let mut search = Allocators::default();
    search.find(&process).expect("it has malloc");
    let objects = search.objects();
    let entry = file_offset(&process, addr);
    assert!(named(objects, "malloc").iter().any(|function| function.entry == entry));
}

#[test]
fn a_library_that_comes_later() {
    let folder = Folder::new();
    let library = "#include <stddef.h>\nstatic char heap[64];\n\
        void *malloc(size_t n) { (void)n; return heap; }\nvoid free(void *p) { (void)p; }\n";
    folder.compile("later.so", library, &["-shared", "-fPIC"]);
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            puts("first"); fflush(stdout); getchar();
            puts(dlopen("./later.so", RTLD_NOW | RTLD_LOCAL) ? "second" : dlerror());
            fflush(stdout); getchar(); return 0;
        }
    "#;
    let mut program = folder.run(source, &["-ldl"]);
    assert_eq!(program.line(), "first");
    let process = program.process();
    let mut allocators = Allocators::default();
    let first = allocators.find(&process).expect("the C library");
    program.go_on();
    assert_eq!(program.line(), "second");
    let later = allocators.look(&process).expect("it still runs");
    let new: Vec<_> = later.into_iter().filter(|index| !first.contains(index)).collect();
    let [new] = new[..] else { panic!("one object came: {new:?}") };
    let new = &allocators.objects()[new];
    assert_eq!((new.family_name.as_str(), new.functions.len()), ("later.so", 2));
    assert!(first.iter().all(|index| allocators.objects()[*index].family < new.family));
}

#[test]
fn two_versions_of_a_function_are_two_places() {
    let folder = Folder::new();
    std::fs::write(folder.path("versions"), "V1 { global: malloc; }; V2 { global: malloc; } V1;")
        .expect("the folder is writable");
    let library = r#"
        #include <stddef.h>
        static char heap[64];
        void *old_malloc(size_t n) { heap[0] = (char)n; return heap; }
        void *new_malloc(size_t n) { heap[1] = (char)n; return heap; }
        __asm__(".symver old_malloc, malloc@V1");
        __asm__(".symver new_malloc, malloc@@V2");
    "#;
    let path =
        folder.compile("two.so", library, &["-shared", "-fPIC", "-Wl,--version-script=versions"]);
    let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
    let symbols = known_symbols(&elf, false).expect("symbols");
    let (functions, untraceable) = probes(&elf, &symbols, 0);
    assert_eq!(untraceable, []);
    assert_eq!(functions.len(), 2, "{functions:?}");
    assert!(functions.iter().all(|function| function.names == ["malloc"]));
}

#[test]
fn a_function_picked_at_load_time_is_told() {
    let folder = Folder::new();
    let library = r#"
        #include <stddef.h>
        static char heap[64];
        static void *plain(size_t n) { (void)n; return heap; }
        static void *(*resolve(void))(size_t) { return plain; }
        void *malloc(size_t n) __attribute__((ifunc("resolve")));
    "#;
    let path = folder.compile("picked.so", library, &["-shared", "-fPIC"]);
    let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
    let symbols = known_symbols(&elf, false).expect("symbols");
    let (functions, untraceable) = probes(&elf, &symbols, 0);
    assert_eq!(functions, []);
    let reason = UntraceableReason::Indirect;
    assert_eq!(
        untraceable,
        [Untraceable { names: vec!["malloc".to_owned()], shape: Shape::Alloc, reason }]
    );
}

#[test]
fn several_names_of_one_place_are_one_probe() {
    let folder = Folder::new();
    let library = "void free(void *p) { *(char *)p = 0; }\n\
        void cfree(void *p) __attribute__((alias(\"free\")));\n\
        void free_sized(void *p) __attribute__((alias(\"free\")));\n";
    let path = folder.compile("alias.so", library, &["-shared", "-fPIC"]);
    let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
    let symbols = known_symbols(&elf, false).expect("symbols");
    let (functions, _) = probes(&elf, &symbols, 0);
    assert_eq!(functions.len(), 1);
    assert_eq!(functions[0].names, ["free", "cfree", "free_sized"]);
}

#[test]
fn a_function_of_the_program_s_own_that_has_the_name_is_not_the_allocator_s() {
    let folder = Folder::new();
    let source = "#include <stdio.h>\n\
        static __attribute__((noinline)) int free(int n) { __asm__(\"\"); return n + 1; }\n\
        int main(void) { puts(\"up\"); fflush(stdout); return free(getchar()); }\n";
    let mut program = folder.run(source, &["-fno-builtin"]);
    program.line();
    let mut search = Allocators::default();
    search.find(&program.process()).expect("the C library");
    let objects = search.objects();
    assert!(objects.iter().all(|object| object.family_name != "program"));
}

#[test]
fn names_of_known_allocators_are_described() {
    for (name, shape, throws) in [
        ("_rjem_sdallocx", Shape::Free, false),
        ("je_posix_memalign", Shape::AllocOut, false),
        ("mi_heap_calloc", Shape::AllocArray, false),
        ("tc_newarray", Shape::Alloc, true),
        ("_ZnamSt11align_val_tRKSt9nothrow_t", Shape::Alloc, true),
        ("_ZdlPvmSt11align_val_t", Shape::Free, false),
    ] {
        let what = Description::of(name).expect(name);
        assert_eq!((what.shape, what.throws), (shape, throws), "{name}");
    }
    // Placement forms make nothing.
    for name in ["_ZnwmPv", "_ZdlPvS_", "my_malloc", "mi_version"] {
        assert_eq!(Description::of(name), None, "{name}");
    }
}

#[test]
fn operator_new_is_probed_beside_a_malloc_alone() {
    let folder = Folder::new();
    let new = "void *_Znwm(unsigned long n) { (void)n; return (void *)16; }\n";
    let names = |file: &str, source: &str| {
        let path = folder.compile(file, source, &["-shared", "-fPIC"]);
        let elf = Elf::open(&File::open(path).expect("just made")).expect("an object");
        probes(&elf, &known_symbols(&elf, false).expect("symbols"), 0).0
    };
    assert_eq!(names("alone.so", new), []);
    let both = format!("{new}void *malloc(unsigned long n) {{ (void)n; return (void *)32; }}\n");
    let functions = names("both.so", &both);
    let by_name = |name: &str| {
        functions.iter().find(|function| function.names == [name]).expect("it is probed")
    };
    assert_eq!(by_name("_Znwm").returns.len(), 1, "its end is seen where it returns");
    assert!(by_name("malloc").returns.is_empty());
}
