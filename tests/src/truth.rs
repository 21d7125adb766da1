//! The account that a workload keeps of what it left: live blocks and bytes by function.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// Live blocks, and the bytes that were asked for, of the stacks that contain one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Amount {
    /// Number of blocks.
    pub blocks: i64,
    /// Requested bytes.
    pub bytes: i64,
}

#[derive(Debug, Deserialize)]
struct Line {
    batch: usize,
    sites: BTreeMap<String, Amount>,
}

/// A workload's account: one state before the first batch and one after each.
#[derive(Debug)]
pub struct Truth {
    lines: Vec<Line>,
}

impl Truth {
    /// Reads the file that the workload wrote.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|err| {
            panic!("the workload wrote no account to {}: {err}", path.display())
        });
        let lines: Vec<Line> = text
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|err| panic!("account `{line}`: {err}"))
            })
            .collect();
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(line.batch, index, "the account's batches are not in a row");
        }
        Self { lines }
    }

    /// Number of batches that were run.
    pub fn n_batches(&self) -> usize {
        self.lines.len().saturating_sub(1)
    }

    /// What each function gained between the ends of two batches.
    pub fn growth(&self, from: usize, to: usize) -> BTreeMap<String, Amount> {
        let start = &self.at(from).sites;
        let gained = |(function, now): (&String, &Amount)| {
            let before = start.get(function).copied().unwrap_or_default();
            let blocks = now.blocks - before.blocks;
            (function.clone(), Amount { blocks, bytes: now.bytes - before.bytes })
        };
        self.at(to).sites.iter().map(gained).collect()
    }

    fn at(&self, batch: usize) -> &Line {
        self.lines.get(batch).unwrap_or_else(|| {
            panic!("the workload ran {} batches, {batch} were expected", self.n_batches())
        })
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, each| Self {
            blocks: sum.blocks + each.blocks,
            bytes: sum.bytes + each.bytes,
        })
    }
}

impl std::ops::Mul<usize> for Amount {
    type Output = Self;

    /// So many times the same.
    fn mul(self, times: usize) -> Self {
        std::iter::repeat_n(self, times).sum()
    }
}
