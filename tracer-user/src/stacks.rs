//! Stacks by number. The kernel names a stack by a hash and sends its frames once; here both
//! meet, in whichever order they come, and frames that never come are a stack without a name.
//!
//! One stack may ask two allocators for memory, so a number stands for a stack and an
//! allocator together; the frames are kept once per hash.

use rustc_hash::FxHashMap;
use tracer_common::decode::Frames;
use tracer_common::event::StackEnd;

/// The hash that stands for "the kernel side could not take the stack".
pub const LOST: u64 = 0;

/// A stack and the allocator that it called, as a number: an index, dense from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The frames of one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Return addresses, innermost first: the allocator's caller comes first.
    pub frames: Vec<u64>,
    /// Why there are no more.
    pub end: StackEnd,
}

/// Every stack that was named so far.
#[derive(Debug, Default)]
pub struct Stacks {
    /// (family, hash) of each number.
    keys: Vec<(u16, u64)>,
    ids: FxHashMap<(u16, u64), StackId>,
    traces: FxHashMap<u64, Trace>,
}

impl Stacks {
    /// Takes the frames of `hash`. Answers whether they are new: the kernel side sends frames
    /// again when its own table is full.
    pub fn learn(&mut self, hash: u64, frames: Frames<'_>, end: StackEnd) -> bool {
        if hash == LOST || self.traces.contains_key(&hash) {
            return false;
        }
        self.traces.insert(hash, Trace { frames: frames.iter().collect(), end });
        true
    }

    /// The number of `hash` as the caller of allocator `family`; a new one at the first call.
    /// `None` when all 2³² numbers are taken.
    pub fn id(&mut self, family: u16, hash: u64) -> Option<StackId> {
        match self.ids.get(&(family, hash)) {
            Some(id) => Some(*id),
            None => {
                let id = StackId(u32::try_from(self.keys.len()).ok()?);
                self.keys.push((family, hash));
                self.ids.insert((family, hash), id);
                Some(id)
            }
        }
    }

    /// Drops what is known of the stacks of these numbers, which nothing will name again. The
    /// numbers are not given anew.
    pub fn forget(&mut self, ids: &[StackId]) {
        for id in ids {
            if let Some(key) = self.keys.get(id.index()) {
                self.ids.remove(key);
                self.traces.remove(&key.1);
            }
        }
    }

    /// The allocator that this stack called. `None` for a number that was never given.
    pub fn family(&self, id: StackId) -> Option<u16> {
        self.keys.get(id.index()).map(|(family, _)| *family)
    }

    /// The kernel side's name of this stack. `None` for a number that was never given.
    pub fn hash(&self, id: StackId) -> Option<u64> {
        self.keys.get(id.index()).map(|(_, hash)| *hash)
    }

    /// The stack's frames; `None` when they were lost or have not arrived.
    pub fn trace(&self, id: StackId) -> Option<&Trace> {
        self.traces.get(&self.hash(id)?)
    }

    /// The stack's return addresses, innermost first; empty when it is lost.
    pub fn frames(&self, id: StackId) -> &[u64] {
        self.trace(id).map_or(&[], |trace| &trace.frames)
    }

    /// Is nothing known of this stack's frames?
    pub fn is_lost(&self, id: StackId) -> bool {
        self.trace(id).is_none()
    }

    /// Numbers given so far.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Was no number given yet?
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Every number, in the order of their first allocation.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.keys.len()).map_while(|index| u32::try_from(index).ok().map(StackId))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::wire;
    use tracer_common::decode::{Event, decode};

    fn learn(stacks: &mut Stacks, hash: u64, frames: &[u64]) -> bool {
        let bytes = wire::stack(hash, frames);
        match decode(&bytes) {
            Ok(Event::Stack { hash, frames, end, .. }) => stacks.learn(hash, frames, end),
            other => panic!("not a stack: {other:?}"),
        }
    }

    #[test]
    fn frames_and_number_meet_in_either_order() {
        let mut stacks = Stacks::default();
        let early = stacks.id(1, 0xa).expect("a number");
        assert!(stacks.is_lost(early));
        assert!(learn(&mut stacks, 0xa, &[0x10, 0x20]));
        assert!(learn(&mut stacks, 0xb, &[0x30]));
        let late = stacks.id(1, 0xb).expect("a number");
        assert_eq!(stacks.frames(early), [0x10, 0x20]);
        assert_eq!(stacks.frames(late), [0x30]);
        assert!(!stacks.is_lost(early));
    }

    #[test]
    fn one_stack_of_two_allocators_is_two_numbers_with_the_same_frames() {
        let mut stacks = Stacks::default();
        learn(&mut stacks, 0xa, &[0x10]);
        let (one, two) = (stacks.id(1, 0xa).expect("one"), stacks.id(2, 0xa).expect("two"));
        assert_ne!(one, two);
        assert_eq!(stacks.frames(one), stacks.frames(two));
        assert_eq!((stacks.family(one), stacks.family(two)), (Some(1), Some(2)));
        assert_eq!(stacks.ids().collect::<Vec<_>>(), [one, two]);
    }

    #[test]
    fn frames_sent_again_are_not_new() {
        let mut stacks = Stacks::default();
        assert!(learn(&mut stacks, 0xa, &[0x10]));
        assert!(!learn(&mut stacks, 0xa, &[0x10]));
    }

    #[test]
    fn a_forgotten_stack_keeps_its_number() {
        let mut stacks = Stacks::default();
        learn(&mut stacks, 0xa, &[0x10]);
        learn(&mut stacks, 0xb, &[0x20]);
        let (one, two) = (stacks.id(1, 0xa).expect("one"), stacks.id(1, 0xb).expect("two"));
        stacks.forget(&[one]);
        assert!(stacks.is_lost(one));
        assert_eq!(stacks.frames(two), [0x20]);
        assert_eq!(stacks.id(1, 0xb), Some(two));
        assert_eq!(stacks.id(1, 0xc), Some(StackId(2)));
    }

    #[test]
    fn the_lost_stack_is_one_node_without_frames() {
        let mut stacks = Stacks::default();
        let lost = stacks.id(1, LOST);
        assert_eq!(stacks.id(1, LOST), lost);
        assert!(!learn(&mut stacks, LOST, &[0x10]));
        assert!(stacks.is_lost(lost.expect("a number")));
        assert_eq!(stacks.len(), 1);
    }
}
