//! outlive finds native allocations that outlive the batch that made them.
//!
//! The way of the data, each room knowing only what stands to its right:
//! `probes` and `intake` (kernel) → `ledger` → `batches` → `growth` → `report`.
//! `session` puts the rooms together; `cli` turns words into what the session is to do.

pub mod cli;
pub mod session;

pub mod control;
pub mod intake;
pub mod interpreters;
pub mod probes;
pub mod residency;
pub mod symbols;
pub mod target;

pub mod batches;
pub mod growth;
pub mod ledger;
pub mod stacks;

pub mod exit;
pub mod report;
pub mod units;
pub mod unwind;

mod chain;
pub mod foreign;
