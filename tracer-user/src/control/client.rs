//! The side of `outlive mark`.

use std::{
    io::{self, Read as _, Write as _},
    os::linux::net::SocketAddrExt as _,
    os::unix::net::{SocketAddr, UnixStream},
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{
    protocol::{self, MarkReply, MarkRequest},
    socket_name,
};

/// Longest that a mark may take: the tracer has to read what the target did before it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a mark was not set.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("process {pid} is not being traced; start `outlive attach -p {pid}` first")]
    NotTraced {
        /// The process.
        pid: u32,
    },
    /// Somebody listens who may not.
    #[error("the socket of process {pid} belongs to user {uid}, who is neither root nor you")]
    Impostor {
        /// The process.
        pid: u32,
        /// Whose socket it is.
        uid: u32,
    },
    /// The tracer said no.
    #[error("the tracer refused the mark: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The connection broke.
    #[error("the tracer of process {pid} went away before it answered: {error}")]
    Broken {
        /// The process.
        pid: u32,
        /// How.
        error: io::Error,
    },
}

/// Asks the tracer of `pid` to end a batch, and waits until it has.
///
/// # Errors
/// See [`ClientError`].
pub fn send(pid: u32, request: &MarkRequest) -> Result<MarkReply, ClientError> {
    let broken = |error| ClientError::Broken { pid, error };
    let address = SocketAddr::from_abstract_name(socket_name(pid)).map_err(broken)?;
    let mut stream =
        UnixStream::connect_addr(&address).map_err(|_| ClientError::NotTraced { pid })?;
    let peer = getsockopt(&stream, PeerCredentials).map_err(|error| broken(error.into()))?;
    if peer.uid() != 0 && peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(ClientError::Impostor { pid, uid: peer.uid() });
    }
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let mut line = serde_json::to_vec(request).map_err(|error| broken(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(broken)?;
    let mut answer = Vec::new();
    stream.take(64 << 10).read_to_end(&mut answer).map_err(broken)?;
    match protocol::parse_reply(&answer).map_err(|error| broken(error.into()))? {
        MarkReply::Refused { reason } => Err(ClientError::Refused { reason }),
        closed @ MarkReply::Closed { .. } => Ok(closed),
    }
}
