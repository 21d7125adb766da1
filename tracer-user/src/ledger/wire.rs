//! Records as bytes, for tests that want the frames of a stack: only the decoder makes them.

use tracer_common::event::{Kind, StackEnd};

/// A whole stack's record.
pub(crate) fn stack(hash: u64, frames: &[u64]) -> Vec<u8> {
    let n_frames = u32::try_from(frames.len()).expect("a few frames");
    let mut bytes = vec![Kind::Stack as u8, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(hash.to_ne_bytes());
    bytes.extend(n_frames.to_ne_bytes());
    bytes.extend((StackEnd::Whole as u32).to_ne_bytes());
    for frame in frames {
        bytes.extend(frame.to_ne_bytes());
    }
    bytes
}
