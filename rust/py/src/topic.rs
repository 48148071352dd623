//! `Topic`: appending, and the entrances to reading. `falaj.Topic` derives from it.
//!
//! A handle is for the whole topic or, as a view, for one of its partitions. How a record gets into it
//! is `appending`'s.

use std::sync::atomic::AtomicU32;

use falaj::internals::error::{Error, Result};
use falaj::internals::topic::{ScanRange, Topic as Inner};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyRange, PySlice, PyString};

use crate::batch::Batches;
use crate::bulk_load;
use crate::collect::{Bodies, Collector};
use crate::errors::{OrRaise, invalid, raise};
use crate::follow::Follower;
use crate::input::{self, Incoming, SERIES};
use crate::iterate::Records;
use crate::lookup::clamped;
use crate::opened::Opened;
use crate::precondition::Preconditions;
use crate::producers;
use crate::receipts;
use crate::seen::end_of;
use crate::wait::{patiently, seconds, wait};

/// An open topic; see falaj.Topic.
#[pyclass(frozen, subclass, weakref, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Topic {
    pub(crate) opened: Opened,
    /// Where the next record without a key goes.
    pub(crate) turn: AtomicU32,
}

#[pymethods]
impl Topic {
    #[new]
    fn new(opened: &Bound<'_, Opened>) -> Self {
        Self { opened: opened.get().clone(), turn: AtomicU32::new(std::process::id()) }
    }

    /// Append a record.
    ///
    /// The fastest call is `append(value)`: each keyword costs about 20 ns.
    ///
    /// Args:
    ///     value: What the codec takes, and gives back equal; without one bytes, a bytearray or another
    ///         buffer of single bytes.
    ///     key: Text (kept as UTF-8) or bytes that tell what the record is about. Where there are several
    ///     partitions, records
    ///         with the same key go to the same one and stay in order; those without take turns.
    ///     headers: A dict or pairs of names and values (text, bytes or None), kept in order; a name may
    ///         stand twice.
    ///     timestamp: When it happened: an aware datetime, or ISO text with a zone such as
    ///         "2026-11-20T08:00:00Z". By default, when it is appended.
    ///     timestamp_ns: The same as nanoseconds since 1970, an int: a datetime has no nanoseconds.
    ///     partition: The partition it goes to, whatever its key.
    ///     sync: "none", "interval" or "durable", see `falaj.open`.
    ///     producer: Who appends, so that a repeat is not appended again; goes with `sequence`. A log
    ///         remembers up to 65,536 producers, fewer where segments are small; see `forget_producer`.
    ///     sequence: The number of this append among the producer's: from anywhere, each one more than
    ///         the one before. One that was appended before is answered with the offset that it got
    ///         then, as long as it is one of the last five.
    ///     expect: The offset that the record must get: nobody appended since that was looked up.
    ///
    /// Returns:
    ///     Its offset; where there are several partitions a `Position(partition, offset)`.
    ///
    /// Raises:
    ///     TypeError, InvalidArgument: The codec cannot give the value back, or has none for it: a key of a dict that
    ///         is no text, `nan` in JSON, lists more than 128 deep. Nothing was appended.
    ///     OffsetConflict: Somebody was faster, and the offset that was expected is taken.
    ///     OutOfOrderSequence: The producer left a sequence out.
    ///     DuplicateSequence: A repeat of an older append than the last five, or a sequence before
    ///         the producer's first.
    ///     AppendTooLarge: It is larger than one append may be; the limit is named.
    ///     NoSpace, LockTimeout, SyncFailed, TopicDeleted, NotWritable, HandleClosed: Nothing was appended.
    ///     DurabilityUnknown: It is visible, and perhaps not on the medium.
    ///
    /// The exception of a signal's handler may come when the record was appended: `falaj.Receipts` says
    /// whether it was, and at which offset.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> orders.append(b"10 apples", key=b"eu", headers={"trace": b"1"})
    ///     0
    ///     >>> orders.append(b"2 pears", producer="till-3", sequence=17)
    ///     1
    ///     >>> orders.append(b"2 pears", producer="till-3", sequence=17)
    ///     1
    ///     >>> orders.append(b"too late", expect=1)
    ///     Traceback (most recent call last):
    ///     falaj.errors.OffsetConflict: another append came first: the next offset is 2, not 1; ...
    #[pyo3(signature = (
        value, key=None, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, sync=None,
        producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    #[inline]
    fn append<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'py, PyAny>>,
        producer: Option<&Bound<'py, PyAny>>,
        sequence: Option<&Bound<'py, PyAny>>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_plain = key.is_none() && headers.is_none();
        let is_now = timestamp.is_none() && timestamp_ns.is_none();
        let any_will_do = producer.is_none() && sequence.is_none() && expect.is_none();
        if is_plain && is_now && partition.is_none() && sync.is_none() && any_will_do {
            if let Some(offset) = self.append_at_once(value) {
                return Ok(offset.into_pyobject(py)?.into_any());
            }
        }
        let to = self.target(py, partition, sync)?;
        let preconditions = Preconditions::new(py, producer, sequence, expect)?;
        let record = Incoming {
            value: Some(input::encoded(value, self.opened.handle.shape.encode.as_ref())?),
            key: input::key(key)?,
            headers: input::headers(headers)?,
            event_time_ns: input::Timestamp { moment: timestamp, ns: timestamp_ns }.ns()?,
        };
        let went = self.append_record(py, &record, &to, &preconditions)?;
        self.position_for_python(py, went)
    }

    /// Append many records at once: all of them become visible together, or none.
    ///
    /// Args:
    ///     records: An iterable of values, pairs `(key, value)`, `NewRecord`s or `Record`s. A tuple is
    ///         always a pair, with a key: a value that is a tuple goes into a `NewRecord`. A `Record` keeps
    ///         key, headers and time. Its bytes stay as they are where its topic has the same codec, or this
    ///         one has none; else its value is encoded by this topic's codec. For the rows of a table see
    ///         `Part.append_arrow`.
    ///     partition: The partition they go to, whatever their keys.
    ///     sync, producer, sequence, expect: As for `append`; they stand for all the records together.
    ///
    /// Returns:
    ///     The range of their offsets; where there are several partitions a dict of such ranges. Of no
    ///     records an empty one: nothing is appended then.
    ///
    /// Raises:
    ///     InvalidArgument: An offset is expected of several partitions; or the value of a `Record` of
    ///         another codec is not one for this topic's.
    ///     AppendTooLarge: Together they are larger than one append may be, and as for `append`.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> orders.extend([b"plain", (b"eu", b"with a key")])
    ///     range(0, 2)
    #[pyo3(signature = (
        records, *, partition=None, sync=None, producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn extend<'py>(
        &self,
        py: Python<'py>,
        records: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'py, PyAny>>,
        producer: Option<&Bound<'py, PyAny>>,
        sequence: Option<&Bound<'py, PyAny>>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let to = self.target(py, partition, sync)?;
        let preconditions = Preconditions::new(py, producer, sequence, expect)?;
        let open = self.opened.handle.open(py)?;
        let limit = open.topic.log().max_group_len();
        let collector = Collector { shape: &self.opened.handle.shape, limit };
        let bodies = match to.partition {
            Some(partition) => collector.single(records, partition)?,
            None => collector.spread(records, self.spreading(py, &preconditions))?,
        };
        let Bodies(parts) = &bodies;
        if parts.iter().all(|(_, body)| body.count() == 0) {
            let nothing = to
                .partition
                .map(|partition| open.topic.committed(partition).map(|end| (partition, end..end)));
            let nothing: Vec<_> = nothing.into_iter().collect::<Result<_>>().or_raise(py)?;
            return self.ranges_for_python(py, &nothing);
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
        self.settle(py, &open, appended, to.sync)?;
        let by_partition: Vec<_> = partitions.iter().copied().zip(ranges).collect();
        self.ranges_for_python(py, &by_partition)
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

    /// Commit a bulk load: all records of its parts become visible at once, and are on the disk when this
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
    ///     A dict: `committed`, False where the key was there before; `records`, how many were appended;
    ///     `offsets`, for each partition that got any the first offset and the one behind the last.
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

    /// Remove all that a bulk load staged. What was committed stays committed; again it does nothing.
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

    /// Forget a series of bulk loads, so that another has room among the 1,024 that a log remembers. A load
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

    /// Remove what bulk loads that came to nothing left in the topic's log: parts that no process is
    /// writing, and that did not change for so many seconds. Each commit, and `Store.maintain`, does it
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
    ///     producer: Its name, as in `append(producer=…)`.
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

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if index.is_instance_of::<PySlice>() {
            return slf.call_method1(pyo3::intern!(slf.py(), "_slice"), (index,));
        }
        Ok(slf.get().record_at(index)?.into_any())
    }

    /// `end_offset - start_offset`, of all its partitions: how many offsets there are. In a compacted topic more than
    /// records, which `count` counts.
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

    /// Name of the codec that the store keeps for the topic; "bytes" for one read as "raw", too.
    #[getter]
    fn codec(&self) -> &str {
        &self.opened.handle.shape.codec
    }

    /// How appends sync unless they say otherwise.
    #[getter]
    fn sync(&self) -> &'static str {
        self.opened.sync.name()
    }

    /// How far it is read: "visible" or "durable".
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

    /// Lowest offset that is still there.
    #[getter]
    fn start_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.bound(py, Inner::first)
    }

    /// Offset after the last record that this handle sees. The next record gets it, unless the handle
    /// sees only what is durable.
    #[getter]
    fn end_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.bound(py, Inner::end)
    }

    /// Offset after the last visible record, which the next record gets.
    #[getter]
    fn visible_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.bound(py, Inner::committed)
    }

    /// Offset after the last record that is known to be on the disk.
    #[getter]
    fn durable_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.bound(py, Inner::durable)
    }

    /// Put everything that is committed on the medium.
    ///
    /// Raises:
    ///     SyncFailed: The medium failed; what is visible is not durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.opened.handle.open(py)?;
        patiently(py, self.opened.handle.patience, || open.topic.flush())
    }

    /// Wait until a record is on the medium.
    ///
    /// Where the store is open for writing this syncs, as `flush` does; a reader waits for others.
    ///
    /// Args:
    ///     offset: The record; by default all that is committed now.
    ///     timeout: Seconds; None waits as long as it takes.
    ///
    /// Returns:
    ///     True once it is on the medium, False after the timeout.
    ///
    /// Raises:
    ///     OffsetOutOfRange: The record was not written yet.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> orders.wait_durable(orders.append(b"x"))
    ///     True
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_durable(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::offset)] offset: Option<u64>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<bool> {
        let partition = self.one(py)?;
        let open = self.opened.handle.open_existing(py)?;
        let topic = &open.topic;
        let until = offset.map_or_else(
            || topic.committed(partition).or_raise(py),
            |offset| end_of(py, topic, partition, offset),
        )?;
        let timeout = seconds(py, timeout)?;
        let ended = wait(
            py,
            timeout,
            topic.log(),
            || self.opened.handle.is_closed(),
            |slice, interrupt| topic.wait_durable_in(partition, until, Some(slice), interrupt),
        )?;
        match ended {
            falaj::internals::log::Wait::News => Ok(true),
            falaj::internals::log::Wait::TimedOut => Ok(false),
            falaj::internals::log::Wait::Interrupted => {
                Err(raise(py, &Error::HandleClosed { what: "topic" }))
            }
        }
    }

    /// Sync and let the topic go; ends every wait on it, in any thread. Again does nothing.
    ///
    /// What was read stays valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.handle.close(py)
    }

    /// What a handle is made of that sees as far as is said.
    fn _seen_as(&self, visibility: &Bound<'_, PyAny>) -> PyResult<Opened> {
        let visibility = input::visibility(Some(visibility))?.unwrap_or_default();
        Ok(Opened { visibility, ..self.opened.clone() })
    }

    /// What a consumer reads, of all partitions as far as is said.
    fn _whole_as(&self, py: Python<'_>, visibility: &Bound<'_, PyAny>) -> PyResult<Opened> {
        if self.opened.only.is_some() && self.opened.partitions > 1 {
            let what = "a consumer reads whole topics: its members divide the partitions";
            return Err(invalid(py, what));
        }
        self._seen_as(visibility)
    }

    /// What a handle for one partition is made of.
    fn _view(&self, partition: &Bound<'_, PyAny>) -> PyResult<Opened> {
        let (py, partition) = (partition.py(), input::number(partition, "a partition")?);
        self.target(py, Some(partition), None)?;
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
