//! The tree of processes, one line for each that runs and one for each kind that has ended.

use std::collections::{BTreeMap, HashSet};

use super::model::{Process, Session};
use super::names;

/// One line of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Generations below the target.
    pub depth: usize,
    /// Requested bytes gained, up to the end of those that have ended.
    pub bytes: i64,
    /// The process's id, or how many there were.
    pub who: String,
    /// The program.
    pub exe: String,
    /// The function that made it, when it is known.
    pub made_by: Option<String>,
}

/// The tree, parents before their children. Empty when the target is alone.
pub(super) fn lines(session: &Session) -> Vec<Line> {
    let mut lines = Vec::new();
    if session.processes.len() < 2 {
        return lines;
    }
    let known: HashSet<u32> = session.processes.iter().map(|process| process.pid).collect();
    let roots = session.processes.iter().filter(|process| !known.contains(&process.ppid));
    // A number may be given out twice; nobody is shown twice, and nobody is their own ancestor.
    let mut shown = HashSet::new();
    level(session, &roots.collect::<Vec<_>>(), 0, &mut shown, &mut lines);
    lines
}

fn level<'a>(
    session: &'a Session,
    siblings: &[&'a Process],
    depth: usize,
    shown: &mut HashSet<*const Process>,
    lines: &mut Vec<Line>,
) {
    /// Those that run stand alone; those that have ended are counted by program and maker.
    type Kind<'a> = (Option<u32>, &'a str, Option<String>);
    let mut kinds: BTreeMap<Kind<'_>, Vec<&Process>> = BTreeMap::new();
    let mut order = Vec::new();
    for process in siblings.iter().copied().filter(|process| shown.insert(&raw const **process)) {
        let alone = process.ended.is_none().then_some(process.pid);
        let kind = (alone, process.exe.as_str(), maker(process));
        let members = kinds.entry(kind.clone()).or_default();
        if members.is_empty() {
            order.push(kind);
        }
        members.push(process);
    }
    for kind in order {
        let members = kinds.remove(&kind).unwrap_or_default();
        let (_, exe, made_by) = kind;
        let who = match members[..] {
            [only] => only.pid.to_string(),
            _ => format!("{} ×", members.len()),
        };
        let bytes = members
            .iter()
            .fold(0_i64, |sum, process| sum.saturating_add(process.growth.heap_bytes));
        lines.push(Line { depth, bytes, who, exe: exe.to_owned(), made_by });
        let parents: HashSet<u32> = members.iter().map(|process| process.pid).collect();
        let children: Vec<&Process> =
            session.processes.iter().filter(|process| parents.contains(&process.ppid)).collect();
        if !children.is_empty() {
            level(session, &children, depth + 1, shown, lines);
        }
    }
}

fn maker(process: &Process) -> Option<String> {
    (!process.made_by.is_empty()).then(|| names::of_stack(&process.made_by).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{self, tree};

    fn shown(session: &Session) -> Vec<(usize, i64, String, String)> {
        let each = lines(session).into_iter();
        each.map(|line| (line.depth, line.bytes, line.who, line.exe)).collect()
    }

    #[test]
    fn one_process_is_no_tree() {
        assert_eq!(lines(&sample::leaking()), []);
    }

    #[test]
    fn those_that_ended_are_one_line_for_each_kind() {
        let session = tree();
        let line = |depth, bytes, who: &str, exe: &str| (depth, bytes, who.into(), exe.into());
        let target = session.processes[0].growth.heap_bytes;
        assert_eq!(
            shown(&session),
            [
                line(0, target, "4242", "/opt/server"),
                line(1, 300, "2 ×", "/bin/helper"),
                line(2, -5, "5004", "/bin/orphan"),
                line(1, 7, "5001", "/bin/worker"),
                line(2, 0, "5003", "/bin/deep"),
            ]
        );
        assert_eq!(lines(&session)[1].made_by.as_deref(), Some("start_helper"));
    }

    #[test]
    fn numbers_in_a_circle_are_shown_once_and_end() {
        let mut session = tree();
        session.processes[0].ppid = 5001;
        session.processes[2].ppid = 4242;
        session.processes.push(sample::process(1, 0, "/sbin/init", 0));
        assert!(lines(&session).len() <= session.processes.len());
    }
}
