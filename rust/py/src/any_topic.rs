//! `AnyTopic`: what a topic has whatever its number of partitions. `falaj.AnyTopic` derives from it.
//!
//! A handle is for the whole topic or, as a view, for one of its partitions. Appends and bounds depend on
//! that: they are [`crate::topic`]'s and [`crate::partitioned_topic`]'s, which derive from this class and
//! add no field. How a record gets into it is `appending`'s.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

use falaj::internals::error::Result;
use falaj::internals::topic::ScanRange;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyRange, PyString};

use crate::batch::Batches;
use crate::bulk_load;
use crate::errors::{OrRaise, invalid, raise};
use crate::follow::Follower;
use crate::input::{self, SERIES};
use crate::iterate::Records;
use crate::lookup::clamped;
use crate::opened::Opened;
use crate::partitioned_topic::by_partition;
use crate::producers;
use crate::wait::{patiently, seconds};

/// An open topic of either kind; see falaj.AnyTopic.
#[pyclass(frozen, subclass, weakref, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct AnyTopic {
    pub(crate) opened: Opened,
    /// Where the next record without a key goes.
    pub(crate) turn: AtomicU32,
    store: Py<PyAny>,
}

impl AnyTopic {
    pub(crate) fn of(opened: Opened, store: Py<PyAny>) -> Self {
        Self { opened, turn: AtomicU32::new(std::process::id()), store }
    }
}

#[pymethods]
impl AnyTopic {
    /// The store that it is in.
    #[getter]
    fn _store(&self, py: Python<'_>) -> Py<PyAny> {
        self.store.clone_ref(py)
    }

    /// Begin a part of a bulk load: records of one process, invisible until the load is committed. Each
    /// process stages parts of its own; one of them collects the manifests and commits all at once with
    /// `commit_bulk_load`. A part may be staged several times, as where a task is tried again: the
    /// parts whose manifests are committed count. For a load of one process see `bulk_load`.
    ///
    /// Args:
    ///     name: Name of the load, 1 to 200 of the characters that a topic's name may have.
    ///     part: Name of the part, likewise.
    ///     idempotency_key: What the load will be committed with, where that is known. Then what is left of
    ///         a load that died is removed once the next of the series is committed, and not after a day.
    ///
    /// Returns:
    ///     A `Part`: `append` or `append_arrow` what belongs to it, then `finish` it.
    ///
    /// Raises:
    ///     InvalidArgument: A name cannot be one.
    ///     NotWritable: The topic was opened for reading.
    ///
    /// Example:
    ///     >>> flights = store.topic("flights")
    ///     >>> part = flights.stage("import-2026-11", "0")
    ///     >>> part.append(b"EWR to IAH")
    ///     >>> manifest = part.finish()
    ///     >>> len(flights)
    ///     0
    ///     >>> flights.commit_bulk_load("import-2026-11", [manifest])
    ///     {'committed': True, 'records': 1, 'offsets': {0: (0, 1)}}
    #[pyo3(signature = (name, part, *, idempotency_key=None))]
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn stage(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::load_name)] name: Bound<'_, PyString>,
        #[pyo3(from_py_with = input::part_name)] part: Bound<'_, PyString>,
        #[pyo3(from_py_with = input::idempotency_key)] idempotency_key: Option<(String, u64)>,
    ) -> PyResult<bulk_load::Part> {
        let (name, part) = (name.to_string_lossy(), part.to_string_lossy());
        bulk_load::stage(py, &self.opened, &name, &part, idempotency_key.as_ref())
    }

    /// Commit a bulk load: all records of its parts become visible at once. They are on the disk when this
    /// returns, whatever the topic's sync mode. Then what the load staged is removed.
    ///
    /// Args:
    ///     name: Name of the load.
    ///     parts: Manifests, as `Part.finish` returned them. Records keep this order in each partition.
    ///     idempotency_key: Name of a series of loads and the number of this one in it. Where that number,
    ///         or a higher one, was committed to the topic before, nothing is appended. So a load with a
    ///         key may be committed as often as it takes to know that it was. A log remembers up to
    ///         1,024 series.
    ///
    /// Returns:
    ///     A dict. `committed` is False where the key was there before. `records` is how many were appended.
    ///     `offsets` has, for each partition that got any, the first offset and the one after the last.
    ///
    /// Raises:
    ///     InvalidManifest: One is corrupt, of another load or topic, or there twice. Nothing was committed.
    ///     NotStaged: A part is gone: the load was committed or aborted. Nothing was committed.
    ///     CorruptData: A part is corrupt on the disk. Nothing was committed.
    ///     AppendTooLarge: The load is larger than it may be; the limit is named. Nothing was committed.
    ///     InvalidArgument: The log remembers as many series as it can: see `forget_idempotency_key`.
    ///     NoSpace, SyncFailed, TopicDeleted, NotWritable: Nothing was committed.
    ///     LockTimeout: Others had a lock for too long. Nothing was committed now: commit it again.
    ///     DurabilityUnknown: It is visible, and perhaps not on the disk. Commit it again if it has a key,
    ///         else call `flush`, since a second commit would append it twice.
    ///
    /// Example:
    ///     >>> flights = store.topic("flights")
    ///     >>> part = flights.stage("import", "0")
    ///     >>> part.append(b"EWR to IAH")
    ///     >>> parts, key = [part.finish()], ("import", 20261122)
    ///     >>> flights.commit_bulk_load("import", parts, idempotency_key=key)["committed"]
    ///     True
    ///     >>> flights.commit_bulk_load("import", parts, idempotency_key=key)["committed"]
    ///     False
    ///     >>> len(flights), flights.last_idempotency_key("import")
    ///     (1, 20261122)
    #[pyo3(signature = (name, parts, *, idempotency_key=None))]
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn commit_bulk_load<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = input::load_name)] name: Bound<'py, PyString>,
        #[pyo3(from_py_with = input::manifests)] parts: Vec<Bound<'py, PyBytes>>,
        #[pyo3(from_py_with = input::idempotency_key)] idempotency_key: Option<(String, u64)>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (told, name) = (PyDict::new(py), name.to_string_lossy());
        bulk_load::commit(py, &self.opened, &name, &parts, idempotency_key.as_ref(), &told)?;
        Ok(told)
    }

    /// `commit_bulk_load` that fills a dict, also where an exception comes after the commit.
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn _commit_bulk_load(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyString>,
        parts: Vec<Bound<'_, PyBytes>>,
        #[pyo3(from_py_with = input::idempotency_key)] idempotency_key: Option<(String, u64)>,
        told: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let name = name.to_string_lossy();
        bulk_load::commit(py, &self.opened, &name, &parts, idempotency_key.as_ref(), told)
    }

    /// Remove all that a bulk load staged. Committed records stay; a second call does nothing.
    #[pyo3(signature = (name))]
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn abort_bulk_load(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::load_name)] name: Bound<'_, PyString>,
    ) -> PyResult<()> {
        bulk_load::abort(py, &self.opened, &name.to_string_lossy())
    }

    /// The number of the bulk load of a series that was committed last to this topic; None if there is none.
    #[pyo3(signature = (series))]
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn last_idempotency_key(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::series_name)] series: Bound<'_, PyString>,
    ) -> PyResult<Option<u64>> {
        bulk_load::last_idempotency_key(py, &self.opened, &input::text(&series, SERIES)?)
    }

    /// Forget a series of bulk loads, so that another has a place among the 1,024 that a log remembers. A load
    /// of it could then be committed twice. True where there was one.
    #[pyo3(signature = (series))]
    #[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
    fn forget_idempotency_key(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::series_name)] series: Bound<'_, PyString>,
    ) -> PyResult<bool> {
        bulk_load::forget_idempotency_key(py, &self.opened, &input::text(&series, SERIES)?)
    }

    /// Remove what failed bulk loads left in the topic's log: parts that no process is writing, and that
    /// did not change for so many seconds. Each commit, and `Store.maintain`, does it
    /// for those of a day.
    ///
    /// Returns:
    ///     How many files were removed.
    #[pyo3(signature = (older_than=86400.0))]
    fn sweep_bulk_loads(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::older_than)] older_than: f64,
    ) -> PyResult<u64> {
        bulk_load::sweep(py, &self.opened, older_than)
    }

    /// The highest sequence that a producer appended, so that it knows where it is.
    ///
    /// Args:
    ///     producer: Its name, or an `ExpiringProducer`, as in `append(producer=…)`.
    ///
    /// Returns:
    ///     The sequence; None where the log does not know the producer.
    ///
    /// Raises:
    ///     NotWritable: The topic was opened for reading.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
    ///     >>> orders.last_sequence("till-3")
    ///     17
    fn last_sequence(&self, py: Python<'_>, producer: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        producers::last_sequence(py, &self.opened, producer)
    }

    /// Id, last sequence, its partition, its offset, and when it was appended, of each producer.
    fn _producers(&self, py: Python<'_>) -> PyResult<Vec<producers::Row>> {
        producers::known(py, &self.opened)
    }

    fn _forget_producers(
        &self,
        py: Python<'_>,
        names: Vec<Bound<'_, PyAny>>,
        ids: Vec<u64>,
    ) -> PyResult<usize> {
        producers::forget(py, &self.opened, names, ids)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Records> {
        let open = self.opened.handle.open_existing(py)?;
        let ranges: Result<Vec<_>> = self.lanes().map(|p| self.lane(&open, p)).collect();
        Ok(Records { reading: self.reading(py, &ranges.or_raise(py)?)? })
    }

    /// How many offsets there are in all partitions. In a compacted topic these are more than the records,
    /// which `count` counts.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        let count = |p| Ok(topic.end(p)?.saturating_sub(topic.first(p)?));
        let counted: Result<u64> = self.lanes().map(count).sum();
        Ok(counted.or_raise(py)? as usize)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("a topic"))
    }

    /// Name of the topic.
    #[getter]
    fn name(&self) -> &str {
        &self.opened.handle.shape.name
    }

    /// Name of the codec that the store keeps for the topic; "bytes" for one read as "raw", too. A topic that was
    /// created without a codec has "bytes" until an opening names another.
    #[getter]
    fn codec(&self, py: Python<'_>) -> String {
        self.opened.handle.shape.coding.name(py)
    }

    /// How appends sync unless they say otherwise.
    #[getter]
    fn sync(&self) -> &'static str {
        self.opened.sync.name()
    }

    /// How far it is read: "visible", "durable" or "remote".
    #[getter]
    fn visibility(&self) -> &'static str {
        self.opened.visibility.name()
    }

    /// Id that the topic got when it was created, as hexadecimal digits.
    #[getter]
    fn generation(&self) -> String {
        falaj::internals::format::names::hex(&self.opened.handle.shape.generation)
    }

    /// Numbers of the partitions that this handle reads.
    #[getter]
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        let lanes = self.lanes();
        PyRange::new(py, lanes.start as isize, lanes.end as isize)
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.handle.is_closed()
    }

    /// The offsets of each partition, from the lowest that is still there to the end.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        let of = |partition| Ok((partition, topic.first(partition)?..topic.end(partition)?));
        let offsets: Result<Vec<_>> = self.lanes().map(of).collect();
        by_partition(py, &offsets.or_raise(py)?)
    }

    /// Put everything that is visible on the disk.
    ///
    /// Raises:
    ///     SyncFailed: The disk failed; what is visible is not durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.opened.handle.open(py)?;
        patiently(py, self.opened.handle.patience, || open.topic.flush())
    }

    /// Finish the topic: no process appends to it any more.
    ///
    /// Followers end behind the last record, and so do the iterators of consumers that read only
    /// finished topics. It is on disk when this returns, and cannot be undone. A repeat changes nothing.
    ///
    /// Raises:
    ///     NotWritable: The store was opened for reading.
    ///     InvalidArgument: This is one partition of several: finish the whole topic.
    ///
    /// Example:
    ///     >>> day = store.topic("2026-11-27")
    ///     >>> day.append(b"the last one")
    ///     0
    ///     >>> day.finish()
    ///     >>> day.finished, [record.offset for record in day.follow()]
    ///     (True, [0])
    ///     >>> day.append(b"too late")
    ///     Traceback (most recent call last):
    ///     falaj.errors.TopicFinished: topic "2026-11-27" is finished, so nothing was appended: ...
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.opened.handle.open(py)?;
        if self.opened.only.is_some() && self.opened.partitions > 1 {
            let what = "a topic is finished with all its partitions: finish the whole topic";
            return Err(invalid(py, what));
        }
        patiently(py, self.opened.handle.patience, || open.topic.finish())
    }

    /// The texts that programs keep with the topic, by name, as they are now; `configure` changes them.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> _ = orders.configure(properties={"content-type": "text/csv", "owner": "shop"})
    ///     >>> _ = orders.configure(properties={"owner": None})
    ///     >>> orders.properties
    ///     {'content-type': 'text/csv'}
    #[getter]
    fn properties(&self, py: Python<'_>) -> PyResult<BTreeMap<String, String>> {
        let topic = &self.opened.handle.open_existing(py)?.topic;
        py.detach(|| topic.properties()).or_raise(py)
    }

    /// True once the topic is finished: no record comes after those that are there.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.opened.handle.open_existing(py)?.topic.is_finished())
    }

    /// Sync and close the topic; ends every wait on it, in any thread. A second call does nothing.
    ///
    /// Values that were read stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.handle.close(py)
    }

    /// Make what a handle is made of that sees as far as is said.
    fn _seen_as(&self, visibility: &Bound<'_, PyAny>) -> PyResult<Opened> {
        let visibility = input::visibility(Some(visibility))?.unwrap_or_default();
        Ok(Opened { visibility, ..self.opened.clone() })
    }

    /// Make what a consumer reads: all partitions, as far as is said.
    fn _whole_as(&self, py: Python<'_>, visibility: &Bound<'_, PyAny>) -> PyResult<Opened> {
        if self.opened.only.is_some() && self.opened.partitions > 1 {
            let what = "a consumer reads whole topics: its members divide the partitions";
            return Err(invalid(py, what));
        }
        self._seen_as(visibility)
    }

    /// Make what a handle for one partition is made of.
    fn _view(&self, partition: &Bound<'_, PyAny>) -> PyResult<Opened> {
        let (py, partition) = (partition.py(), input::number(partition, "a partition")?);
        self.target(py, Some(partition), (None, None))?;
        Ok(Opened { only: Some(partition), ..self.opened.clone() })
    }

    /// Records of one partition from an offset up to another.
    fn _records(&self, py: Python<'_>, start: u64, stop: u64) -> PyResult<Records> {
        let range = self.range(py, start, stop)?;
        Ok(Records { reading: self.reading(py, &[range])? })
    }

    /// Batches of one partition from an offset up to another.
    fn _batches(
        &self,
        py: Python<'_>,
        start: u64,
        stop: u64,
        #[pyo3(from_py_with = input::most)] size: usize,
    ) -> PyResult<Batches> {
        let range = self.range(py, start, stop)?;
        Ok(Batches { reading: self.reading(py, &[range])?, size })
    }

    /// Offset of the first record at or after a time, nanoseconds since 1970.
    fn _offset_at(&self, py: Python<'_>, time_ns: i64) -> PyResult<Option<u64>> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        py.detach(|| topic.offset_at_time(partition, time_ns)).or_raise(py)
    }

    /// How many records have an offset in a range of the one partition.
    #[pyo3(signature = (start, stop=None))]
    fn _count(&self, py: Python<'_>, start: i128, stop: Option<i128>) -> PyResult<u64> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        py.detach(|| topic.count_in(partition, clamped(start), stop.map(clamped))).or_raise(py)
    }

    /// Offset from which on the one partition has so many records before an end.
    #[pyo3(signature = (records, stop=None))]
    fn _start_of_last(&self, py: Python<'_>, records: i128, stop: Option<u64>) -> PyResult<u64> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        py.detach(|| topic.start_of_last(partition, clamped(records), stop)).or_raise(py)
    }

    /// The offset of an index: of the nth record from the end, where it is negative.
    fn _absolute(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::any_offset)] index: i128,
    ) -> PyResult<u64> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        self.absolute(py, &open, partition, index)
    }

    /// Trim partitions, or say what that would remove: segments, and bytes on the disk.
    #[allow(clippy::needless_pass_by_value, reason = "a list of Python's comes as a vector")]
    fn _trim(
        &self,
        py: Python<'_>,
        firsts: Vec<(u32, u64)>,
        dry_run: bool,
    ) -> PyResult<(u64, u64)> {
        if dry_run {
            let open = self.opened.handle.open_existing(py)?;
            let planned = py.detach(|| open.topic.plan_trim(&firsts)).or_raise(py)?;
            return Ok((planned.sequences.len() as u64, planned.bytes));
        }
        let open = self.opened.handle.open(py)?;
        let removed = patiently(py, self.opened.handle.patience, || open.topic.trim(&firsts))?;
        Ok((removed.segments, removed.bytes))
    }

    /// A follower that begins at these offsets, one for each partition.
    fn _follow(
        &self,
        py: Python<'_>,
        starts: Vec<u64>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<Follower> {
        let timeout = seconds(py, timeout)?;
        let range = |(partition, from)| ScanRange { partition, from, end: None };
        let ranges: Vec<_> = self.lanes().zip(starts).map(range).collect();
        Ok(Follower::new(self.reading(py, &ranges)?, timeout))
    }

    /// True when it has one partition, or is one.
    #[getter]
    fn _single(&self) -> bool {
        self.opened.only.is_some()
    }

    /// Complain when it was closed or deleted.
    fn _expect(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.handle.open_existing(py).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.description(py)
    }

    /// The error for an offset that no record has.
    fn _out_of_range(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::any_offset)] offset: i128,
    ) -> PyResult<Py<PyAny>> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        let error = self.seen(&open).out_of_range(partition, offset).or_raise(py)?;
        Ok(raise(py, &error).into_value(py).into_any())
    }
}
