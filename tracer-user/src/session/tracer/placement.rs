//! Are the breakpoints where the target runs into them, and nobody else's? Do they stay there?

use std::path::Path;

use super::Tracer;
use crate::{
    probes::ProbeError,
    target::{
        allocators::{AllocatorObject, ObjectIndex},
        elf::FileOffset,
        process::{Process, ProcessError},
        text::Code,
    },
};

/// Who debugs the process, this one apart.
fn debugger(process: &Process) -> Result<Option<u32>, ProcessError> {
    let ourselves = |id: &u32| Path::new(&format!("/proc/self/task/{id}")).exists();
    Ok(process.status()?.tracer.filter(|id| !ourselves(id)))
}

/// Tells who debugs the process what not to do.
pub(super) fn warn_of_debugger(process: &Process) -> Result<(), ProcessError> {
    if let Some(debugger) = debugger(process)? {
        log::warn!(
            "process {debugger} debugs process {}: a breakpoint that it sets in an allocator \
             function from here on is not hit, and must be deleted before outlive ends",
            process.pid
        );
    }
    Ok(())
}

/// That no debugger has breakpoints of its own at the places that are to be probed. The kernel
/// would take them for its own: the debugger would never see them hit, and what it writes back
/// later would be missing here, or end the target.
pub(super) fn check_before(process: &Process, object: &AllocatorObject) -> anyhow::Result<()> {
    let Some(debugger) = debugger(process)? else { return Ok(()) };
    let places = Code::of(process)?.places(object.id, &object.file, &sites(object));
    match places.iter().find(|place| place.is_changed) {
        Some(place) => Err(ProbeError::Occupied {
            function: name(object, place.offset),
            pid: process.pid,
            debugger,
        }
        .into()),
        None => Ok(()),
    }
}

/// That the process executes the breakpoints that were set.
pub(super) fn check_after(process: &Process, object: &AllocatorObject) -> anyhow::Result<()> {
    let places = match Code::of(process) {
        Ok(code) => code.places(object.id, &object.file, &sites(object)),
        // It ends and will not run into any.
        Err(ProcessError::Ended { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if let Some(place) = places.iter().find(|place| !place.is_changed) {
        let error = format!(
            "{} is not reached by a probe, since the process executes another copy of the file; \
             a file of a container that was changed after its start is copied, so restart the \
             process",
            name(object, place.offset)
        );
        let object = object.path.to_string_lossy().into_owned();
        return Err(ProbeError::Attach { object, pid: process.pid, error }.into());
    }
    Ok(())
}

impl Tracer {
    /// Counts the probes that do not stand any more in a process that lives, each once. The kernel
    /// takes them out when the first thread of the process has ended and any tracer of the same
    /// file goes, whomever that one traced; the process itself can do so by way of `madvise`.
    pub(super) fn look_for_removed(&mut self) {
        let mut suspects = self.missing_probes();
        if suspects.is_empty() {
            return;
        }
        // One that has become another program meanwhile is known to be that when the ring is read.
        self.read_until(None);
        let still = self.missing_probes();
        suspects.retain(|suspect| still.contains(suspect));
        for (pid, index, n_missing) in suspects {
            let path = self.allocators.objects()[index].path.display();
            log::info!("{n_missing} probes in {path} of process {pid} were taken out");
            self.removed_probes += n_missing;
            if let Some(member) = self.tree.get_mut(pid) {
                member.disturbed.insert(index);
            }
        }
    }

    /// Processes, objects that are probed there and were not counted so far, and how many of the
    /// probes are not there.
    fn missing_probes(&self) -> Vec<(u32, ObjectIndex, u64)> {
        let mut missing = Vec::new();
        for member in self.tree.living().filter(|it| !it.is_denied && it.ended.is_none()) {
            let Some(process) = &member.process else { continue };
            // Of one that ends meanwhile, nothing is missed.
            let Ok(code) = Code::of(process) else { continue };
            for &index in member.attached.difference(&member.disturbed) {
                let object = &self.allocators.objects()[index];
                let places = code.places(object.id, &object.file, &sites(object));
                let n_missing = places.iter().filter(|place| !place.is_changed).count() as u64;
                if n_missing > 0 {
                    missing.push((member.pid, index, n_missing));
                }
            }
        }
        missing
    }
}

fn sites(object: &AllocatorObject) -> Vec<FileOffset> {
    object.functions.iter().map(|function| function.site.offset).collect()
}

fn name(object: &AllocatorObject, offset: FileOffset) -> String {
    let at = object.functions.iter().find(|function| function.site.offset == offset);
    at.and_then(|function| function.names.first()).map_or_else(String::new, Clone::clone)
}
