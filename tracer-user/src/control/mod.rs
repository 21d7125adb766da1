//! Marks from outside: `outlive mark` asks the tracer of a process to end a batch.
//!
//! The meeting place is an abstract Unix socket named after the process: nothing is left on a
//! disk, whatever happens to either side. Each side checks whose the other is.

mod client;
pub(crate) mod protocol;
mod server;

pub use client::{ClientError, send};
pub use protocol::{MAX_LABEL, MarkReply, MarkRequest};
pub use server::{MarkServer, Pending, ServerError};

/// The socket's name for the tracer of a process.
fn socket_name(pid: u32) -> Vec<u8> {
    format!("outlive/mark/{pid}").into_bytes()
}
