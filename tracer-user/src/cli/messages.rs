//! Messages to people, on stderr.

use std::io::{self, IsTerminal as _, Write as _};

use crate::report::escape;

/// Columns when nobody says how many there are.
const COLUMNS: usize = 80;

struct ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("outlive")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            say(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Lets messages through: warnings, and more with each `-v`; none with `-q`.
pub(super) fn init(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => log::LevelFilter::Off,
        (false, 0) => log::LevelFilter::Warn,
        (false, 1) => log::LevelFilter::Info,
        (false, _) => log::LevelFilter::Debug,
    };
    if log::set_logger(&ToStderr).is_ok() {
        log::set_max_level(level);
    }
}

/// An error, in one line.
pub(super) fn error(text: &str) {
    say(text);
}

fn say(text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nobody is left to be told that stderr is gone.
    let _ = writeln!(io::stderr().lock(), "outlive: {}", escape::terminal(&line));
}

/// Columns of the terminal that results go to; 80 for a file or a pipe.
pub(super) fn width() -> usize {
    if !io::stdout().is_terminal() {
        return COLUMNS;
    }
    // SAFETY: the struct consists of integers, for which zero is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one `winsize` through the pointer, which is valid.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if status == 0 && size.ws_col > 0 { size.ws_col.into() } else { COLUMNS }
}
