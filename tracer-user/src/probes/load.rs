//! Loading the kernel programs and their maps.

use std::{
    collections::HashMap,
    ffi::CString,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Map, MapData, RingBuf},
    programs::{ProgramType, RawTracePoint, TracePoint, UProbe},
    sys::is_helper_supported,
};
use aya_obj::generated::bpf_func_id;

use super::{
    ProbeError,
    events::{self, SyscallEvents},
    kernel_types,
    object::OBJECT,
    syscall,
};
use crate::chain::chain;

/// The programs that are attached to functions of the target.
pub(super) const FUNCTION_PROGRAMS: [&str; 4] =
    ["alloc_enter", "alloc_return", "alloc_end", "free_enter"];

/// The programs that see processes and threads.
const TASK_PROGRAMS: [&str; 3] = ["task_exit", "task_exec", "task_fork"];

/// The programs that see system calls: ends, beginnings, as the kernel runs them undisturbed.
const SYSCALL_PROGRAMS: [&str; 2] = ["mm_exit", "mm_enter"];
const EVENT_PROGRAMS: [&str; 2] = ["mm_exit_event", "mm_enter_event"];

/// What the programs call that a kernel may lack, and the version that brought it.
const NEEDED_HELPERS: [(bpf_func_id, &str); 2] = [
    (bpf_func_id::BPF_FUNC_get_attach_cookie, "attach cookies (5.15)"),
    (bpf_func_id::BPF_FUNC_loop, "bpf_loop (5.17)"),
];

/// How the programs are set up. Sizes are bounds on kernel memory.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The target.
    pub pid: u32,
    /// Bytes of the ring buffer, a power of two of at least a page.
    pub ring_bytes: u32,
    /// Threads of the target that can be followed at once.
    pub max_threads: u32,
    /// Requested bytes below which a block is not booked.
    pub min_size: u64,
    /// Are the processes that the target makes targets as well?
    pub follow: bool,
    /// May a process be stopped until its probes are in place?
    pub hold: bool,
    /// Is a process stopped when the ring is half full, until it is read?
    pub pause: bool,
}

/// Programs and maps in the kernel.
pub(super) struct Loaded {
    pub(super) ebpf: Ebpf,
    /// The first target's id, as the programs see it.
    pub(super) first: u32,
    /// Where the kernel has multi links: the function programs, loaded for them.
    pub(super) multi: Option<HashMap<&'static str, OwnedFd>>,
    /// Where programs on tracepoints of system calls are disturbed: the events to use instead.
    pub(super) events: Option<SyscallEvents>,
}

pub(super) fn load(plan: &LoadPlan) -> Result<Loaded, ProbeError> {
    check_kernel()?;
    let identity = super::namespace::identify(plan.pid)?;
    let fields = kernel_types::fields()?;
    let ring_bytes = u64::from(plan.ring_bytes);
    let (pause_at, full_at) = (if plan.pause { ring_bytes / 2 } else { 0 }, ring_bytes / 8 * 7);
    let mut ebpf = EbpfLoader::new()
        .override_global("TARGET_TGID", &identity.pid, true)
        .override_global("MIN_SIZE", &plan.min_size, true)
        .override_global("PID_NS_DEV", &identity.dev, true)
        .override_global("PID_NS_INO", &identity.ino, true)
        .override_global("FOLLOW", &u64::from(plan.follow), true)
        .override_global("HOLD", &u64::from(plan.hold), true)
        .override_global("PAUSE_AT", &pause_at, true)
        .override_global("FULL_AT", &full_at, true)
        .override_global("TASK_PID", &fields.task_pid, true)
        .override_global("TASK_TGID", &fields.task_tgid, true)
        .override_global("TASK_MM", &fields.task_mm, true)
        .override_global("TASK_EXIT_CODE", &fields.task_exit_code, true)
        .override_global("MM_PROBE_PAGE", &fields.mm_probe_page, true)
        .override_global("PROBE_PAGE_ADDR", &fields.probe_page_addr, true)
        .override_global("TASK_PROBES", &fields.task_probes, true)
        .override_global("PROBES_RETURN", &fields.probes_return, true)
        .override_global("RETURN_NEXT", &fields.return_next, true)
        .override_global("RETURN_PLACE", &fields.return_place, true)
        .override_global("RETURN_ADDR", &fields.return_addr, true)
        .map_max_entries("EVENTS", plan.ring_bytes)
        .map_max_entries("SLOTS", plan.max_threads)
        .load(OBJECT)
        .map_err(|error| ProbeError::Load { what: "the maps".to_owned(), cause: chain(&error) })?;
    for name in TASK_PROGRAMS.into_iter().chain(["mark"]) {
        let program: &mut RawTracePoint = program(&mut ebpf, name)?;
        program.load().map_err(|error| refused(name, &error))?;
    }
    let events = syscall_events();
    for name in syscall_programs(events) {
        match events {
            Some(_) => program::<TracePoint>(&mut ebpf, name)?.load(),
            None => program::<RawTracePoint>(&mut ebpf, name)?.load(),
        }
        .map_err(|error| refused(name, &error))?;
    }
    let multi = syscall::multi_links_work().then(|| load_multi(&ebpf)).transpose()?;
    if multi.is_none() {
        for name in FUNCTION_PROGRAMS {
            let program: &mut UProbe = program(&mut ebpf, name)?;
            program.load().map_err(|error| refused(name, &error))?;
        }
    }
    Ok(Loaded { ebpf, first: identity.pid, multi, events })
}

/// The events of system calls, where they are needed.
fn syscall_events() -> Option<SyscallEvents> {
    if !events::are_needed() {
        return None;
    }
    SyscallEvents::find()
        .inspect_err(|error| {
            log::warn!(
                "this kernel may leave out system calls on a busy machine, which makes a verdict \
                 inconclusive: its tracing file system, by which that is avoided, cannot be read \
                 ({error})"
            );
        })
        .ok()
}

/// Names of the programs that see system calls: the one for ends, the one for beginnings.
pub(super) fn syscall_programs(events: Option<SyscallEvents>) -> [&'static str; 2] {
    if events.is_some() { EVENT_PROGRAMS } else { SYSCALL_PROGRAMS }
}

/// Does the kernel have what the programs call? Asked of the kernel itself: distributions carry
/// features back into older versions.
fn check_kernel() -> Result<(), ProbeError> {
    let mut missing = Vec::new();
    for (helper, name) in NEEDED_HELPERS {
        let has = is_helper_supported(ProgramType::KProbe, helper).map_err(|error| {
            ProbeError::Load { what: "a trial program".to_owned(), cause: chain(&error) }
        })?;
        if !has {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(ProbeError::Kernel { missing: missing.join(" and ") })
}

/// Loads the function programs a second time with the attach type that multi links ask for,
/// which aya 0.14 cannot do. They share the maps that aya has made.
fn load_multi(ebpf: &Ebpf) -> Result<HashMap<&'static str, OwnedFd>, ProbeError> {
    let broken = |cause: String| ProbeError::Load { what: "the object".to_owned(), cause };
    let mut object = aya_obj::Object::parse(OBJECT).map_err(|error| broken(chain(&error)))?;
    let maps = std::mem::take(&mut object.maps);
    let fds: HashMap<&str, RawFd> = ebpf
        .maps()
        .filter_map(|(name, map)| Some((name, map_data(map)?.fd().as_fd().as_raw_fd())))
        .collect();
    let text = object.functions.keys().map(|(section, _)| *section).collect();
    let known = maps.iter().filter_map(|(name, map)| {
        let (name, fd) = fds.get_key_value(name.as_str())?;
        Some((*name, *fd, map))
    });
    object.relocate_maps(known, &text).map_err(|error| broken(chain(&error)))?;
    object.relocate_calls(&text).map_err(|error| broken(chain(&error)))?;

    let unusable = || broken("this kernel takes no type information of programs".to_owned());
    let features = aya::features().btf().ok_or_else(unusable)?;
    let types = object
        .fixup_and_sanitize_btf(features)
        .map_err(|error| broken(chain(&error)))?
        .ok_or_else(|| broken("it has no type information".to_owned()))?;
    let btf = syscall::load_btf(&types.to_bytes()).map_err(|error| broken(error.to_string()))?;

    let mut programs = HashMap::new();
    for name in FUNCTION_PROGRAMS {
        let missing = || broken(format!("it has no program {name}"));
        let program = object.programs.get(name).ok_or_else(missing)?;
        let function = object.functions.get(&program.function_key()).ok_or_else(missing)?;
        let c_name = CString::new(name).map_err(|error| broken(chain(&error)))?;
        let loaded = match syscall::load_for_multi(&c_name, function, &program.license, btf.as_fd())
        {
            Ok(loaded) => loaded,
            Err(refused) => {
                return Err(ProbeError::Refused {
                    program: name,
                    cause: refused.error.to_string(),
                    log: refused.log,
                });
            }
        };
        programs.insert(name, loaded);
    }
    Ok(programs)
}

impl Loaded {
    /// The ring buffer, to be read by whoever takes it.
    pub(super) fn take_ring(&mut self) -> Result<RingBuf<MapData>, ProbeError> {
        let map = self.ebpf.take_map("EVENTS").ok_or(ProbeError::Absent { name: "EVENTS" })?;
        RingBuf::try_from(map)
            .map_err(|error| ProbeError::Load { what: "EVENTS".to_owned(), cause: chain(&error) })
    }

    /// Descriptors of every program that books something, by name.
    pub(super) fn booking_programs(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let of_aya =
            |name: &&'static str| Some((*name, self.ebpf.program(name)?.fd().ok()?.as_fd()));
        let mut programs: Vec<_> = match &self.multi {
            Some(multi) => multi.iter().map(|(name, fd)| (*name, fd.as_fd())).collect(),
            None => FUNCTION_PROGRAMS.iter().filter_map(of_aya).collect(),
        };
        programs.extend(syscall_programs(self.events).iter().filter_map(of_aya));
        programs.extend(TASK_PROGRAMS.iter().filter_map(of_aya));
        programs
    }
}

/// The program of this name and type.
pub(super) fn program<'a, P>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut P, ProbeError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(ProbeError::Absent { name })
}

fn map_data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data)
        | Map::LpmTrie(data)
        | Map::PerCpuHashMap(data)
        | Map::ProgramArray(data)
        | Map::ArrayOfMaps(data)
        | Map::HashOfMaps(data) => Some(data),
        _ => None,
    }
}

fn refused(program: &'static str, error: &aya::programs::ProgramError) -> ProbeError {
    match error {
        aya::programs::ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            let from = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
            ProbeError::Refused {
                program,
                cause: io_error.to_string(),
                log: log[from..].to_owned(),
            }
        }
        other => ProbeError::Refused { program, cause: chain(other), log: String::new() },
    }
}
