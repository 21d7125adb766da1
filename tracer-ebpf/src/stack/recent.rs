//! Rules that were used lately, kept in the walk's own buffer: what a thread calls one after the
//! other has most of its callers in common, and a load costs less than a look-up in a map.

use tracer_common::{state::RULES_CHANGED, unwind::CallSite};

use crate::maps::STATE;

/// Call sites that a buffer keeps. One takes the place of another with the same low bits.
pub const N_RECENT: usize = 512;

/// A call site and its rule.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Recent {
    site: CallSite,
    /// The packed rule in the lower half; how often the user side had changed rules then in the upper.
    rule: u64,
}

/// How often the user side has changed rules so far.
#[inline(always)]
pub fn changes() -> u64 {
    // SAFETY: a live map value; one word, which the user side writes whole.
    STATE.get_ptr(RULES_CHANGED).map_or(0, |n| unsafe { n.read_volatile() })
}

impl Recent {
    #[inline(always)]
    pub fn new(site: CallSite, rule: u32, changes: u64) -> Self {
        Self { site, rule: changes << 32 | rule as u64 }
    }

    /// The rule, if it is this call site's and no rule was changed since.
    #[inline(always)]
    pub fn rule(&self, site: CallSite, changes: u64) -> Option<u32> {
        let is_it = self.site.addr == site.addr
            && self.site.space == site.space
            && self.rule >> 32 == changes & 0xffff_ffff;
        is_it.then_some(self.rule as u32)
    }
}

/// The place of a call site.
#[inline(always)]
pub fn place(site: CallSite) -> usize {
    // Return addresses of one program differ in their low bits, and hardly two are closer than four.
    (site.addr >> 2 ^ site.addr >> 11) as usize % N_RECENT
}
