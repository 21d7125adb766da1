//! The traced process as it is now: its identity, what it maps, where its allocators are
//! and at which instructions they can be probed.
//!
//! Everything here reads; only [`launch`] starts something. Attaching is not done here.

pub mod access;

pub mod process;

pub mod mappings;

pub mod objects;

pub mod elf;

pub mod allocators;

pub mod arrivals;

pub mod perf_event;

pub mod sites;

pub mod launch;

pub mod text;

#[cfg(test)]
pub(crate) mod test_program;

/// Whose fault an error is, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The question itself is wrong; exit code 2.
    Usage,
    /// This machine, or the rights held on it, cannot trace; exit code 4.
    Environment,
    /// The target is not there, ended, or failed; exit code 5.
    Target,
}
