//! What happened on a machine, frozen: the journal of its storage and what was promised when.
//!
//! A history is made by running a workload ([`crate::machine`]) or a crew of processes at once
//! ([`crate::crew`]); what a crash at any of its events may leave is for [`crate::explore`] to try.

use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::memory::Journal;

use crate::actor::Actor;
use crate::machine::{Machine, with_patience};
use crate::op::Op;
use crate::truth::{Gone, Truth};

/// Points of time, and how many groups were safe from then on.
pub type Moments = Vec<(usize, usize)>;

/// How many groups were safe after an event.
pub fn at(moments: &Moments, time: usize) -> usize {
    moments.iter().rev().find(|(since, _)| *since <= time).map_or(0, |(_, groups)| *groups)
}

/// Trims: how many groups were trimmed away from which event on.
#[derive(Clone, Debug, Default)]
pub struct Trims {
    /// May have been.
    pub begun: Moments,
    /// Were, and it is on the medium.
    pub done: Moments,
}

impl Trims {
    /// How many groups must be trimmed away after an event, and how many may be.
    pub fn at(&self, time: usize) -> (usize, usize) {
        (at(&self.done, time), at(&self.begun, time))
    }
}

/// Compactions: of how many groups they took what is not the last of its key.
#[derive(Clone, Debug, Default)]
pub struct Compactions {
    /// They may have, from an event on.
    pub begun: Moments,
    /// What they took until an event, topics and offsets; that is on the medium.
    pub done: Vec<(usize, Vec<(u32, u64)>)>,
}

impl Compactions {
    /// What must be gone and what may be after an event, with what was trimmed.
    pub fn gone<'a>(&'a self, trims: &Trims, time: usize) -> Gone<'a> {
        let done = self.done.iter().rev().find(|(since, _)| *since <= time);
        let taken = done.map_or(&[][..], |(_, taken)| taken);
        Gone { trimmed: trims.at(time), compacted: at(&self.begun, time), taken }
    }
}

/// What happened on a machine.
pub struct History {
    /// What makes the same history again.
    pub name: String,
    /// How the log is written.
    pub mode: WriteMode,
    /// Everything that was stored, and when.
    pub journal: Journal,
    /// Events of earlier steps: crashes there belong to shorter histories.
    pub from: usize,
    /// What was appended in the end.
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
    /// What was trimmed.
    pub trims: Trims,
    /// What was compacted.
    pub compactions: Compactions,
}

impl History {
    /// Run a workload on a machine like `empty`. Crashes are looked for in its last step.
    ///
    /// # Errors
    /// What went wrong without any crash: a violation.
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
        // A death takes the machine back to before the step: then all of it is new.
        from = from.min(machine.storage.events());
        Ok(machine.into_history(Self::name_of(ops), from))
    }

    /// The name of a workload's history.
    pub fn name_of(ops: &[Op]) -> String {
        ops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Groups that must be found and those that may, when everything after an event is lost with the
    /// power.
    pub fn after_power_loss(&self, time: usize) -> (usize, usize) {
        (at(&self.durable, time), at(&self.begun, time))
    }

    /// … when all processes die after an event.
    pub fn after_death(&self, time: usize) -> (usize, usize) {
        (at(&self.committed, time), at(&self.begun, time))
    }

    /// What must be gone after an event, and what may be.
    pub fn gone(&self, time: usize) -> Gone<'_> {
        self.compactions.gone(&self.trims, time)
    }

    /// A process of the same incarnation on a machine where all others of this one are dead.
    pub fn heir(&self) -> Actor {
        let first = Actor::new(self.incarnation);
        (0..=self.slots).for_each(|slot| first.beside(slot).dies());
        first.beside(self.slots + 1)
    }
}
