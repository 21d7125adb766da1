//! Work on maps that no other thread interrupts.
//!
//! While a thread is in a system call on a map, the kernel runs no tracepoint program on its
//! processor. Where it can lose the processor in there to another thread, the system calls of that
//! one are not seen, and a measurement that misses them is void (seen on 7.2 with the tables of
//! an attach). A thread of a real-time policy does not lose it to an ordinary one.

use std::ops::{Deref, DerefMut};

/// A map. The calling thread is not interrupted while it holds this, so it is not held for long.
///
/// Where the kernel refuses that, it is interrupted as anybody is; what is then missed is counted
/// as any other program that was skipped.
pub(super) struct Undisturbed<M> {
    map: M,
    /// The policy is to be as before at the end.
    is_raised: bool,
}

impl<M> Undisturbed<M> {
    pub(super) fn new(map: M) -> Self {
        // SAFETY: takes a number.
        let policy = unsafe { libc::sched_getscheduler(0) };
        // Whoever gave the tool another policy wants it so.
        let is_raised =
            policy == libc::SCHED_OTHER && set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Self { map, is_raised }
    }
}

impl<M> Drop for Undisturbed<M> {
    fn drop(&mut self) {
        if self.is_raised {
            set(libc::SCHED_OTHER, 0);
        }
    }
}

impl<M> Deref for Undisturbed<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.map
    }
}

impl<M> DerefMut for Undisturbed<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.map
    }
}

/// Changes the calling thread's policy; its nice value stays.
fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters live through the call.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: takes a number.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_policy_is_as_before_afterwards() {
        let outer = Undisturbed::new(());
        let raised = policy();
        // Not everybody may.
        assert_eq!(raised == libc::SCHED_OTHER, !outer.is_raised);
        drop(Undisturbed::new(()));
        assert_eq!(policy(), raised);
        drop(outer);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
