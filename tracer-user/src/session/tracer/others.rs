//! Do processes other than the first go on? Asked by who waits for the end of all of them.

use std::cell::Cell;

/// Looks in a row that must have found nobody: whoever has just begun is announced in the ring a
/// moment after the kernel side takes them off its list of those who will.
const LOOKS: u32 = 2;

/// What is known of them.
#[derive(Debug, Default)]
pub struct Others {
    is_asked: Cell<bool>,
    /// Looks in a row, each at a ring that was read to its end, that found nobody.
    n_empty: Cell<u32>,
}

impl Others {
    /// Have all of them ended? To be asked again and again, while the ring is read.
    pub fn have_ended(&self) -> bool {
        self.is_asked.set(true);
        self.n_empty.get() >= LOOKS
    }

    /// Does anybody want to know?
    pub(super) fn are_asked_for(&self) -> bool {
        self.is_asked.get()
    }

    /// Another look found somebody, or nobody.
    pub(super) fn looked(&self, found: bool) {
        self.n_empty.set(if found { 0 } else { self.n_empty.get().saturating_add(1) });
    }
}
