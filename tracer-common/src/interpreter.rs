//! What a thread's interpreter runs: a chain of frames in memory, the innermost first, which the
//! kernel side follows while the thread stands still and the user side names.

use crate::hash::StackHash;

/// Where a thread has its interpreter's frames. The user side finds it out and writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The address space that this is true in.
    pub space: u64,
    /// Address of a word that is `owner` while this is the thread's own. Memory of a thread that has
    /// ended may be given to another.
    pub owner_at: u64,
    /// See `owner_at`; it may be the thread's id as well.
    pub owner: u64,
    /// Zero of a thread that runs no interpreter; `owner` is how often it was looked for then.
    /// Otherwise address of the pointer to the innermost frame; with `behind`, to what holds that pointer.
    pub head: u64,
    /// Bytes from what `head` points to, to the pointer to the innermost frame; [`NOT_BEHIND`] where
    /// `head` is its address.
    pub behind: u32,
    /// Bytes of a frame that matter, [`MAX_FRAME`] at the most.
    pub len: u32,
    /// Offset of its code object.
    pub code: u32,
    /// Offset of the instruction that it is at.
    pub instruction: u32,
    /// Offset of the next frame outwards.
    pub previous: u32,
    /// Offset of the byte that says whether a call of the interpreter's loop ends here.
    pub mark: u32,
    /// Zero: it does where the byte is not zero, after this frame. Otherwise it does where the byte
    /// is this or more, and this frame is no function's.
    pub mark_from: u32,
    /// Offset of the thread's number among those that have instructions of their own; zero where
    /// none has.
    pub copy: u32,
    /// Offset of the [`N_PARTS`] pointers of a code object that are in its [`fingerprint`].
    pub parts: u32,
    /// Offset of the hash in the name that is one of them.
    pub name_hash: u32,
}
const _: () = assert!(size_of::<Interpreter>() == 72);

/// Where an interpreter lists the threads of an address space, the newest first. The user side writes it
/// where a thread has one id for everyone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Address of the pointer to the first thread's state.
    pub first: u64,
    /// Offset of the pointer to the next one's in a state.
    pub next: u64,
    /// Offset of the thread's id.
    pub id: u64,
    /// Offset of what [`Interpreter::head`] is the address of.
    pub head: u64,
    /// Everything else of their threads.
    pub model: Interpreter,
}
const _: () = assert!(size_of::<Threads>() == 104);

impl Threads {
    /// How the thread of this id is followed whose state is here.
    #[inline(always)]
    pub const fn interpreter(&self, state: u64, id: u64) -> Interpreter {
        Interpreter {
            owner_at: state.wrapping_add(self.id),
            owner: id,
            head: state.wrapping_add(self.head),
            ..self.model
        }
    }
}

/// See [`Interpreter::behind`].
pub const NOT_BEHIND: u32 = u32::MAX;
/// Bytes of a frame that are read at the most.
pub const MAX_FRAME: usize = 128;
/// Frames that are followed at the most.
pub const MAX_FUNCTIONS: usize = 128;

/// One frame of an interpreter, in two words.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Address of its code object; zero for a frame that is no function's.
    pub code: u64,
    /// See [`Function::instruction`].
    pub place: u64,
}

/// Instructions lie at even addresses below this.
const COPY_SHIFT: u32 = 48;

impl Function {
    /// What a frame says whose words, by the offsets of its thread's [`Interpreter`], are these.
    #[inline(always)]
    pub const fn new(code: u64, instruction: u64, copy: u16, mark: u8, mark_from: u32) -> Self {
        if mark_from != 0 && mark as u32 >= mark_from {
            return Self { code: 0, place: 1 };
        }
        let address = instruction & ((1 << COPY_SHIFT) - 2);
        let ends = mark_from == 0 && mark != 0;
        // The lowest bits of a reference say how it is counted.
        Self { code: code & !7, place: address | ends as u64 | (copy as u64) << COPY_SHIFT }
    }

    /// Address of the instruction that it is at.
    pub const fn instruction(self) -> u64 {
        self.place & ((1 << COPY_SHIFT) - 2)
    }

    /// Whose copy of the instructions that is.
    pub const fn copy(self) -> u64 {
        self.place >> COPY_SHIFT
    }

    /// Does a call of the interpreter's loop end with this frame?
    pub const fn ends_call(self) -> bool {
        self.place & 1 == 1
    }
}

/// A frame as it is sent, with what its code object was at that moment: when the user side reads it,
/// another may be in its place.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The frame.
    pub function: Function,
    /// That of its code object; zero where it has none or it could not be read.
    pub fingerprint: u64,
}

/// Pointers to the parts of a code object.
pub const N_PARTS: usize = 4;
/// Which of them leads to its name, without those of what it is defined in: only of that one there is
/// always a hash.
pub const NAME: usize = 1;

/// By which a code object is told from one that takes its place: what is thrown away together is often
/// replaced part by part, and by another name. Never zero.
#[inline(always)]
pub const fn fingerprint(parts: [u64; N_PARTS], name_hash: u64) -> u64 {
    let [a, b, c, d] = parts;
    StackHash::new().with(a).with(b).with(c).with(d).with(name_hash).finish()
}

/// The word that stands for these frames in the hash of their stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct FunctionsHash(StackHash);

impl FunctionsHash {
    /// Of no frame.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(StackHash::new())
    }

    /// With one more, outwards.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, function: Function) -> Self {
        Self(self.0.with(function.code).with(function.place))
    }

    /// The word. Never zero, which stands for no interpreter.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        self.0.finish()
    }
}

impl Default for FunctionsHash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_ends_a_call_after_its_frame() {
        let inner = Function::new(0x7000_1001, 0x7000_20b8, 0, 0, 0);
        assert_eq!(
            (inner.code, inner.instruction(), inner.ends_call()),
            (0x7000_1000, 0x7000_20b8, false)
        );
        let outer = Function::new(0x7000_1000, 0x7000_20b8, 0, 1, 0);
        assert_eq!((outer.instruction(), outer.ends_call()), (0x7000_20b8, true));
        assert_ne!(FunctionsHash::new().with(inner), FunctionsHash::new().with(outer));
    }

    #[test]
    fn an_owner_ends_a_call_with_a_frame_of_no_function() {
        let function = Function::new(0x7000_1000, 0x7000_20b8, 5, 2, 3);
        assert_eq!((function.copy(), function.instruction()), (5, 0x7000_20b8));
        assert!(!function.ends_call());
        for owner in [3, 4, 255] {
            let between = Function::new(0x7000_1000, 0x7000_20b8, 5, owner, 3);
            assert_eq!((between.code, between.ends_call()), (0, true));
        }
    }

    #[test]
    fn a_thread_that_is_found_is_followed_as_the_others_are() {
        let model = Interpreter {
            space: 7,
            owner_at: 0,
            owner: 0,
            head: 0,
            behind: 8,
            len: 72,
            code: 32,
            instruction: 56,
            previous: 48,
            mark: 68,
            mark_from: 0,
            copy: 0,
            parts: 112,
            name_hash: 24,
        };
        let threads = Threads { first: 0x100, next: 8, id: 160, head: 56, model };
        let expected =
            Interpreter { owner_at: 0x1000 + 160, owner: 42, head: 0x1000 + 56, ..model };
        assert_eq!(threads.interpreter(0x1000, 42), expected);
    }
}
