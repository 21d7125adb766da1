//! Why there is nothing to probe.

use std::path::PathBuf;

use super::super::Class;
use super::super::process::ProcessError;

/// Why there is no allocator to trace.
#[derive(Debug, thiserror::Error)]
pub enum AllocatorError {
    /// The process could not be asked.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A library that was named beforehand cannot be probed.
    #[error(
        "the library {} cannot be probed ahead: {reason}; give its path as the target sees it",
        path.display()
    )]
    Library {
        /// Its path, as it was given.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// None of its objects defines one.
    #[error(
        "no allocator symbol in {}; outlive needs malloc and free in a mapped object, and cannot \
         trace a stripped static program", list(.searched, .unreadable)
    )]
    None {
        /// Objects that were searched.
        searched: Vec<String>,
        /// Objects that could not be.
        unreadable: Vec<Unreadable>,
    },
}

impl AllocatorError {
    /// Whose fault it is.
    pub const fn class(&self) -> Class {
        match self {
            Self::Process(error) => error.class(),
            Self::Library { .. } => Class::Usage,
            Self::None { .. } => Class::Environment,
        }
    }
}

/// A mapped object that could not be searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Path as shown.
    pub path: String,
    /// Why not.
    pub reason: String,
}

fn list(searched: &[String], unreadable: &[Unreadable]) -> String {
    let unread = unreadable.iter().map(|object| format!("{} ({})", object.path, object.reason));
    let names: Vec<_> = searched.iter().cloned().chain(unread).collect();
    if names.is_empty() { "any object (no file is mapped)".to_owned() } else { names.join(", ") }
}
