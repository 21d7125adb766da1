//! What a person who watches is shown after each interval.

use std::io::{self, Write as _};

use jiff::Zoned;

use crate::{
    report::{
        Options,
        terminal::{Outstanding, live},
    },
    session::{Tracer, Watcher},
};

/// Prints the stacks that hold most after each batch, or nothing.
pub(super) struct Live(Option<Options>);

impl Live {
    pub(super) fn new(options: Options, quiet: bool) -> Self {
        Self((!quiet).then_some(options))
    }

    pub(super) fn silent() -> Self {
        Self(None)
    }
}

impl Watcher for Live {
    fn batch_ended(&mut self, tracer: &Tracer) {
        let Some(options) = self.0 else { return };
        let ledger = tracer.ledger();
        let mut held: Vec<_> = ledger
            .stacks()
            .ids()
            .map(|id| (id, ledger.outstanding_of(id)))
            .filter(|(_, held)| held.blocks > 0)
            .collect();
        held.sort_by_key(|(id, held)| (std::cmp::Reverse(held.bytes), *id));
        held.truncate(options.top);
        let ids: Vec<_> = held.iter().map(|(id, _)| *id).collect();
        let stacks: Vec<Outstanding> = held
            .iter()
            .zip(tracer.named(&ids))
            .map(|((_, held), frames)| Outstanding {
                bytes: held.bytes,
                blocks: held.blocks,
                frames,
            })
            .collect();
        let text = live(&Zoned::now().strftime("%H:%M:%S").to_string(), &stacks, &options);
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            // Whoever read this has gone; the session goes on and is written to its folder.
            self.0 = None;
        }
    }
}
