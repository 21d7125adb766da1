//! The kernel programs, compiled into the tool.

/// The BPF object. The build script makes it, or fails with a sentence that says how.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("OUTLIVE_BPF_OBJECT"));
