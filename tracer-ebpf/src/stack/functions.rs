//! What the thread's interpreter runs: its frames, followed while the thread stands still.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_user};
use tracer_common::{
    event::{FunctionsHead, Head, Kind},
    interpreter::{
        Function, FunctionsHash, Interpreter, MAX_FRAME, MAX_FUNCTIONS, N_PARTS, NAME, NOT_BEHIND,
        Sent, fingerprint,
    },
    state::INTERPRETED,
};

use crate::{
    count, emit,
    maps::{INTERPRETERS, STATE, Scratch, THREADS},
};

/// Where the following is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Following {
    interpreter: Interpreter,
    /// Address of the next frame.
    at: u64,
    hash: FunctionsHash,
    n_functions: u64,
    /// Non-zero when a frame could not be read.
    is_broken: u64,
    index: u64,
}

struct Passed<'a> {
    scratch: &'a mut Scratch,
}

const N_WORDS: usize = MAX_FRAME / 8;

/// Collects what the interpreter of this thread runs into the scratch buffer. Answers the word that
/// stands for it in the stack's hash; zero where the thread has no interpreter that is known.
#[inline(always)]
pub fn collect(scratch: &mut Scratch, tid: u32, space: u64) -> u64 {
    scratch.functions.n_functions = 0;
    // SAFETY: a live map value; one word, which the user side writes whole.
    let is_interpreted = STATE.get_ptr(INTERPRETED).is_some_and(|flag| unsafe { *flag } != 0);
    if !is_interpreted {
        return 0;
    }
    if !known(scratch, tid, space) && !find(scratch, tid, space) {
        return 0;
    }
    let interpreter = &scratch.following.interpreter;
    let Some(mut at) = user_word(interpreter.head) else { return 0 };
    if interpreter.behind != NOT_BEHIND {
        let Some(behind) = user_word(at.wrapping_add(interpreter.behind as u64)) else { return 0 };
        at = behind;
    }
    scratch.following = Following {
        interpreter: *interpreter,
        at,
        hash: FunctionsHash::new(),
        n_functions: 0,
        is_broken: 0,
        index: 0,
    };
    // A helper's loop, as for the walk of the stack. What it passes on must lie on our own.
    let mut passed = Passed { scratch };
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while `passed`
    // lives.
    unsafe {
        bpf_loop(MAX_FUNCTIONS as u32, step as *mut c_void, (&raw mut passed).cast(), 0);
    }
    let scratch = passed.scratch;
    let Following { at, hash, n_functions, is_broken, .. } = scratch.following;
    if is_broken != 0 || n_functions == 0 {
        return 0;
    }
    scratch.functions.n_functions = n_functions as u32;
    scratch.functions.is_cut = (at != 0) as u32;
    hash.finish()
}

/// Is it known where this thread has its frames? That is put into the scratch buffer.
#[inline(always)]
fn known(scratch: &mut Scratch, tid: u32, space: u64) -> bool {
    // SAFETY: whoever writes the value replaces it whole, and what is torn all the same leads to
    // memory that is no frame, which the user side finds out.
    let Some(interpreter) = (unsafe { INTERPRETERS.get(tid) }) else { return false };
    if interpreter.space != space || interpreter.head == 0 {
        return false;
    }
    let Some(owner) = user_word(interpreter.owner_at) else { return false };
    if owner != interpreter.owner && owner != tid as u64 {
        return false;
    }
    scratch.following.interpreter = *interpreter;
    true
}

/// Threads that are looked at to find one: a new one comes first.
const MOST_LOOKS: u32 = 64;
/// A thread that was not found is looked for at its next calls, and then at every so many.
const SOON: u64 = 4;
const LATER: u64 = 64;

struct Looking {
    at: u64,
    next: u64,
    id: u64,
    tid: u64,
    found: u64,
}

/// Looks for the thread in its interpreter's list.
#[inline(never)]
fn find(scratch: &mut Scratch, tid: u32, space: u64) -> bool {
    // SAFETY: as in `known`.
    let Some(threads) = (unsafe { THREADS.get(space) }) else { return false };
    let mut misses = 0;
    if let Some(missed) = INTERPRETERS.get_ptr_mut(tid) {
        // SAFETY: a live map value, which belongs to this thread.
        let missed = unsafe { &mut *missed };
        if missed.space == space && missed.head == 0 {
            missed.owner += 1;
            misses = missed.owner;
        }
    }
    if misses > SOON && !misses.is_multiple_of(LATER) {
        return false;
    }
    let Some(at) = user_word(threads.first) else { return false };
    let mut looking = Looking { at, next: threads.next, id: threads.id, tid: tid as u64, found: 0 };
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while `looking`
    // lives.
    unsafe {
        bpf_loop(MOST_LOOKS, look as *mut c_void, (&raw mut looking).cast(), 0);
    }
    let is_found = looking.found != 0;
    scratch.following.interpreter = threads.interpreter(looking.found, tid as u64);
    if !is_found {
        scratch.following.interpreter.head = 0;
        scratch.following.interpreter.owner = misses;
    }
    let _ = INTERPRETERS.insert(tid, scratch.following.interpreter, 0);
    is_found
}

/// Looks at one thread.
extern "C" fn look(_round: u32, looking: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `find` passed, which lives while the helper runs.
    let looking = unsafe { &mut *looking.cast::<Looking>() };
    if looking.at == 0 {
        return STOP;
    }
    let Some(id) = user_word(looking.at.wrapping_add(looking.id)) else { return STOP };
    if id == looking.tid {
        looking.found = looking.at;
        return STOP;
    }
    let Some(next) = user_word(looking.at.wrapping_add(looking.next)) else { return STOP };
    looking.at = next;
    NEXT
}

/// The thread `child` begins in a copy of this thread's address space: its interpreter has its frames
/// where they were. A child that cannot be kept is found by the user side.
#[inline(always)]
pub fn inherit(tid: u32, child: u32, space: u64) {
    // SAFETY: as in `collect`.
    if let Some(interpreter) = unsafe { INTERPRETERS.get(tid) } {
        let inherited = Interpreter { space, ..*interpreter };
        let _ = INTERPRETERS.insert(child, inherited, 0);
    }
}

/// Sends what was collected, if anything was. Answers `false`, and counts the stack as lost, when
/// there is no room.
#[inline(always)]
pub fn send(scratch: &mut Scratch, tid: u32, hash: u64) -> bool {
    // SAFETY: reads a field of a valid reference; volatile, so that the verifier sees a value that is
    // bounded below.
    let n = unsafe { (&raw const scratch.functions.n_functions).read_volatile() } as usize;
    if n > MAX_FUNCTIONS {
        return false;
    }
    if n == 0 {
        return true;
    }
    take_fingerprints(scratch);
    scratch.functions = FunctionsHead {
        head: Head { kind: Kind::Functions as u8, flags: 0, family: 0, tid },
        hash,
        ..scratch.functions
    };
    let len = size_of::<FunctionsHead>() + n * size_of::<Sent>();
    // SAFETY: the frames follow the head in a `repr(C)` struct without a gap, and `len` ends within
    // them.
    let record = unsafe { core::slice::from_raw_parts((&raw const scratch.functions).cast(), len) };
    if let Err(lost) = emit::stack(record, false) {
        count::bump(lost);
        return false;
    }
    true
}

const NEXT: i64 = 0;
const STOP: i64 = 1;

/// Takes the fingerprints of what was collected. A stack that was sent needs none, so that only new ones
/// cost that.
#[inline(never)]
fn take_fingerprints(scratch: &mut Scratch) {
    let n = scratch.functions.n_functions;
    let mut passed = Passed { scratch };
    // SAFETY: as in `collect`.
    unsafe {
        bpf_loop(n, take_fingerprint as *mut c_void, (&raw mut passed).cast(), 0);
    }
}

extern "C" fn take_fingerprint(round: u32, passed: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `take_fingerprints` passed, which lives while the helper runs.
    let passed = unsafe { &mut *passed.cast::<Passed<'_>>() };
    let scratch = &mut *passed.scratch;
    let Interpreter { parts: offset, name_hash, .. } = scratch.following.interpreter;
    let Some(sent) = scratch.listed.get_mut(round as usize) else { return STOP };
    if sent.function.code == 0 {
        return NEXT;
    }
    let mut parts = [0_u64; N_PARTS];
    let (buffer, addr) =
        (parts.as_mut_ptr().cast(), sent.function.code.wrapping_add(offset as u64));
    // SAFETY: the buffer is as long as the helper is told; the helper checks the address.
    if unsafe { bpf_probe_read_user(buffer, size_of_val(&parts) as u32, addr as *const c_void) }
        != 0
    {
        return NEXT;
    }
    if let Some(hash) = user_word(parts[NAME].wrapping_add(name_hash as u64)) {
        sent.fingerprint = fingerprint(parts, hash);
    }
    NEXT
}

/// Takes one frame.
extern "C" fn step(_round: u32, passed: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `collect` passed, which lives while the helper runs.
    let passed = unsafe { &mut *passed.cast::<Passed<'_>>() };
    let scratch = &mut *passed.scratch;
    let addr = scratch.following.at;
    if addr == 0 {
        return STOP;
    }
    scratch.following.is_broken = 1;
    let len = scratch.following.interpreter.len as usize;
    // One comparison: of two that become one the verifier of 6.1 does not learn a bound.
    if len > MAX_FRAME {
        return STOP;
    }
    let buffer = scratch.frame.as_mut_ptr().cast::<c_void>();
    // SAFETY: the buffer is `MAX_FRAME` bytes long, `len` at the most that; the helper checks the
    // address.
    if unsafe { bpf_probe_read_user(buffer, len as u32, addr as *const c_void) } != 0 {
        return STOP;
    }
    let Interpreter { code, instruction, previous, mark, mark_from, copy, .. } =
        scratch.following.interpreter;
    let at_end = word(scratch, mark) >> (8 * (mark & 7));
    let copy = match copy {
        0 => 0,
        copy => word(scratch, copy) >> (8 * (copy & 7)),
    };
    let (code, instruction) = (word(scratch, code), word(scratch, instruction));
    let function = Function::new(code, instruction, copy as u16, at_end as u8, mark_from);
    let next = word(scratch, previous);
    let following = &mut scratch.following;
    // SAFETY: reads a field of a valid reference; volatile, so that the verifier sees a value that is
    // bounded below.
    let index = unsafe { (&raw const following.n_functions).read_volatile() } as usize;
    if index >= MAX_FUNCTIONS {
        return STOP;
    }
    following.hash = following.hash.with(function);
    following.n_functions = index as u64 + 1;
    following.at = next;
    following.is_broken = 0;
    scratch.listed[index] = Sent { function, fingerprint: 0 };
    NEXT
}

/// The word of the frame that this offset is in.
#[inline(always)]
fn word(scratch: &mut Scratch, offset: u32) -> u64 {
    scratch.following.index = (offset >> 3) as u64;
    // SAFETY: reads a field of a valid reference; volatile, as above.
    let index = unsafe { (&raw const scratch.following.index).read_volatile() } as usize;
    if index < N_WORDS { scratch.frame[index] } else { 0 }
}

#[inline(always)]
fn user_word(addr: u64) -> Option<u64> {
    let mut word = 0_u64;
    let buffer = (&raw mut word).cast::<c_void>();
    // SAFETY: the buffer is a word; the helper checks the address.
    let failed = unsafe { bpf_probe_read_user(buffer, 8, addr as *const c_void) };
    (failed == 0).then_some(word)
}
