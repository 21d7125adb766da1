//! What a code object says: name, file and line.

use std::rc::Rc;

use tracer_common::interpreter::{Function, N_PARTS, fingerprint};

use super::Types;
use super::layout::{CODE, CodeLayout, Layout};
use crate::interpreters::memory::{Fields, Memory};

/// Characters of a name that are read.
const LONGEST_TEXT: u64 = 1024;
/// Bytes of a line table that are read: one of more is of a function of a hundred thousand lines.
const LONGEST_TABLE: u64 = 1 << 20;

/// A code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    /// Its name, with the names of what it is defined in.
    pub(super) name: Rc<str>,
    /// Its file, as the program was told.
    pub(super) file: Rc<str>,
    first_line: u32,
    lines: Vec<u8>,
}

/// Where a code object has what it says. While these are the same, it is the same: the place of one
/// that was thrown away is soon another's, and so are those of its parts, but the hashes of its names
/// say which names they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parts {
    pointers: [u64; N_PARTS],
    name_hash: u64,
    /// Of the name with those of what it is defined in. It comes when it is needed.
    whole_hash: u64,
    /// Bytes of its instructions.
    size: u64,
    first_line: u32,
    copies: Option<u64>,
}

impl Parts {
    /// Those of the object at `addr`. `None` when it is no code object, or was thrown away.
    pub(super) fn read(
        memory: &impl Memory,
        layout: &Layout,
        types: &Types<u64>,
        addr: u64,
    ) -> Option<Self> {
        let CodeLayout { parts, first_line, copies, .. } = layout.code;
        let mut bytes = [0; CODE];
        let bytes = &mut bytes[..layout.code.instructions.min(CODE)];
        memory.read(addr, bytes)?;
        let fields = Fields(bytes);
        is_one(layout, types.code, &fields)?;
        let copies = match copies {
            Some(offset) => Some(fields.word(offset)?),
            None => None,
        };
        let mut pointers = [0; N_PARTS];
        for (place, pointer) in pointers.iter_mut().enumerate() {
            *pointer = fields.word(parts + place * 8)?;
        }
        let hash = |text: u64| memory.word(text.checked_add(layout.text.hash() as u64)?);
        let [_, name, whole, _] = pointers;
        Some(Self {
            pointers,
            name_hash: hash(name)?,
            whole_hash: hash(whole)?,
            // Two bytes each.
            size: fields.word(usize::try_from(layout.bytes.size).ok()?)?.checked_mul(2)?,
            first_line: fields.half(first_line)?,
            copies,
        })
    }

    /// By which the kernel side tells it from others in its place.
    pub(super) const fn fingerprint(&self) -> u64 {
        fingerprint(self.pointers, self.name_hash)
    }

    const fn file(&self) -> u64 {
        self.pointers[0]
    }

    /// With the names of what it is defined in.
    const fn name(&self) -> u64 {
        self.pointers[2]
    }

    const fn lines(&self) -> u64 {
        self.pointers[3]
    }

    /// Is this code of the interpreter's own, such as what it puts between a class and its `__init__`?
    /// It has its name where others have their file.
    pub(super) const fn is_made_up(&self) -> bool {
        self.file() == self.name()
    }

    /// Of a function of this code, the bytes between its first instruction and the one that it is at.
    /// Negative before the first. `None` when that is no instruction of this code, so that the
    /// function's own was thrown away.
    pub(super) fn distance(
        &self,
        memory: &impl Memory,
        layout: &Layout,
        function: Function,
    ) -> Option<i64> {
        let own = function.code.checked_add(layout.code.instructions as u64)?;
        let start = match self.copies {
            // Their number, then the address of each.
            Some(copies) => memory.word(copies.checked_add((function.copy() + 1) * 8)?)?,
            None => own,
        };
        let distance = function.instruction().wrapping_sub(start).cast_signed();
        let size = i64::try_from(self.size).ok()?;
        // One instruction before the first is where a function stands that was not begun.
        (-2..size).contains(&distance).then_some(distance)
    }
}

impl Code {
    /// Reads what these parts are.
    pub(super) fn read(
        memory: &impl Memory,
        layout: &Layout,
        types: &Types<u64>,
        parts: &Parts,
    ) -> Option<Self> {
        let head: [u8; 64] = memory.bytes(parts.lines())?;
        is_one(layout, types.bytes, &Fields(&head))?;
        let size = memory.word(parts.lines().checked_add(layout.bytes.size)?)?;
        let size = usize::try_from(Some(size).filter(|size| *size <= LONGEST_TABLE)?).ok()?;
        let mut lines = vec![0; size];
        memory.read(parts.lines().checked_add(layout.bytes.data)?, &mut lines)?;
        Some(Self {
            name: text(memory, layout, types.text, parts.name())?.into(),
            file: text(memory, layout, types.text, parts.file())?.into(),
            first_line: parts.first_line,
            lines,
        })
    }

    /// Bytes of its text and its table.
    pub(super) fn size(&self) -> usize {
        self.name.len() + self.file.len() + self.lines.len()
    }

    /// The line of the instruction at this distance from the first.
    pub(super) fn line(&self, distance: i64) -> Option<u32> {
        match u64::try_from(distance) {
            Ok(distance) => line_at(&self.lines, self.first_line, distance),
            // The function was called and has not begun.
            Err(_) => Some(self.first_line),
        }
    }
}

/// `None` unless this object is of this type and has an owner. The place of one that was thrown away
/// keeps its type, and begins with the address of the next such place or with zero; a count of owners
/// is small. Objects of a free-threaded build, whose type lies further behind, begin with something
/// else.
fn is_one(layout: &Layout, wanted: u64, fields: &Fields<'_>) -> Option<()> {
    const TYPE_BEHIND_COUNT: usize = 8;
    // The upper quarter has marks of 3.14.
    const UPPER: u64 = 0xffff << 32;

    let word = fields.word(0)?;
    let is_count = word & UPPER == 0 && word & 0xffff_ffff != 0;
    let is_alive = is_count || layout.object_type != TYPE_BEHIND_COUNT;
    (is_alive && fields.word(layout.object_type)? == wanted).then_some(())
}

/// A `str`.
fn text(memory: &impl Memory, layout: &Layout, text_type: u64, addr: u64) -> Option<String> {
    /// Bits of a string's state, behind those that say how wide a character is.
    const COMPACT: u32 = 1 << 3;
    const ASCII: u32 = 1 << 4;

    let bytes: [u8; 64] = memory.bytes(addr)?;
    let fields = Fields(&bytes);
    is_one(layout, text_type, &fields)?;
    let length = fields.word(layout.text.length)?;
    let state = fields.half(layout.text.state)? >> layout.text.kind_shift;
    if state & COMPACT == 0 || length > LONGEST_TEXT * 64 {
        return None;
    }
    let n_chars = usize::try_from(length.min(LONGEST_TEXT)).ok()?;
    let width: usize = match state & 7 {
        1 => 1,
        2 => 2,
        4 => 4,
        _ => return None,
    };
    let is_ascii = state & ASCII != 0;
    let at = addr.checked_add(if is_ascii { layout.text.ascii } else { layout.text.wide })?;
    let mut bytes = vec![0; n_chars * width];
    memory.read(at, &mut bytes)?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let char = |bytes: &[u8]| char::from_u32(number(bytes)).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(bytes.chunks_exact(width).map(char).collect())
}

/// The line of the instruction `distance` bytes behind the first, by a table of the form that
/// the sources of CPython describe under "Locations table". `None` where the
/// instruction has none, or the table does not reach it.
fn line_at(table: &[u8], first_line: u32, distance: u64) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let mut line = i64::from(first_line);
    let mut end = 0_u64;
    // Each round takes one byte at the least.
    while let Some(head) = bytes.next() {
        end += (u64::from(head & 7) + 1) * 2;
        let has_line = match head >> 3 & 15 {
            0..=9 => {
                bytes.next();
                true
            }
            code @ 10..=12 => {
                line += i64::from(code - 10);
                bytes.next();
                bytes.next();
                true
            }
            13 => {
                line = line.checked_add(signed(&mut bytes)?)?;
                true
            }
            14 => {
                line = line.checked_add(signed(&mut bytes)?)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
                true
            }
            _ => false,
        };
        if distance < end {
            return if has_line { u32::try_from(line).ok() } else { None };
        }
    }
    None
}

/// Six bits a byte, the lowest first; the seventh says that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    let magnitude = i64::try_from(value >> 1).ok()?;
    Some(if value & 1 == 1 { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests;
