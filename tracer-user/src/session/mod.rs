//! One measurement from beginning to end: attach, let batches happen, detach, report.
//!
//! The only room that knows the others. What can be decided without a target is decided in
//! `batches` and `growth`; what is here is order: probes before the first batch, a mark behind
//! each batch, detach before anything slow.

mod drive;
mod ending;
mod finish;
mod processes;
mod progress;
mod scripts;
mod service;
mod stack_quality;
mod start;
mod test;
mod tracer;
mod trial;
mod watch;

use std::{ffi::OsString, path::PathBuf, time::Duration};

pub use drive::DriveError;
pub use finish::Finished;
pub use test::test;
pub use tracer::{Holds, Member, TraceOptions, Tracer};
pub use trial::{Trial, trial};
pub use watch::{attach, run};

use crate::growth::Budget;

/// What every measurement is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The exact command line of the tool.
    pub command: Vec<String>,
    /// Folder for the session; by default it is named after the target.
    pub output: Option<PathBuf>,
    /// Growth that is allowed. `None` when nobody asked for a judgement.
    pub budget: Option<Budget>,
    /// How to trace.
    pub options: TraceOptions,
    /// Should progress be shown on stderr?
    pub progress: bool,
}

/// What is to be tested, and how a batch is made.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A running process, and a command that is one batch.
    Process {
        /// Its id.
        pid: u32,
        /// The command.
        batch: Vec<OsString>,
    },
    /// A service that is started and ended here, and a command that is one batch.
    Service {
        /// The service's words.
        service: Vec<OsString>,
        /// When it is ready.
        ready: Ready,
        /// The command.
        batch: Vec<OsString>,
    },
    /// A program that runs a batch for each line that it reads.
    Lines {
        /// Its words.
        program: Vec<OsString>,
    },
}

/// When a service is ready.
#[derive(Clone, Debug)]
pub enum Ready {
    /// As soon as it runs.
    Started,
    /// When a line of its output matches.
    Line(regex::Regex),
    /// When it accepts a connection.
    Tcp(String),
}

impl Ready {
    /// What is waited for, as a message says it.
    fn awaited(&self) -> String {
        match self {
            Self::Started => "its start".to_owned(),
            Self::Line(pattern) => format!("a line of its output that matches {pattern}"),
            Self::Tcp(address) => format!("a connection to {address}"),
        }
    }
}

/// `outlive test`
#[derive(Clone, Debug)]
pub struct TestPlan {
    /// What every measurement is told.
    pub plan: Plan,
    /// What is tested.
    pub subject: Subject,
    /// Batches to compare, after the warm-up.
    pub batches: u32,
    /// Longest that one batch may take, and getting ready.
    pub timeout: Duration,
}

/// When a batch of a watched target ends, beside marks.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// After this long. `None`: by marks alone.
    pub interval: Option<Duration>,
    /// When to stop watching. `None`: when asked to, or when the target ends.
    pub duration: Option<Duration>,
}

/// Batches of an interval are shown to a person who watches.
pub trait Watcher {
    /// A batch of `tracer` has ended.
    fn batch_ended(&mut self, tracer: &Tracer);
}
