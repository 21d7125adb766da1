//! The tables of objects, as they become known. A large one takes longer to compile than the ring
//! buffer holds what a busy target does meanwhile: it is compiled by a thread beside. Until then what is
//! asked about single functions is looked up in the object itself, by the index of its table.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use rustc_hash::FxHashMap;
use tracer_common::unwind::Rule;

use super::Table;
use crate::{
    symbols::{Binder, ObjectId, ObjectKind},
    target::elf::Elf,
};

/// Bytes of an unwind table from which on it is large: some 10 ms.
const LARGE: usize = 1 << 19;

/// The table of each object.
#[derive(Debug, Default)]
pub(super) struct Tables {
    ready: FxHashMap<ObjectId, Table>,
    /// Objects whose tables are being compiled.
    under_way: FxHashMap<ObjectId, Arc<Elf>>,
    worker: Option<Worker>,
}

/// The thread that compiles. It ends when nobody can ask it any more.
#[derive(Debug)]
struct Worker {
    asks: Sender<(ObjectId, Arc<Elf>)>,
    answers: Receiver<(ObjectId, Table)>,
}

impl Worker {
    fn start() -> Option<Self> {
        let (asks, asked) = channel::<(ObjectId, Arc<Elf>)>();
        let (answer, answers) = channel();
        let compile = move || {
            for (id, elf) in asked {
                if answer.send((id, Table::compile(&elf))).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("unwind tables".to_owned()).spawn(compile);
        started.ok().map(|_| Self { asks, answers })
    }
}

impl Tables {
    /// The table of this object, when it is compiled.
    pub(super) fn get(&self, id: ObjectId) -> Option<&Table> {
        self.ready.get(&id)
    }

    /// The rule of the code at this place of the object's file; `None` where it says nothing, or was
    /// not asked for.
    pub(super) fn rule(&self, id: ObjectId, offset: u64) -> Option<Rule> {
        match self.ready.get(&id) {
            Some(table) => table.rule(offset),
            None => Table::around(self.under_way.get(&id)?, offset)?.rule(offset),
        }
    }

    /// Has this object's table compiled: at once, or beside where that takes long.
    pub(super) fn ask_for(&mut self, id: ObjectId, binder: &Binder) {
        if self.is_known(id) {
            return;
        }
        let Some(elf) = open(binder, id) else {
            self.ready.insert(id, Table::default());
            return;
        };
        if is_large(&elf) && self.begin(id, elf.clone()) {
            self.under_way.insert(id, elf);
        } else {
            self.ready.insert(id, Table::compile(&elf));
        }
    }

    /// Compiles this object's table.
    pub(super) fn compile(&mut self, id: ObjectId, binder: &Binder) {
        if !self.is_known(id) {
            let table = open(binder, id).map(|elf| Table::compile(&elf)).unwrap_or_default();
            self.ready.insert(id, table);
        }
    }

    fn is_known(&self, id: ObjectId) -> bool {
        self.ready.contains_key(&id) || self.under_way.contains_key(&id)
    }

    /// Answers whether the thread has it.
    fn begin(&mut self, id: ObjectId, elf: Arc<Elf>) -> bool {
        if self.worker.is_none() {
            self.worker = Worker::start();
        }
        self.worker.as_ref().is_some_and(|worker| worker.asks.send((id, elf)).is_ok())
    }

    /// Takes what was compiled meanwhile. Answers whether there was something.
    pub(super) fn take_ready(&mut self) -> bool {
        let Some(worker) = self.worker.as_ref().filter(|_| !self.under_way.is_empty()) else {
            return false;
        };
        let compiled: Vec<_> = worker.answers.try_iter().collect();
        for (id, table) in &compiled {
            log::debug!("{} rows of unwind table {}", table.rows().len(), id.number());
            self.under_way.remove(id);
        }
        let is_new = !compiled.is_empty();
        self.ready.extend(compiled);
        is_new
    }

    /// Waits for all that is being compiled.
    pub(super) fn wait(&mut self) {
        while !self.under_way.is_empty() {
            match self.worker.as_ref().and_then(|worker| worker.answers.recv().ok()) {
                Some((id, table)) => {
                    self.under_way.remove(&id);
                    self.ready.insert(id, table);
                }
                // The thread is gone, which nobody has seen so far.
                None => {
                    let rest = self.under_way.drain().map(|(id, elf)| (id, Table::compile(&elf)));
                    self.ready.extend(rest);
                }
            }
        }
    }
}

/// The object of this number, when it is one.
fn open(binder: &Binder, id: ObjectId) -> Option<Arc<Elf>> {
    match binder.object(id).map(|object| &object.kind) {
        Some(ObjectKind::File(Some(file))) => Elf::open(file).ok().map(Arc::new),
        _ => None,
    }
}

/// Does its table take long, and has it an index that leads to every function?
fn is_large(elf: &Elf) -> bool {
    elf.has_index()
        && elf.section(".debug_frame").is_none()
        && elf.eh_frame().is_some_and(|(_, bytes)| LARGE <= bytes.len())
}
