//! Frames are shared: stacks differ in how they combine them, and a hundred thousand stacks have
//! hardly more frames than a hundred.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::model::Frame;

thread_local! {
    /// Frames that the file has named that is being read. The deserializer has no other place
    /// for what goes from one stack to the next.
    static KNOWN: RefCell<HashSet<Arc<Frame>>> = RefCell::default();
}

/// Reads the frames of one stack; those that another one had are not kept twice.
pub(super) fn deserialize<'de, D>(from: D) -> Result<Vec<Arc<Frame>>, D::Error>
where
    D: Deserializer<'de>,
{
    let frames = Vec::<Frame>::deserialize(from)?;
    Ok(KNOWN.with_borrow_mut(|known| {
        let share = |frame: Frame| match known.get(&frame) {
            Some(known) => known.clone(),
            None => {
                let frame = Arc::new(frame);
                known.insert(frame.clone());
                frame
            }
        };
        frames.into_iter().map(share).collect()
    }))
}

/// Forgets the frames of the file that was read.
pub(super) fn forget() {
    KNOWN.take();
}
