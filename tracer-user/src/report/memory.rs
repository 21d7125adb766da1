//! What the memory of a process is made of, line by line, as every form shows it.

use super::model::{Batch, Kind, Session};

/// One kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// What it is called.
    pub(super) name: &'static str,
    /// Bytes at the end of the last batch; `None` when they could not be read.
    pub(super) now: Option<u64>,
    /// What the measured batches added; `None` when one end is not known.
    pub(super) added: Option<i64>,
}

/// The parts at the end of the last batch, against the end of the warm-up. Empty without a
/// batch; of the rarer kinds only those that are there.
pub(super) fn parts(session: &Session) -> Vec<Part> {
    let Some(last) = session.batches.last() else { return Vec::new() };
    let is_measured = |batch: &&Batch| batch.kind == Kind::Measured;
    let n_warmup = session.batches.iter().take_while(|batch| !is_measured(batch)).count();
    let before = match last.kind {
        Kind::Measured => n_warmup.checked_sub(1).and_then(|index| session.batches.get(index)),
        Kind::Warmup => None,
    };
    let part = |name, figure: &dyn Fn(&Batch) -> Option<u64>| {
        let now = figure(last);
        let added = before.and_then(figure).zip(now).map(|(before, now)| difference(before, now));
        Part { name, now, added }
    };
    let always =
        [part("resident", &resident), part("heap, outstanding", &|batch| Some(batch.heap_bytes))];
    let rarer = [
        part("mapped by the program", &|batch| Some(batch.mapped_bytes)),
        part("mapped by allocators", &|batch| Some(batch.arena_bytes)),
        part("of these not outstanding", &|batch| batch.retained_bytes),
        part("shared", &|batch| Some(batch.shared_bytes)),
        part("thread stacks", &|batch| Some(batch.thread_stack_bytes)),
        part("mapped files", &|batch| Some(batch.file_bytes)),
        part("reserved, not usable", &|batch| Some(batch.reserved_bytes)),
    ];
    let is_there =
        |part: &Part| part.now.is_some_and(|now| 0 < now) || part.added.unwrap_or(0) != 0;
    let unexplained = part("resident, unexplained", &unexplained);
    always.into_iter().chain(rarer.into_iter().filter(is_there)).chain([unexplained]).collect()
}

/// What is resident beyond the outstanding blocks and the program's own mappings: code, static
/// data, stacks, what allocators keep, what is older than the attach. Zero where more is
/// booked than resident: mapped memory and blocks need not be.
fn unexplained(batch: &Batch) -> Option<u64> {
    let booked = batch.heap_bytes.saturating_add(batch.mapped_bytes);
    resident(batch).map(|resident| resident.saturating_sub(booked))
}

/// What runs has something resident: nothing is what is left of processes that have ended, of
/// which nobody knows what it was.
fn resident(batch: &Batch) -> Option<u64> {
    batch.rss_bytes.filter(|bytes| 0 < *bytes)
}

fn difference(before: u64, now: u64) -> i64 {
    let size = i64::try_from(now.abs_diff(before)).unwrap_or(i64::MAX);
    if now < before { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn named(parts: &[Part], name: &str) -> Option<Part> {
        parts.iter().find(|part| part.name == name).copied()
    }

    #[test]
    fn what_is_resident_beyond_the_books_is_unexplained() {
        let mut session = sample::clean();
        let last = session.batches.last_mut().unwrap();
        last.rss_bytes = Some(100);
        last.heap_bytes = 20;
        last.arena_bytes = 30;
        last.mapped_bytes = 25;
        let part = named(&parts(&session), "resident, unexplained").unwrap();
        assert_eq!(part.now, Some(55));
        session.batches.last_mut().unwrap().mapped_bytes = 1 << 40;
        assert_eq!(named(&parts(&session), "resident, unexplained").unwrap().now, Some(0));
        session.batches.last_mut().unwrap().rss_bytes = None;
        let part = named(&parts(&session), "resident, unexplained").unwrap();
        assert_eq!((part.now, part.added), (None, None));
        // The target has ended.
        session.batches.last_mut().unwrap().rss_bytes = Some(0);
        for name in ["resident", "resident, unexplained"] {
            let part = named(&parts(&session), name).unwrap();
            assert_eq!((part.now, part.added), (None, None), "{name}");
        }
    }

    #[test]
    fn the_measured_batches_are_compared_with_the_end_of_the_warm_up() {
        let mut session = sample::leaking();
        session.batches[0].mapped_bytes = 4096;
        let all = parts(&session);
        assert_eq!(named(&all, "mapped by the program").unwrap().added, Some(36_864));
        assert_eq!(named(&all, "heap, outstanding").unwrap().added, Some(28_760));
        assert_eq!(named(&all, "thread stacks"), None);
        // Without a warm-up nobody looked before the first batch.
        session.batches.remove(0);
        assert!(parts(&session).iter().all(|part| part.added.is_none()));
        session.batches.clear();
        assert_eq!(parts(&session), []);
    }
}
