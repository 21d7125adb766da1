//! The rules of real objects against those of an unwinder that others wrote.

use std::{fs, path::Path};

use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};
use tracer_common::unwind::{Rule, RuleKind};

use super::super::{
    finish::{Copied, Frame, leave},
    table::Table,
};
use crate::target::elf::{Elf, FileOffset};

const SP: u64 = 0x7ffc_0000_1000;
const FP: u64 = SP + 0x4000;
/// The stack is as large as the largest frame that is compared.
const STACK: u64 = 0x2_0000;
/// Every so manieth row is compared: the largest object has a million.
const STRIDE: usize = 3;

/// The word at each place of the stack: an address further out, so that what is remembered in memory
/// can be followed.
fn word(addr: u64) -> u64 {
    addr + 0x8000
}

struct Compared {
    same: usize,
    unknown: usize,
}

fn compare(path: &Path) -> Compared {
    let bytes = fs::read(path).expect("it is there");
    let elf = Elf::parse(bytes.as_slice()).expect("an object");
    let section = |name| {
        let (at, bytes) = elf.section(name)?;
        Some((at.0..at.0 + bytes.len() as u64, bytes))
    };
    let (eh_frame, hdr, text) = (section(".eh_frame"), section(".eh_frame_hdr"), section(".text"));
    let info = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: text.as_ref().map(|(at, _)| at.clone()),
        text: text.as_ref().map(|(_, bytes)| bytes.to_vec()),
        eh_frame_svma: eh_frame.as_ref().map(|(at, _)| at.clone()),
        eh_frame: eh_frame.map(|(_, bytes)| bytes.to_vec()),
        eh_frame_hdr_svma: hdr.as_ref().map(|(at, _)| at.clone()),
        eh_frame_hdr: hdr.map(|(_, bytes)| bytes.to_vec()),
        ..ExplicitModuleSectionInfo::default()
    };
    let name = path.to_string_lossy().into_owned();
    let mut other: UnwinderX86_64<Vec<u8>> = UnwinderX86_64::new();
    other.add_module(Module::new(name, 0..u64::MAX / 2, 0, info));
    let mut cache = CacheX86_64::<_>::new();

    let mut stack = Copied::default();
    stack.push(
        SP,
        &(SP..SP + STACK).step_by(8).flat_map(|at| word(at).to_ne_bytes()).collect::<Vec<_>>(),
    );
    let table = Table::compile(&elf);
    let mut compared = Compared { same: 0, unknown: 0 };
    for row in table.rows().iter().step_by(STRIDE) {
        let Some(rule) = Rule::unpack(row.rule()) else { continue };
        let Some(addr) = elf.object_addr(FileOffset(row.offset().into())) else { continue };
        let return_addr = addr.0 + 1;
        let ours = match rule.kind {
            RuleKind::Unknown => {
                compared.unknown += 1;
                continue;
            }
            RuleKind::Outermost | RuleKind::Signal | RuleKind::Interrupted => continue,
            // The other one reads no memory for a CFA, and takes the frame pointer instead.
            RuleKind::StackPointerMemory | RuleKind::FramePointerMemory => continue,
            _ => leave(Frame { return_addr, sp: SP, fp: FP, context: 0 }, rule, false, &stack),
        };
        let mut registers = UnwindRegsX86_64::new(return_addr, SP, FP);
        let mut read = |addr: u64| {
            if addr.is_multiple_of(8) && (SP..SP + STACK).contains(&addr) {
                Ok(word(addr))
            } else {
                Err(())
            }
        };
        let at = FrameAddress::from_return_address(return_addr).expect("not null");
        let theirs = other.unwind_frame(at, &mut registers, &mut cache, &mut read);
        let theirs = theirs.ok().flatten().map(|return_addr| Frame {
            return_addr,
            sp: registers.sp(),
            fp: registers.bp(),
            context: 0,
        });
        let ours = ours.ok();
        assert_eq!(ours, theirs, "{}: {:#x}: {rule:?}", path.display(), addr.0);
        compared.same += usize::from(ours.is_some());
    }
    compared
}

#[test]
fn rules_are_those_that_another_unwinder_finds() {
    let program = std::env::current_exe().expect("it runs");
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let stdcxx = Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
    // Much of it is written by hand.
    let crypto = Path::new("/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
    for path in [&program, libc, stdcxx, crypto] {
        let Compared { same, unknown } = compare(path);
        assert!(same > 1000, "{}: {same}", path.display());
        assert!(unknown * 200 < same, "{}: {unknown} unknown, {same} known", path.display());
    }
}
