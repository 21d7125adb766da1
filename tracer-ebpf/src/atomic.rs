//! Atomic operations. The BPF target of rustc has none in `core::sync::atomic`, although the
//! machine has them (kernel 5.12), so the compiler's own are used.

use core::intrinsics::{AtomicOrdering, atomic_xadd, atomic_xchg};

/// Adds to a word of a map value.
#[inline(always)]
pub fn add(word: &mut u64, amount: u64) {
    // SAFETY: a reference is valid and aligned.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, amount) };
}

/// Adds to a word of a map value and answers what was there.
#[inline(always)]
pub fn fetch_add(word: &mut u64, amount: u64) -> u64 {
    // Not relaxed: the compiler takes that for the instruction that does not answer.
    // SAFETY: a reference is valid and aligned.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(word, amount) }
}

/// Replaces a word of a map value and answers what was there.
#[inline(always)]
pub fn swap(word: &mut u64, new: u64) -> u64 {
    // SAFETY: a reference is valid and aligned.
    unsafe { atomic_xchg::<u64, { AtomicOrdering::Relaxed }>(word, new) }
}
