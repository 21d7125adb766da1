//! The same stack in several processes is one row: workers that run the same code are one cause.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::group::{Numbers, Place};
use super::model::{Frame, Mapping, Stack};

/// For each row numbers that are equal where its frames are, up to the address.
fn places<T>(rows: &[T], frames: impl Fn(&T) -> &[Arc<Frame>]) -> Vec<Vec<u32>> {
    let mut numbers = Numbers::default();
    let mut number = |frame| numbers.of(Place::of(frame));
    rows.iter().map(|row| frames(row).iter().map(|frame| number(frame)).collect()).collect()
}

/// Stacks with the same frames that called the same allocator, together; most gained first.
pub fn stacks(rows: Vec<Stack>) -> Vec<Stack> {
    let places = places(&rows, |row| &row.frames);
    let mut merged = merge(
        rows,
        places,
        |row| (row.family.clone(), row.end),
        |sum, row| {
            sum.bytes = sum.bytes.saturating_add(row.bytes);
            sum.blocks = sum.blocks.saturating_add(row.blocks);
            add(&mut sum.per_batch, &row.per_batch);
        },
    );
    merged.retain(|row| row.bytes != 0 || row.blocks != 0);
    merged.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.blocks)));
    merged
}

/// Mappings with the same frames and for the same purpose, together; most gained first.
pub fn mappings(rows: Vec<Mapping>) -> Vec<Mapping> {
    let places = places(&rows, |row| &row.frames);
    let mut merged = merge(
        rows,
        places,
        |row| row.kind.clone(),
        |sum, row| {
            sum.bytes = sum.bytes.saturating_add(row.bytes);
            sum.blocks = sum.blocks.saturating_add(row.blocks);
            add(&mut sum.per_batch, &row.per_batch);
        },
    );
    merged.retain(|row| row.bytes != 0 || row.blocks != 0);
    merged.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.blocks)));
    merged
}

fn merge<T, K: Eq + Hash>(
    rows: Vec<T>,
    places: Vec<Vec<u32>>,
    key: impl Fn(&T) -> K,
    add: impl Fn(&mut T, &T),
) -> Vec<T> {
    let mut merged: Vec<T> = Vec::new();
    let mut at: HashMap<(K, Vec<u32>), usize> = HashMap::new();
    for (row, places) in rows.into_iter().zip(places) {
        let place = *at.entry((key(&row), places)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(sum) => add(sum, &row),
            None => merged.push(row),
        }
    }
    merged
}

fn add(sum: &mut [i64], more: &[i64]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::StackEnd;

    fn row(bytes: i64, function: &str, address: &str) -> Stack {
        let function = Some(function.to_owned());
        let frame = Frame { function, address: address.to_owned(), ..Frame::default() };
        Stack {
            family: "libc.so.6".to_owned(),
            bytes,
            blocks: 1,
            per_batch: vec![bytes, 0],
            end: Some(StackEnd::Whole),
            frames: vec![frame.into()],
        }
    }

    #[test]
    fn the_same_stack_of_two_workers_is_one_row() {
        let rows = vec![row(64, "leak", "0x1"), row(100, "other", "0x2"), row(64, "leak", "0x3")];
        let merged = stacks(rows);
        let figures: Vec<_> = merged.iter().map(|row| (row.bytes, row.blocks)).collect();
        assert_eq!(figures, [(128, 2), (100, 1)]);
        assert_eq!(merged[0].per_batch, [128, 0]);
    }

    #[test]
    fn what_one_gained_and_another_lost_is_no_growth() {
        let mut lost = row(-64, "leak", "0x3");
        lost.blocks = -1;
        assert_eq!(stacks(vec![row(64, "leak", "0x1"), lost]), []);
    }

    #[test]
    fn another_allocator_is_another_row() {
        let mut other = row(64, "leak", "0x1");
        other.family = "libjemalloc.so.2".to_owned();
        assert_eq!(stacks(vec![row(64, "leak", "0x1"), other]).len(), 2);
    }
}
