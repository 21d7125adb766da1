//! Harness of the end-to-end tests: builds and drives real programs, runs `outlive` on them,
//! and compares what it reports with the account that each program keeps of itself.
//!
//! The harness panics where something is not as a test needs it: the place shows in the output,
//! and a test that could not run cannot pass.

pub mod build;
pub mod kernel;
pub mod measure;
pub mod needs;
pub mod process;
pub mod rootfs;
pub mod sampling;
pub mod scratch;
pub mod session;
pub mod text;
pub mod tool;
pub mod truth;
pub mod workload;
