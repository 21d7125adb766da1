//! The kernel side, seen from here: load it, attach it to functions of the target, ask what it
//! counted, detach it.
//!
//! Nothing here knows what an event means. What is attached is detached by dropping it, and by
//! the kernel when this process ends in any way.

mod attach;
mod events;
pub mod guard;
pub mod hazard;
mod interpreters;
mod kernel_types;
mod leftovers;
mod load;
mod namespace;
mod object;
pub mod rights;
mod rules;
mod syscall;
mod targets;
mod undisturbed;

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::maps::{MapData, PerCpuArray, RingBuf};
use tracer_common::count::Count;

pub use attach::{AttachSite, Attached};
pub(crate) use kernel_types::offset_in;
pub(crate) use leftovers::heard;
pub use load::LoadPlan;
pub use targets::Continued;

use undisturbed::Undisturbed;

/// Why the kernel side could not be brought in place.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel is too old.
    #[error("this kernel lacks {missing}; outlive needs Linux 5.17 or later")]
    Kernel {
        /// What it lacks, with the versions that brought it.
        missing: String,
    },
    /// A map or the object could not be made.
    #[error("the kernel did not take {what} of the tracer: {cause}")]
    Load {
        /// Which part.
        what: String,
        /// The kernel's answer.
        cause: String,
    },
    /// The verifier refused a program.
    #[error(
        "the kernel refused the program {program}: {cause}; please report this with the kernel's \
         version (its last words: {})",
        last_words(log)
    )]
    Refused {
        /// Which program.
        program: &'static str,
        /// The error of the system call.
        cause: String,
        /// The end of the verifier's log.
        log: String,
    },
    /// The object lacks something: it is of another version than the tool.
    #[error("the built-in kernel object has no {name}; rebuild outlive")]
    Absent {
        /// What is missing.
        name: &'static str,
    },
    /// A breakpoint could not be set.
    #[error("cannot set probes in {object} for process {pid}: {error}")]
    Attach {
        /// The mapped object.
        object: String,
        /// The target.
        pid: u32,
        /// The kernel's answer.
        error: String,
    },
    /// A debugger has a breakpoint where a probe is to be set.
    #[error(
        "process {debugger} debugs process {pid} and has a breakpoint in {function}, where a probe \
         would hide it; delete that breakpoint, or attach when the debugger has let go"
    )]
    Occupied {
        /// The function.
        function: String,
        /// The target.
        pid: u32,
        /// The debugger.
        debugger: u32,
    },
    /// The target filters its system calls, and this kernel would kill it at a return probe.
    #[error(
        "process {pid} filters its system calls (seccomp), and this kernel would end it at the \
         first return probe; a kernel with the fix (6.14, or a later stable release) traces it"
    )]
    Filtered {
        /// The target.
        pid: u32,
    },
    /// A file of the system could not be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel describes a type in another way than is known here.
    #[error(
        "the kernel's own description of its types has no {what} where it was looked for; \
             please report this with the kernel's version"
    )]
    Types {
        /// What was not found.
        what: &'static str,
    },
    /// A call to the loaded programs failed.
    #[error("the kernel did not answer for the tracer's {what}: {error}")]
    Ask {
        /// What was asked.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// The line of a verifier's log that says what is wrong: the last one that is no statistic.
fn last_words(log: &str) -> &str {
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let is_words = |line: &&str| !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines.find(is_words).unwrap_or("none")
}

/// What the kernel measured of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Its name.
    pub program: &'static str,
    /// How often it ran.
    pub count: u64,
    /// What all its runs took, without the trap that leads to it, with the measuring itself.
    pub nanoseconds: u64,
}

/// Can the processes be followed from here that this one makes? Not from a pid namespace between
/// the initial one and theirs: the kernel side knows them by ids that mean nothing here.
///
/// # Errors
/// When `/proc` cannot say.
pub fn can_follow(pid: u32) -> Result<bool, ProbeError> {
    Ok(namespace::identify(pid)?.is_known_here)
}

/// Lets the kernel measure every BPF program of the machine for as long as the answer is
/// held. Costs each run two looks at the clock.
///
/// # Errors
/// When the kernel refuses.
pub fn measure_runs() -> Result<OwnedFd, ProbeError> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map_err(|error| ProbeError::Ask { what: "run times", error: io::Error::other(error) })
}

/// The kernel programs, loaded and perhaps attached.
pub struct Probes {
    // Fields drop from top to bottom: nobody is stopped any more before the breakpoints go, and
    // those go before the programs.
    tracepoints: Vec<attach::Tracepoint>,
    /// The breakpoints in each process.
    attached: HashMap<u32, Vec<Attached>>,
    loaded: load::Loaded,
    guard: Option<guard::Guard>,
    /// Unwind tables and mappings that the maps had no room for.
    n_left_out: u64,
}

impl Probes {
    /// Loads the programs for one target and starts to follow its threads, its image, its mappings
    /// and, if the plan says so, its processes.
    ///
    /// # Errors
    /// When the kernel refuses; see [`ProbeError`].
    pub fn load(plan: &LoadPlan) -> Result<Self, ProbeError> {
        let mut loaded = load::load(plan)?;
        targets::begin(&mut loaded.ebpf, loaded.first)?;
        let guard = Some(targets::guard(&loaded.ebpf)?);
        let tracepoints = attach::tracepoints(&mut loaded)?;
        Ok(Self { tracepoints, attached: HashMap::new(), loaded, guard, n_left_out: 0 })
    }

    /// The ring buffer. To be taken once.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn take_ring(&mut self) -> Result<RingBuf<MapData>, ProbeError> {
        self.loaded.take_ring()
    }

    /// Sets probes for one process at functions of one object, deallocators first, so that no block is booked
    /// whose end would not be seen.
    ///
    /// # Errors
    /// When a breakpoint cannot be set; those of this object are then taken back.
    pub fn attach(
        &mut self,
        pid: u32,
        object: &str,
        file: &std::fs::File,
        sites: &[AttachSite],
    ) -> Result<(), ProbeError> {
        if let Some(guard) = &mut self.guard {
            let told = guard.tell(file, sites.iter().map(|site| site.offset));
            told.map_err(|error| ProbeError::Ask { what: "guard", error })?;
        }
        let attached = attach::object(&mut self.loaded, pid, object, file.as_fd(), sites)?;
        self.attached.entry(pid).or_default().push(attached);
        Ok(())
    }

    /// Writes a mark into the ring, behind everything that the target did so far. Answers
    /// `false` when it was not written, because the ring has no room: read it and ask again.
    ///
    /// # Errors
    /// When the kernel cannot run the program.
    pub fn mark(&self, number: u64) -> Result<bool, ProbeError> {
        let program =
            self.loaded.ebpf.program("mark").ok_or(ProbeError::Absent { name: "mark" })?;
        let fd = program.fd().map_err(|_| ProbeError::Absent { name: "mark" })?;
        let written = syscall::run_raw_tracepoint(fd.as_fd(), number)
            .map_err(|error| ProbeError::Ask { what: "mark", error })?;
        Ok(written == 1)
    }

    /// What the kernel side counted since it was loaded, in the order of [`Count::ALL`].
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn counts(&self) -> Result<Vec<(Count, u64)>, ProbeError> {
        let map = self.loaded.ebpf.map("COUNTS").ok_or(ProbeError::Absent { name: "COUNTS" })?;
        let ask = |error: aya::maps::MapError| ProbeError::Ask {
            what: "counters",
            error: io::Error::other(error),
        };
        let counts = PerCpuArray::<_, u64>::try_from(map).map_err(ask)?;
        let counts = Undisturbed::new(counts);
        Count::ALL
            .iter()
            .map(|count| {
                let per_cpu = counts.get(&(*count as u32), 0).map_err(ask)?;
                // One CPU may have taken back what another counted.
                let sum = per_cpu.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value));
                Ok((*count, sum))
            })
            .collect()
    }

    /// How often the kernel did not run one of the programs that book because another BPF
    /// program was active on the CPU.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn skipped(&self) -> Result<u64, ProbeError> {
        self.loaded.booking_programs().into_iter().try_fold(0, |sum, (_, fd)| {
            let info = syscall::program_info(fd)
                .map_err(|error| ProbeError::Ask { what: "programs", error })?;
            Ok(sum + info.recursion_misses)
        })
    }

    /// How often each program that books ran and what it took, where the kernel measures it: from
    /// the moment that somebody holds what [`measure_runs`] answers.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn runs(&self) -> Result<Vec<Runs>, ProbeError> {
        let runs = self.loaded.booking_programs().into_iter().map(|(program, fd)| {
            let info = syscall::program_info(fd)
                .map_err(|error| ProbeError::Ask { what: "programs", error })?;
            Ok(Runs { program, count: info.run_cnt, nanoseconds: info.run_time_ns })
        });
        runs.collect()
    }

    /// Takes every breakpoint out of every target: allocations first, so that each block that
    /// was booked has its release seen as long as possible.
    pub fn detach(&mut self) {
        self.tracepoints.clear();
        let attached: Vec<Attached> = self.attached.drain().flat_map(|(_, all)| all).collect();
        attach::remove(attached);
        self.guard = None;
    }

    /// Unwind tables and mappings that the kernel side could not be given: stacks through them are
    /// finished here each time that a call site is new.
    pub fn n_left_out(&self) -> u64 {
        self.n_left_out
    }

    /// Does this kernel set all probes of an object with one link?
    pub fn has_multi_links(&self) -> bool {
        self.loaded.multi.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_with_the_reason_and_not_with_the_statistics() {
        let refused = |log: &str| {
            let (cause, log) = ("Permission denied (os error 13)".to_owned(), log.to_owned());
            ProbeError::Refused { program: "alloc_enter", cause, log }.to_string()
        };
        let log = "12: (85) call bpf_loop#181\nR2 invalid mem access 'scalar'\n\
                   verification time 171 usec\nstack depth 24+0\n\
                   processed 61 insns (limit 1000000) max_states_per_insn 5\n\n";
        assert!(refused(log).ends_with("(its last words: R2 invalid mem access 'scalar')"));
        assert!(refused("processed 0 insns\n").ends_with("(its last words: none)"));
    }
}
