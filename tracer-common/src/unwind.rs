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
    /// The CFA is what a register of the interrupted code plus `beyond` says: the register lies at
    /// `cfa_offset` in the `sigcontext`. Of use in the frame that a signal came to, and in no other.
    Interrupted = 0,
    /// The CFA is the stack pointer plus `cfa_offset`; the return address lies below it.
    StackPointer = 1,
    /// The CFA is the frame pointer plus `cfa_offset`; the return address lies below it.
    FramePointer = 2,
    /// The CFA is in memory, at the frame pointer plus `cfa_offset`, plus `beyond`; the return address
    /// lies below it. So do functions that realign their stack.
    FramePointerMemory = 3,
    /// A signal's frame: the interrupted code's registers lie `cfa_offset` above the stack
    /// pointer, as a `sigcontext`.
    Signal = 4,
    /// The outermost frame.
    Outermost = 5,
    /// The frame is known, and how it is left is not.
    Unknown = 6,
    /// The same at the stack pointer plus `cfa_offset`. So does assembly that realigns its stack.
    StackPointerMemory = 7,
}

impl RuleKind {
    /// Is the CFA in memory?
    #[inline(always)]
    pub const fn is_in_memory(self) -> bool {
        matches!(self, Self::Interrupted | Self::FramePointerMemory | Self::StackPointerMemory)
    }
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
    /// Bytes from what is in memory there to the CFA; zero where it is not in memory.
    pub beyond: u16,
    /// Where the caller's frame pointer is; of no meaning for [`RuleKind::Signal`] and the last two.
    pub saved: SavedFramePointer,
}

/// [`Rule::saved`] in a packed rule.
const IN_PLACE: u32 = 0;
const AT_CFA: u32 = 1;
const AT_FRAME_POINTER: u32 = 2;
/// Of a frame that is far larger than others: the CFA has more room, what is saved lies among the
/// first words below it, where it is pushed before the frame is made.
const WIDE: u32 = 3;

/// Where the parts of a packed rule begin: the kind, what is saved where, and both offsets in words.
const SAVED_SHIFT: u32 = 3;
const OFFSET_SHIFT: u32 = 5;
const CFA_SHIFT: u32 = 14;
/// The same of a wide one.
const WIDE_CFA_SHIFT: u32 = 8;
const MOST_PUSHED: i16 = 7;
/// Of a CFA in memory: where what is beyond begins, in words, and its bits below the top.
const BEYOND_SHIFT: u32 = 26;
const MOST_BEYOND: u16 = (1 << (32 - BEYOND_SHIFT)) - 1;

impl Rule {
    /// The rule of code that keeps a frame pointer.
    pub const FRAME_POINTER: Self = Self {
        kind: RuleKind::FramePointer,
        cfa_offset: 16,
        beyond: 0,
        saved: SavedFramePointer::AtCfa(-16),
    };
    /// The rule of the code that a signal handler returns to: a `ucontext` begins at the stack pointer,
    /// and in it, after 40 bytes, the `sigcontext`.
    pub const SIGNAL: Self = Self::plain(RuleKind::Signal, 40);
    /// The rule of a thread's first function.
    pub const OUTERMOST: Self = Self::plain(RuleKind::Outermost, 0);
    /// The rule where there is none.
    pub const UNKNOWN: Self = Self::plain(RuleKind::Unknown, 0);

    /// [`Rule::FRAME_POINTER`] where no table says so: the same rule in the wide form, which
    /// [`Rule::pack`] does not use for it. Where such a walk ends it may have gone astray.
    pub const GUESS: u32 = RuleKind::FramePointer as u32
        | WIDE << SAVED_SHIFT
        | 1 << OFFSET_SHIFT
        | 2 << WIDE_CFA_SHIFT;

    /// A rule of code that leaves the frame pointer alone.
    pub const fn plain(kind: RuleKind, cfa_offset: i32) -> Self {
        Self { kind, cfa_offset, beyond: 0, saved: SavedFramePointer::InPlace }
    }

    /// The rule as a word, never zero. `None` where an offset is no multiple of eight, or too far: one
    /// megabyte for the CFA, two kilobytes for the frame pointer. Where that lies among the first seven
    /// words below the CFA or in its register, 64 megabytes. Of a CFA in memory, 16 kilobytes to there
    /// and 504 bytes beyond.
    pub fn pack(self) -> Option<u32> {
        let words = [self.packed(), self.packed_wide()];
        words.into_iter().flatten().find(|word| *word != 0 && Self::unpack(*word) == Some(self))
    }

    /// The word that might stand for this rule.
    fn packed(self) -> Option<u32> {
        let (saved, offset) = match self.saved {
            SavedFramePointer::InPlace => (IN_PLACE, 0),
            SavedFramePointer::AtCfa(offset) => (AT_CFA, offset),
            SavedFramePointer::AtFramePointer(offset) => (AT_FRAME_POINTER, offset),
        };
        let mut word = self.kind as u32
            | saved << SAVED_SHIFT
            | (i32::from(offset >> 3) as u32 & 0x1ff) << OFFSET_SHIFT
            | ((self.cfa_offset >> 3) as u32) << CFA_SHIFT;
        if self.kind.is_in_memory() {
            let beyond = Some(self.beyond >> 3).filter(|words| *words <= MOST_BEYOND)?;
            word = word & ((1 << BEYOND_SHIFT) - 1) | u32::from(beyond) << BEYOND_SHIFT;
        }
        Some(word)
    }

    fn packed_wide(self) -> Option<u32> {
        let pushed = match self.saved {
            SavedFramePointer::InPlace => 0,
            SavedFramePointer::AtCfa(offset) => {
                let words = offset.checked_neg()? >> 3;
                Some(words.checked_sub(1)?).filter(|words| (1..=MOST_PUSHED).contains(words))?
            }
            SavedFramePointer::AtFramePointer(_) => return None,
        };
        let cfa = ((self.cfa_offset >> 3) as u32) << WIDE_CFA_SHIFT;
        let pushed = u32::from(pushed.cast_unsigned()) << OFFSET_SHIFT;
        Some(self.kind as u32 | WIDE << SAVED_SHIFT | pushed | cfa)
    }

    /// The rule of such a word; `None` where no rule packs to it.
    #[inline(always)]
    pub const fn unpack(word: u32) -> Option<Self> {
        let kind = match word & 7 {
            0 if word == 0 => return None,
            0 => RuleKind::Interrupted,
            1 => RuleKind::StackPointer,
            2 => RuleKind::FramePointer,
            3 => RuleKind::FramePointerMemory,
            4 => RuleKind::Signal,
            5 => RuleKind::Outermost,
            6 => RuleKind::Unknown,
            _ => RuleKind::StackPointerMemory,
        };
        let offset = (((word >> OFFSET_SHIFT) as i32) << 23 >> 20) as i16;
        let cfa_offset = (word as i32) >> CFA_SHIFT << 3;
        let saved = match word >> SAVED_SHIFT & 3 {
            IN_PLACE => SavedFramePointer::InPlace,
            AT_CFA => SavedFramePointer::AtCfa(offset),
            AT_FRAME_POINTER => SavedFramePointer::AtFramePointer(offset),
            _ if kind.is_in_memory() => return None,
            _ => {
                let saved = match word >> OFFSET_SHIFT & 7 {
                    0 => SavedFramePointer::InPlace,
                    pushed => SavedFramePointer::AtCfa(-8 * (pushed as i16 + 1)),
                };
                let cfa_offset = (word as i32) >> WIDE_CFA_SHIFT << 3;
                return Some(Self { kind, cfa_offset, beyond: 0, saved });
            }
        };
        if kind.is_in_memory() {
            let cfa_offset = (word << (32 - BEYOND_SHIFT)) as i32;
            let cfa_offset = cfa_offset >> (32 - BEYOND_SHIFT + CFA_SHIFT) << 3;
            let beyond = (word >> BEYOND_SHIFT << 3) as u16;
            return Some(Self { kind, cfa_offset, beyond, saved });
        }
        Some(Self { kind, cfa_offset, beyond: 0, saved })
    }
}

/// A row of an object's table, as a word: the place in the file from which on a rule holds, up to the
/// next row; and the rule, packed, or zero where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u64);

impl Row {
    /// A rule from here on.
    pub const fn new(offset: u32, rule: Option<u32>) -> Self {
        let rule = match rule {
            Some(rule) => rule,
            None => 0,
        };
        Self((offset as u64) << 32 | rule as u64)
    }

    /// Where it begins.
    #[inline(always)]
    pub const fn offset(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The packed rule, or zero.
    #[inline(always)]
    pub const fn rule(self) -> u32 {
        self.0 as u32
    }
}

/// Rows that the kernel side holds together.
pub const CHUNK_ROWS: usize = 256;

/// What a part of an object's table is found by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// The object.
    pub table: u32,
    /// Its rows from this times [`CHUNK_ROWS`] on.
    pub chunk: u32,
}

/// Where a part of an address space has its code from.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Address minus place in the file.
    pub bias: u64,
    /// The object.
    pub table: u32,
    /// Rows in its table.
    pub n_rows: u32,
}

/// What a [`Region`] is found by, as the longest prefix: the address space, then the address, most
/// significant byte first.
pub const fn region_key(space: u64, addr: u64) -> [u8; 16] {
    ((space as u128) << 64 | addr as u128).to_be_bytes()
}

/// Bits of the address space in front of those of an address in a [`region_key`].
pub const SPACE_BITS: u32 = 64;

/// The prefixes that an address range consists of: the first address of each, and its bits.
pub fn prefixes(start: u64, end: u64) -> impl Iterator<Item = (u64, u32)> {
    let mut at = start;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let fits = (end - at).ilog2();
        let size = if at == 0 { fits } else { fits.min(at.trailing_zeros()) };
        let prefix = (at, u64::BITS - size);
        at = at.saturating_add(1 << size);
        Some(prefix)
    })
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

/// Where a `sigcontext` has a general register, by the register's number in DWARF.
pub const fn sigcontext_place(register: u16) -> Option<u16> {
    Some(match register {
        // ax, dx, cx, bx, si, di, bp, sp.
        0 => 104,
        1 => 96,
        2 => 112,
        3 => 88,
        4 => 72,
        5 => 64,
        6 => SIGCONTEXT_FP as u16,
        7 => SIGCONTEXT_SP as u16,
        // r8 to r15.
        8..=15 => (register - 8) * 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saved() -> impl Strategy<Value = SavedFramePointer> {
        prop_oneof![
            Just(SavedFramePointer::InPlace),
            (-256_i16..256).prop_map(|words| SavedFramePointer::AtCfa(words * 8)),
            (-256_i16..256).prop_map(|words| SavedFramePointer::AtFramePointer(words * 8)),
        ]
    }

    fn plain() -> impl Strategy<Value = Rule> {
        let kind = prop_oneof![
            Just(RuleKind::StackPointer),
            Just(RuleKind::FramePointer),
            Just(RuleKind::Signal),
            Just(RuleKind::Outermost),
            Just(RuleKind::Unknown),
        ];
        (kind, (-(1_i32 << 17)..1 << 17).prop_map(|words| words * 8), saved())
            .prop_map(|(kind, cfa_offset, saved)| Rule { kind, cfa_offset, beyond: 0, saved })
    }

    fn wide() -> impl Strategy<Value = Rule> {
        let pushed = prop_oneof![
            Just(SavedFramePointer::InPlace),
            (2_i16..9).prop_map(|words| SavedFramePointer::AtCfa(words * -8)),
        ];
        ((-(1_i32 << 23)..1 << 23).prop_map(|words| words * 8), pushed).prop_map(
            |(cfa_offset, saved)| Rule { saved, ..Rule::plain(RuleKind::StackPointer, cfa_offset) },
        )
    }

    fn in_memory() -> impl Strategy<Value = Rule> {
        let kind = prop_oneof![
            Just(RuleKind::FramePointerMemory),
            Just(RuleKind::StackPointerMemory),
            Just(RuleKind::Interrupted),
        ];
        // A CFA that is a register, as it is, would be the word zero where it is the first one.
        (kind, -2048_i32..2048, 1_u16..64, saved()).prop_map(|(kind, words, beyond, saved)| Rule {
            kind,
            cfa_offset: words * 8,
            beyond: beyond * 8,
            saved,
        })
    }

    proptest! {
        #[test]
        fn a_rule_survives_the_round(rule in prop_oneof![plain(), wide(), in_memory()]) {
            prop_assert_eq!(rule.pack().and_then(Rule::unpack), Some(rule));
        }

        #[test]
        fn a_word_is_one_rule(word in any::<u32>()) {
            let Some(rule) = Rule::unpack(word) else { return Ok(()) };
            // The one that would be the word zero has none.
            prop_assert!(rule.pack().is_none_or(|word| Rule::unpack(word) == Some(rule)));
        }

        #[test]
        fn what_does_not_fit_is_not_packed(
            cfa_offset in any::<i32>(), saved in any::<i16>(), beyond in any::<u16>(),
        ) {
            let saved = SavedFramePointer::AtCfa(saved);
            for kind in [RuleKind::StackPointer, RuleKind::StackPointerMemory] {
                let rule = Rule { kind, cfa_offset, beyond, saved };
                prop_assert!(rule.pack().is_none_or(|word| Rule::unpack(word) == Some(rule)));
            }
        }

        #[test]
        fn prefixes_cover_a_range_once(start in 0_u64..1 << 20, len in 0_u64..1 << 16) {
            let mut next = start;
            for (at, bits) in prefixes(start, start + len) {
                let size = 1 << (u64::BITS - bits);
                prop_assert_eq!((at, at % size), (next, 0));
                next = at + size;
            }
            prop_assert_eq!(next, start + len);
        }

        #[test]
        fn no_rule_of_a_table_looks_like_a_guess(rule in plain()) {
            prop_assert_ne!(rule.pack(), Some(Rule::GUESS));
            prop_assert_eq!(Rule::unpack(Rule::GUESS), Some(Rule::FRAME_POINTER));
        }

        #[test]
        fn an_address_lies_in_its_stretch(addr in 0_u64..1 << 47) {
            let (start, end) = stretch(generated(addr));
            prop_assert!(start <= addr && addr < end);
        }
    }
}
