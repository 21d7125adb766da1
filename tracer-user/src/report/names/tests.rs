use super::*;

fn frame(function: &str, object: &str) -> Frame {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Frame {
        function: some(function),
        object: some(object),
        offset: Some(0x1234),
        address: "0x7f0000001234".to_owned(),
        ..Frame::default()
    }
}

fn check(frames: &[(&str, &str)], name: &str) {
    let frames: Vec<_> = frames.iter().map(|(function, object)| frame(function, object)).collect();
    assert_eq!(of_stack(&frames), name);
}

#[test]
fn the_first_frame_outside_the_machinery_names_the_stack() {
    check(
        &[("strdup", "/usr/lib/libc.so.6"), ("keep_name", "/opt/app"), ("main", "/opt/app")],
        "keep_name",
    );
    check(
        &[
            ("operator new(unsigned long)", "/usr/lib/libstdc++.so.6"),
            ("std::__new_allocator<int>::allocate(unsigned long, void const*)", "/opt/app"),
            ("void std::vector<int>::_M_realloc_insert<int>(int&&)", "/opt/app"),
            ("Cache::put(int)", "/opt/app"),
        ],
        "Cache::put(int)",
    );
    check(
        &[
            ("<T as alloc::slice::hack::ConvertVec>::to_vec", "/opt/app"),
            ("<app::Session as core::clone::Clone>::clone", "/opt/app"),
        ],
        "<app::Session as core::clone::Clone>::clone",
    );
    check(
        &[
            ("alloc::raw_vec::finish_grow", "/opt/app"),
            ("<alloc::vec::Vec<T> as core::clone::Clone>::clone", "/opt/app"),
            ("app::Session::open", "/opt/app"),
        ],
        "app::Session::open",
    );
}

#[test]
fn what_a_runtime_allocates_is_its_script_s() {
    let node = [
        ("operator new[](unsigned long)", "/usr/lib/libstdc++.so.6"),
        ("node::NodeArrayBufferAllocator::AllocateUninitialized(unsigned long)", "/usr/bin/node"),
        ("v8::ArrayBuffer::New(v8::Isolate*, unsigned long)", "/usr/bin/node"),
        ("Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit", "/usr/bin/node"),
    ];
    let scripts = [("Builtin:ArrayMap", ""), ("leakHere", ""), ("main", "")];
    check(&[&node[..], &scripts].concat(), "leakHere");
    // A script without a name is none to be preferred.
    check(&[&node[..], &[("", ""), ("main", "/usr/bin/node")]].concat(), node[1].0);
    check(&node, node[1].0);
    let mut frames: Vec<_> = scripts[1..].iter().map(|(name, _)| frame(name, "")).collect();
    frames.insert(0, frame("alloc", ""));
    frames.insert(0, frame(node[1].0, node[1].1));
    frames[1].file = Some("node:buffer".to_owned());
    assert_eq!(of_stack(&frames), "leakHere");
    let python = [("PyList_New", "/usr/lib/libpython3.12.so.1.0"), ("leak_here", "")];
    check(&python, "leak_here");
    let java = [("os::malloc(unsigned long)", "/jvm/server/libjvm.so")];
    check(
        &[&java[..], &[("StubRoutines (1)", ""), ("void Leak.main()", "")]].concat(),
        "void Leak.main()",
    );
    let mut ran = [python[0], ("_load", python[0].1), ("PyThing.leak_here", python[0].1)]
        .map(|(name, object)| frame(name, object));
    (ran[1].interpreted, ran[1].file) = (true, Some("<frozen importlib._bootstrap>".to_owned()));
    (ran[2].interpreted, ran[2].file) = (true, Some("/app/a.py".to_owned()));
    assert_eq!(of_stack(&ran), "PyThing.leak_here");
    // An addon's own function is what its author looks for.
    let addon = [("addon_leaks", "/app/addon.node"), node[2], ("leakHere", "")];
    check(&addon, "addon_leaks");
    // A program that calls a runtime's library is not its script.
    let embeds = [("PyList_New", "/usr/lib/libpython3.12.so.1.0"), ("embeds", "/opt/app")];
    check(&embeds, "PyList_New");
}

#[test]
fn a_function_that_returns_or_takes_machinery_is_none() {
    check(
        &[("std::vector<int> mine::make<int>(std::string const&)", "/opt/app")],
        "std::vector<int> mine::make<int>(std::string const&)",
    );
    check(
        &[("malloc", "/opt/app"), ("std::string build<char>(int)", "/opt/app")],
        "std::string build<char>(int)",
    );
    check(&[("malloc", "/opt/app"), ("malloc_table_grow", "/opt/app")], "malloc_table_grow");
}

#[test]
fn a_sampled_function_is_marked() {
    let sampled = Frame { sampled: true, ..frame("leak_here", "/usr/bin/python3") };
    assert_eq!(of(&sampled), "leak_here (sampled)");
    assert_eq!(of_stack(&[frame("malloc", "/lib/libc.so.6"), sampled]), "leak_here (sampled)");
}

#[test]
fn when_all_is_machinery_the_first_name_is_used() {
    check(&[("", "/usr/lib/libc.so.6"), ("malloc", "/usr/lib/libc.so.6")], "malloc");
}

#[test]
fn frames_without_a_function_show_where_they_are() {
    check(&[("", "/opt/plugin.so")], "plugin.so+0x1234");
    check(&[("", "")], "[unknown]");
    check(&[("", ""), ("jit_entry", "")], "jit_entry");
    check(&[], "[stack lost]");
}

#[test]
fn functions_of_scripts_are_told_apart_by_their_places() {
    let mut script = frame("(anonymous)", "");
    script.file = Some("/app/leak.js".to_owned());
    assert_eq!(alone(&script), "(anonymous) leak.js");
    script.line = Some(3);
    assert_eq!(alone(&script), "(anonymous) leak.js:3");
    script.object = Some("/opt/app".to_owned());
    assert_eq!(alone(&script), "(anonymous)");
    // Ran by an interpreter, which says where it was and not where it begins.
    script.interpreted = true;
    assert_eq!(alone(&script), "(anonymous) leak.js");
}

#[test]
fn types_are_cut_from_names() {
    for (function, name) in [
        ("main", "main"),
        ("f(int)", "f"),
        ("void f<int>(int)", "f<int>"),
        ("operator new(unsigned long)", "operator new"),
        ("operator new[](unsigned long)", "operator new[]"),
        ("(anonymous namespace)::leak(int)", "(anonymous namespace)::leak"),
        ("void exec<void (*)()>(void (*)())", "exec<void (*)()>"),
    ] {
        assert_eq!(without_types(function), name);
    }
}

#[test]
fn what_programs_put_around_allocators_names_no_stack() {
    for function in [
        "zmalloc_usable",
        "ztryrealloc_usable",
        "sqlite3DbMallocRawNN",
        "sqlite3_malloc64",
        "ngx_palloc_small",
        "ngx_pnalloc",
        "AllocSetAlloc",
        "MemoryContextAllocZero",
        "my_malloc",
        "Perl_safesysmalloc",
        "os::malloc(unsigned long, MEMFLAGS)",
        "AllocateHeap(unsigned long, MEMFLAGS)",
        "CHeapObj<(MEMFLAGS)1>::operator new(unsigned long)",
        "av_mallocz",
        "CRYPTO_zalloc",
        "g_slice_alloc0",
        "g_malloc_n",
        "xmallocz",
        "uv__malloc",
        "ruby_xmalloc2",
        "objspace_xmalloc0",
        "_emalloc_large",
        "zend_mm_alloc_huge",
        "l_alloc",
        "luaM_malloc_",
        "talloc_strdup",
        "_talloc_zero",
        "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
        "<usize as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
        "<&mut I as core::iter::traits::iterator::Iterator>::next",
        "<[T] as alloc::slice::hack::ConvertVec>::to_vec",
        "<alloc::vec::Vec<app::Row> as core::clone::Clone>::clone",
        "<alloc::string::String>::push",
    ] {
        check(&[("malloc", "/opt/app"), (function, "/opt/app"), ("mine", "/opt/app")], "mine");
    }
}

#[test]
fn what_an_application_calls_its_own_names_a_stack() {
    for function in [
        "insert",
        "allocate_session",
        "l_allocate",
        "my_malloc_table",
        "os::mallocs",
        "pallocate",
        "Arena::grow(unsigned long)",
        "<app::Session as core::clone::Clone>::clone",
        "<app::Session>::clone",
        "<u8 as app::Encode>::encode",
        "<alloc::vec::Vec<u8> as app::Encode>::encode",
        "<T as app::Encode>::encode",
        "<unbalanced as core::",
        "<",
    ] {
        check(&[("malloc", "/opt/app"), (function, "/opt/app"), ("main", "/opt/app")], function);
    }
}

#[test]
fn what_a_library_of_machinery_allocates_before_the_program_is_its_own() {
    let loader = "/usr/lib/ld-linux-x86-64.so.2";
    let init = [("call_init", loader), ("_dl_init", loader), ("", loader)];
    let pool = ("", "/usr/lib/libstdc++.so.6.0.30");
    check(&[&[pool], &init[..]].concat(), "initialization of libstdc++.so.6.0.30");
    let named = ("__gnu_cxx::__freeres()", pool.1);
    check(&[&[named], &init[..]].concat(), named.0);
    check(&[&[("setup", "/opt/app.so")], &init[..]].concat(), "setup");
    check(&init, "call_init");
}
