//! Registers by their meaning. The only place that knows an architecture.

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(bpf_target_arch = "x86_64"))]
compile_error!("only x86-64 is traced; another architecture needs a module beside x86_64.rs");
