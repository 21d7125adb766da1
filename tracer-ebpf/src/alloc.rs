//! The allocator functions.
//!
//! A block is released at the entry of `free` or `realloc`, while the caller still owns it,
//! and booked at the return of an allocation, when the caller owns it. Any other order
//! loses the block that another thread gets at the same address in between.

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{bpf_probe_read_user, generated::bpf_get_attach_cookie},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_common::{
    cookie::{Cookie, Shape},
    count::Count,
    event::{AllocRecord, FLAG_REPEAT, FLAG_RESIZED, Head, Kind},
};

use crate::{
    arch,
    call::{Slot, is_ending, is_nested, slot},
    config, count, emit, hold, stack,
    target::{Caller, target},
};

/// A call whose end has to be seen begins.
///
/// # Errors
/// The loss that keeps the call from being booked.
#[inline(always)]
pub fn enter(ctx: &ProbeContext) -> Result<(), Count> {
    let Some(target) = target() else { return foreign() };
    let tid = target.tid;
    let Some(cookie) = cookie(ctx) else { return Ok(()) };
    let regs = regs(ctx);
    let slot = slot(&target)?;
    let sp = arch::stack_pointer(regs);
    let args = arch::Args::read(regs);
    let ptr = args.get(cookie.ptr_arg);
    if matches!(cookie.shape, Shape::FreeCall) && ptr == 0 {
        return Ok(());
    }
    if is_nested(slot, tid, sp) {
        if !slot.call.is_free() {
            return Ok(());
        }
        if matches!(cookie.shape, Shape::FreeCall) {
            return emit::addr(head(Kind::Free, FLAG_REPEAT, &cookie, tid), ptr);
        }
        // What is allocated while something is freed is booked like anything else.
    }
    // Before the shapes part ways, so that the verifier goes through the walk once.
    let frees = matches!(cookie.shape, Shape::FreeCall);
    slot.call.stack = if frees { 0 } else { stack::capture(slot, tid, regs) };
    let size = args.get(cookie.size_arg);
    let size = if cookie.size_is_int { size & 0xffff_ffff } else { size };
    let (size, old) = match cookie.shape {
        Shape::Alloc | Shape::AllocOut => (size, 0),
        Shape::AllocArray | Shape::AllocOutArray => (times(size, args.get(cookie.count_arg)), 0),
        Shape::Resize | Shape::ResizeInPlace => (size, ptr),
        Shape::ResizeArray => (times(size, args.get(cookie.count_arg)), ptr),
        Shape::FreeCall => (0, 0),
        Shape::Free | Shape::Throw => return Ok(()),
    };
    slot.call.size = size;
    slot.call.out = ptr;
    slot.call.cookie = cookie.pack();
    slot.call.gave_up = old;
    slot.call.sp = sp;
    if frees {
        // Of a block that is not known: the call may know it by another address, which it
        // releases within.
        slot.last_released = ptr;
        return emit::addr(head(Kind::Free, FLAG_REPEAT, &cookie, tid), ptr);
    }
    if old != 0 {
        release(slot, Kind::GiveUp, &cookie, tid, old)?;
    }
    Ok(())
}

/// A call has returned to its caller.
///
/// # Errors
/// The loss that keeps the call from being booked.
#[inline(always)]
pub fn leave(ctx: &RetProbeContext) -> Result<(), Count> {
    let Some(target) = target() else { return Ok(()) };
    let regs = regs(ctx);
    end(&target, arch::stack_pointer_before(arch::stack_pointer(regs)), arch::returned(regs))
}

/// A call is at its return instruction: the result is in place, and the stack pointer is what
/// it was at the entry.
///
/// # Errors
/// The loss that keeps the call from being booked.
#[inline(always)]
pub fn leave_here(ctx: &ProbeContext) -> Result<(), Count> {
    let Some(target) = target() else { return Ok(()) };
    let regs = regs(ctx);
    end(&target, arch::stack_pointer(regs), arch::returned(regs))
}

/// The call that was entered with `sp` ends.
#[inline(always)]
fn end(target: &Caller, sp: u64, returned: u64) -> Result<(), Count> {
    hold::pause(target);
    let tid = target.tid;
    let slot = slot(target)?;
    if !is_ending(slot, tid, sp) {
        return Ok(());
    }
    slot.call.sp = 0;
    let call = &slot.call;
    let Some(cookie) = Cookie::unpack(call.cookie) else { return Ok(()) };
    let addr = match cookie.shape {
        Shape::FreeCall => return Ok(()),
        // An `int`: the upper half of the register means nothing.
        Shape::AllocOut | Shape::AllocOutArray if returned as u32 == 0 => {
            // SAFETY: the helper checks the address; an unreadable one is an error.
            unsafe { bpf_probe_read_user(call.out as *const u64) }.map_err(|_| Count::ReadFailed)?
        }
        Shape::AllocOut | Shape::AllocOutArray => 0,
        Shape::ResizeInPlace if returned >= call.size => call.out,
        Shape::ResizeInPlace => 0,
        _ => returned,
    };
    let gave_up = call.gave_up != 0;
    if addr != 0 && call.size >= config::min_size() {
        let flags = if gave_up { FLAG_RESIZED } else { 0 };
        let head = head(Kind::Alloc, flags, &cookie, tid);
        let record = AllocRecord { head, addr, size: call.size, stack: call.stack };
        slot.last_released = 0;
        return emit::alloc(record);
    }
    if !gave_up {
        if addr == 0 {
            count::bump(Count::FailedCalls);
        }
        return Ok(());
    }
    // Either the new block is too small to be booked, or this is the C library's `realloc` to a
    // size of zero, which frees and answers null as it does on failure.
    if addr != 0 || call.size == 0 {
        return emit::addr(head(Kind::Release, 0, &cookie, tid), call.gave_up);
    }
    count::bump(Count::FailedCalls);
    let taken_back = call.gave_up;
    slot.last_released = 0;
    emit::addr(head(Kind::TakeBack, 0, &cookie, tid), taken_back)
}

/// A block is given back, or an exception is made.
///
/// # Errors
/// The loss that keeps the call from being booked.
#[inline(always)]
pub fn free(ctx: &ProbeContext) -> Result<(), Count> {
    let Some(target) = target() else { return foreign() };
    let tid = target.tid;
    let Some(cookie) = cookie(ctx) else { return Ok(()) };
    let regs = regs(ctx);
    let sp = arch::stack_pointer(regs);
    if matches!(cookie.shape, Shape::Throw) {
        let slot = slot(&target)?;
        if slot.call.sp != 0 && slot.call.throws() {
            slot.call.sp = 0;
        }
        return Ok(());
    }
    let ptr = arch::Args::read(regs).get(cookie.ptr_arg);
    if ptr == 0 {
        return Ok(());
    }
    hold::pause(&target);
    let slot = slot(&target)?;
    if is_nested(slot, tid, sp) {
        if slot.call.is_free() {
            return emit::addr(head(Kind::Free, FLAG_REPEAT, &cookie, tid), ptr);
        }
        return Ok(());
    }
    release(slot, Kind::Free, &cookie, tid, ptr)
}

#[inline(always)]
fn release(slot: &mut Slot, kind: Kind, cookie: &Cookie, tid: u32, ptr: u64) -> Result<(), Count> {
    let flags = if slot.last_released == ptr { FLAG_REPEAT } else { 0 };
    slot.last_released = ptr;
    emit::addr(head(kind, flags, cookie, tid), ptr)
}

#[inline(always)]
fn head(kind: Kind, flags: u8, cookie: &Cookie, tid: u32) -> Head {
    Head { kind: kind as u8, flags, family: cookie.family, tid }
}

/// The product, or the largest size there is: a call that overflows fails anyway. By halves,
/// because the machine has no 128-bit product, which `checked_mul` is compiled to.
#[inline(always)]
fn times(size: u64, count: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (size_high, size_low) = (size >> 32, size & LOW);
    let (count_high, count_low) = (count >> 32, count & LOW);
    if size_high != 0 && count_high != 0 {
        return u64::MAX;
    }
    let middle = size_high * count_low + size_low * count_high;
    if middle > LOW {
        return u64::MAX;
    }
    (middle << 32).saturating_add(size_low * count_low)
}

#[inline(always)]
fn foreign() -> Result<(), Count> {
    count::bump(Count::Foreign);
    Ok(())
}

#[inline(always)]
fn cookie(ctx: &ProbeContext) -> Option<Cookie> {
    // SAFETY: the helper takes the program's own context.
    Cookie::unpack(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

#[inline(always)]
fn regs<C: EbpfContext>(ctx: &C) -> &pt_regs {
    // SAFETY: the context of a probe is the saved registers, valid while the program runs.
    unsafe { &*ctx.as_ptr().cast::<pt_regs>() }
}
