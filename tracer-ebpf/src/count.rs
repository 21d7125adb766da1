//! Counting what cannot be booked.

use tracer_common::count::Count;

use crate::{atomic, maps::COUNTS};

/// Adds one to a counter.
#[inline(always)]
pub fn bump(count: Count) {
    add(count, 1);
}

/// Takes one back from a counter. Perhaps on another CPU than it was added on: the sum over
/// all CPUs is right, each for itself may have passed zero.
#[inline(always)]
pub fn lower(count: Count) {
    add(count, u64::MAX);
}

#[inline(always)]
fn add(count: Count, amount: u64) {
    if let Some(value) = COUNTS.get_ptr_mut(count as u32) {
        // Atomic, because a program of another thread may preempt this one on the same CPU.
        // SAFETY: the pointer is to a live map value.
        atomic::add(unsafe { &mut *value }, amount);
    }
}

/// Turns the outcome of a program into its return value, counting a loss.
#[inline(always)]
pub fn lost(outcome: Result<(), Count>) -> u32 {
    if let Err(count) = outcome {
        bump(count);
    }
    0
}
