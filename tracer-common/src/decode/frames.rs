//! The frames of a record, where they lie.

use super::word;

/// Return addresses as they lie in a record, which need not be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// The frames that these bytes are, eight each.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Number of frames.
    pub const fn len(&self) -> usize {
        self.0.len() / 8
    }

    /// Is there none?
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The return addresses, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.chunks_exact(8).map(|bytes| word(bytes, 0))
    }
}
