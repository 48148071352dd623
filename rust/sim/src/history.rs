//! The history of a machine, frozen: the journal of its storage, and what was promised when.
//!
//! A workload ([`crate::machine`]) or a crew of concurrent processes ([`crate::crew`]) makes a
//! history. [`crate::explore`] then tries what a crash at any of its events may leave.

use falaj::internals::format::settings::WriteMode;
use falaj_twin::memory::Journal;

use crate::actor::Actor;
use crate::cuts::{self, Taken};
use crate::machine::{Machine, with_patience};
use crate::op::Op;
use crate::truth::{Gone, Truth};

/// Events, and how many groups were safe from each on.
pub type Moments = Vec<(usize, usize)>;

/// How many groups were safe after an event.
pub fn at(moments: &Moments, time: usize) -> usize {
    moments.iter().rev().find(|(since, _)| *since <= time).map_or(0, |(_, groups)| *groups)
}

/// Trims: from which event on how many groups were trimmed.
#[derive(Clone, Debug, Default)]
pub struct Trims {
    /// Groups that may have been trimmed.
    pub begun: Moments,
    /// Groups that were trimmed, durably.
    pub done: Moments,
}

impl Trims {
    /// How many groups must be trimmed after an event, and how many may be.
    pub fn at(&self, time: usize) -> (usize, usize) {
        (at(&self.done, time), at(&self.begun, time))
    }
}

/// Compactions: from how many groups they removed records that are not the last of their key.
#[derive(Clone, Debug, Default)]
pub struct Compactions {
    /// Groups that compaction may have reached, from an event on.
    pub begun: Moments,
    /// Topics and offsets of the records that were removed durably until an event.
    pub done: Vec<(usize, Vec<(u32, u64)>)>,
}

impl Compactions {
    /// Records that must be gone after an event, and those that may be; trimmed ones included.
    pub fn gone<'a>(&'a self, trims: &Trims, time: usize) -> Gone<'a> {
        let done = self.done.iter().rev().find(|(since, _)| *since <= time);
        let taken = done.map_or(&[][..], |(_, taken)| taken);
        Gone { trimmed: trims.at(time), compacted: at(&self.begun, time), taken }
    }
}

/// The history of a machine.
pub struct History {
    /// The name that makes the same history again.
    pub name: String,
    /// How the log is written.
    pub mode: WriteMode,
    /// Everything that was stored, and when.
    pub journal: Journal,
    /// Number of events of earlier steps: crashes there belong to shorter histories.
    pub from: usize,
    /// Everything that was appended.
    pub truth: Truth,
    /// The last incarnation.
    pub incarnation: u64,
    /// How many processes it had.
    pub slots: u16,
    /// Groups that may be there.
    pub begun: Moments,
    /// Groups that were acknowledged.
    pub committed: Moments,
    /// Groups that were acknowledged as durable.
    pub durable: Moments,
    /// Its trims.
    pub trims: Trims,
    /// Its compactions.
    pub compactions: Compactions,
    /// Its cuts.
    pub cuts: Vec<Taken>,
}

impl History {
    /// Run a workload on a machine like `empty`; crashes are explored in its last step.
    ///
    /// # Errors
    /// A failure without a crash: a violation.
    pub fn of(ops: &[Op], empty: &Machine) -> Result<Self, String> {
        let mut machine = empty.again();
        with_patience(&machine.storage);
        let mut from = 0;
        let step = |machine: &mut Machine, op: &Op| {
            machine.run(*op).map_err(|e| format!("{op} without a crash: {e}"))
        };
        for op in ops {
            from = machine.storage.events();
            step(&mut machine, op)?;
        }
        // A death rewinds the machine to before the step, so all of the step is new.
        from = from.min(machine.storage.events());
        Ok(machine.into_history(Self::name_of(ops), from))
    }

    /// The name of a workload's history.
    pub fn name_of(ops: &[Op]) -> String {
        ops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Groups that must be found, and those that may be, after a power cut at an event.
    pub fn after_power_loss(&self, time: usize) -> (usize, usize) {
        (at(&self.durable, time), at(&self.begun, time))
    }

    /// … after the death of all processes at an event.
    pub fn after_death(&self, time: usize) -> (usize, usize) {
        (at(&self.committed, time), at(&self.begun, time))
    }

    /// Records that must be gone after an event, and those that may be.
    pub fn gone(&self, time: usize) -> Gone<'_> {
        self.compactions.gone(&self.trims, time)
    }

    /// Cuts that were complete after an event.
    pub fn cuts(&self, time: usize) -> &[Taken] {
        cuts::until(&self.cuts, time)
    }

    /// A process of the same incarnation, on a machine where its other processes are dead.
    pub fn heir(&self) -> Actor {
        let first = Actor::new(self.incarnation);
        (0..=self.slots).for_each(|slot| first.beside(slot).dies());
        first.beside(self.slots + 1)
    }
}
