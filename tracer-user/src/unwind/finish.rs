//! Finishing a walk that the kernel side could not: the same steps, on the bytes that it sent.

use tracer_common::{
    event::{MAX_FRAMES, StackEnd},
    unwind::{Rule, RuleKind, SIGCONTEXT_FP, SIGCONTEXT_IP, SIGCONTEXT_SP, SavedFramePointer},
};

/// Parts of a stack, as they were. Between them was no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    /// The address of each and its bytes, in order.
    parts: Vec<(u64, Vec<u8>)>,
}

impl Copied {
    /// Adds bytes that lay at this address. Answers `false` when it is not behind the others.
    pub(super) fn push(&mut self, addr: u64, bytes: &[u8]) -> bool {
        let Some((start, last)) = self.parts.last_mut() else {
            self.parts.push((addr, bytes.to_vec()));
            return true;
        };
        match start.checked_add(last.len() as u64) {
            Some(end) if end == addr => last.extend_from_slice(bytes),
            Some(end) if end < addr => self.parts.push((addr, bytes.to_vec())),
            _ => return false,
        }
        true
    }

    fn word(&self, addr: u64) -> Option<u64> {
        if addr & 7 != 0 {
            return None;
        }
        let behind = self.parts.partition_point(|(start, _)| *start <= addr);
        let (start, bytes) = self.parts.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(addr.checked_sub(*start)?).ok()?;
        let bytes = bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// A frame to be left: its return address, and the registers as its callee leaves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The return address; after a signal, the instruction that was to be next plus one.
    pub(super) return_addr: u64,
    /// The stack pointer.
    pub(super) sp: u64,
    /// The frame pointer.
    pub(super) fp: u64,
    /// Where all registers lie as a `sigcontext`, when a signal came to this frame; zero otherwise.
    pub(super) context: u64,
}

/// Leaves a frame by its rule, which may be a guess.
///
/// # Errors
/// Why there is no further frame.
pub(super) fn leave(
    frame: Frame,
    rule: Rule,
    is_guess: bool,
    stack: &Copied,
) -> Result<Frame, StackEnd> {
    let broken = StackEnd::Broken;
    let word = |addr| stack.word(addr).ok_or(broken);
    let at = |base: u64, offset: i64| base.wrapping_add_signed(offset);
    let base = match rule.kind {
        RuleKind::Outermost => return Err(StackEnd::Whole),
        RuleKind::Unknown => return Err(broken),
        RuleKind::Interrupted if frame.context == 0 => return Err(broken),
        RuleKind::Interrupted => frame.context,
        RuleKind::StackPointer | RuleKind::StackPointerMemory | RuleKind::Signal => frame.sp,
        RuleKind::FramePointer | RuleKind::FramePointerMemory => frame.fp,
    };
    let place = at(base, rule.cfa_offset.into());
    if rule.kind == RuleKind::Signal {
        let return_addr = word(place.wrapping_add(SIGCONTEXT_IP))?.wrapping_add(1);
        let fp = word(place.wrapping_add(SIGCONTEXT_FP))?;
        let sp = word(place.wrapping_add(SIGCONTEXT_SP))?;
        return Ok(Frame { return_addr, sp, fp, context: place });
    }
    let cfa = match rule.kind.is_in_memory() {
        true => word(place)?.wrapping_add(rule.beyond.into()),
        false => place,
    };
    if cfa <= frame.sp {
        return Err(broken);
    }
    let return_addr = word(cfa.wrapping_sub(8))?;
    let fp = match rule.saved {
        SavedFramePointer::InPlace => frame.fp,
        SavedFramePointer::AtCfa(offset) => word(at(cfa, offset.into()))?,
        SavedFramePointer::AtFramePointer(offset) => word(at(frame.fp, offset.into()))?,
    };
    if return_addr == 0 {
        return Err(if is_guess { broken } else { StackEnd::Whole });
    }
    Ok(Frame { return_addr, sp: cfa, fp, context: 0 })
}

/// Walks a stack of these bytes by these rules, of which each is for some call sites, and by guesses
/// where there is none. Answers how many frames it has, and why no more.
pub(crate) fn walked(rules: &[Option<Rule>], stack: &[u8]) -> (usize, StackEnd) {
    const SP: u64 = 1 << 20;
    let mut copied = Copied::default();
    copied.push(SP, stack);
    let site = |addr: u64| match usize::try_from(addr).ok().and_then(|addr| rules.get(addr % 64)) {
        Some(Some(rule)) => Site::Said(*rule),
        Some(None) => Site::Guessed,
        None => Site::NoCode,
    };
    let mut frames = Vec::new();
    let frame = Frame { return_addr: 0, sp: SP, fp: SP + 16, context: 0 };
    let finished = finish(&mut frames, frame, &copied, site);
    (frames.len(), finished.end)
}

/// What is known of a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// An unwind table says how to leave it.
    Said(Rule),
    /// Code without an unwind table: it may keep a frame pointer.
    Guessed,
    /// Nothing is executed there.
    NoCode,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    /// Why there are no more frames.
    pub(super) end: StackEnd,
    /// A call site whose guess led into no code.
    pub(super) misled_by: Option<u64>,
}

/// Adds the frames behind this one, by the rules of their call sites.
pub(super) fn finish(
    frames: &mut Vec<u64>,
    mut frame: Frame,
    stack: &Copied,
    mut site: impl FnMut(u64) -> Site,
) -> Finished {
    let mut here = site(frame.return_addr);
    loop {
        let rule = match here {
            Site::Said(rule) => rule,
            Site::Guessed => Rule::FRAME_POINTER,
            Site::NoCode => Rule::UNKNOWN,
        };
        let next = match leave(frame, rule, here == Site::Guessed, stack) {
            Ok(next) => next,
            Err(end) => return Finished { end, misled_by: None },
        };
        let there = site(next.return_addr);
        if here == Site::Guessed && there == Site::NoCode {
            return Finished { end: StackEnd::Broken, misled_by: Some(frame.return_addr) };
        }
        if frames.len() >= MAX_FRAMES {
            return Finished { end: StackEnd::DepthLimit, misled_by: None };
        }
        frames.push(next.return_addr);
        (frame, here) = (next, there);
    }
}
