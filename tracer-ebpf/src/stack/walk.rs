//! Walking by the rules of call sites, inside a copy of the stack.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use tracer_common::{
    event::{MAX_FRAMES, StackEnd},
    hash::StackHash,
    unwind::{
        CallSite, Region, Rule, RuleKind, SIGCONTEXT_FP, SIGCONTEXT_IP, SIGCONTEXT_SP,
        SavedFramePointer, generated,
    },
};

use super::{
    recent::{self, Recent},
    table, window,
};
use crate::{
    maps::{RULES, Scratch},
    returns::{self, is_replaced},
};

/// Where a walk begins.
#[derive(Clone, Copy)]
pub enum Start {
    /// In a function that was just entered: its return address lies on top of the stack.
    Entered,
    /// Anywhere, with this return address or what stands for one: it is no frame of the stack.
    At(u64),
}

/// A walk under way. All that changes is in the scratch buffer: of values in a map the verifier
/// keeps no account, and so it goes through a step once and not once for each way to get there.
pub struct Walk<'a> {
    pub scratch: &'a mut Scratch,
    /// Remembers where the thread's stack ends.
    pub top: &'a mut u64,
}

/// Where a walk is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct State {
    pub space: u64,
    /// The frame to be left: its return address, and the registers as its callee leaves them.
    pub return_addr: u64,
    pub sp: u64,
    pub fp: u64,
    /// Where the registers of the frame to be left lie as a `sigcontext`, when a signal came to it;
    /// zero otherwise.
    context: u64,
    /// What the window holds: its first address, and its length.
    pub window_start: u64,
    pub window_len: u64,
    /// A word in the window.
    pub index: u64,
    /// The table that is searched, and for which place in its file.
    pub region: Region,
    /// Rows among which the one that is looked for is, and the last one known to be before it.
    pub low: u64,
    pub high: u64,
    pub row: u64,
    /// How often rules had been changed when it began.
    changes: u64,
    hash: StackHash,
    /// Without the last frame.
    hash_before: StackHash,
    n_frames: u64,
}

impl State {
    /// The hash of what was walked, with one more word.
    #[inline(always)]
    pub fn with(&self, word: u64) -> u64 {
        self.hash.with(word).finish()
    }
}

/// Collects return addresses, innermost first.
///
/// The hash begins with the address space: another process has another code at the same place.
///
/// Frames, their number, their hash and the reason for the end are left in the scratch buffer. The
/// end is [`StackEnd::Unfinished`] where a call site has no rule.
#[inline(always)]
pub fn walk(walk: &mut Walk<'_>, space: u64, start: Start, sp: u64, fp: u64) {
    walk.scratch.head.end = StackEnd::Broken as u32;
    walk.scratch.walk = State {
        space,
        return_addr: 0,
        sp,
        fp,
        context: 0,
        window_start: 0,
        window_len: 0,
        index: 0,
        region: Region { bias: 0, table: 0, n_rows: 0 },
        low: 0,
        high: 0,
        row: 0,
        changes: recent::changes(),
        hash: StackHash::new().with(space),
        hash_before: StackHash::new(),
        n_frames: 0,
    };
    let is_readable = match start {
        Start::At(addr) => {
            walk.scratch.walk.return_addr = addr;
            true
        }
        Start::Entered => match window::word(walk, sp) {
            Some(addr) => {
                walk.scratch.walk.sp = sp + 8;
                walk.take(addr);
                true
            }
            None => false,
        },
    };
    if is_readable {
        // A helper's loop and not our own: the verifier goes through its body once, where it
        // would go through ours once for each frame and each way to get there.
        // SAFETY: the callback takes what is passed to it, and the helper calls it only while
        // `walk` lives.
        unsafe {
            let rounds = MAX_FRAMES as u32 + 1 + returns::MOST;
            bpf_loop(rounds, step as *mut c_void, (&raw mut *walk).cast(), 0);
        }
    }
    walk.scratch.head.hash = walk.scratch.walk.hash.finish();
    walk.scratch.head.n_frames = walk.scratch.walk.n_frames as u32;
}

/// What tells the helper to go on, and to stop.
const NEXT: i64 = 0;
const STOP: i64 = 1;

/// Leaves one frame, or puts its return address right. The round after the last that fits only finds
/// out that there is another.
extern "C" fn step(_round: u32, walk: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `walk` passed, which lives while the helper runs.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let word = walk.rule();
    let rule = Rule::unpack(word);
    if rule.is_none_or(|rule| matches!(rule.kind, RuleKind::Unknown)) && walk.put_right() {
        return NEXT;
    }
    let Some(rule) = rule else { return walk.ends(StackEnd::Unfinished) };
    let State { sp, fp, context, .. } = walk.scratch.walk;
    walk.scratch.walk.context = 0;
    let base = match rule.kind {
        RuleKind::Outermost => return walk.ends(StackEnd::Whole),
        RuleKind::Unknown => return STOP,
        RuleKind::Interrupted if context == 0 => return STOP,
        RuleKind::Interrupted => context,
        RuleKind::StackPointer | RuleKind::StackPointerMemory | RuleKind::Signal => sp,
        RuleKind::FramePointer | RuleKind::FramePointerMemory => fp,
    };
    let mut cfa = base.wrapping_add(rule.cfa_offset as i64 as u64);
    // Where the return address is, where the frame pointer, and where the next frame.
    let (at, saved) = if matches!(rule.kind, RuleKind::Signal) {
        (cfa.wrapping_add(SIGCONTEXT_IP), cfa.wrapping_add(SIGCONTEXT_FP))
    } else {
        if rule.kind.is_in_memory() {
            let Some(found) = window::word(walk, cfa) else { return STOP };
            cfa = found.wrapping_add(rule.beyond as u64);
        }
        // The stack leads outwards.
        if cfa <= sp {
            return STOP;
        }
        let saved = match rule.saved {
            SavedFramePointer::InPlace => 0,
            SavedFramePointer::AtCfa(offset) => cfa.wrapping_add(offset as i64 as u64),
            SavedFramePointer::AtFramePointer(offset) => fp.wrapping_add(offset as i64 as u64),
        };
        (cfa.wrapping_sub(8), saved)
    };
    let Some(mut return_addr) = window::word(walk, at) else { return STOP };
    if saved != 0 {
        let Some(fp) = window::word(walk, saved) else { return STOP };
        walk.scratch.walk.fp = fp;
    }
    if matches!(rule.kind, RuleKind::Signal) {
        // Not behind a call, but where the signal came: the instruction that was to be next.
        return_addr += 1;
        let Some(sp) = window::word(walk, cfa.wrapping_add(SIGCONTEXT_SP)) else { return STOP };
        walk.scratch.walk.context = cfa;
        cfa = sp;
    } else if return_addr == 0 {
        // So begin stacks that a program has made. A guess may have met any zero.
        return if word == Rule::GUESS { STOP } else { walk.ends(StackEnd::Whole) };
    }
    if walk.scratch.walk.n_frames >= MAX_FRAMES as u64 {
        return walk.ends(StackEnd::DepthLimit);
    }
    walk.scratch.walk.sp = cfa;
    walk.take(return_addr);
    NEXT
}

impl Walk<'_> {
    /// The packed rule of the call site, or zero.
    #[inline(always)]
    fn rule(&mut self) -> u32 {
        let State { space, return_addr, changes, .. } = self.scratch.walk;
        let site = CallSite { space, addr: return_addr };
        let place = recent::place(site);
        if let Some(word) = self.scratch.recent[place].rule(site, changes) {
            return word;
        }
        let word = self.look_up(site);
        if word != 0 {
            self.scratch.recent[place] = Recent::new(site, word, changes);
        }
        word
    }

    #[inline(never)]
    fn look_up(&mut self, site: CallSite) -> u32 {
        // SAFETY: the value is one word, which is written whole.
        if let Some(word) = unsafe { RULES.get(site) } {
            return *word;
        }
        let stretch = CallSite { addr: generated(site.addr), ..site };
        // SAFETY: as above.
        match unsafe { RULES.get(stretch) } {
            Some(word) => *word,
            None => table::rule(self),
        }
    }

    /// Takes the return address that a call left, where the kernel has put another in its place.
    /// Answers `false` when it has not.
    #[inline(never)]
    fn put_right(&mut self) -> bool {
        let State { return_addr, sp, n_frames, hash_before, .. } = self.scratch.walk;
        if n_frames == 0 || !is_replaced(return_addr) {
            return false;
        }
        let place = sp.wrapping_sub(8);
        // The frame pointer may have been read elsewhere since.
        if window::word(self, place).is_none() {
            return false;
        }
        window::put_right(self);
        let Some(found) = window::word(self, place) else { return false };
        if found == return_addr {
            return false;
        }
        self.scratch.walk.hash = hash_before;
        self.scratch.walk.n_frames = n_frames - 1;
        self.take(found);
        true
    }

    #[inline(always)]
    fn take(&mut self, return_addr: u64) {
        let state = &mut self.scratch.walk;
        state.return_addr = return_addr;
        // SAFETY: reads a field of a valid reference; volatile, as the window's index is.
        let index = unsafe { (&raw const state.n_frames).read_volatile() } as usize;
        if index < MAX_FRAMES {
            state.hash_before = state.hash;
            state.hash = state.hash.with(return_addr);
            state.n_frames = index as u64 + 1;
            self.scratch.frames[index] = return_addr;
        }
    }

    #[inline(always)]
    fn ends(&mut self, end: StackEnd) -> i64 {
        self.scratch.head.end = end as u32;
        STOP
    }
}
