//! The command `outlive`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outlive::cli::run(std::env::args_os())
}
