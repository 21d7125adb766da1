//! Attaching programs, and the guards that detach them.

use std::{
    num::NonZeroU32,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    thread,
};

use aya::{
    Ebpf,
    programs::{
        RawTracePoint, TracePoint, UProbe,
        raw_trace_point::RawTracePointLink,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use tracer_common::cookie::{Cookie, Shape};

use super::{
    ProbeError, events,
    load::{Loaded, program, syscall_programs},
    syscall,
};
use crate::chain::chain;

/// One function to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachSite {
    /// Offset of the probed instruction in the object's file.
    pub offset: u64,
    /// What the function does.
    pub cookie: Cookie,
    /// Is it a return instruction of the function, rather than its beginning?
    pub is_end: bool,
}

/// The breakpoints in one object. Dropping it takes them out.
pub struct Attached {
    allocations: Vec<Link>,
    frees: Vec<Link>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.drop_allocations();
        // Beginnings before ends here too.
        while self.frees.pop().is_some() {}
    }
}

#[expect(dead_code, reason = "held for its drop, which takes the breakpoints out")]
enum Link {
    Multi(OwnedFd),
    Single(UProbeLink),
}

/// Removals at the same time. Each waits for the kernel to see that nobody runs the program, and
/// those waits can be shared.
const REMOVERS: usize = 16;

/// Takes breakpoints out, of several processes at once: allocations first in each.
pub(super) fn remove(attached: Vec<Attached>) {
    let each = attached.len().div_ceil(REMOVERS).max(1);
    let mut rest = attached;
    thread::scope(|scope| {
        while !rest.is_empty() {
            let part = rest.split_off(rest.len().saturating_sub(each));
            scope.spawn(move || drop(part));
        }
    });
}

impl Attached {
    /// Stops the booking of new blocks, and only that: beginnings before ends, in the reverse
    /// of the order in which they were set.
    pub(super) fn drop_allocations(&mut self) {
        while self.allocations.pop().is_some() {}
    }
}

/// One tracepoint with its program. Dropping it ends that.
#[expect(dead_code, reason = "held for its drop, which detaches the program")]
pub(super) enum Tracepoint {
    Raw(RawTracePointLink),
    Event(OwnedFd),
}

/// Follows the beginnings and ends of processes and threads, the replacement of images, and the
/// system calls that change mappings, until the guards are dropped. The ends of calls are watched
/// before their beginnings, as with functions.
pub(super) fn tracepoints(loaded: &mut Loaded) -> Result<Vec<Tracepoint>, ProbeError> {
    let refused = |tracepoint: &str, cause: String| ProbeError::Load {
        what: format!("the tracepoint {tracepoint}"),
        cause,
    };
    let [exit, enter] = syscall_programs(loaded.events);
    let events = loaded.events;
    [
        ("task_exit", "sched_process_exit", None),
        ("task_exec", "sched_process_exec", None),
        (exit, "sys_exit", events.map(|events| events.exit)),
        (enter, "sys_enter", events.map(|events| events.enter)),
        // What it announces is completed at the end of a system call.
        ("task_fork", "sched_process_fork", None),
    ]
    .into_iter()
    .map(|(name, tracepoint, event)| {
        if let Some(number) = event {
            let program: &mut TracePoint = program(&mut loaded.ebpf, name)?;
            let program = program.fd().map_err(|error| refused(tracepoint, chain(&error)))?;
            let event = events::attach(number, program.as_fd());
            return event
                .map(Tracepoint::Event)
                .map_err(|error| refused(tracepoint, error.to_string()));
        }
        let error = |error: aya::programs::ProgramError| refused(tracepoint, chain(&error));
        let program: &mut RawTracePoint = program(&mut loaded.ebpf, name)?;
        let id = program.attach(tracepoint).map_err(error)?;
        program.take_link(id).map(Tracepoint::Raw).map_err(error)
    })
    .collect()
}

pub(super) fn object(
    loaded: &mut Loaded,
    pid: u32,
    name: &str,
    file: BorrowedFd<'_>,
    sites: &[AttachSite],
) -> Result<Attached, ProbeError> {
    let chosen = |wanted: fn(&AttachSite) -> bool| -> Vec<AttachSite> {
        sites.iter().copied().filter(wanted).collect()
    };
    let ends = chosen(|site| site.is_end);
    let releasing = chosen(|site| !site.is_end && !site.cookie.shape.has_end());
    let freeing = chosen(|site| !site.is_end && site.cookie.shape == Shape::FreeCall);
    let entered = chosen(|site| !site.is_end && site.cookie.shape.returns_memory());
    // A return address that is replaced would end a target that unwinds through it.
    let returning: Vec<_> = entered.iter().copied().filter(|site| !site.cookie.throws).collect();
    let mut attached = Attached { allocations: Vec::new(), frees: Vec::new() };
    let mut set = |links: &mut Vec<Link>, program: &'static str, sites: &[AttachSite]| {
        if sites.is_empty() {
            return Ok(());
        }
        let error = |error: String| ProbeError::Attach { object: name.to_owned(), pid, error };
        if loaded.multi.is_some() {
            links.push(multi(loaded, pid, file, program, sites).map_err(error)?);
            return Ok(());
        }
        for site in sites {
            links.push(single(&mut loaded.ebpf, pid, file, program, site).map_err(error)?);
        }
        Ok(())
    };
    set(&mut attached.frees, "free_enter", &releasing)?;
    set(&mut attached.frees, "alloc_return", &freeing)?;
    set(&mut attached.frees, "alloc_enter", &freeing)?;
    // The end of a call is watched before its beginning: a beginning without an end would
    // look like a call that never returned.
    set(&mut attached.allocations, "alloc_return", &returning)?;
    set(&mut attached.allocations, "alloc_end", &ends)?;
    set(&mut attached.allocations, "alloc_enter", &entered)?;
    Ok(attached)
}

fn multi(
    loaded: &Loaded,
    pid: u32,
    file: BorrowedFd<'_>,
    program: &'static str,
    sites: &[AttachSite],
) -> Result<Link, String> {
    let fd = loaded
        .multi
        .as_ref()
        .and_then(|programs| programs.get(program))
        .ok_or_else(|| format!("no program {program}"))?;
    let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
    let cookies: Vec<u64> = sites.iter().map(|site| site.cookie.pack()).collect();
    let path = syscall::path_of(file);
    syscall::link_multi(
        fd.as_fd(),
        &syscall::MultiSites {
            path: &path,
            offsets: &offsets,
            cookies: &cookies,
            pid,
            on_return: program == "alloc_return",
        },
    )
    .map(Link::Multi)
    .map_err(|error| error.to_string())
}

fn single(
    ebpf: &mut Ebpf,
    pid: u32,
    file: BorrowedFd<'_>,
    name: &'static str,
    site: &AttachSite,
) -> Result<Link, String> {
    let pid = NonZeroU32::new(pid).ok_or("process id 0")?;
    let path = syscall::path_of(file);
    let probe: &mut UProbe = program(ebpf, name).map_err(|error| error.to_string())?;
    let point = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(site.offset),
        cookie: Some(site.cookie.pack()),
    };
    let path = path.to_str().map_err(|error| error.to_string())?;
    let id =
        probe.attach(point, path, UProbeScope::OneProcess(pid)).map_err(|error| chain(&error))?;
    probe.take_link(id).map(Link::Single).map_err(|error| chain(&error))
}
