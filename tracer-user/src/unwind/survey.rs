//! What the objects of a process say of their code, before anything is traced.

use rustc_hash::FxHashSet;
use tracer_common::unwind::Rule;

use super::Table;
use crate::{
    symbols::{Binder, ObjectKind},
    target::{elf::Elf, process::Process},
};

/// The unwind tables of a process.
#[derive(Debug, Default)]
pub struct Survey {
    /// Objects that it executes.
    pub n_objects: usize,
    /// Rows of all of them, of eight bytes each.
    pub n_rows: usize,
    /// Objects of whose code, when it is more than a page, less than half has a table; by name, with
    /// the share that has one.
    pub bare: Vec<(String, f64)>,
}

impl Survey {
    /// Compiles the tables of what this process executes now.
    pub fn of(process: &Process) -> Self {
        const SPACE: u64 = 0;
        let mut binder = Binder::default();
        let mut survey = Self::default();
        let mut seen = FxHashSet::default();
        for (_, id) in binder.code(SPACE, process) {
            if !seen.insert(id) {
                continue;
            }
            let Some(object) = binder.object(id) else { continue };
            survey.n_objects += 1;
            let ObjectKind::File(Some(file)) = &object.kind else { continue };
            // Not even its sections can be told: as one without a table.
            let (n_rows, share) = Elf::open(file).map_or((0, 0.0), |elf| of_object(&elf));
            survey.n_rows += n_rows;
            if share < 0.5 {
                survey.bare.push((object.name.clone(), share));
            }
        }
        survey
    }
}

const PAGE: u64 = 4096;

/// The rows of an object, and the share of its code for which there is a rule.
fn of_object<Data: AsRef<[u8]>>(elf: &Elf<Data>) -> (usize, f64) {
    let table = Table::compile(elf);
    let Some((start, len)) = elf.main_code() else { return (table.rows().len(), 1.0) };
    if len <= PAGE {
        // What every program and library begins and ends with has no table.
        return (table.rows().len(), 1.0);
    }
    let (start, end) = (start.0, start.0.saturating_add(len));
    let pairs = table.rows().windows(2);
    let described = pairs.filter(|pair| Rule::unpack(pair[0].rule()).is_some()).map(|pair| {
        let [from, to] = [&pair[0], &pair[1]].map(|row| u64::from(row.offset()).clamp(start, end));
        to - from
    });
    (table.rows().len(), described.sum::<u64>() as f64 / len as f64)
}
