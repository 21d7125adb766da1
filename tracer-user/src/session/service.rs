//! A service that the tool starts: its output goes to a file, its readiness is awaited, and it
//! is ended afterwards.

use std::{
    fs::File,
    io::Write as _,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{TcpStream, unix::pipe},
    sync::mpsc,
    time::sleep,
};

use super::{DriveError, Ready};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// The output of a service, line by line, on its way into a file.
pub(super) struct Output {
    lines: mpsc::UnboundedReceiver<String>,
    wants_lines: Arc<std::sync::atomic::AtomicBool>,
}

impl Output {
    /// Reads both streams from here on, as long as the runtime lives, so that the service is
    /// never held up by a full pipe.
    pub(super) fn collect(streams: [OwnedFd; 2], log: File) -> std::io::Result<Self> {
        let (sender, lines) = mpsc::unbounded_channel();
        let wants_lines = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let log = Arc::new(Mutex::new(log));
        for stream in streams {
            let stream = pipe::Receiver::from_owned_fd(stream)?;
            let (sender, log, wants) = (sender.clone(), log.clone(), wants_lines.clone());
            tokio::spawn(forward(stream, log, sender, wants));
        }
        Ok(Self { lines, wants_lines })
    }

    /// Waits until the service is ready.
    ///
    /// # Errors
    /// When its output ends before.
    pub(super) async fn ready(&mut self, ready: &Ready) -> Result<(), DriveError> {
        let outcome = match ready {
            Ready::Started => Ok(()),
            Ready::Line(pattern) => loop {
                match self.lines.recv().await {
                    Some(line) if pattern.is_match(&line) => break Ok(()),
                    Some(_) => {}
                    None => {
                        break Err(DriveError::NeverReady { pattern: pattern.to_string() });
                    }
                }
            },
            Ready::Tcp(address) => {
                while TcpStream::connect(address).await.is_err() {
                    sleep(RETRY).await;
                }
                Ok(())
            }
        };
        self.wants_lines.store(false, std::sync::atomic::Ordering::Relaxed);
        self.lines.close();
        outcome
    }
}

async fn forward(
    stream: pipe::Receiver,
    log: Arc<Mutex<File>>,
    lines: mpsc::UnboundedSender<String>,
    wants_lines: Arc<std::sync::atomic::AtomicBool>,
) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(n_read) = reader.read_until(b'\n', &mut line).await {
        if n_read == 0 {
            return;
        }
        if let Ok(mut log) = log.lock()
            && let Err(error) = log.write_all(&line)
        {
            log::debug!("cannot keep the service's output: {error}");
        }
        if wants_lines.load(std::sync::atomic::Ordering::Relaxed) {
            // Nobody receives once the service is ready.
            let _ = lines.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        line.clear();
    }
}
