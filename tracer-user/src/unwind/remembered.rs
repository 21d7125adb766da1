//! A CFA that a function keeps in a register across calls, as the loader's entry for functions that
//! are bound at their first call does (`_dl_runtime_resolve`): it cannot know how much of the stack it
//! uses. Who it calls has saved the register, in a place that the unwind table tells, and from there
//! it is read.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use gimli::{Register, RegisterRule, UnwindTableRow, X86_64};
use tracer_common::unwind::{Rule, RuleKind};

use super::table::Function;
use crate::target::elf::{Call, Elf};

/// Registers that a called function leaves as they were.
const KEPT: [Register; 5] = [X86_64::RBX, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];

/// What is looked for at the most, over all calls of an object.
const MOST_CALLS: usize = 256;

/// The calls of a range of addresses, in their order. `None` where too much has been looked through.
pub(super) type Calls<'f> = dyn Fn(Range<u64>) -> Option<Vec<Call>> + 'f;

/// Bytes of an object's code that are looked through for calls at the most: rows may lie above one
/// another. The 3300 programs and libraries of a desktop have 33 KB together where a CFA is kept in such a
/// register.
const MOST_CODE: u64 = 4 << 20;

/// A call during which the CFA is in a register.
#[derive(Clone, Copy, Debug)]
struct Remembering {
    /// Whose call it is, in the list of functions.
    caller: usize,
    call: Call,
    register: Register,
    rule: Rule,
}

/// Such calls, and where who is called has saved the register.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    calls: Vec<Remembering>,
    /// By called function and register: below its CFA. `None` where it is not known of all its calls.
    saved: BTreeMap<(u64, Register), Option<i64>>,
}

impl Remembered {
    /// The calls in this object, up to what is looked through at the most.
    pub(super) fn calls_in<Data: AsRef<[u8]>>(
        elf: &Elf<Data>,
    ) -> impl Fn(Range<u64>) -> Option<Vec<Call>> {
        let left = Cell::new(MOST_CODE);
        move |range| {
            left.set(left.get().checked_sub(range.end.checked_sub(range.start)?)?);
            Some(elf.calls_in(range))
        }
    }

    /// Looks at the calls in a row of the function that has this place in the list.
    pub(super) fn note(
        &mut self,
        caller: usize,
        row: &UnwindTableRow<usize>,
        rule: Rule,
        calls: &Calls<'_>,
    ) {
        let gimli::CfaRule::RegisterAndOffset { register, .. } = row.cfa() else { return };
        if rule.kind != RuleKind::Interrupted || !KEPT.contains(register) {
            return;
        }
        let calls = calls(row.start_address()..row.end_address());
        for call in calls.into_iter().flatten() {
            if self.calls.len() < MOST_CALLS && call.target.is_some() {
                self.calls.push(Remembering { caller, call, register: *register, rule });
            }
        }
    }

    /// Is nothing looked for?
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Is this function called in such a way?
    pub(super) fn asks_for(&self, start: u64) -> bool {
        self.calls.iter().any(|remembering| remembering.call.target == Some(start))
    }

    /// Looks at a row of a called function.
    pub(super) fn look_at(&mut self, start: u64, row: &UnwindTableRow<usize>, calls: &Calls<'_>) {
        let of_this = |remembering: &&Remembering| remembering.call.target == Some(start);
        let registers = self.calls.iter().filter(of_this).map(|of| of.register);
        for register in registers.collect::<BTreeSet<_>>() {
            let known = self.saved.get(&(start, register)).copied();
            let here = match row.register(register) {
                Some(RegisterRule::Offset(offset)) => {
                    known.unwrap_or(Some(offset)).filter(|known| *known == offset)
                }
                // Before it is saved and after it is restored; it must not call there.
                None | Some(RegisterRule::SameValue | RegisterRule::Undefined)
                    if calls(row.start_address()..row.end_address())
                        .is_some_and(|calls| calls.is_empty()) =>
                {
                    match known {
                        Some(known) => known,
                        None => continue,
                    }
                }
                _ => None,
            };
            self.saved.insert((start, register), here);
        }
    }

    /// Adds the rules that were found to the functions which call.
    pub(super) fn apply(self, functions: &mut [Function]) {
        for Remembering { caller, call, register, rule } in self.calls {
            let saved = call.target.and_then(|target| self.saved.get(&(target, register)));
            let offset = saved.copied().flatten().and_then(|offset| i32::try_from(offset).ok());
            let (Some(cfa_offset), Some(caller)) = (offset, functions.get_mut(caller)) else {
                continue;
            };
            // The last byte of the call is what a return address stands for.
            let here = Rule { kind: RuleKind::StackPointerMemory, cfa_offset, ..rule };
            let at = call.after.saturating_sub(1);
            let next = caller.rows.partition_point(|(start, _)| *start <= at);
            caller.rows.splice(next..next, [(at, here), (call.after, rule)]);
        }
    }
}
