//! What an interpreter runs, where it lies in a record.

use super::{DecodeError, half, need, word};
use crate::event::FunctionsHead;
use crate::interpreter::{Function, MAX_FUNCTIONS, Sent};

/// What an interpreter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions<'a> {
    /// Its thread.
    pub tid: u32,
    /// Hash of the stack that the record is followed by, or what stands for it.
    pub hash: u64,
    /// Are there more frames than these?
    pub is_cut: bool,
    /// Three words each.
    words: &'a [u8],
}

const EACH: usize = size_of::<Sent>();

impl<'a> Functions<'a> {
    /// The frames, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = Sent> + use<'a> {
        let sent = |bytes| {
            let function = Function { code: word(bytes, 0), place: word(bytes, 8) };
            Sent { function, fingerprint: word(bytes, 16) }
        };
        self.words.chunks_exact(EACH).map(sent)
    }

    pub(super) fn decode(tid: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        need(bytes, size_of::<FunctionsHead>())?;
        let n_frames = half(bytes, 16);
        let n = n_frames as usize;
        if n > MAX_FUNCTIONS {
            return Err(DecodeError::Frames { n_frames });
        }
        need(bytes, size_of::<FunctionsHead>() + n * EACH)?;
        let words = &bytes[size_of::<FunctionsHead>()..][..n * EACH];
        Ok(Self { tid, hash: word(bytes, 8), is_cut: half(bytes, 20) != 0, words })
    }
}
