//! Exit codes of the tool.

/// Within the budget, or nothing was to be judged.
pub const PASS: u8 = 0;
/// Growth over the budget.
pub const GROWTH: u8 = 1;
/// The command line, or a file that it names, is wrong.
pub const USAGE: u8 = 2;
/// It cannot be said.
pub const INCONCLUSIVE: u8 = 3;
/// This machine, this user or this target cannot be traced, or a result cannot be written; also what
/// nobody foresaw.
pub const ENVIRONMENT: u8 = 4;
/// The target or the batch command failed or timed out.
pub const TARGET: u8 = 5;
