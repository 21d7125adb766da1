//! The unwind table of one object, compiled: a row for each place from which on another rule holds.
//!
//! What is compiled are bytes of the target's choosing: whatever they say, the answer is rows or none.

use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EhFrameOffset, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Operation, UnwindContext, UnwindExpression, UnwindOffset,
    UnwindSection, UnwindTableRow,
};
use rustc_hash::FxHashMap;
use tracer_common::unwind::{Row, Rule};

use super::{
    known_code::starts_program,
    remembered::{Calls, Remembered},
    rule::{MOST_OPERATIONS, Operations, rules_of_stubs, simplified, stubs},
};
use crate::target::elf::{Elf, FileOffset, ObjectAddr};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Rows of one object at the most; a table that has more is cut. The largest browser has three
/// million.
const MOST_ROWS: usize = 8 << 20;

/// Of a section, this many times its length is read at the most. Each function is read with what it
/// shares with others, which is about as long as itself in what compilers write.
const MOST_TIMES: usize = 16;

/// What an object says of its code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// By place in the file, no two at the same.
    rows: Vec<Row>,
}

impl Table {
    /// The table of this object.
    pub(crate) fn compile<Data: AsRef<[u8]>>(elf: &Elf<Data>) -> Self {
        let mut functions = Vec::new();
        let calls = &Remembered::calls_in(elf);
        if let Some((at, bytes)) = elf.eh_frame() {
            let bases = bases(elf, at);
            let mut frame = EhFrame::new(bytes, LittleEndian);
            frame.set_address_size(8);
            read(&frame, bytes.len(), &bases, calls, &mut functions);
        }
        if let Some((_, bytes)) = elf.section(".debug_frame") {
            let bases = BaseAddresses::default();
            let mut frame = DebugFrame::new(bytes, LittleEndian);
            frame.set_address_size(8);
            read(&frame, bytes.len(), &bases, calls, &mut functions);
        }
        Self::of(functions, elf)
    }

    /// What this object says of the function at this place of its file, by the index of its table;
    /// `None` where there is none.
    pub(crate) fn around<Data: AsRef<[u8]>>(elf: &Elf<Data>, offset: u64) -> Option<Self> {
        let addr = elf.object_addr(FileOffset(offset))?;
        let (at, bytes) = elf.eh_frame()?;
        let bases = bases(elf, at);
        let mut frame = EhFrame::new(bytes, LittleEndian);
        frame.set_address_size(8);
        let entry = elf.eh_frame_entry(addr)?.0.checked_sub(at.0)?;
        let entry = EhFrameOffset(usize::try_from(entry).ok()?);
        let entry = frame.fde_from_offset(&bases, entry, EhFrame::cie_from_offset).ok()?;
        let rows = rows(&frame, &bases, &entry, &mut UnwindContext::new(), |_, _| ());
        Some(Self::of(vec![Function::of(&entry, rows)], elf))
    }

    fn of<Data: AsRef<[u8]>>(mut functions: Vec<Function>, elf: &Elf<Data>) -> Self {
        // Where both say something of a function, the first of them is what it is unwound by.
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        if elf.code(elf.entry, MOST_OF_ENTRY).is_some_and(starts_program) {
            add_entry(elf.entry.0, &mut functions);
        }
        let mut table = Self::default();
        let mut next = functions.iter().map(|function| function.start).skip(1);
        for function in &functions {
            let end = function.end.min(next.next().unwrap_or(u64::MAX));
            for (at, rule) in &function.rows {
                if *at < end {
                    table.push(elf, *at, Some(*rule));
                }
            }
            table.push(elf, end, None);
        }
        table.rows.sort_by_key(|row| row.offset());
        table.rows.dedup_by_key(|row| row.rule());
        if table.rows.len() > MOST_ROWS {
            table.rows.truncate(MOST_ROWS);
            // Nothing is known from here on.
            if let Some(last) = table.rows.last_mut() {
                *last = Row::new(last.offset(), None);
            }
        }
        table.rows.shrink_to_fit();
        table
    }

    /// Adds a row, in place of one for the same address. Code beyond the fourth gigabyte of a file has
    /// none.
    fn push<Data: AsRef<[u8]>>(&mut self, elf: &Elf<Data>, addr: u64, rule: Option<Rule>) {
        // The end of the last function may be the end of the segment.
        let offset = match elf.file_offset(ObjectAddr(addr)) {
            Some(offset) => offset.0,
            None => match elf.file_offset(ObjectAddr(addr.wrapping_sub(1))) {
                Some(offset) => offset.0.saturating_add(1),
                None => return,
            },
        };
        let Ok(offset) = u32::try_from(offset) else { return };
        let rule = rule.map(|rule| rule.pack().or(Rule::UNKNOWN.pack()).unwrap_or(0));
        let row = Row::new(offset, rule);
        match self.rows.last_mut() {
            Some(last) if last.offset() == offset => *last = row,
            Some(last) if last.rule() == row.rule() && last.offset() < offset => {}
            _ => self.rows.push(row),
        }
    }

    /// The rule of the code at this place of the file; `None` where the object says nothing.
    pub(crate) fn rule(&self, offset: u64) -> Option<Rule> {
        let after = self.rows.partition_point(|row| u64::from(row.offset()) <= offset);
        Rule::unpack(self.rows.get(after.checked_sub(1)?)?.rule())
    }

    /// Does a function begin at this place in the file, behind a gap?
    pub(super) fn begins_at(&self, offset: u64) -> bool {
        let place = self.rows.binary_search_by_key(&offset, |row| row.offset().into());
        place.is_ok_and(|place| self.rows[place].rule() != 0)
            && offset.checked_sub(1).is_none_or(|before| self.rule(before).is_none())
    }

    /// The rows, by place in the file.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// What addresses in a table that is loaded here are relative to.
fn bases<Data: AsRef<[u8]>>(elf: &Elf<Data>, at: ObjectAddr) -> BaseAddresses {
    let bases = BaseAddresses::default().set_eh_frame(at.0);
    match elf.section(".text") {
        Some((text, _)) => bases.set_text(text.0),
        None => bases,
    }
}

/// A function's rules, each from its address on.
pub(super) struct Function {
    start: u64,
    end: u64,
    pub(super) rows: Vec<(u64, Rule)>,
}

impl Function {
    fn of(entry: &FrameDescriptionEntry<Bytes<'_>>, rows: Vec<(u64, Rule)>) -> Self {
        let start = entry.initial_address();
        Self { start, end: start.saturating_add(entry.len()), rows }
    }
}

/// Length of an object's entry at the most. That of the dynamic linker has 61 bytes, others less.
const MOST_OF_ENTRY: u64 = 64;

/// Adds the entry of a program or of the dynamic linker where nothing is said of it: nobody called it.
fn add_entry(entry: u64, functions: &mut Vec<Function>) {
    let next = functions.partition_point(|function| function.start <= entry);
    let is_said = next.checked_sub(1).is_some_and(|last| entry < functions[last].end);
    if is_said {
        return;
    }
    let limit = functions.get(next).map_or(u64::MAX, |function| function.start);
    let end = entry.saturating_add(MOST_OF_ENTRY).min(limit);
    functions.insert(next, Function { start: entry, end, rows: vec![(entry, Rule::OUTERMOST)] });
}

/// Adds the functions that a section of this length describes, as far as it can be read.
fn read<'a, Section: UnwindSection<Bytes<'a>>>(
    section: &Section,
    len: usize,
    bases: &BaseAddresses,
    calls: &Calls<'_>,
    functions: &mut Vec<Function>,
) where
    Section::Offset: Copy,
{
    let mut remembered = Remembered::default();
    let mut rows_left = MOST_ROWS;
    for_each(section, len, bases, |entry, context| {
        let note = |row: &UnwindTableRow<usize>, rule| {
            remembered.note(functions.len(), row, rule, calls);
        };
        let rows = rows(section, bases, entry, context, note);
        rows_left = rows_left.checked_sub(rows.len())?;
        if !rows.is_empty() {
            functions.push(Function::of(entry, rows));
        }
        Some(())
    });
    if remembered.is_empty() {
        return;
    }
    for_each(section, len, bases, |entry, context| {
        let start = entry.initial_address();
        if remembered.asks_for(start)
            && let Ok(mut table) = entry.rows(section, bases, context)
        {
            while let Ok(Some(row)) = table.next_row() {
                remembered.look_at(start, row, calls);
            }
        }
        Some(())
    });
    remembered.apply(functions);
}

/// Shows the entries of a section of this length, as far as it can be read, until `show` wants no more.
fn for_each<'a, Section: UnwindSection<Bytes<'a>>>(
    section: &Section,
    len: usize,
    bases: &BaseAddresses,
    mut show: impl FnMut(&FrameDescriptionEntry<Bytes<'a>>, &mut UnwindContext<usize>) -> Option<()>,
) where
    Section::Offset: Copy,
{
    let mut context = UnwindContext::new();
    let mut entries = section.entries(bases);
    let mut bytes_left = len.saturating_mul(MOST_TIMES);
    let mut shared: FxHashMap<usize, gimli::Result<CommonInformationEntry<_>>> =
        FxHashMap::default();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let entry = partial.parse(|section, bases, offset| {
            let cie = || section.cie_from_offset(bases, offset);
            shared.entry(UnwindOffset::into(offset)).or_insert_with(cie).clone()
        });
        let Ok(entry) = entry else { continue };
        let n_read = entry.entry_len().saturating_add(entry.cie().entry_len());
        let Some(fewer) = bytes_left.checked_sub(n_read) else { return };
        bytes_left = fewer;
        if show(&entry, &mut context).is_none() {
            return;
        }
    }
}

/// The rules of a function. `note` is shown each row that has one.
fn rows<'a, Section: UnwindSection<Bytes<'a>>>(
    section: &Section,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Bytes<'a>>,
    context: &mut UnwindContext<usize>,
    mut note: impl FnMut(&UnwindTableRow<usize>, Rule),
) -> Vec<(u64, Rule)> {
    let operations: &Operations<'_, 'a> = &|expression: &UnwindExpression<usize>| {
        let mut operations = expression.get(section).ok()?.operations(entry.cie().encoding());
        let mut all: Vec<Operation<Bytes<'a>>> = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if all.len() == MOST_OPERATIONS {
                return None;
            }
            all.push(operation);
        }
        Some(all)
    };
    let is_signal = entry.cie().is_signal_trampoline();
    let mut rules = Vec::new();
    let Ok(mut table) = entry.rows(section, bases, context) else { return rules };
    while rules.len() <= MOST_ROWS
        && let Ok(Some(row)) = table.next_row()
    {
        if let Some(pushed_from) = stubs(row, operations) {
            let range = row.start_address()..row.end_address();
            let left = MOST_ROWS + 1 - rules.len();
            rules.extend(rules_of_stubs(range, pushed_from).take(left));
            continue;
        }
        let rule = simplified(row, is_signal, operations).unwrap_or(Rule::UNKNOWN);
        note(row, rule);
        rules.push((row.start_address(), rule));
    }
    rules
}
