//! One block, and what a thread gave up to a `realloc`.

use crate::stacks::StackId;

/// An outstanding block. Kept small: a target may have millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Requested bytes.
    pub(super) size: u64,
    /// The stack that made it.
    pub(super) stack: StackId,
    /// The batch that it was born in.
    pub(super) born: u32,
}
const _: () = assert!(size_of::<Block>() == 16);

/// What a thread handed to a `realloc` that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// A block of the books; outstanding until the call's end is known.
    Known {
        /// Its address.
        addr: u64,
        /// The block, with its original birth and stack.
        block: Block,
    },
    /// An address that the books do not have: born before the attach.
    Unknown {
        /// The address.
        addr: u64,
    },
    /// An address that this thread had released just before.
    Repeated {
        /// The address.
        addr: u64,
    },
}

impl Given {
    /// The address that was handed over.
    pub(super) const fn addr(&self) -> u64 {
        match self {
            Self::Known { addr, .. } | Self::Unknown { addr } | Self::Repeated { addr } => *addr,
        }
    }

    /// The block, when the books had it.
    pub(super) const fn block(&self) -> Option<&Block> {
        match self {
            Self::Known { block, .. } => Some(block),
            Self::Unknown { .. } | Self::Repeated { .. } => None,
        }
    }
}
