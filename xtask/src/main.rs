//! The project's own commands. `cargo xtask setup` comes first; the others call it.

mod apt;

mod cmd;

mod setup;

mod tidy;

mod test;

mod demo;

mod bench;

mod holds;

mod kernels;

mod fuzz;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or fetch the toolchain that builds the kernel programs
    Setup {
        /// Also install the system packages that the end-to-end tests use (root, Debian)
        #[arg(long)]
        test: bool,
    },
    /// Check and test everything; ends with `N passed, N failed, N skipped`
    Test,
    /// Check dependency edges, file lengths, words, documents and licences
    Tidy,
    /// Find the leak of a small service and draw it (root)
    Demo,
    /// Measure what tracing costs, beside bare runs and libbpf-tools' memleak (root)
    Bench,
    /// Measure how long processes are stopped until their probes are in place (root)
    Holds,
    /// Run the core of the end-to-end tests on other kernels, in QEMU (root, Debian)
    Kernels {
        /// Such as 6.1; all when none is named
        versions: Vec<String>,
    },
    /// Feed readers of bytes of others what nobody would write (cargo-fuzz)
    Fuzz {
        /// How long each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Such as unwind_table; all when none is named
        targets: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(err) => {
            eprintln!("cargo xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let args = Args::parse();
    let workspace = cmd::Workspace::find()?;
    match args.command {
        Task::Setup { test } => {
            setup::run(&workspace)?;
            if test {
                setup::packages::install()?;
                setup::pythons::install(&workspace)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Task::Test => test::run(&workspace),
        Task::Tidy => tidy::run(&workspace),
        Task::Demo => demo::run(&workspace),
        Task::Bench => bench::run(&workspace),
        Task::Holds => holds::run(&workspace),
        Task::Kernels { versions } => kernels::run(&workspace, &versions),
        Task::Fuzz { seconds, targets } => fuzz::run(&workspace, seconds, &targets),
    }
}
