//! The rules by which the kernel side leaves frames.

use aya::maps::HashMap;
use tracer_common::unwind::{CallSite, Rule};

use super::{ProbeError, Probes};

const RULES: &str = "RULES";

impl Probes {
    /// Gives the kernel side these rules. Where it has no room for more, it sends the stacks that it
    /// cannot walk each time: slower, nothing lost.
    ///
    /// # Errors
    /// When there is no room, or the map cannot be written.
    pub fn give_rules(&mut self, rules: &[(CallSite, Rule)]) -> Result<(), ProbeError> {
        let mut map = self.rules()?;
        for (site, rule) in rules {
            map.insert([site.space, site.addr], rule.pack(), 0).map_err(super::targets::ask)?;
        }
        Ok(())
    }

    /// Takes rules away that are void.
    pub fn take_rules(&mut self, sites: &[CallSite]) {
        if let Ok(mut map) = self.rules() {
            for site in sites {
                // One that had no room is not there.
                let _ = map.remove(&[site.space, site.addr]);
            }
        }
    }

    fn rules(&mut self) -> Result<HashMap<&mut aya::maps::MapData, [u64; 2], u64>, ProbeError> {
        let map = self.loaded.ebpf.map_mut(RULES).ok_or(ProbeError::Absent { name: RULES })?;
        HashMap::try_from(map).map_err(super::targets::ask)
    }
}
