//! outlive
pub mod batches;
pub mod growth;
pub mod ledger;
pub mod report;
pub mod stacks;
pub mod units;
