//! What this process may do, and what tracing needs.

use std::{fs, io, path::Path};

/// A capability that tracing needs, with its number in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// As `setcap` spells it.
    pub name: &'static str,
    number: u32,
    /// What it is needed for.
    pub why: &'static str,
}

/// `CAP_SYS_ADMIN`, which stands in for the first two on any kernel.
const SYS_ADMIN: u32 = 21;
/// `CAP_KILL`.
const KILL: u32 = 5;

/// Everything that is needed, in the order in which it is needed.
pub const NEEDED: [Capability; 4] = [
    Capability { name: "cap_bpf", number: 39, why: "to load the kernel programs" },
    Capability { name: "cap_perfmon", number: 38, why: "to set probes" },
    Capability { name: "cap_sys_ptrace", number: 19, why: "to read the target's mappings" },
    Capability { name: "cap_dac_read_search", number: 2, why: "to open the target's objects" },
];

/// Why this machine or this user cannot trace.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RightsError {
    /// Capabilities are missing.
    #[error(
        "tracing needs {} ({}); run as root, or give the binary these capabilities with setcap",
        names(missing), missing.first().map_or("", |first| first.why)
    )]
    Missing {
        /// Which.
        missing: Vec<Capability>,
    },
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing); outlive needs a kernel \
         built with CONFIG_DEBUG_INFO_BTF, version 5.17 or later"
    )]
    NoBtf,
    /// `/proc` could not be read.
    #[error("cannot read /proc/self/status ({kind}); is /proc mounted?")]
    NoProc {
        /// Kind of the failure.
        kind: io::ErrorKind,
    },
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|capability| capability.name).collect::<Vec<_>>().join(", ")
}

/// The needed capabilities that this process does not hold.
///
/// # Errors
/// When `/proc` cannot say.
pub fn missing() -> Result<Vec<Capability>, RightsError> {
    Ok(lacking(own()?))
}

fn own() -> Result<u64, RightsError> {
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|error| RightsError::NoProc { kind: error.kind() })?;
    Ok(effective(&status))
}

/// Can this process load and attach on this machine?
///
/// # Errors
/// What is missing, and what to do.
pub fn check() -> Result<(), RightsError> {
    let missing = missing()?;
    if !missing.is_empty() {
        return Err(RightsError::Missing { missing });
    }
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    let has_btf = fs::metadata(btf).is_ok_and(|meta| meta.len() > 0);
    if has_btf { Ok(()) } else { Err(RightsError::NoBtf) }
}

/// May this process continue processes of every user, as it must when it stops them?
///
/// # Errors
/// When `/proc` cannot say.
pub fn may_signal() -> Result<bool, RightsError> {
    Ok(own()? & (1 << KILL) != 0)
}

/// The set of effective capabilities in a `/proc/<pid>/status`.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn lacking(held: u64) -> Vec<Capability> {
    let has = |number: u32| held & (1 << number) != 0;
    NEEDED
        .into_iter()
        .filter(|capability| !has(capability.number))
        .filter(|capability| capability.number < 38 || !has(SYS_ADMIN))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_lacks_nothing_and_nobody_everything() {
        assert_eq!(lacking(effective("Name:\tx\nCapEff:\t000001ffffffffff\n")), []);
        assert_eq!(lacking(effective("CapEff:\t0000000000000000\n")).len(), 4);
        assert_eq!(lacking(effective("")).len(), 4);
    }

    #[test]
    fn sys_admin_stands_in_for_bpf_and_perfmon_alone() {
        let names: Vec<_> =
            lacking(1 << SYS_ADMIN).iter().map(|capability| capability.name).collect();
        assert_eq!(names, ["cap_sys_ptrace", "cap_dac_read_search"]);
    }

    #[test]
    fn the_message_names_what_is_missing() {
        let error = RightsError::Missing { missing: lacking(!(1 << 38 | 1 << SYS_ADMIN)) };
        let text = error.to_string();
        assert!(text.contains("cap_perfmon") && !text.contains("cap_bpf"), "{text}");
    }
}
