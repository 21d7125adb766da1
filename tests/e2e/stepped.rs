//! Stacks from every instruction: of functions that are hard to leave, of stubs of other objects, and
//! of the loader that binds them.

use outlive_tests::build::Build;
use outlive_tests::measure::{MEASURED, WARMUP, measure};
use outlive_tests::scratch::{Scratch, copy_program};
use outlive_tests::session::{Frame, Stack};
use outlive_tests::workload::Program;

use crate::stacks::{begins, functions};

crate::tests![
    [Bpf, C] each_instruction_of_a_realigned_function_is_left,
    [Bpf, C] each_instruction_of_assembly_that_realigns_is_left,
    [Bpf, C] what_the_loader_allocates_for_a_first_call_has_a_whole_stack,
    [Bpf, C] code_where_other_code_was_is_left_by_its_own_rules,
];

const USUAL: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];

fn library(source: &str, name: &str) -> std::path::PathBuf {
    let flags = [USUAL, &["-shared", "-fPIC", "-fplt", "-Wl,-z,lazy"]].concat();
    Build::library(source, name).only_flags(&flags).build()
}

fn is(frame: &Frame, name: &str) -> bool {
    frame.function.as_deref() == Some(name)
}

fn is_in(object: &str) -> impl Fn(&Frame) -> bool {
    move |frame| frame.object.as_deref().is_some_and(|path| path.contains(object))
}

/// Steps through a function of the library, and what it calls, and has each stack looked at.
#[track_caller]
fn step(function: &str) {
    let library = library("c/lib_stepped.c", "libstepped.so");
    let program = Build::c("stepped.c").only_flags(&[USUAL, &["-ldl"]].concat()).build();
    let program = Program::new(program).arg(library.display().to_string()).arg(function);
    let measured = measure(&program);
    measured.expect_exact();
    let stacks = &measured.session.stacks;
    let (whole, broken): (Vec<_>, Vec<_>) = stacks.iter().partition(|stack| stack.end == "whole");
    // Whom the loader's entry calls has yet to save the register in which that one remembers its frame.
    assert!(broken.len() <= 8, "{:?}", measured.session.stack_quality);
    for Stack { frames, .. } in broken {
        assert!(frames.len() == 4 && frames[2..].iter().all(is_in("ld-linux")), "{frames:?}");
    }
    for Stack { frames, .. } in &whole {
        assert!(is(&frames[0], "on_trap") && is(&frames[1], "<signal handler called>"));
        let at = frames.iter().position(|frame| is(frame, "stepped"));
        let at = at.unwrap_or_else(|| panic!("no caller in {frames:?}"));
        assert!(is(&frames[at + 1], "batch"), "{frames:?}");
        let entered = frames[..at].iter().position(|frame| is(frame, function));
        assert!(entered.is_none_or(|entered| entered + 1 == at), "{frames:?}");
    }
    // The library's own code, its stub, and the loader.
    let n_in = |name: &str| whole.iter().filter(|stack| is_in(name)(&stack.frames[2])).count();
    let (own, loader) = (n_in("libstepped.so"), n_in("ld-linux"));
    assert!(own > 15 && loader > 200, "{own} in the library, {loader} in the loader");
}

fn each_instruction_of_a_realigned_function_is_left() {
    step("realigns");
}

fn each_instruction_of_assembly_that_realigns_is_left() {
    step("remembers");
}

fn what_the_loader_allocates_for_a_first_call_has_a_whole_stack() {
    let scratch = Scratch::new();
    let binds = library("c/lib_binds.c", "libbinds.so");
    let bound = library("c/lib_bound.c", "libbound.so");
    let program = Build::c("bound_late.c").only_flags(&[USUAL, &["-ldl"]].concat()).build();
    let mut program = Program::new(program).arg(bound.display().to_string());
    for number in 0..WARMUP + MEASURED {
        let copy = scratch.join(&format!("lib{number}.so"));
        copy_program(&binds, &copy);
        program = program.arg(copy.display().to_string());
    }
    let measured = measure(&program);
    assert_eq!(measured.session.lost(), 0, "{}", measured.story());
    let stacks = measured.session.stacks.iter();
    let stacks: Vec<_> =
        stacks.filter(|stack| stack.frames.iter().any(|frame| is(frame, "binds"))).collect();
    assert!(!stacks.is_empty(), "{}", measured.story());
    let blocks: i64 = stacks.iter().map(|stack| stack.blocks).sum();
    assert_eq!(blocks, i64::try_from(MEASURED).unwrap(), "{}", measured.story());
    for stack in stacks {
        let at = stack.frames.iter().position(|frame| is(frame, "binds")).unwrap();
        assert!(is(&stack.frames[at + 1], "batch"), "{:?}", stack.frames);
        assert_eq!(stack.end, "whole", "{:?}", stack.frames);
    }
}

/// Two libraries are mapped at one place in turn. The same return address has another frame then.
fn code_where_other_code_was_is_left_by_its_own_rules() {
    let library = |function: &str, room: u32| {
        let flags = [format!("-DFUNCTION={function}"), format!("-DROOM={room}")];
        let build = Build::library("c/lib_frame.c", &format!("lib{function}.so"));
        let [function, room] = flags;
        let build = build.flag("-O2").flag("-fomit-frame-pointer").flag("-fno-stack-protector");
        build.flag(function).flag(room).build().display().to_string()
    };
    let (small, large) = (library("frame_small", 24), library("frame_large", 88));
    let program = Program::new(Build::c("replaced_library.c").flag("-ldl").build());
    let measured = measure(&program.arg(small).arg(large));
    measured.expect_exact();
    for function in ["frame_small", "frame_large"] {
        let stacks = measured.session.stacks.iter().map(functions);
        let own: Vec<_> = stacks.filter(|names| names.contains(&function)).collect();
        assert!(!own.is_empty(), "no {function}; {}", measured.story());
        for names in own {
            assert!(begins(&names, &[function, "*", "batch", "*", "main"]), "{names:?}");
        }
    }
    let quality = &measured.session.stack_quality;
    assert_eq!(quality.broken.stacks, 0, "{}", measured.story());
}
