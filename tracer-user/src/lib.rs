//! outlive finds native allocations that outlive the batch that made them.
//!
//! The way of the data, each room knowing only what stands to its right:
//! `probes` and `intake` (kernel) → `ledger` → `batches` → `growth` → `report`.
//! `session` puts the rooms together; `cli` turns words into what the session is to do.

pub mod batches;
pub mod growth;
pub mod intake;
pub mod ledger;
pub mod probes;
pub mod report;
pub mod stacks;
pub mod target;
pub mod units;
