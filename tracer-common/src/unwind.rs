//! How a frame is left: the rule of each call site, as the user side finds it in unwind tables and
//! the kernel side follows it.
//!
//! A return address names one call site, and there the compiler has said once and for all where
//! the caller's frame is. The terms are DWARF's: the canonical frame address (CFA) of a frame is
//! the stack pointer of its caller as it was before the call.

/// What kind of place the next frame is found at. The numbers are shared with the kernel side.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// The CFA is the stack pointer plus `cfa_offset`; the return address lies below it.
    StackPointer = 1,
    /// The CFA is the frame pointer plus `cfa_offset`; the return address lies below it.
    FramePointer = 2,
    /// The CFA is in memory, at the frame pointer plus `cfa_offset`; the return address lies
    /// below it. So do functions that realign their stack.
    FramePointerMemory = 3,
    /// A signal's frame: the interrupted code's registers lie `cfa_offset` above the stack
    /// pointer, as a `sigcontext`.
    Signal = 4,
    /// The outermost frame.
    Outermost = 5,
    /// The frame is known, and how it is left is not.
    Unknown = 6,
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SavedFramePointer {
    /// In its register still.
    InPlace,
    /// In memory, at the CFA plus this.
    AtCfa(i16),
    /// In memory, at the frame pointer plus this.
    AtFramePointer(i16),
}

/// The rule of one call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What kind it is.
    pub kind: RuleKind,
    /// Bytes from the register that the kind names.
    pub cfa_offset: i32,
    /// Where the caller's frame pointer is; of no meaning for [`RuleKind::Signal`] and the last two.
    pub saved: SavedFramePointer,
}

/// [`Rule::saved`] in a packed rule.
const IN_PLACE: u8 = 0;
const AT_CFA: u8 = 1;
const AT_FRAME_POINTER: u8 = 2;

impl Rule {
    /// The rule of code that keeps a frame pointer.
    pub const FRAME_POINTER: Self =
        Self { kind: RuleKind::FramePointer, cfa_offset: 16, saved: SavedFramePointer::AtCfa(-16) };
    /// The rule of a thread's first function.
    pub const OUTERMOST: Self =
        Self { kind: RuleKind::Outermost, cfa_offset: 0, saved: SavedFramePointer::InPlace };
    /// The rule where there is none.
    pub const UNKNOWN: Self =
        Self { kind: RuleKind::Unknown, cfa_offset: 0, saved: SavedFramePointer::InPlace };

    /// The rule as one word.
    pub const fn pack(self) -> u64 {
        let (saved, offset) = match self.saved {
            SavedFramePointer::InPlace => (IN_PLACE, 0),
            SavedFramePointer::AtCfa(offset) => (AT_CFA, offset),
            SavedFramePointer::AtFramePointer(offset) => (AT_FRAME_POINTER, offset),
        };
        self.kind as u64
            | (saved as u64) << 8
            | (offset as u16 as u64) << 16
            | (self.cfa_offset as u32 as u64) << 32
    }

    /// The rule of such a word; `None` where no rule packs to it.
    #[inline(always)]
    pub const fn unpack(word: u64) -> Option<Self> {
        let offset = (word >> 16) as u16 as i16;
        let saved = match (word >> 8) as u8 {
            IN_PLACE => SavedFramePointer::InPlace,
            AT_CFA => SavedFramePointer::AtCfa(offset),
            AT_FRAME_POINTER => SavedFramePointer::AtFramePointer(offset),
            _ => return None,
        };
        let kind = match word as u8 {
            1 => RuleKind::StackPointer,
            2 => RuleKind::FramePointer,
            3 => RuleKind::FramePointerMemory,
            4 => RuleKind::Signal,
            5 => RuleKind::Outermost,
            6 => RuleKind::Unknown,
            _ => return None,
        };
        Some(Self { kind, cfa_offset: (word >> 32) as u32 as i32, saved })
    }
}

/// What a rule is found by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The address space.
    pub space: u64,
    /// The return address; or, of generated code, [`generated`] of it.
    pub addr: u64,
}

/// Bits of an address within a stretch of memory that holds generated code as a whole or not.
const STRETCH: u32 = 21;

/// Stands for every return address in the same stretch: code that a process generates has no
/// unwind table, keeps frame pointers, and changes too often to be known by its call sites.
#[inline(always)]
pub const fn generated(return_addr: u64) -> u64 {
    1 << 63 | return_addr >> STRETCH
}

/// First address of a stretch by the number that [`generated`] gives, and the first one behind.
pub const fn stretch(generated: u64) -> (u64, u64) {
    let start = (generated & !(1 << 63)) << STRETCH;
    (start, start + (1 << STRETCH))
}

/// Where a `sigcontext` of x86-64 has the registers that a walk needs: the frame pointer, the stack
/// pointer, the instruction pointer.
pub const SIGCONTEXT_FP: u64 = 80;
/// See [`SIGCONTEXT_FP`].
pub const SIGCONTEXT_SP: u64 = 120;
/// See [`SIGCONTEXT_FP`].
pub const SIGCONTEXT_IP: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules() -> impl Strategy<Value = Rule> {
        let kind = prop_oneof![
            Just(RuleKind::StackPointer),
            Just(RuleKind::FramePointer),
            Just(RuleKind::FramePointerMemory),
            Just(RuleKind::Signal),
            Just(RuleKind::Outermost),
            Just(RuleKind::Unknown),
        ];
        let saved = prop_oneof![
            Just(SavedFramePointer::InPlace),
            any::<i16>().prop_map(SavedFramePointer::AtCfa),
            any::<i16>().prop_map(SavedFramePointer::AtFramePointer),
        ];
        (kind, any::<i32>(), saved).prop_map(|(kind, cfa_offset, saved)| Rule {
            kind,
            cfa_offset,
            saved,
        })
    }

    proptest! {
        #[test]
        fn a_rule_survives_the_round(rule in rules()) {
            prop_assert_eq!(Rule::unpack(rule.pack()), Some(rule));
        }

        #[test]
        fn whatever_unpacks_means_one_rule(word in any::<u64>()) {
            if let Some(rule) = Rule::unpack(word) {
                prop_assert_eq!(Rule::unpack(rule.pack()), Some(rule));
            }
        }

        #[test]
        fn an_address_lies_in_its_stretch(addr in 0_u64..1 << 47) {
            let (start, end) = stretch(generated(addr));
            prop_assert!(start <= addr && addr < end);
        }
    }
}
