//! How far stacks were walked: a part of the [`super::model`].

use serde::{Deserialize, Serialize};

/// How far stacks were walked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackQuality {
    /// Those that reach the start of their thread.
    pub whole: Share,
    /// Those that have more frames than are taken.
    pub depth_limit: Share,
    /// Those that end before that, or whose frames were lost.
    pub broken: Share,
    /// Where they end, most bytes first.
    pub broken_in: Vec<BrokenIn>,
}

impl StackQuality {
    /// Distinct stacks that allocated.
    pub const fn n_stacks(&self) -> u64 {
        self.whole.stacks.saturating_add(self.depth_limit.stacks).saturating_add(self.broken.stacks)
    }
}

/// A share of all stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Distinct stacks that allocated.
    pub stacks: u64,
    /// Requested bytes of theirs that are outstanding at the end.
    pub bytes: u64,
}

/// Stacks that end in the same object for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenIn {
    /// The object of the last frame; `null` outside files.
    pub object: Option<String>,
    /// Why they end there.
    pub reason: BreakReason,
    /// How many there are.
    pub share: Share,
}

impl BrokenIn {
    /// Where they end and why, in words behind "in ".
    pub fn words(&self) -> String {
        let object = self.object.as_deref().unwrap_or("code of no file");
        format!("{object}: {}", self.reason.words())
    }
}

/// Why a stack ends before the start of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakReason {
    /// No unwind table says how the last frame is left, and the frame pointer leads nowhere.
    NoTable,
    /// The unwind table says more there than can be followed.
    NotFollowed,
    /// There is no code at the last address.
    NoCode,
    /// The file could not be opened.
    Unopened,
    /// The stack could not be read where the next frame should be, or the table was not there in
    /// time.
    Unreadable,
    /// The rest had to be walked by the user side, and the ring was too full to send it.
    Busy,
    /// The frames were lost.
    Lost,
}

impl BreakReason {
    /// In words, behind "in libfoo.so: ".
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoTable => "no unwind table, and no frame pointer is kept",
            Self::NotFollowed => "its unwind table says more than can be followed",
            Self::NoCode => "no code is there",
            Self::Unopened => "the file could not be opened",
            Self::Unreadable => "the stack could not be read further, or not in time",
            Self::Busy => "the ring was too full to send the rest (raise --ring-size)",
            Self::Lost => "the frames were lost",
        }
    }
}

/// How a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackEnd {
    /// At the start of its thread.
    Whole,
    /// At the number of frames that are taken; there are more.
    DepthLimit,
    /// Before that, because the next frame could not be found.
    Broken,
}
