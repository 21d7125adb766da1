//! The contract between the kernel programs and the user side: what is written into the
//! ring buffer, what travels in an attach cookie, what is counted when something is lost.
//!
//! Both sides are compiled from this one crate, so it knows neither: no allocation, no
//! dependency, nothing of BPF and nothing of the standard library.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cookie;
pub mod count;
pub mod decode;
pub mod event;
pub mod hash;
pub mod interpreter;
pub mod state;
pub mod unwind;
