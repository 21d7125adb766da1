//! What a row is called, and where in the source that is.

use std::sync::Arc;

use crate::report::model::Frame;
use crate::report::{escape, names, shorten, widths};

/// A name, and where it is; escaped.
pub(super) struct Named {
    pub(super) name: String,
    place: Option<String>,
}

impl Named {
    pub(super) fn new(name: &str, file: Option<&str>, line: Option<u32>) -> Self {
        Self { name: escape::terminal(name).into_owned(), place: place(file, line) }
    }

    /// The frame that best names the stack.
    pub(super) fn of_stack(frames: &[Arc<Frame>]) -> Self {
        let best = names::best(frames);
        let file = best.and_then(|frame| frame.file.as_deref());
        Self::new(&names::of_stack(frames), file, best.and_then(|frame| frame.line))
    }

    /// In so many columns; the place where there is room for the name's whole path beside it.
    pub(super) fn within(&self, room: usize) -> String {
        let both = self.place.as_ref().and_then(|place| {
            let room = room.checked_sub(widths::of(place) + 2)?;
            Some(format!("{}  {place}", shorten::path(&self.name, room)?))
        });
        both.unwrap_or_else(|| shorten::name(&self.name, room))
    }
}

/// Source file, and the line where it is known; without a file, nothing.
fn place(file: Option<&str>, line: Option<u32>) -> Option<String> {
    let file = file?;
    let name = escape::terminal(file.rsplit_once('/').map_or(file, |(_, name)| name));
    Some(line.map_or_else(|| name.to_string(), |line| format!("{name}:{line}")))
}
