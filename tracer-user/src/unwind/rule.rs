//! Rows of unwind tables as rules: what of DWARF's call frame information occurs in code that
//! compilers make and people write.

use gimli::{
    CfaRule, EndianSlice, LittleEndian, Operation, Register, RegisterRule, UnwindExpression,
    UnwindTableRow, X86_64,
};
use tracer_common::unwind::{Rule, RuleKind, SIGCONTEXT_SP, SavedFramePointer};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The operations of an expression of one or two; `None` of others.
pub(super) type Operations<'f, 'a> = dyn Fn(&UnwindExpression<usize>) -> Option<(Operation<Bytes<'a>>, Option<Operation<Bytes<'a>>>)>
    + 'f;

/// A row as a rule; `None` where it is more than a rule can say. `operations` are those of an
/// expression of one or two.
pub(super) fn simplified<'a>(
    row: &UnwindTableRow<usize>,
    is_signal: bool,
    operations: &Operations<'_, 'a>,
) -> Option<Rule> {
    let plain = |register: Register, operation: &Operation<Bytes<'a>>| match operation {
        Operation::RegisterOffset { register: of, offset, .. } if *of == register => Some(*offset),
        _ => None,
    };
    let through = |register, expression: &UnwindExpression<usize>| match operations(expression)? {
        (first, Some(Operation::Deref { .. })) => plain(register, &first),
        _ => None,
    };
    if matches!(row.register(X86_64::RA), Some(RegisterRule::Undefined)) {
        return Some(Rule::OUTERMOST);
    }
    if is_signal && let CfaRule::Expression(expression) = row.cfa() {
        let of_sp = i32::try_from(through(X86_64::RSP, expression)?).ok()?;
        let sigcontext = of_sp.checked_sub(i32::try_from(SIGCONTEXT_SP).ok()?)?;
        let saved = SavedFramePointer::InPlace;
        return Some(Rule { kind: RuleKind::Signal, cfa_offset: sigcontext, saved });
    }
    let (kind, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
            (RuleKind::StackPointer, *offset)
        }
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
            (RuleKind::FramePointer, *offset)
        }
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => {
            (RuleKind::FramePointerMemory, through(X86_64::RBP, expression)?)
        }
    };
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        _ => return None,
    }
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => {
            SavedFramePointer::InPlace
        }
        Some(RegisterRule::Offset(offset)) => SavedFramePointer::AtCfa(i16::try_from(offset).ok()?),
        Some(RegisterRule::Expression(expression)) => match operations(&expression)? {
            (only, None) => {
                let offset = plain(X86_64::RBP, &only)?;
                SavedFramePointer::AtFramePointer(i16::try_from(offset).ok()?)
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Rule { kind, cfa_offset: i32::try_from(offset).ok()?, saved })
}
