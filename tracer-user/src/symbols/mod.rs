//! Names of addresses.
