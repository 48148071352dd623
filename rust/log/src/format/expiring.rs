//! When a log last saw its expiring producers, and which of them it may forget.
//!
//! Owns the clock of that decision. Each append of an expiring producer moves the clock to the time
//! of its block. A step counts as an hour at most, and a backward step as nothing; the times of all
//! earlier uses move along. Invariant: a clock that jumps makes no producer older than the appends
//! around it say. So a log that is rarely used remembers longer, never shorter. Snapshots hold the
//! times, so all processes agree. `log` decides when a log forgets. See `docs/PROTOCOL.md`,
//! "Preconditions".

use std::collections::HashSet;

use crate::canary::{Canary, planted};

use super::block::{Producer, producer_flag};
use super::producer::ProducerState;
use super::state::{LogState, encode_forgotten};

/// The most that one step of the clock counts.
pub const LONGEST_STEP_US: i64 = 3_600_000_000;
/// How long a log remembers an expiring producer after its last use, if its place is not needed.
pub const REMEMBERED_US: i64 = 24 * LONGEST_STEP_US;

/// An expiring producer that a log may forget. They are in the order of their last uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleProducer {
    used_us: i64,
    /// The highest first offset of its appends: many have the same time.
    first: u64,
    /// Its id.
    pub id: u64,
}

impl IdleProducer {
    /// Merge what is known of a producer in several topics.
    fn merge(self, other: Self) -> Self {
        let (used_us, first) = (self.used_us.max(other.used_us), self.first.max(other.first));
        Self { used_us, first, ..self }
    }
}

impl LogState {
    /// Note that a block of a topic, which begins at `first`, is a producer's, appended at a time in
    /// microseconds since 1970.
    pub fn note_producer(&mut self, topic: u32, producer: Producer, first: u64, appended_us: i64) {
        let is_expiring = producer.flags & producer_flag::EXPIRING != 0;
        if is_expiring {
            self.pass_to(appended_us);
        }
        let known = self.producers.entry((producer.id, topic)).or_default();
        let is_used = known.used_us().is_none() || !planted(Canary::ExpiredInUse);
        let before = known.used_us;
        known.note(producer, first);
        known.used_us = match (is_expiring, is_used) {
            (false, _) => 0,
            (true, true) => appended_us,
            (true, false) => before,
        };
    }

    /// Move the clock to the time of an append.
    fn pass_to(&mut self, now_us: i64) {
        if self.last_use_us != 0 {
            let step = now_us.saturating_sub(self.last_use_us);
            let jump = step.saturating_sub(step.clamp(0, LONGEST_STEP_US));
            if jump != 0 {
                let used = self.producers.values_mut().filter(|known| known.used_us().is_some());
                used.for_each(|known| known.used_us = known.used_us.saturating_add(jump));
            }
        }
        self.last_use_us = now_us;
    }

    /// Return the last use of any expiring producer, microseconds since 1970; 0 without one.
    pub fn last_use_us(&self) -> i64 {
        self.last_use_us
    }

    /// Find that time again, after producers were forgotten.
    pub(super) fn find_last_use(&mut self) {
        self.last_use_us = self.producers.values().map(|known| known.used_us).max().unwrap_or(0);
    }

    /// Choose expiring producers to forget: all whose time is over, and those that were used
    /// longest ago until `wanted` entries become free. Never those with these ids.
    pub fn idle_producers(&self, wanted: usize, in_use: &[Producer]) -> Vec<IdleProducer> {
        let in_use: HashSet<_> = in_use.iter().map(|of| of.id).collect();
        let mut idle: Vec<(IdleProducer, usize)> = Vec::new();
        for ((id, _), known) in &self.producers {
            if !known.is_expiring() || known.len == 0 || in_use.contains(id) {
                continue;
            }
            let of = known.idle(*id);
            // Its partitions lie side by side, and the last use of any of them counts.
            match idle.last_mut().filter(|(last, _)| last.id == *id) {
                Some((last, entries)) => (*last, *entries) = (last.merge(of), *entries + 1),
                None => idle.push((of, 1)),
            }
        }
        idle.sort_unstable();
        let mut free = 0;
        let goes = |(IdleProducer { used_us, .. }, entries): &(IdleProducer, usize)| {
            let age = self.last_use_us.saturating_sub(*used_us);
            let is_over = *used_us != 0 && age >= REMEMBERED_US;
            let goes = is_over || free < wanted;
            free += entries;
            goes
        };
        idle.into_iter().take_while(goes).map(|(idle, _)| idle).collect()
    }

    /// Return true if none of these was used since it was chosen.
    pub fn are_idle(&self, chosen: &[IdleProducer]) -> bool {
        let now = |id| {
            let known = self.producers_of(id, 0..u32::MAX).map(|known| known.idle(id));
            known.reduce(IdleProducer::merge)
        };
        chosen.iter().all(|of| now(of.id) == Some(*of))
    }

    /// List the topics of a producer that the log knows it in.
    pub fn topics_of_producer(&self, id: u64) -> impl Iterator<Item = u32> {
        let known = self.producers.range((id, 0)..(id, u32::MAX));
        known.filter(|(_, known)| known.len > 0).map(|((_, topic), _)| *topic)
    }
}

/// Encode the body of a meta block that forgets these expiring producers of a log in this state.
pub fn encode_idle(state: &LogState, idle: &[IdleProducer]) -> Vec<u8> {
    let topics = |IdleProducer { id, .. }: &IdleProducer| {
        let id = *id;
        state.topics_of_producer(id).map(move |topic| (topic, id))
    };
    encode_forgotten(idle.iter().flat_map(topics))
}

impl ProducerState {
    fn idle(&self, id: u64) -> IdleProducer {
        let first = self.known().last().map_or(0, |(_, first)| *first);
        IdleProducer { used_us: self.used_us, first, id }
    }
}

#[cfg(test)]
#[path = "expiring_tests.rs"]
mod tests;
