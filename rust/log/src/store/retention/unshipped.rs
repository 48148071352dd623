//! The records that retention keeps because they were not shipped yet.
//!
//! Owns the offsets of a log up to which limits may delete while the store is shipped. Two facts
//! decide: the word SHIPPED of the log, and how many bytes of files the store keeps for a shipper
//! that lags behind. Invariant: a limit deletes what was not shipped only beyond those bytes, and
//! the log's page counts what it deletes. A trim by a user is not asked about. See
//! `docs/PROTOCOL.md`, "Shipping".

use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::{LogPlan, by_size};
use crate::error::Result;
use crate::format::address::Address;
use crate::log::Log;

/// The records of a log that retention keeps for the process that ships the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Unshipped {
    /// Up to where each topic of the log was shipped.
    shipped: BTreeMap<u32, u64>,
    /// From where on each is kept: later than that where more waits than the store allows.
    kept: BTreeMap<u32, u64>,
    /// The segment up to which the log was shipped.
    sequence: u64,
}

impl Unshipped {
    /// Find out what of a log was not shipped, and which of it stays: files of at most this many
    /// bytes.
    pub(super) fn of(log: &Arc<Log>, numbers: &[u32], most: u64) -> Result<Self> {
        let end = log.shipped();
        let mut found = Self { sequence: end.sequence(), ..Self::default() };
        for number in numbers {
            let from = log.first_offset(*number)?;
            let shipped = if end == Address(0) { from } else { log.offset_at(*number, end)? };
            found.shipped.insert(*number, shipped);
            found.kept.insert(*number, shipped);
        }
        let firsts: Vec<(u32, Option<u64>)> = log.with_segments(|list| {
            let cut = by_size(list, most);
            numbers.iter().map(|number| Ok((*number, list.first(cut, *number)?))).collect()
        })?;
        for (number, first) in firsts {
            let kept = found.kept.entry(number).or_default();
            *kept = first.map_or(*kept, |first| first.max(*kept));
        }
        Ok(found)
    }

    /// Return the offset from which on a topic of the log is kept.
    pub(super) fn kept_from(&self, number: u32) -> u64 {
        self.kept.get(&number).copied().unwrap_or(u64::MAX)
    }
}

/// Count in the log's page the bytes that a plan deletes before they were shipped.
pub(super) fn note_gap(plan: &LogPlan) -> Result<()> {
    let (Some(unshipped), firsts) = (&plan.unshipped, plan.firsts()) else { return Ok(()) };
    let shipped = |number: &u32| unshipped.shipped.get(number).copied().unwrap_or(u64::MAX);
    if firsts.iter().all(|(number, to)| *to <= shipped(number)) {
        return Ok(());
    }
    let before = plan.log.removable(&[])?.sequences;
    let after = plan.log.removable(&firsts)?.sequences;
    let is_gap = |sequence: &&u64| **sequence >= unshipped.sequence && !before.contains(sequence);
    let bytes = after.iter().filter(is_gap).map(|sequence| plan.log.allocated_for(*sequence)).sum();
    plan.log.note_unshipped(bytes)
}
