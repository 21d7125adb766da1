//! The tables and rules by which the kernel side leaves frames.

use aya::maps::{
    HashMap, MapData, MapError,
    lpm_trie::{Key, LpmTrie},
};
use tracer_common::state::RULES_CHANGED;
use tracer_common::unwind::{CHUNK_ROWS, CallSite, Region, Row, SPACE_BITS, prefixes, region_key};

use super::{
    ProbeError, Probes,
    targets::{ask, state, table as table_of},
    undisturbed::Undisturbed,
};

const RULES: &str = "RULES";
const REGIONS: &str = "REGIONS";
const TABLES: &str = "TABLES";

/// A part of a table, as the map holds it.
type Chunk = [u64; CHUNK_ROWS];
type Regions<'a> = LpmTrie<&'a mut MapData, [u8; 16], [u64; 2]>;

impl Probes {
    /// Gives the kernel side the rules of these call sites, packed.
    ///
    /// # Errors
    /// When the map cannot be written. What it does not have it asks for again.
    pub fn give_rules(&mut self, rules: &[(CallSite, u32)]) -> Result<(), ProbeError> {
        if rules.is_empty() {
            return Ok(());
        }
        let mut map = Undisturbed::new(self.rules()?);
        for (site, rule) in rules {
            map.insert([site.space, site.addr], *rule, 0).map_err(ask)?;
        }
        drop(map);
        self.rules_changed()
    }

    /// Gives the kernel side the table of an object.
    ///
    /// # Errors
    /// When there is no room, or the map cannot be written, which is counted. Walks through the object
    /// then ask at each call site that is new: slower, nothing lost.
    pub fn give_table(&mut self, table: u32, rows: &[Row]) -> Result<(), ProbeError> {
        let written = self.write_table(table, rows);
        self.n_left_out += u64::from(written.is_err());
        written
    }

    fn write_table(&mut self, table: u32, rows: &[Row]) -> Result<(), ProbeError> {
        let mut map = table_of::<[u32; 2], Chunk>(&mut self.loaded.ebpf, TABLES)?;
        for (number, rows) in (0_u32..).zip(rows.chunks(CHUNK_ROWS)) {
            let mut chunk = [u64::MAX; CHUNK_ROWS];
            for (word, row) in chunk.iter_mut().zip(rows) {
                *word = row.0;
            }
            map.insert([table, number], chunk, 0).map_err(ask)?;
        }
        Ok(())
    }

    /// Tells the kernel side what is executed in this range of an address space.
    ///
    /// # Errors
    /// As of a table.
    pub fn give_region(
        &mut self,
        space: u64,
        start: u64,
        end: u64,
        region: &Region,
    ) -> Result<(), ProbeError> {
        let written = self.write_region(keys(space, start, end), region);
        self.n_left_out += u64::from(written.is_err());
        written
    }

    fn write_region(
        &mut self,
        keys: impl Iterator<Item = Key<[u8; 16]>>,
        region: &Region,
    ) -> Result<(), ProbeError> {
        let mut map = self.regions()?;
        let value = [region.bias, u64::from(region.table) | u64::from(region.n_rows) << 32];
        for key in keys {
            map.insert(&key, value, 0).map_err(ask)?;
        }
        Ok(())
    }

    /// Something else is executed in this range from here on, or nothing.
    ///
    /// # Errors
    /// When the maps cannot be written.
    pub fn take_region(&mut self, space: u64, start: u64, end: u64) -> Result<(), ProbeError> {
        let mut regions = self.regions()?;
        for key in keys(space, start, end) {
            match regions.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                // One that had no room is not there.
                Err(error) => log::debug!("{error}"),
            }
        }
        Ok(())
    }

    /// Forgets the rules of the call sites in this range.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn take_rules(&mut self, space: u64, start: u64, end: u64) -> Result<(), ProbeError> {
        let rules = self.rules()?;
        let is_void = |addr: u64| start < addr && addr <= end;
        let sites = rules.keys().filter_map(Result::ok);
        let void = sites.filter(|[of, addr]| *of == space && is_void(*addr));
        let void: Vec<_> = void.map(|[space, addr]| CallSite { space, addr }).collect();
        self.take_sites(&void)
    }

    /// Forgets these rules, which are guesses of whole stretches.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn take_guesses(&mut self, guesses: &[CallSite]) -> Result<(), ProbeError> {
        if guesses.is_empty() { Ok(()) } else { self.take_sites(guesses) }
    }

    /// Walks' buffers may have what the map has no more, so they are told in any case.
    fn take_sites(&mut self, sites: &[CallSite]) -> Result<(), ProbeError> {
        let mut rules = Undisturbed::new(self.rules()?);
        for site in sites {
            // There may have been none, and it may have gone out by itself.
            let _ = rules.remove(&[site.space, site.addr]);
        }
        drop(rules);
        self.rules_changed()
    }

    /// Has the programs forget what they keep of rules beside the map.
    fn rules_changed(&mut self) -> Result<(), ProbeError> {
        let mut state = state(&mut self.loaded.ebpf)?;
        let n_changes = state.get(&RULES_CHANGED, 0).map_err(ask)?;
        state.set(RULES_CHANGED, n_changes + 1, 0).map_err(ask)
    }

    fn rules(&mut self) -> Result<HashMap<&mut MapData, [u64; 2], u32>, ProbeError> {
        HashMap::try_from(self.map_mut(RULES)?).map_err(ask)
    }

    fn regions(&mut self) -> Result<Undisturbed<Regions<'_>>, ProbeError> {
        LpmTrie::try_from(self.map_mut(REGIONS)?).map(Undisturbed::new).map_err(ask)
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut aya::maps::Map, ProbeError> {
        self.loaded.ebpf.map_mut(name).ok_or(ProbeError::Absent { name })
    }
}

fn keys(space: u64, start: u64, end: u64) -> impl Iterator<Item = Key<[u8; 16]>> {
    prefixes(start, end).map(move |(at, bits)| Key::new(SPACE_BITS + bits, region_key(space, at)))
}
