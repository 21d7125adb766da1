//! What the kernel side counts. Most counters are losses: their sum being zero is what
//! makes a figure exact.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $key:literal, $loss:literal;)*) => {
        /// A counter of the kernel side, its number an index into the per-CPU array.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Count { $($(#[$doc])* $name = $number,)* }

        impl Count {
            /// Every counter, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Stable name, as reports spell it.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Does a non-zero value mean that the books are incomplete?
            pub const fn is_loss(self) -> bool {
                match self { $(Self::$name => $loss,)* }
            }
        }
    };
}

counters! {
    /// A record found no room in the ring buffer.
    RingFull = 0, "events", true;
    /// The frames of a stack found no room in the ring buffer, or no buffer to be
    /// collected in: the block is counted, its stack has no name.
    StackLost = 1, "stacks", true;
    /// A thread found no slot for its call in flight: the call was not booked.
    SlotsFull = 2, "threads", true;
    /// An allocator call was entered and never seen to return.
    Abandoned = 3, "abandoned", true;
    /// The pointer that a call stored for its caller could not be read.
    ReadFailed = 4, "unreadable", true;
    /// An allocator call that returned no memory. Nothing is lost by it.
    FailedCalls = 5, "failed_calls", false;
    /// Stacks that were sent again because the table of known stacks is full. Costs time,
    /// loses nothing.
    StackResent = 6, "stacks_resent", false;
    /// Calls of other processes that ran our program; ignored.
    Foreign = 7, "foreign", false;
    /// Processes that the target made and that are not followed, because nobody asked for it.
    NotFollowed = 8, "not_followed", false;
    /// Processes that were made and could not be followed: no room in a table.
    Unfollowed = 9, "processes", true;
}

impl Count {
    /// Number of counters.
    pub const N: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_indices_and_keys_are_unique() {
        for (index, count) in Count::ALL.iter().enumerate() {
            assert_eq!(*count as usize, index);
            assert!(Count::ALL.iter().skip(index + 1).all(|other| other.key() != count.key()));
        }
    }
}
