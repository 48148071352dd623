//! The view of a handle: which partitions, from where, and how far.
//!
//! Owns the one place that applies a handle's visibility. All reading gets the topic here as the
//! handle sees it, so all answers about ends agree.

use falaj::internals::error::Result;
use falaj::internals::topic::{ScanRange, Topic as Inner};
use pyo3::prelude::*;

use crate::any_topic::AnyTopic;
use crate::errors::{OrRaise, invalid, raise};
use crate::handle::Open;

impl AnyTopic {
    pub(crate) fn lanes(&self) -> std::ops::Range<u32> {
        self.opened.only.map_or(0..self.opened.partitions, |only| only..only + 1)
    }

    /// Return its only partition; an error if there are several.
    pub(crate) fn one(&self, py: Python<'_>) -> PyResult<u32> {
        self.opened.only.ok_or_else(|| {
            let (name, n) = (&self.opened.handle.shape.name, self.opened.partitions);
            let what = format!(
                "topic {name:?} has {n} partitions, each with offsets of its own: use \
                 topic.partition(p)"
            );
            invalid(py, what)
        })
    }

    pub(crate) fn bound(
        &self,
        py: Python<'_>,
        of: fn(&Inner, u32) -> Result<u64>,
    ) -> PyResult<u64> {
        let partition = self.one(py)?;
        of(self.seen(&*self.opened.handle.open_existing(py)?), partition).or_raise(py)
    }

    /// Return the topic as this handle sees it.
    #[inline]
    pub(crate) fn seen<'a>(&self, open: &'a Open) -> &'a Inner {
        open.seen(self.opened.visibility)
    }

    pub(crate) fn lane(&self, open: &Open, partition: u32) -> Result<ScanRange> {
        let topic = self.seen(open);
        let (from, end) = (topic.first(partition)?, topic.end(partition)?);
        Ok(ScanRange { partition, from, end: Some(end) })
    }

    /// Make a range of its only partition.
    pub(crate) fn range(&self, py: Python<'_>, start: u64, stop: u64) -> PyResult<ScanRange> {
        let (partition, end) = (self.one(py)?, Some(stop.max(start)));
        Ok(ScanRange { partition, from: start, end })
    }

    /// Convert an index, which may count records from the end, to an absolute offset.
    pub(crate) fn absolute(
        &self,
        py: Python<'_>,
        open: &Open,
        partition: u32,
        index: i128,
    ) -> PyResult<u64> {
        let topic = self.seen(open);
        let out_of_range = || {
            let error = topic.out_of_range(partition, index).or_raise(py)?;
            Err(raise(py, &error))
        };
        if index >= 0 {
            return u64::try_from(index).or_else(|_| out_of_range());
        }
        let records = u64::try_from(index.unsigned_abs()).unwrap_or(u64::MAX);
        let (found, is_there) = py
            .detach(|| {
                let found = topic.start_of_last(partition, records, None)?;
                // The first offset also stands for fewer records.
                let is_doubtful = found == topic.first(partition)?;
                Ok((found, !is_doubtful || topic.count_in(partition, found, None)? >= records))
            })
            .or_raise(py)?;
        if is_there { Ok(found) } else { out_of_range() }
    }

    /// Return the `repr`.
    pub(crate) fn description(&self, py: Python<'_>) -> String {
        let shape = &self.opened.handle.shape;
        let (name, codec) = (&shape.name, shape.coding.name(py));
        let part = match self.opened.only {
            Some(only) if self.opened.partitions > 1 => format!(" partition {only}"),
            _ if self.opened.partitions > 1 => format!(" {} partitions", self.opened.partitions),
            _ => String::new(),
        };
        let state = match self.opened.handle.open(py) {
            Err(_) => "closed".to_owned(),
            Ok(open) if open.topic.is_deleted() => "deleted".to_owned(),
            Ok(open) => {
                match self.lanes().map(|p| self.lane(&open, p)).collect::<Result<Vec<_>>>() {
                    Err(error) => error.to_string(),
                    Ok(lanes) => match lanes.as_slice() {
                        [ScanRange { from, end: Some(end), .. }] => {
                            format!("offsets {from} up to {end}")
                        }
                        lanes => {
                            let topic = self.seen(&open);
                            let held = |lane: &ScanRange| {
                                topic.count_in(lane.partition, lane.from, lane.end)
                            };
                            let held: Result<u64> = lanes.iter().map(held).sum();
                            held.map_or_else(|error| error.to_string(), |n| format!("{n} records"))
                        }
                    },
                }
            }
        };
        let kind = if self.opened.only.is_some() { "Topic" } else { "PartitionedTopic" };
        format!("<falaj.{kind} {name:?}{part}, codec {codec}, {state}>")
    }
}

/// Return the offset after a record; an error for one that no topic can have.
pub(crate) fn end_of(py: Python<'_>, topic: &Inner, partition: u32, offset: u64) -> PyResult<u64> {
    if let Some(end) = offset.checked_add(1) {
        return Ok(end);
    }
    let error = topic.out_of_range(partition, offset.into()).or_raise(py)?;
    Err(raise(py, &error))
}
