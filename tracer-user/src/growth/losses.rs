//! What was lost, by kind. A verdict cannot be had without it.

use tracer_common::count::Count;

/// Where each number of a [`Losses`] comes from. Every field must be given: a loss that nobody
/// asked for is a wrong verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossCounts {
    /// Kernel counters, by the number of [`Count`].
    pub kernel: [u64; Count::N],
    /// Runs of our programs that the kernel left out (`recursion_misses`), and return probes
    /// that it missed.
    pub skipped: u64,
    /// Records of the ring that were none, and records that the ledger could not believe.
    pub malformed: u64,
    /// Blocks whose address was handed out again before their release was seen.
    pub healed: u64,
    /// `realloc` calls whose end was never seen.
    pub undecided: u64,
    /// Times that a process ran code before its probes were in place: it was not held, or not
    /// long enough.
    pub late_probes: u64,
    /// Probes that somebody else took out of a process while it was traced.
    pub removed_probes: u64,
}

/// Counted losses under stable keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses {
    entries: Vec<(&'static str, u64)>,
}

impl Losses {
    /// All keys, also those that count zero.
    pub fn new(counts: &LossCounts) -> Self {
        let LossCounts {
            kernel,
            skipped,
            malformed,
            healed,
            undecided,
            late_probes,
            removed_probes,
        } = *counts;
        let from_kernel = Count::ALL
            .iter()
            .filter(|count| count.is_loss())
            .map(|count| (count.key(), kernel[*count as usize]));
        let ours = [
            ("skipped", skipped),
            ("malformed", malformed),
            ("healed", healed),
            ("undecided", undecided),
            ("late_probes", late_probes),
            ("removed_probes", removed_probes),
        ];
        Self { entries: from_kernel.chain(ours).collect() }
    }

    /// Key and count of every kind of loss, always in the same order.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.entries.iter().copied()
    }

    /// Only what was really lost.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.entries().filter(|(_, count)| 0 < *count)
    }
}

/// What a loss means and what can be done, for a sentence that begins with its count.
pub(super) fn meaning(key: &str) -> &'static str {
    match key {
        "events" => {
            "records found the ring buffer full, so blocks or frees are missing; \
             enlarge the buffer or give the tool a processor of its own"
        }
        "stacks" => {
            "stacks could not be sent, so some blocks have no name; \
             enlarge the buffer or lower the load"
        }
        "threads" => {
            "calls found no slot for their thread, so their blocks are missing; \
             trace fewer threads at once"
        }
        "abandoned" => {
            "allocator calls were entered and never seen to return, so their blocks are \
             missing; measure again, and do not stop threads while tracing"
        }
        "unreadable" => {
            "addresses that a call stored for its caller could not be read, so their blocks \
             are missing; measure again"
        }
        "skipped" => {
            "runs of the probes were left out by the kernel, so blocks or frees are missing; \
             stop other profilers and tracers, then measure again"
        }
        "malformed" => {
            "records could not be understood, so blocks or frees are missing; report this as \
             a bug of outlive"
        }
        "healed" => {
            "addresses were handed out again before their release was seen, so a probe is \
             missing; look at what `outlive doctor -p PID` says of the allocator"
        }
        "undecided" => {
            "calls of realloc were never seen to end, so their blocks are in doubt; measure \
             again"
        }
        "processes" => {
            "processes could not be followed for want of room, so their memory is missing; \
             trace fewer processes at once"
        }
        "late_probes" => {
            "times a process ran before its probes were in place, so blocks may be missing; \
             leave out --no-hold, or measure again while the machine is less busy"
        }
        "removed_probes" => {
            "probes were taken out of a process while it was traced, so blocks or frees are \
             missing; measure again while no other tracer begins or ends"
        }
        _ => "losses of an unknown kind; read this session with the version that wrote it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: LossCounts = LossCounts {
        kernel: [0; Count::N],
        skipped: 0,
        malformed: 0,
        healed: 0,
        undecided: 0,
        late_probes: 0,
        removed_probes: 0,
    };

    #[test]
    fn every_key_is_there_once_also_at_zero() {
        let losses = Losses::new(&NONE);
        let keys: Vec<_> = losses.entries().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "events",
                "stacks",
                "threads",
                "abandoned",
                "unreadable",
                "processes",
                "skipped",
                "malformed",
                "healed",
                "undecided",
                "late_probes",
                "removed_probes"
            ]
        );
        assert_eq!(losses.lost().count(), 0);
    }

    #[test]
    fn counters_that_lose_nothing_are_no_losses() {
        let mut kernel = [0; Count::N];
        for count in Count::ALL.iter().filter(|count| !count.is_loss()) {
            kernel[*count as usize] = 9;
        }
        assert_eq!(Losses::new(&LossCounts { kernel, ..NONE }).lost().count(), 0);
    }

    #[test]
    fn every_kind_has_a_meaning_of_its_own() {
        let losses = Losses::new(&NONE);
        let mut meanings: Vec<_> = losses.entries().map(|(key, _)| meaning(key)).collect();
        meanings.sort_unstable();
        meanings.dedup();
        assert_eq!(meanings.len(), losses.entries().count());
        assert!(!meanings.contains(&meaning("no such key")));
    }
}
