//! The tracer's side: takes one mark at a time and answers when the batch is closed.

use std::{io, os::linux::net::SocketAddrExt as _, os::unix::net, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use super::{
    protocol::{MAX_LINE, MarkReply, MarkRequest, parse},
    socket_name,
};

/// Longest that a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why marks cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another tracer of the same process takes them.
    #[error("another tracer takes the marks of process {pid}; this one ends batches without them")]
    Taken {
        /// The process.
        pid: u32,
    },
    /// The socket could not be made.
    #[error("cannot listen for marks of process {pid}: {error}")]
    Listen {
        /// The process.
        pid: u32,
        /// Why.
        error: io::Error,
    },
}

/// Takes marks for one process, from its user and from root.
pub struct MarkServer {
    listener: UnixListener,
    uid: u32,
}

/// A mark that waits for its answer.
pub struct Pending {
    /// What was asked for.
    pub request: MarkRequest,
    stream: UnixStream,
}

impl MarkServer {
    /// Listens for marks of `pid`, whose user is `uid`. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn listen(pid: u32, uid: u32) -> Result<Self, ServerError> {
        let fault = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => ServerError::Taken { pid },
            _ => ServerError::Listen { pid, error },
        };
        let address = net::SocketAddr::from_abstract_name(socket_name(pid)).map_err(fault)?;
        let listener = net::UnixListener::bind_addr(&address).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        Ok(Self { listener: UnixListener::from_std(listener).map_err(fault)?, uid })
    }

    /// The next mark that someone may set. Who may not, or asks for nonsense, is answered here.
    pub async fn next(&self) -> Pending {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Out of descriptors, for example: others may be closed meanwhile.
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            match self.receive(&mut stream).await {
                Ok(request) => return Pending { request, stream },
                Err(reason) => {
                    Pending::answer_on(&mut stream, &MarkReply::Refused { reason }).await;
                }
            }
        }
    }

    async fn receive(&self, stream: &mut UnixStream) -> Result<MarkRequest, String> {
        let peer = stream.peer_cred().map_err(|error| error.to_string())?;
        if peer.uid() != 0 && peer.uid() != self.uid {
            return Err(format!("user {} may not mark this process", peer.uid()));
        }
        let mut line = Vec::new();
        let mut reader = BufReader::new(stream).take(MAX_LINE as u64);
        match timeout(PATIENCE, reader.read_until(b'\n', &mut line)).await {
            Ok(Ok(_)) => parse(&line),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no request came".to_owned()),
        }
    }
}

impl Pending {
    /// Answers. A client that has gone away is not an error of ours.
    pub async fn answer(mut self, reply: &MarkReply) {
        Self::answer_on(&mut self.stream, reply).await;
    }

    async fn answer_on(stream: &mut UnixStream, reply: &MarkReply) {
        let bytes = serde_json::to_vec(reply).unwrap_or_default();
        let written = timeout(PATIENCE, async {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            log::debug!("the client of a mark went away");
        }
    }
}
