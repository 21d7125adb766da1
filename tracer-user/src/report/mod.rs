//! The result, and the forms it is shown in. [`model`] is plain data; each form is a function
//! of it alone, and only [`folder`] writes files.
//!
//! Names from the target are data: each form passes them through its function of [`escape`].

mod apart;
pub mod escape;
pub mod flamegraph;
pub mod folded;
pub mod folder;
mod frames;
mod group;
pub mod json;
pub mod markdown;
mod memory;
pub mod merge;
pub mod model;
pub mod names;
mod processes;
mod quality;
mod shorten;
pub mod terminal;
pub mod widths;
pub(crate) mod wrap;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod sample;

pub use self::group::GroupBy;

/// How much is shown, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Stacks that are shown at the most.
    pub top: usize,
    /// Columns of the terminal.
    pub width: usize,
    /// May colours be used?
    pub color: bool,
    /// What a row of the table of stacks stands for.
    pub group_by: GroupBy,
}
