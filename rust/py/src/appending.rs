//! Appending a record: its partition, and what the call waits for.
//!
//! An append of plain `bytes` is tried without releasing the GIL; only work that may have to wait
//! detaches. Invariant: once a record was committed, no error says that nothing was appended, and
//! [`receipts`] has it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::log::{Appended, Log};
use falaj::internals::topic::{
    NewRecord as Outgoing, SyncMode, Topic as Inner, partition_for_key, with_encoded,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::any_topic::AnyTopic;
use crate::collect::{Bodies, Collector};
use crate::errors::{OrRaise, invalid};
use crate::handle::Open;
use crate::input::{self, Incoming};
use crate::precondition::Preconditions;
use crate::receipts;
use crate::wait::{patiently, patiently_after, seconds, wait_shipped};

/// The keyword arguments of append() and extend() for partition and sync.
#[derive(Debug)]
pub(crate) struct Where {
    pub(crate) partition: Option<u32>,
    pub(crate) sync: SyncMode,
    /// How long to wait for the process that ships the store.
    pub(crate) timeout: Option<Duration>,
}

/// The arguments of `append`, `extend` and `tombstone` beside records, values and keys.
#[derive(Debug, Default)]
pub(crate) struct Given<'a, 'py> {
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp_ns: Option<&'a Bound<'py, PyAny>>,
    pub(crate) partition: Option<u32>,
    pub(crate) sync: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timeout: Option<f64>,
    pub(crate) producer: Option<&'a Bound<'py, PyAny>>,
    pub(crate) sequence: Option<&'a Bound<'py, PyAny>>,
    pub(crate) expect: Option<&'a Bound<'py, PyAny>>,
}

impl Given<'_, '_> {
    fn preconditions(&self, py: Python<'_>) -> PyResult<Preconditions> {
        Preconditions::new(py, self.producer, self.sequence, self.expect)
    }

    fn time(&self) -> input::Timestamp<'_, '_> {
        input::Timestamp { moment: self.timestamp, ns: self.timestamp_ns }
    }
}

impl AnyTopic {
    /// Append a value. Returns its partition and offset.
    pub(crate) fn append_given(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        given: &Given<'_, '_>,
    ) -> PyResult<(u32, u64)> {
        let to = self.target(py, given.partition, (given.sync, given.timeout))?;
        let preconditions = given.preconditions(py)?;
        let record = self.opened.handle.encoding(py, |coding| {
            let into = (coding, to.partition);
            Incoming::encoded(value, into, (key, given.headers), given.time())
        })?;
        self.append_record(py, &record, &to, &preconditions)
    }

    /// Append a tombstone. Returns its partition and offset.
    pub(crate) fn delete_given(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        given: &Given<'_, '_>,
    ) -> PyResult<(u32, u64)> {
        let to = self.target(py, given.partition, (given.sync, given.timeout))?;
        let preconditions = given.preconditions(py)?;
        let record = Incoming::tombstone(key, given.headers, given.time())?;
        // Where a program has named the codec since, the tombstone belongs to that topic.
        self.opened.handle.shape.coding.known(py)?;
        self.append_record(py, &record, &to, &preconditions)
    }

    /// Append many records at once. Returns the offsets that each partition got; without records an empty
    /// range for the one partition that they would have gone to.
    pub(crate) fn extend_given(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        given: &Given<'_, '_>,
    ) -> PyResult<Vec<(u32, Range<u64>)>> {
        let to = self.target(py, given.partition, (given.sync, given.timeout))?;
        let preconditions = given.preconditions(py)?;
        let open = self.opened.handle.open(py)?;
        let limit = open.topic.log().max_group_len();
        let headers = input::headers(given.headers)?;
        let bodies = self.opened.handle.encoding(py, |coding| {
            let collector = Collector { coding, partition: to.partition, limit, headers: &headers };
            match to.partition {
                Some(partition) => collector.single(records, partition),
                None => collector.spread(records, self.spreading(py, &preconditions)),
            }
        })?;
        let Bodies(parts) = &bodies;
        if parts.iter().all(|(_, body)| body.count() == 0) {
            let nothing = to
                .partition
                .map(|partition| open.topic.committed(partition).map(|end| (partition, end..end)));
            return nothing.into_iter().collect::<Result<_>>().or_raise(py);
        }
        let parts: Vec<_> = parts.iter().map(|(partition, body)| (*partition, body)).collect();
        let partitions: Vec<_> = parts.iter().map(|(partition, _)| *partition).collect();
        let (ranges, appended) = preconditions.with(py, &open.topic, &partitions, |list| {
            let commit = || open.topic.commit_bodies_if(&parts, list, Some(to.sync));
            patiently(py, self.opened.handle.patience, commit)
        })?;
        for ((partition, _), range) in parts.iter().zip(&ranges) {
            receipts::note(py, &self.opened.handle.shape, *partition, range.clone());
        }
        self.settle(py, &open, appended, &to)?;
        Ok(partitions.into_iter().zip(ranges).collect())
    }

    pub(crate) fn target(
        &self,
        py: Python<'_>,
        partition: Option<u32>,
        (sync, timeout): (Option<&Bound<'_, PyAny>>, Option<f64>),
    ) -> PyResult<Where> {
        let sync = input::sync_mode(sync)?.unwrap_or(self.opened.sync);
        let timeout = remote_timeout(py, Some(sync), timeout)?;
        let partition = partition.or(self.opened.only);
        if let Some(wrong) = partition.filter(|p| !self.lanes().contains(p)) {
            let lanes = self.lanes();
            let (name, last) = (&self.opened.handle.shape.name, lanes.end - 1);
            let what = format!(
                "{name:?} has no partition {wrong}: they are numbered {} to {last}",
                lanes.start
            );
            return Err(invalid(py, what));
        }
        Ok(Where { partition, sync, timeout })
    }

    fn turn(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.opened.partitions
    }

    /// Append on the path that every append waits for: `bytes`, nothing else. `None` if the append
    /// needs the general path.
    #[inline(always)]
    pub(crate) fn append_at_once(&self, value: &Bound<'_, PyAny>) -> Option<u64> {
        let partition = self.opened.only.filter(|_| self.opened.sync < SyncMode::Durable)?;
        let coding = self.opened.handle.shape.coding.at_once()?;
        let (Ok(value), None) = (value.cast_exact::<PyBytes>(), &coding.encode) else {
            return None;
        };
        let (py, value) = (value.py(), value.as_bytes());
        let number = self.opened.first_number + partition;
        let interval = self.opened.sync == SyncMode::Interval;
        let handle = &self.opened.handle;
        let tried = handle.try_append(py, |topic| topic.try_append_value(number, value, interval));
        if let Some(offset) = tried {
            receipts::note(py, &handle.shape, partition, offset..offset + 1);
        }
        tried
    }

    pub(crate) fn append_record(
        &self,
        py: Python<'_>,
        record: &Incoming<'_>,
        to: &Where,
        preconditions: &Preconditions,
    ) -> PyResult<(u32, u64)> {
        let partition = match (to.partition, &record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => self.partition_of(key.as_bytes()),
            (None, None) => self.keyless(py, preconditions)?,
        };
        let offset = record.with_record(|record| match preconditions.is_empty() {
            true => self.append_to(py, partition, record, to),
            false => self.append_if(py, partition, record, preconditions, to),
        })?;
        Ok((partition, offset))
    }

    /// Choose the partition of a record without a key, if the topic has several. A producer's
    /// records go to one: a repeat must find the first record. An expected offset needs a named
    /// partition.
    pub(crate) fn keyless(&self, py: Python<'_>, preconditions: &Preconditions) -> PyResult<u32> {
        match preconditions {
            Preconditions { producer: Some((name, _)), .. } => {
                Ok(self.partition_of(name.name().name().as_bytes()))
            }
            Preconditions { expect: Some(_), .. } => {
                let what =
                    "an offset is expected of several partitions: name one by partition= or a key";
                Err(invalid(py, what))
            }
            _ => Ok(self.turn()),
        }
    }

    /// Choose the partition of each of many records by its key; those without one go to the same
    /// partition.
    pub(crate) fn spreading<'a>(
        &'a self,
        py: Python<'a>,
        preconditions: &'a Preconditions,
    ) -> impl FnMut(Option<&[u8]>) -> PyResult<u32> + 'a {
        let mut keyless = None;
        move |key| match (self.opened.only, key, keyless) {
            (Some(only), ..) => Ok(only),
            (None, Some(key), _) => Ok(self.partition_of(key)),
            (None, None, Some(known)) => Ok(known),
            (None, None, None) => Ok(*keyless.insert(self.keyless(py, preconditions)?)),
        }
    }

    fn partition_of(&self, key: &[u8]) -> u32 {
        partition_for_key(key, self.opened.partitions)
    }

    fn append_if(
        &self,
        py: Python<'_>,
        partition: u32,
        record: &Outgoing<'_>,
        preconditions: &Preconditions,
        to: &Where,
    ) -> PyResult<u64> {
        let open = self.opened.handle.open(py)?;
        let appended = preconditions.with(py, &open.topic, &[partition], |list| {
            let commit = || open.topic.commit_if(partition, record, list, Some(to.sync));
            patiently(py, self.opened.handle.patience, commit)
        })?;
        self.note(py, partition, &appended);
        self.settle(py, &open, appended, to)
    }

    fn append_to(
        &self,
        py: Python<'_>,
        partition: u32,
        record: &Outgoing<'_>,
        to: &Where,
    ) -> PyResult<u64> {
        let sync = to.sync;
        with_encoded(std::slice::from_ref(record), |encoded| {
            let handle = &self.opened.handle;
            if sync < SyncMode::Durable {
                let attempt = |topic: &Inner| topic.try_commit(partition, encoded, Some(sync));
                if let Some(appended) = handle.try_append(py, attempt) {
                    self.note(py, partition, &appended);
                    return Ok(appended.first);
                }
            }
            let open = handle.open(py)?;
            let commit = || open.topic.commit_encoded(partition, encoded, Some(sync));
            let appended = patiently(py, handle.patience, commit)?;
            self.note(py, partition, &appended);
            self.settle(py, &open, appended, to)
        })
    }

    fn note(&self, py: Python<'_>, partition: u32, appended: &Appended) {
        let offset = appended.first;
        receipts::note(py, &self.opened.handle.shape, partition, offset..offset + 1);
    }

    /// Wait as the mode requires; return the first offset. It takes the topic that appended, as the
    /// handle may have been closed since.
    #[inline]
    pub(crate) fn settle(
        &self,
        py: Python<'_>,
        open: &Open,
        appended: Appended,
        to: &Where,
    ) -> PyResult<u64> {
        if to.sync >= SyncMode::Durable {
            let patience = self.opened.handle.patience;
            settled(py, patience, open.topic.log(), (appended.first, appended.end), to)?;
        }
        Ok(appended.first)
    }
}

/// Wait after an append, from an offset up to an end of the log, until it is durable or remote.
pub(crate) fn settled(
    py: Python<'_>,
    patience: Duration,
    log: &Arc<Log>,
    (offset, end): (u64, Address),
    to: &Where,
) -> PyResult<()> {
    let visible = |error: Error| error.after_append(offset);
    if to.sync == SyncMode::Durable {
        return patiently_after(py, patience, visible, || log.sync_to(end));
    }
    let target = patiently_after(py, patience, visible, || log.durable_address_of(end))?;
    wait_shipped(py, log, (target, offset), to.timeout)
}

/// Take how long an append waits for the shipper.
pub(crate) fn remote_timeout(
    py: Python<'_>,
    sync: Option<SyncMode>,
    timeout: Option<f64>,
) -> PyResult<Option<Duration>> {
    if timeout.is_some() && sync != Some(SyncMode::Remote) {
        let what = "timeout= limits the wait of sync=\"remote\": leave it out, or name that mode";
        return Err(invalid(py, what));
    }
    seconds(py, timeout)
}
