//! outlive

pub mod residency;
pub mod symbols;
pub mod target;
