//! `Topic`: a topic of one partition, or one partition of a topic. `falaj.Topic` derives from it.
//!
//! Owns what only one sequence of offsets has: an append that returns an offset, `topic[i]`, and the bounds.
//! [`AnyTopic`] has all that both kinds of topics have.

use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::log::{Interrupt, Wait};
use falaj::internals::topic::Topic as Inner;
use pyo3::prelude::*;
use pyo3::types::{PyRange, PySlice};

use crate::any_topic::AnyTopic;
use crate::appending::Given;
use crate::calling::call;
use crate::errors::{OrRaise, invalid, raise};
use crate::input;
use crate::opened::Opened;
use crate::seen::end_of;
use crate::wait::{seconds, wait};

/// An open topic of one partition; see falaj.Topic.
#[pyclass(frozen, subclass, extends = AnyTopic, module = "falaj._core")]
#[derive(Debug)]
pub struct Topic;

#[pymethods]
impl Topic {
    #[new]
    fn new(
        py: Python<'_>,
        opened: &Bound<'_, Opened>,
        store: Py<PyAny>,
    ) -> PyResult<PyClassInitializer<Self>> {
        if opened.get().only.is_none() {
            return Err(invalid(
                py,
                "a Topic has one partition: open this one as PartitionedTopic",
            ));
        }
        Ok(PyClassInitializer::from(AnyTopic::of(opened.get().clone(), store)).add_subclass(Self))
    }

    /// Append a record.
    ///
    /// The fastest call is `append(value)`: each keyword costs about 20 ns.
    ///
    /// Args:
    ///     value: What the codec takes, and gives back equal; without one bytes, a bytearray or another
    ///         buffer of single bytes.
    ///     key: Text (kept as UTF-8) or bytes that tell what the record is about.
    ///     headers: A dict or pairs of names and values (text, bytes or None), kept in order; a name may
    ///         stand twice.
    ///     timestamp: When it happened: an aware datetime, or ISO text with a zone such as
    ///         "2026-11-20T08:00:00Z". By default, when it is appended.
    ///     timestamp_ns: The same as nanoseconds since 1970, an int: a datetime has no nanoseconds.
    ///     partition: The topic's only partition, 0, or the one that this is a view of. So a call for topics
    ///         of both kinds may name it.
    ///     sync: "none", "interval", "durable" or "remote", see `falaj.open`.
    ///     timeout: Seconds that `sync="remote"` waits for the process that ships the store; None waits as
    ///         long as that process lives.
    ///     producer: The name of the program that appends, so that a repeat is not appended again; goes with
    ///         `sequence`. A log remembers up to 65,536 producers, fewer where segments are small; see
    ///         `forget_producer`. A `falaj.ExpiringProducer` if the name is used for a short time only.
    ///     sequence: The number of this append among the producer's: from anywhere, each one more than
    ///         the one before. One that was appended before is answered with the offset that it got
    ///         then, as long as it is one of the last five.
    ///     expect: The offset that the record must get: no other process appended since it was looked up.
    ///
    /// Returns:
    ///     The offset of the record.
    ///
    /// Raises:
    ///     EncodeFailed: The codec does not take the value, or could not give it back. Examples are a set in JSON, a
    ///         key of a dict that is no text, `nan`, and lists more than 128 deep. Nothing was appended.
    ///     OffsetConflict: The next offset is another one, mostly since another append was faster.
    ///     OutOfOrderSequence: The producer left a sequence out.
    ///     DuplicateSequence: A repeat of an older append than the last five, or a sequence before
    ///         the producer's first.
    ///     AppendTooLarge: It is larger than one append may be; the limit is named.
    ///     NoSpace, LockTimeout, SyncFailed, TopicDeleted, NotWritable, HandleClosed: Nothing was appended.
    ///     DurabilityUnknown: It is visible, and perhaps not on the disk.
    ///     NoShipper, Fenced: No process ships the store; nothing was appended unless the error has an
    ///         `offset`.
    ///     RemoteTimeout: It is on the disk from `offset` on, and did not leave the machine in time.
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
    ///     falaj.errors.OffsetConflict: another append to topic "orders" came first: the next offset is 2, not 1; ...
    #[pyo3(signature = (
        value, key=None, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, sync=None,
        timeout=None, producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    #[inline]
    fn append<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
        producer: Option<&Bound<'py, PyAny>>,
        sequence: Option<&Bound<'py, PyAny>>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        let topic = slf.as_super().get();
        let is_plain = key.is_none() && headers.is_none();
        let is_now = timestamp.is_none() && timestamp_ns.is_none();
        let any_will_do = producer.is_none() && sequence.is_none() && expect.is_none();
        let is_usual = partition.is_none() && sync.is_none() && timeout.is_none();
        if is_plain && is_now && is_usual && any_will_do {
            if let Some(offset) = topic.append_at_once(value) {
                return Ok(offset);
            }
        }
        let given = Given {
            headers,
            timestamp,
            timestamp_ns,
            partition,
            sync,
            timeout,
            producer,
            sequence,
            expect,
        };
        Ok(topic.append_given(slf.py(), value, key, &given)?.1)
    }

    /// Append many records at once: all of them become visible together, or none.
    ///
    /// Args:
    ///     records: An iterable of values, pairs `(key, value)`, `NewRecord`s or `Record`s. A tuple is
    ///         always a pair, with a key: a value that is a tuple goes into a `NewRecord`. A `Record` keeps
    ///         key, headers and time. Its bytes stay as they are where its topic has the same codec, or this
    ///         one has none. Else this topic's codec encodes its value. For the rows of a table see
    ///         `Part.append_arrow`.
    ///     partition, sync, timeout, producer, sequence, expect: As for `append`; they stand for all the records together.
    ///
    /// Returns:
    ///     The range of their offsets. Without records it is empty, and nothing is appended or checked.
    ///
    /// Raises:
    ///     EncodeFailed: The codec does not take a value, as for `append`.
    ///     InvalidArgument: The value of a `Record` of another codec is not one for this topic's.
    ///     AppendTooLarge: Together they are larger than one append may be, and as for `append`.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> orders.extend([b"plain", (b"eu", b"with a key")])
    ///     range(0, 2)
    #[pyo3(signature = (
        records, *, partition=None, sync=None, timeout=None, producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn extend<'py>(
        slf: &Bound<'py, Self>,
        records: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
        producer: Option<&Bound<'py, PyAny>>,
        sequence: Option<&Bound<'py, PyAny>>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyRange>> {
        let (py, topic) = (slf.py(), slf.as_super().get());
        let given =
            Given { partition, sync, timeout, producer, sequence, expect, ..Given::default() };
        let appended = topic.extend_given(py, records, &given)?;
        range(py, appended)
    }

    /// Do the same with additional headers, which replace those of the same names that a record has.
    fn _extend_with<'py>(
        slf: &Bound<'py, Self>,
        records: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        sync: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyRange>> {
        let given = Given { headers: Some(headers), sync, ..Given::default() };
        let appended = slf.as_super().get().extend_given(slf.py(), records, &given)?;
        range(slf.py(), appended)
    }

    /// Append a tombstone: a key without a value, by which the key is deleted.
    ///
    /// It says that what was said of the key before holds no more. `compact` removes those records, and the
    /// tombstone itself some time later. A reader gets a record whose `is_tombstone` is true and
    /// whose value is None. Nothing else writes one: a value of None is JSON's null or msgpack's
    /// nil, and an error where the codec has no None. In `extend` write `NewRecord.tombstone(key)`.
    ///
    /// Args:
    ///     key: Text (kept as UTF-8) or bytes that tell what is deleted.
    ///     headers, timestamp, timestamp_ns, partition, sync, timeout, producer, sequence, expect: As for `append`.
    ///
    /// Returns:
    ///     The offset of the tombstone.
    ///
    /// Raises:
    ///     TypeError: The key is neither text nor bytes.
    ///     OffsetConflict, NotWritable, NoSpace, TopicDeleted: As for `append`; nothing was appended.
    ///
    /// Example:
    ///     >>> prices = store.topic("prices", compacted=True)
    ///     >>> prices.append(b"3 rials", key=b"tea"), prices.tombstone(b"tea")
    ///     (0, 1)
    ///     >>> prices[1].key, prices[1].is_tombstone
    ///     (b'tea', True)
    #[pyo3(signature = (
        key, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, sync=None,
        timeout=None, producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn tombstone<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
        producer: Option<&Bound<'py, PyAny>>,
        sequence: Option<&Bound<'py, PyAny>>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        let given = Given {
            headers,
            timestamp,
            timestamp_ns,
            partition,
            sync,
            timeout,
            producer,
            sequence,
            expect,
        };
        Ok(slf.as_super().get().delete_given(slf.py(), key, &given)?.1)
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if index.is_instance_of::<PySlice>() {
            return call(&slf.getattr(pyo3::intern!(slf.py(), "_slice"))?, (index,));
        }
        Ok(slf.as_super().get().record_at(index)?.into_any())
    }

    /// Lowest offset that is still there.
    #[getter]
    fn start_offset(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().bound(slf.py(), Inner::first)
    }

    /// Offset after the last record that this handle sees. The next record gets it, unless the handle
    /// sees only what is durable.
    #[getter]
    fn end_offset(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().bound(slf.py(), Inner::end)
    }

    /// Offset after the last visible record, which the next record gets.
    #[getter]
    fn visible_offset(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().bound(slf.py(), Inner::committed)
    }

    /// Offset after the last record that is known to be on the disk.
    #[getter]
    fn durable_offset(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().bound(slf.py(), Inner::durable)
    }

    /// Wait until a record is on the disk.
    ///
    /// Where the store is open for writing this syncs, as `flush` does, however long the disk takes. A reader waits for
    /// the writers.
    ///
    /// Args:
    ///     offset: The record; by default all that is visible now.
    ///     timeout: Seconds that a reader waits; None waits as long as it takes.
    ///
    /// Returns:
    ///     True once it is on the disk, False after the timeout.
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
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = input::offset)] offset: Option<u64>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<bool> {
        wait_until(slf, offset, timeout, Inner::wait_durable_in)
    }

    /// Wait until records have left the machine: the process that ships the store says so.
    ///
    /// A store that is open for writing syncs first. A reader waits, whether a process ships or not.
    ///
    /// Args:
    ///     offset: The offset of a record; by default, all that are there.
    ///     timeout: Seconds; None waits as long as a process ships the store.
    ///
    /// Returns:
    ///     True once it has left the machine, False after the timeout.
    ///
    /// Raises:
    ///     NoShipper, Fenced: No process ships the store, which this process has open for writing.
    ///     OffsetOutOfRange: The record was not written yet.
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_remote(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = input::offset)] offset: Option<u64>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<bool> {
        wait_until(slf, offset, timeout, Inner::wait_remote_in)
    }
}

/// Wait for the records of the one partition, up to and with an offset.
fn wait_until(
    slf: &Bound<'_, Topic>,
    offset: Option<u64>,
    timeout: Option<f64>,
    attempt: impl Fn(&Inner, u32, u64, Option<Duration>, Interrupt<'_>) -> Result<Wait, Error> + Sync,
) -> PyResult<bool> {
    let (py, own) = (slf.py(), slf.as_super().get());
    let partition = own.one(py)?;
    let open = own.opened.handle.open_existing(py)?;
    let topic = &open.topic;
    let until = offset.map_or_else(
        || topic.committed(partition).or_raise(py),
        |offset| end_of(py, topic, partition, offset),
    )?;
    let ended = wait(
        py,
        seconds(py, timeout)?,
        Some(topic.log()),
        || own.opened.handle.is_closed(),
        |slice, interrupt| attempt(topic, partition, until, Some(slice), interrupt),
    )?;
    match ended {
        Wait::News => Ok(true),
        Wait::TimedOut => Ok(false),
        Wait::Interrupted => Err(raise(py, &Error::HandleClosed { what: "topic" })),
    }
}

fn range(
    py: Python<'_>,
    appended: Vec<(u32, std::ops::Range<u64>)>,
) -> PyResult<Bound<'_, PyRange>> {
    let offsets = appended.into_iter().next().map_or(0..0, |(_, offsets)| offsets);
    PyRange::new(py, offsets.start as isize, offsets.end as isize)
}
