//! outlive
pub mod intake;
pub mod probes;
