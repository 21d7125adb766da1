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
const IN_PLACE: u32 = 0;
const AT_CFA: u32 = 1;
const AT_FRAME_POINTER: u32 = 2;

/// Where the parts of a packed rule begin: the kind, what is saved where, and both offsets in words.
const SAVED_SHIFT: u32 = 3;
const OFFSET_SHIFT: u32 = 5;
const CFA_SHIFT: u32 = 14;

impl Rule {
    /// The rule of code that keeps a frame pointer.
    pub const FRAME_POINTER: Self =
        Self { kind: RuleKind::FramePointer, cfa_offset: 16, saved: SavedFramePointer::AtCfa(-16) };
    /// The rule of the code that a signal handler returns to: a `ucontext` begins at the stack pointer,
    /// and in it, after 40 bytes, the `sigcontext`.
    pub const SIGNAL: Self =
        Self { kind: RuleKind::Signal, cfa_offset: 40, saved: SavedFramePointer::InPlace };
    /// The rule of a thread's first function.
    pub const OUTERMOST: Self =
        Self { kind: RuleKind::Outermost, cfa_offset: 0, saved: SavedFramePointer::InPlace };
    /// The rule where there is none.
    pub const UNKNOWN: Self =
        Self { kind: RuleKind::Unknown, cfa_offset: 0, saved: SavedFramePointer::InPlace };

    /// The rule as a word, never zero. `None` where an offset is no multiple of eight, or too far:
    /// one megabyte for the CFA, two kilobytes for the frame pointer.
    pub const fn pack(self) -> Option<u32> {
        let (saved, offset) = match self.saved {
            SavedFramePointer::InPlace => (IN_PLACE, 0),
            SavedFramePointer::AtCfa(offset) => (AT_CFA, offset as i32),
            SavedFramePointer::AtFramePointer(offset) => (AT_FRAME_POINTER, offset as i32),
        };
        let packed = self.kind as u32
            | saved << SAVED_SHIFT
            | ((offset >> 3) as u32 & 0x1ff) << OFFSET_SHIFT
            | ((self.cfa_offset >> 3) as u32) << CFA_SHIFT;
        match Self::unpack(packed) {
            Some(Self { cfa_offset, saved: SavedFramePointer::InPlace, .. })
                if cfa_offset == self.cfa_offset && offset == 0 =>
            {
                Some(packed)
            }
            Some(Self {
                cfa_offset,
                saved: SavedFramePointer::AtCfa(back) | SavedFramePointer::AtFramePointer(back),
                ..
            }) if cfa_offset == self.cfa_offset && back as i32 == offset => Some(packed),
            _ => None,
        }
    }

    /// The rule of such a word; `None` where no rule packs to it.
    #[inline(always)]
    pub const fn unpack(word: u32) -> Option<Self> {
        let offset = (((word >> OFFSET_SHIFT) as i32) << 23 >> 20) as i16;
        let saved = match word >> SAVED_SHIFT & 3 {
            IN_PLACE => SavedFramePointer::InPlace,
            AT_CFA => SavedFramePointer::AtCfa(offset),
            AT_FRAME_POINTER => SavedFramePointer::AtFramePointer(offset),
            _ => return None,
        };
        let kind = match word & 7 {
            1 => RuleKind::StackPointer,
            2 => RuleKind::FramePointer,
            3 => RuleKind::FramePointerMemory,
            4 => RuleKind::Signal,
            5 => RuleKind::Outermost,
            6 => RuleKind::Unknown,
            _ => return None,
        };
        Some(Self { kind, cfa_offset: (word as i32) >> CFA_SHIFT << 3, saved })
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
            (-256_i16..256).prop_map(|words| SavedFramePointer::AtCfa(words * 8)),
            (-256_i16..256).prop_map(|words| SavedFramePointer::AtFramePointer(words * 8)),
        ];
        (kind, (-(1_i32 << 17)..1 << 17).prop_map(|words| words * 8), saved)
            .prop_map(|(kind, cfa_offset, saved)| Rule { kind, cfa_offset, saved })
    }

    proptest! {
        #[test]
        fn a_rule_survives_the_round(rule in rules()) {
            prop_assert_eq!(rule.pack().and_then(Rule::unpack), Some(rule));
        }

        #[test]
        fn what_does_not_fit_is_not_packed(cfa_offset in any::<i32>(), saved in any::<i16>()) {
            let saved = SavedFramePointer::AtCfa(saved);
            let rule = Rule { kind: RuleKind::StackPointer, cfa_offset, saved };
            prop_assert!(rule.pack().is_none_or(|word| Rule::unpack(word) == Some(rule)));
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
        fn an_address_lies_in_its_stretch(addr in 0_u64..1 << 47) {
            let (start, end) = stretch(generated(addr));
            prop_assert!(start <= addr && addr < end);
        }
    }
}
