//! The kernel programs, compiled into the tool.

use object::{Object as _, ObjectSection as _, SectionKind};

/// The BPF object. The build script makes it, or fails with a sentence that says how.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("OUTLIVE_BPF_OBJECT"));

/// A call of the helper `bpf_tail_call`, and `r0 = 0`, as instructions.
const TAIL_CALL: [u8; 8] = [0x85, 0, 0, 0, 12, 0, 0, 0];
const NOTHING: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

/// The object without its tail calls, which are never made and stand there to keep a kernel from
/// giving the programs a private stack. For kernels that are too old for such stacks. It is not
/// enough for 6.1, which refuses `alloc_enter` with and without them; why is not known.
pub(super) fn without_tail_calls() -> Vec<u8> {
    let mut bytes = OBJECT.to_vec();
    let code: Vec<_> = object::File::parse(OBJECT)
        .map(|file| {
            let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
            sections.filter_map(|section| section.file_range()).collect()
        })
        // An object that cannot be read is found out when it is loaded.
        .unwrap_or_default();
    for (start, size) in code {
        let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(size)) else {
            continue;
        };
        let Some(code) = bytes.get_mut(start..start.saturating_add(size)) else { continue };
        for insn in code.chunks_exact_mut(8).filter(|insn| **insn == TAIL_CALL) {
            insn.copy_from_slice(&NOTHING);
        }
    }
    bytes
}
