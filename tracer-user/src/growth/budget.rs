//! What growth is accepted.

/// Growth per batch that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Outstanding bytes of all allocators together, per batch. Zero when none was given:
    /// nothing may grow.
    pub heap_bytes_per_batch: u64,
}

impl Budget {
    /// The budget on the scale of the estimate.
    pub(super) const fn bytes(self) -> f64 {
        self.heap_bytes_per_batch as f64
    }
}
