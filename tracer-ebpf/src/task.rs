//! Processes and threads begin, change and end.
//!
//! A process is announced twice. In its parent, before it can run: its memory is a copy of the
//! parent's at that place in the order of records. And by itself, on its way to its first
//! instruction, which is where it can be held.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_kernel,
        generated::{bpf_get_current_task_btf, bpf_task_pt_regs},
    },
    programs::RawTracePointContext,
};
use tracer_common::{
    count::Count,
    event::{FLAG_OTHER_THREAD, FLAG_SHARES, Head, Kind, SpaceRecord},
    state::{FIRST_END, HAS_ENDED, N_BIRTHS, NEXT_SPACE},
};

use crate::{
    atomic,
    call::{self, slot},
    config, count, emit, hold,
    maps::{BIRTHS, Birth, STATE, TARGETS},
    stack,
    target::{Caller, caller, space_of, target},
};

/// Forgets the thread's slot, if it has one: it will not be needed, and its number may be
/// given to another thread. Keeps how the first target ended: nobody but its parent is told later.
#[inline(always)]
pub fn exit() {
    if config::follow() != 0 && n_births() != 0 {
        // It may be killed before it ran.
        forget_birth(bpf_get_current_pid_tgid() as u32);
    }
    if let Some(caller) = caller() {
        call::forget(caller.tid);
        if caller.tgid == config::target_tgid() {
            keep_end();
        }
    }
}

/// Of a process that is ended as a whole each thread has the process's word; otherwise its last
/// thread's is the one.
#[inline(always)]
fn keep_end() {
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let Ok(word) = field::<u32>(task, config::task_exit_code()) else { return };
    if let Some(end) = STATE.get_ptr_mut(FIRST_END) {
        // SAFETY: a live map value of one word, which is written whole.
        unsafe { *end = HAS_ENDED | u64::from(word) };
    }
}

/// The process has a new image and a new address space.
///
/// # Errors
/// [`Count::RingFull`] when it could not be told, [`Count::Unfollowed`] when it cannot be followed.
#[inline(always)]
pub fn exec(ctx: &RawTracePointContext) -> Result<(), Count> {
    let Some(caller) = target() else { return Ok(()) };
    call::forget(caller.tid);
    let caller_before: u64 = ctx.arg(1);
    let is_other_thread = caller_before as u32 != bpf_get_current_pid_tgid() as u32;
    if is_other_thread {
        call::forget(caller_before as u32);
    }
    let from = space_of(&caller);
    let space = next_space()?;
    TARGETS.insert(caller.tgid, space, 0).map_err(|_| Count::Unfollowed)?;
    let flags = if is_other_thread { FLAG_OTHER_THREAD } else { 0 };
    emit::announce(|| SpaceRecord {
        head: head(Kind::Exec, flags, caller.tid),
        space,
        from,
        stack: 0,
        hold: hold::begin(&caller),
        pid: caller.tgid,
        parent: 0,
    })
}

/// The caller makes a process or a thread, which has not run yet.
///
/// # Errors
/// What keeps the new process from being followed.
#[inline(always)]
pub fn fork(ctx: &RawTracePointContext) -> Result<(), Count> {
    let Some(caller) = target() else { return Ok(()) };
    let (parent, child): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let tgid: u32 = field(child, config::task_tgid())?;
    if tgid == (bpf_get_current_pid_tgid() >> 32) as u32 {
        return Ok(());
    }
    if config::follow() == 0 {
        count::bump(Count::NotFollowed);
        return Ok(());
    }
    let mm: u64 = field(child, config::task_mm())?;
    let shares = mm == field::<u64>(parent, config::task_mm())?;
    let from = space_of(&caller);
    let stack = caller_stack(&caller)?;
    let space = if shares { from } else { next_space()? };
    let birth = Birth { space, from, stack, parent: caller.tgid, shares: shares as u32 };
    let tid: u32 = field(child, config::task_pid())?;
    BIRTHS.insert(tid, birth, 0).map_err(|_| Count::Unfollowed)?;
    if let Some(n_births) = STATE.get_ptr_mut(N_BIRTHS) {
        // SAFETY: a live map value, which is only used atomically.
        atomic::add(unsafe { &mut *n_births }, 1);
    }
    if shares {
        return Ok(());
    }
    stack::inherit(caller.tid, tid, space);
    emit::space(SpaceRecord {
        head: head(Kind::Fork, 0, caller.tid),
        space,
        from,
        stack: 0,
        hold: 0,
        pid: 0,
        parent: 0,
    })
}

/// Whoever is no target leaves the kernel: is it a process of a target's that runs for the first
/// time?
///
/// # Errors
/// What keeps it from being followed.
#[inline(always)]
pub fn born() -> Result<(), Count> {
    if config::follow() == 0 || n_births() == 0 {
        return Ok(());
    }
    let tid = bpf_get_current_pid_tgid() as u32;
    // SAFETY: the value is written once, before this thread runs.
    let Some(birth) = (unsafe { BIRTHS.get(tid) }).copied() else { return Ok(()) };
    forget_birth(tid);
    let Some(caller) = caller() else { return Err(Count::Unfollowed) };
    TARGETS.insert(caller.tgid, birth.space, 0).map_err(|_| Count::Unfollowed)?;
    let flags = if birth.shares != 0 { FLAG_SHARES } else { 0 };
    emit::announce(|| SpaceRecord {
        head: head(Kind::Born, flags, caller.tid),
        space: birth.space,
        from: birth.from,
        stack: birth.stack,
        hold: hold::begin(&caller),
        pid: caller.tgid,
        parent: birth.parent,
    })
}

/// The stack with which the caller entered the kernel.
#[inline(always)]
fn caller_stack(caller: &Caller) -> Result<u64, Count> {
    let regs = registers()?;
    let slot = slot(caller)?;
    Ok(stack::capture_in_syscall(slot, caller.tid, &regs))
}

/// The registers with which the caller entered the kernel.
///
/// # Errors
/// When they cannot be read.
#[inline(always)]
pub fn registers() -> Result<pt_regs, Count> {
    // SAFETY: the task that runs is valid, and so are the registers that it entered the kernel
    // with; the read is checked.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf());
        bpf_probe_read_kernel(regs as *const pt_regs).map_err(|_| Count::ReadFailed)
    }
}

/// The page of this address space that return probes send the thread to; zero while it has none.
///
/// # Errors
/// When it cannot be read.
#[inline(always)]
pub fn probe_page() -> Result<u64, Count> {
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let mm: u64 = field(task, config::task_mm())?;
    match field(mm, config::mm_probe_page())? {
        0 => Ok(0),
        page => field(page, config::probe_page_addr()),
    }
}

/// A field of a kernel structure.
///
/// # Errors
/// When it cannot be read.
#[inline(always)]
pub fn field<T>(base: u64, offset: u64) -> Result<T, Count> {
    // SAFETY: the helper checks the address; every pattern of bits is one of the integers that are
    // asked for.
    unsafe { bpf_probe_read_kernel((base + offset) as *const T) }.map_err(|_| Count::ReadFailed)
}

#[inline(always)]
fn next_space() -> Result<u64, Count> {
    let next = STATE.get_ptr_mut(NEXT_SPACE).ok_or(Count::Unfollowed)?;
    // SAFETY: a live map value, which is only used atomically.
    Ok(atomic::fetch_add(unsafe { &mut *next }, 1))
}

#[inline(always)]
fn n_births() -> u64 {
    // SAFETY: a live map value of one word.
    STATE.get_ptr(N_BIRTHS).map_or(0, |n_births| unsafe { *n_births })
}

#[inline(always)]
fn forget_birth(tid: u32) {
    if BIRTHS.remove(tid).is_ok()
        && let Some(n_births) = STATE.get_ptr_mut(N_BIRTHS)
    {
        // SAFETY: a live map value, which is only used atomically.
        atomic::add(unsafe { &mut *n_births }, u64::MAX);
    }
}

#[inline(always)]
fn head(kind: Kind, flags: u8, tid: u32) -> Head {
    Head { kind: kind as u8, flags, family: 0, tid }
}
