//! A bar while batches run, and a line while their stacks are named. On a terminal only.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar of a test.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `n_batches`, or one that is never drawn.
    pub(super) fn new(show: bool, n_batches: u32) -> Self {
        let bar = ProgressBar::with_draw_target(Some(n_batches.into()), target(show));
        let style = ProgressStyle::with_template("{msg:<12} [{bar:30}] {pos}/{len} {elapsed}")
            .map(|style| style.progress_chars("=> "));
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// A line that shows that there is work, and since when; or one that is never drawn.
    pub(super) fn line(show: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, target(show));
        if let Ok(style) = ProgressStyle::with_template("{msg} {elapsed}") {
            bar.set_style(style);
        }
        if show {
            // By a thread of its own: the work does not come back in between.
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self(bar)
    }

    /// What happens now.
    pub(super) fn stage(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
        self.0.tick();
    }

    /// One batch more is done.
    pub(super) fn batch_done(&self) {
        self.0.inc(1);
    }
}

fn target(show: bool) -> ProgressDrawTarget {
    if show { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
