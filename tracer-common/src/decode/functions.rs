//! What an interpreter runs, where it lies in a record.

use super::{DecodeError, half, need, word};
use crate::event::FunctionsHead;
use crate::interpreter::{Function, MAX_FUNCTIONS};

/// What an interpreter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions<'a> {
    /// Its thread.
    pub tid: u32,
    /// Hash of the stack that the record is followed by, or what stands for it.
    pub hash: u64,
    /// Are there more frames than these?
    pub is_cut: bool,
    /// Two words each.
    words: &'a [u8],
}

impl<'a> Functions<'a> {
    /// The frames, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = Function> + use<'a> {
        let pair = |bytes| Function { code: word(bytes, 0), place: word(bytes, 8) };
        self.words.chunks_exact(16).map(pair)
    }

    pub(super) fn decode(tid: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        need(bytes, size_of::<FunctionsHead>())?;
        let n_frames = half(bytes, 16);
        let n = n_frames as usize;
        if n > MAX_FUNCTIONS {
            return Err(DecodeError::Frames { n_frames });
        }
        need(bytes, size_of::<FunctionsHead>() + n * 16)?;
        let words = &bytes[size_of::<FunctionsHead>()..][..n * 16];
        Ok(Self { tid, hash: word(bytes, 8), is_cut: half(bytes, 20) != 0, words })
    }
}
