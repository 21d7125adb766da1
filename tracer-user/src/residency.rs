//! How much of the target's memory is resident.
