//! The single words that both sides share, each by its place in the map `STATE`.

/// Number of the next address space; the user side sets the first.
pub const NEXT_SPACE: u32 = 0;
/// Processes that were made and have not run yet.
pub const N_BIRTHS: u32 = 1;
/// Non-zero when the first target may be stopped too. Set by the user side.
pub const FIRST_HOLDS: u32 = 2;
/// Holds so far.
pub const N_HOLDS: u32 = 3;
/// Non-zero once an interpreter was found in a target. Set by the user side.
pub const INTERPRETED: u32 = 4;
/// How often the user side changed rules of call sites.
pub const RULES_CHANGED: u32 = 5;
/// How the last thread of the first target ended that has, as `wait` says it, with the bit
/// [`HAS_ENDED`].
pub const FIRST_END: u32 = 6;
/// Words that there are.
pub const N: u32 = 7;

/// Set of a thread that has ended, whose own word may be zero.
pub const HAS_ENDED: u64 = 1 << 32;
