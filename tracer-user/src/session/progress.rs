//! A bar while batches run. On a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar of a test.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `n_batches`, or one that is never drawn.
    pub(super) fn new(show: bool, n_batches: u32) -> Self {
        let target = if show { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(n_batches.into()), target);
        let style = ProgressStyle::with_template("{msg:<12} [{bar:30}] {pos}/{len} {elapsed}")
            .map(|style| style.progress_chars("=> "));
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// What happens now.
    pub(super) fn stage(&self, what: &'static str) {
        self.0.set_message(what);
        self.0.tick();
    }

    /// One batch more is done.
    pub(super) fn batch_done(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
