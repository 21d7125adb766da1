//! The rules of one object, read from its unwind tables when they are asked for.
//!
//! The tables are bytes of the target's choosing: whatever they say, the answer is a rule or none.

use std::fs::File;

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Operation, ParsedEhFrameHdr, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};
use tracer_common::unwind::{Rule, RuleKind, SIGCONTEXT_SP, SavedFramePointer};

use crate::target::elf::{Elf, FileOffset, ObjectAddr};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Row = UnwindTableRow<usize>;

/// What an object says of its code.
#[derive(Debug)]
pub struct Table {
    elf: Elf,
    /// Where each function's entry lies in `.debug_frame`, or in an `.eh_frame` without an index,
    /// by its first and last address. Made when it is first needed.
    index: Option<Vec<(u64, u64, usize)>>,
}

impl Table {
    /// The tables of this file. `None` when it is no object.
    pub fn open(file: &File) -> Option<Self> {
        Some(Self { elf: Elf::open(file).ok()?, index: None })
    }

    /// The rule of the code at this place of the file; `None` where the object says nothing.
    pub fn rule(&mut self, offset: FileOffset) -> Option<Rule> {
        let addr = self.elf.object_addr(offset)?;
        self.from_eh_frame(addr).or_else(|| self.from_debug_frame(addr))
    }

    fn from_eh_frame(&mut self, addr: ObjectAddr) -> Option<Rule> {
        let (at, bytes) = self.elf.section(".eh_frame")?;
        let mut bases = BaseAddresses::default().set_eh_frame(at.0);
        let header = self.elf.section(".eh_frame_hdr").and_then(|(at, bytes)| {
            bases = bases.clone().set_eh_frame_hdr(at.0);
            EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()
        });
        let frame = eh_frame(bytes);
        if let Some(header) = header.filter(|header| header.table().is_some()) {
            return rule(&frame, &bases, &find_by_header(&frame, &header, &bases, addr)?, addr);
        }
        if self.index.is_none() {
            self.index = Some(index(&frame, &bases));
        }
        let offset = self.indexed(addr)?.into();
        let (_, bytes) = self.elf.section(".eh_frame")?;
        let frame = eh_frame(bytes);
        let entry = frame.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
        rule(&frame, &bases, &entry, addr)
    }

    fn from_debug_frame(&mut self, addr: ObjectAddr) -> Option<Rule> {
        let bases = BaseAddresses::default();
        let (_, bytes) = self.elf.section(".debug_frame")?;
        if self.elf.section(".eh_frame").is_some_and(|(_, bytes)| bytes.len() > 8) {
            // The index is of the other one, which knows as much.
            return None;
        }
        if self.index.is_none() {
            self.index = Some(index(&debug_frame(bytes), &bases));
        }
        let offset = self.indexed(addr)?.into();
        let (_, bytes) = self.elf.section(".debug_frame")?;
        let frame = debug_frame(bytes);
        let entry = frame.fde_from_offset(&bases, offset, DebugFrame::cie_from_offset).ok()?;
        rule(&frame, &bases, &entry, addr)
    }

    fn indexed(&self, addr: ObjectAddr) -> Option<usize> {
        let index = self.index.as_ref()?;
        let after = index.partition_point(|(first, ..)| *first <= addr.0);
        let (_, end, offset) = index.get(after.checked_sub(1)?)?;
        (addr.0 < *end).then_some(*offset)
    }
}

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut frame = EhFrame::new(bytes, LittleEndian);
    frame.set_address_size(8);
    frame
}

fn debug_frame(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut frame = DebugFrame::new(bytes, LittleEndian);
    frame.set_address_size(8);
    frame
}

fn find_by_header<'a>(
    frame: &EhFrame<Bytes<'a>>,
    header: &ParsedEhFrameHdr<Bytes<'a>>,
    bases: &BaseAddresses,
    addr: ObjectAddr,
) -> Option<FrameDescriptionEntry<Bytes<'a>>> {
    let entry = header.table()?.lookup(addr.0, bases).ok()?.direct().ok()?;
    let begin = header.eh_frame_ptr().direct().ok()?;
    let offset = usize::try_from(entry.checked_sub(begin)?).ok()?;
    frame.fde_from_offset(bases, offset.into(), EhFrame::cie_from_offset).ok()
}

/// The entries that can be read, in the order of their addresses.
fn index<'a, Section: UnwindSection<Bytes<'a>>>(
    section: &Section,
    bases: &BaseAddresses,
) -> Vec<(u64, u64, usize)> {
    let mut index = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(Section::cie_from_offset) else { continue };
        let first = entry.initial_address();
        index.push((first, first.saturating_add(entry.len()), entry.offset()));
    }
    index.sort_unstable();
    index
}

fn rule<'a, Section: UnwindSection<Bytes<'a>>>(
    section: &Section,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Bytes<'a>>,
    addr: ObjectAddr,
) -> Option<Rule> {
    if !entry.contains(addr.0) {
        return None;
    }
    let mut context = UnwindContext::new();
    let row = entry.unwind_info_for_address(section, bases, &mut context, addr.0).ok()?;
    let operations = |expression: &UnwindExpression<usize>| {
        let mut operations = expression.get(section).ok()?.operations(entry.cie().encoding());
        let (first, second) = (operations.next().ok()??, operations.next().ok()?);
        operations.next().ok()?.is_none().then_some((first, second))
    };
    Some(simplified(row, entry.cie().is_signal_trampoline(), operations).unwrap_or(Rule::UNKNOWN))
}

/// A row as a rule; `None` where it is more than a rule can say. `operations` are those of an
/// expression of one or two.
fn simplified<'a>(
    row: &Row,
    is_signal: bool,
    operations: impl Fn(
        &UnwindExpression<usize>,
    ) -> Option<(Operation<Bytes<'a>>, Option<Operation<Bytes<'a>>>)>,
) -> Option<Rule> {
    let plain = |register: Register, operation: &Operation<Bytes<'a>>| match operation {
        Operation::RegisterOffset { register: of, offset, .. } if *of == register => Some(*offset),
        _ => None,
    };
    let through = |register, expression: &UnwindExpression<usize>| match operations(expression)? {
        (first, Some(Operation::Deref { .. })) => plain(register, &first),
        _ => None,
    };
    if matches!(row.register(X86_64::RA), Some(RegisterRule::Undefined)) {
        return Some(Rule::OUTERMOST);
    }
    if is_signal && let CfaRule::Expression(expression) = row.cfa() {
        let of_sp = i32::try_from(through(X86_64::RSP, expression)?).ok()?;
        let sigcontext = of_sp.checked_sub(i32::try_from(SIGCONTEXT_SP).ok()?)?;
        let saved = SavedFramePointer::InPlace;
        return Some(Rule { kind: RuleKind::Signal, cfa_offset: sigcontext, saved });
    }
    let (kind, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
            (RuleKind::StackPointer, *offset)
        }
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
            (RuleKind::FramePointer, *offset)
        }
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => {
            (RuleKind::FramePointerMemory, through(X86_64::RBP, expression)?)
        }
    };
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        _ => return None,
    }
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => {
            SavedFramePointer::InPlace
        }
        Some(RegisterRule::Offset(offset)) => SavedFramePointer::AtCfa(i16::try_from(offset).ok()?),
        Some(RegisterRule::Expression(expression)) => match operations(&expression)? {
            (only, None) => {
                let offset = plain(X86_64::RBP, &only)?;
                SavedFramePointer::AtFramePointer(i16::try_from(offset).ok()?)
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Rule { kind, cfa_offset: i32::try_from(offset).ok()?, saved })
}
