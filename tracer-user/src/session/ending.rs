//! How a session comes to its end.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use tokio::{
    io::unix::AsyncFd,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::target::process::Process;

/// Requests to stop: Ctrl-C, a terminal that closes, a supervisor.
pub(super) struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Interrupts {
    /// From here on such a request does not end the process but is answered by
    /// [`Interrupts::next`].
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a request.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            _ = self.hup.recv() => {}
        }
    }
}

/// A handle that becomes readable when a process ends.
pub(super) struct ExitWatch(AsyncFd<OwnedFd>);

impl ExitWatch {
    /// Watches this process.
    pub(super) fn new(process: &Process) -> io::Result<Self> {
        let pidfd = process.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is ours alone, and nothing closes or replaces it while the
        // runtime watches it.
        Ok(Self(unsafe { AsyncFd::register_with_interest(pidfd, tokio::io::Interest::READABLE) }?))
    }

    /// Waits for the process's end.
    pub(super) async fn ended(&self) {
        // An error would mean that the runtime is shutting down.
        let _ = self.0.readable().await;
    }
}
