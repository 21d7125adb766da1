//! outlive
