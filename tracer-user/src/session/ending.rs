//! How a session comes to its end.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    rc::Rc,
    time::Duration,
};

use tokio::{
    io::unix::AsyncFd,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use super::tracer::Others;
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

/// Pause between two looks whether all processes have ended.
const LOOK: Duration = Duration::from_millis(5);

/// Tells when a target has ended, with every process that is traced beside it.
pub(super) struct ExitWatch {
    /// Becomes readable when the first process ends.
    first: AsyncFd<OwnedFd>,
    others: Rc<Others>,
}

impl ExitWatch {
    /// Watches this process, and what somebody else finds out of the others.
    pub(super) fn new(process: &Process, others: Rc<Others>) -> io::Result<Self> {
        let pidfd = process.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is ours alone, and nothing closes or replaces it while the
        // runtime watches it.
        let first =
            unsafe { AsyncFd::register_with_interest(pidfd, tokio::io::Interest::READABLE) }?;
        Ok(Self { first, others })
    }

    /// Waits for the end of all of them.
    pub(super) async fn ended(&self) {
        // An error would mean that the runtime is shutting down.
        let _ = self.first.readable().await;
        while !self.others.have_ended() {
            sleep(LOOK).await;
        }
    }
}
