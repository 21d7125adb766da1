//! Where CPython keeps what is read, by version.
//!
//! 3.13 and later say it themselves: `_PyRuntime` begins with `_Py_DebugOffsets`
//! (Include/internal/pycore_debug_offsets.h, in 3.13 pycore_runtime.h). Of 3.11 and 3.12 the
//! offsets were taken from the headers with `offsetof`; no release of theirs has changed them, and a
//! build that differs shows itself by a code object that is none.

use tracer_common::interpreter::{Interpreter, MAX_FRAME, NOT_BEHIND};

use crate::interpreters::memory::Fields;

/// The last minor version that can be read.
const LAST: u64 = 14;
/// The first minor version that tells its offsets: 13 is 3.13.
const FIRST_THAT_TELLS: u64 = 13;

/// Bytes of `_PyRuntime` that are read: no `_Py_DebugOffsets` is longer.
pub(super) const HEAD: usize = 1024;
const COOKIE: &[u8] = b"xdebugpy";

/// Structures are larger than these when an offset was misread.
const LARGEST_STATE: u64 = 1 << 24;
const LARGEST_OBJECT: u64 = 4096;
/// Bytes of a code object that are read: everything before its instructions.
pub(super) const CODE: usize = 512;

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of the first interpreter in `_PyRuntime`.
    pub(super) interpreters_head: u64,
    /// Of the next one in an interpreter.
    pub(super) interpreter_next: u64,
    /// Of the first thread in an interpreter.
    pub(super) threads_head: u64,
    /// Of the next one in a thread.
    pub(super) thread_next: u64,
    /// Of the id that the kernel gives the thread.
    pub(super) native_id: u64,
    pub(super) current: Current,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    /// Of its type in an object.
    pub(super) object_type: usize,
    pub(super) text: TextLayout,
    pub(super) bytes: BytesLayout,
}

/// Where a thread has its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    /// In what the pointer at the first offset points to, at the second.
    Behind(u64, u32),
    /// At this offset.
    At(u64),
}

/// Of `_PyInterpreterFrame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameLayout {
    pub(super) code: usize,
    pub(super) previous: usize,
    pub(super) instruction: usize,
    /// Of the thread's number among those that have instructions of their own.
    pub(super) bytecode_index: Option<usize>,
    pub(super) entry: Entry,
}

/// How a call of the interpreter's loop shows among the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Its outermost frame has this byte set.
    Flag(usize),
    /// Behind its outermost frame is one that is no function's: its owner, the byte at `owner`, is
    /// not below `first`.
    Owner { owner: usize, first: u8 },
}

/// Of `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeLayout {
    /// Of its file, its name, its name with those of what it is defined in, and its table of lines.
    pub(super) parts: usize,
    pub(super) first_line: usize,
    pub(super) instructions: usize,
    /// Of the threads' own copies of the instructions.
    pub(super) copies: Option<usize>,
}

/// Of `str`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextLayout {
    pub(super) length: usize,
    pub(super) state: usize,
    /// Bits of `state` before those that say how wide a character is.
    pub(super) kind_shift: u32,
    /// Of the characters, when all are ASCII.
    pub(super) ascii: u64,
    /// Of the characters otherwise.
    pub(super) wide: u64,
}

impl TextLayout {
    /// Of its hash.
    pub(super) const fn hash(&self) -> usize {
        self.length + 8
    }
}

/// Of `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytesLayout {
    pub(super) size: u64,
    pub(super) data: u64,
}

impl Layout {
    /// How the frames of the thread are followed that lives in this address space and whose state is
    /// at `thread`, with this id in it.
    pub(super) fn interpreter(&self, space: u64, thread: u64, id: u64) -> Interpreter {
        let (head, behind) = match self.current {
            Current::At(offset) => (offset, NOT_BEHIND),
            Current::Behind(offset, within) => (offset, within),
        };
        let (mark, mark_from) = match self.frame.entry {
            Entry::Flag(offset) => (offset, 0),
            Entry::Owner { owner, first } => (owner, u32::from(first)),
        };
        let FrameLayout { code, previous, instruction, bytecode_index, .. } = self.frame;
        let copy = bytecode_index.unwrap_or(0);
        let last = [code, previous, instruction, mark, copy].into_iter().max().unwrap_or(0);
        // All of them are below [`MAX_FRAME`].
        let number = |offset: usize| u32::try_from(offset).unwrap_or(0);
        Interpreter {
            space,
            owner_at: thread.wrapping_add(self.native_id),
            owner: id,
            head: thread.wrapping_add(head),
            behind,
            len: number((last / 8 + 1) * 8),
            code: number(code),
            instruction: number(instruction),
            previous: number(previous),
            mark: number(mark),
            mark_from,
            copy: number(copy),
            parts: number(self.code.parts),
            name_hash: number(self.text.hash()),
        }
    }

    /// That of the interpreter whose `Py_Version` is this, and whose `_PyRuntime` begins like this.
    /// `None` when it cannot be read.
    pub(super) fn of(version: u64, runtime: &[u8]) -> Option<Self> {
        if version >> 24 != 3 {
            return None;
        }
        match version >> 16 & 0xff {
            11 => Some(Self::OF_3_11),
            12 => Some(Self::OF_3_12),
            minor @ FIRST_THAT_TELLS..=LAST => told(version, minor, runtime),
            _ => None,
        }
    }

    const OF_3_11: Self = Self {
        interpreters_head: 40,
        interpreter_next: 0,
        threads_head: 16,
        thread_next: 8,
        native_id: 160,
        current: Current::Behind(56, 8),
        frame: FrameLayout {
            code: 32,
            previous: 48,
            instruction: 56,
            bytecode_index: None,
            entry: Entry::Flag(68),
        },
        code: CodeLayout { parts: 112, first_line: 72, instructions: 184, copies: None },
        object_type: 8,
        text: TextLayout { length: 16, state: 32, kind_shift: 2, ascii: 48, wide: 72 },
        bytes: BytesLayout { size: 16, data: 32 },
    };

    const OF_3_12: Self = Self {
        interpreters_head: 40,
        interpreter_next: 0,
        threads_head: 72,
        thread_next: 8,
        native_id: 144,
        current: Current::Behind(56, 0),
        frame: FrameLayout {
            code: 0,
            previous: 8,
            instruction: 56,
            bytecode_index: None,
            entry: Entry::Owner { owner: 70, first: 3 },
        },
        code: CodeLayout { parts: 112, first_line: 68, instructions: 192, copies: None },
        object_type: 8,
        text: TextLayout { length: 16, state: 32, kind_shift: 2, ascii: 40, wide: 56 },
        bytes: BytesLayout { size: 16, data: 32 },
    };
}

/// `_Py_DebugOffsets`, word by word.
struct Told<'a> {
    words: Fields<'a>,
    next: usize,
}

impl Told<'_> {
    fn skip(&mut self, n_words: usize) {
        self.next += n_words;
    }

    fn state(&mut self) -> Option<u64> {
        let offset = self.words.word(self.next * 8)?;
        self.next += 1;
        (offset < LARGEST_STATE).then_some(offset)
    }

    fn object(&mut self) -> Option<u64> {
        self.state().filter(|offset| *offset < LARGEST_OBJECT)
    }

    /// Within what is read of a structure, with room for a word.
    fn within(&mut self, len: usize) -> Option<usize> {
        let offset = usize::try_from(self.state()?).ok()?;
        (offset + 8 <= len).then_some(offset)
    }
}

fn told(version: u64, minor: u64, runtime: &[u8]) -> Option<Layout> {
    if !runtime.starts_with(COOKIE) {
        return None;
    }
    let is_14 = 14 <= minor;
    let mut told = Told { words: Fields(runtime), next: 1 };
    if told.words.word(8)? != version {
        return None;
    }
    told.skip(1);
    let is_free_threaded = told.state()? != 0;
    // Runtime: size, finalizing.
    told.skip(2);
    let interpreters_head = told.state()?;
    // Interpreter: size, id.
    told.skip(2);
    let interpreter_next = told.state()?;
    let threads_head = told.state()?;
    // Up to its end; 3.14 has its main thread and two counters more.
    told.skip(if is_14 { 12 } else { 9 });
    // Thread: size, previous.
    told.skip(2);
    let thread_next = told.state()?;
    told.skip(1);
    let current = Current::At(told.state()?);
    told.skip(1);
    let native_id = told.state()?;
    told.skip(2);
    // Frame: size.
    told.skip(1);
    let previous = told.within(MAX_FRAME)?;
    let code = told.within(MAX_FRAME)?;
    let instruction = told.within(MAX_FRAME)?;
    told.skip(1);
    let owner = told.within(MAX_FRAME)?;
    let mut bytecode_index = None;
    if is_14 {
        told.skip(1);
        bytecode_index = Some(told.within(MAX_FRAME)?).filter(|_| is_free_threaded);
    }
    let entry = Entry::Owner { owner, first: 3 };
    let frame = FrameLayout { code, previous, instruction, bytecode_index, entry };
    // Code: size.
    told.skip(1);
    let parts = told.within(CODE)?;
    told.skip(1);
    let (whole_name, lines) = (told.within(CODE)?, told.within(CODE)?);
    if (whole_name, lines) != (parts + 16, parts + 24) {
        return None;
    }
    let first_line = told.within(CODE)?;
    told.skip(3);
    let instructions = told.within(CODE)?;
    let mut copies = None;
    if is_14 {
        copies = Some(told.within(CODE)?).filter(|_| is_free_threaded);
    }
    let code = CodeLayout { parts, first_line, instructions, copies };
    // Object: size.
    told.skip(1);
    let object_type = told.within(CODE)?;
    // Type, tuple, list, in 3.14 set, dictionary, float, integer.
    told.skip(4 + 3 + 3 + if is_14 { 4 } else { 0 } + 3 + 2 + 3);
    // Bytes: size.
    told.skip(1);
    let bytes = BytesLayout { size: told.object()?, data: told.object()? };
    // Text: size.
    told.skip(1);
    let state = told.within(MAX_FRAME)?;
    let length = told.within(MAX_FRAME)?;
    let ascii = told.object()?;
    let kind_shift = if is_14 && is_free_threaded { 8 } else { 2 };
    let text = TextLayout { length, state, kind_shift, ascii, wide: ascii + 16 };
    Some(Layout {
        interpreters_head,
        interpreter_next,
        threads_head,
        thread_next,
        native_id,
        current,
        frame,
        code,
        object_type,
        text,
        bytes,
    })
}

#[cfg(test)]
mod tests;
