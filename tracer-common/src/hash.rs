//! The 64-bit name of a stack.
//!
//! Multiply and fold per frame, with the odd constant of Knuth's multiplicative hashing
//! (2^64 divided by the golden ratio): two instructions a frame in a BPF program. A
//! million distinct stacks collide with a probability of about 3e-8.

/// Hash of a stack in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackHash(u64);

impl StackHash {
    /// Hash of no frame.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The hash with one more frame, taken from the innermost outwards.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, return_addr: u64) -> Self {
        let mixed = (self.0 ^ return_addr).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 32))
    }

    /// The finished hash. Never zero, which stands for a lost stack.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        self.0 | 1
    }
}

impl Default for StackHash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(frames: &[u64]) -> u64 {
        frames.iter().fold(StackHash::new(), |hash, frame| hash.with(*frame)).finish()
    }

    #[test]
    fn known_answers_hold_on_both_sides() {
        assert_eq!(hash(&[]), 0xcbf2_9ce4_8422_2325);
        let one = (0xcbf2_9ce4_8422_2325_u64 ^ 0x40_1000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert_eq!(hash(&[0x40_1000]), (one ^ (one >> 32)) | 1);
    }

    proptest! {
        #[test]
        fn order_and_depth_matter(a in any::<u64>(), b in any::<u64>()) {
            prop_assume!(a != b);
            prop_assert_ne!(hash(&[a, b]), hash(&[b, a]));
            prop_assert_ne!(hash(&[a]), hash(&[a, b]));
        }
    }
}
