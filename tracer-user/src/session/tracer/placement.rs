//! Are the breakpoints where the target runs into them, and nobody else's?

use std::path::Path;

use crate::{
    probes::ProbeError,
    target::{
        allocators::AllocatorObject,
        elf::FileOffset,
        process::{Process, ProcessError},
        text::places,
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
    match places(process, object.id, &object.file, &sites(object))?
        .iter()
        .find(|place| place.is_changed)
    {
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
    let places = match places(process, object.id, &object.file, &sites(object)) {
        Ok(places) => places,
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

fn sites(object: &AllocatorObject) -> Vec<FileOffset> {
    object.functions.iter().map(|function| function.site.offset).collect()
}

fn name(object: &AllocatorObject, offset: FileOffset) -> String {
    let at = object.functions.iter().find(|function| function.site.offset == offset);
    at.and_then(|function| function.names.first()).map_or_else(String::new, Clone::clone)
}
