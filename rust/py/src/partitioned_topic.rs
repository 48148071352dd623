//! `PartitionedTopic`: a topic of several partitions. `falaj.PartitionedTopic` derives from it.
//!
//! Owns what a choice of partitions changes: an append returns a position, `extend` ranges by partition.
//! [`AnyTopic`] has all that both kinds of topics have.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyRange};

use crate::any_topic::AnyTopic;
use crate::appending::Given;
use crate::calling::{call, of_module};
use crate::input;
use crate::opened::Opened;
use crate::record::Record;

/// An open topic of several partitions; see falaj.PartitionedTopic.
#[pyclass(frozen, subclass, extends = AnyTopic, module = "falaj._core")]
#[derive(Debug)]
pub struct PartitionedTopic;

/// Where a record is, as `append` returns it.
fn position(py: Python<'_>, went: (u32, u64)) -> PyResult<Bound<'_, PyAny>> {
    static POSITION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(of_module(&POSITION, py, "falaj._records", "Position")?, went)
}

/// Offsets by partition; partitions without any are left out.
pub(crate) fn by_partition<'py>(
    py: Python<'py>,
    ranges: &[(u32, Range<u64>)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (partition, offsets) in ranges {
        dict.set_item(partition, PyRange::new(py, offsets.start as isize, offsets.end as isize)?)?;
    }
    Ok(dict)
}

#[pymethods]
impl PartitionedTopic {
    #[new]
    fn new(opened: &Bound<'_, Opened>, store: Py<PyAny>) -> PyClassInitializer<Self> {
        // Also where there is only one partition, the caller names partitions.
        let opened = Opened { only: None, ..opened.get().clone() };
        PyClassInitializer::from(AnyTopic::of(opened, store)).add_subclass(Self)
    }

    /// Append a record to the partition that its key chooses.
    ///
    /// Args:
    ///     value: As for `Topic.append`.
    ///     key: Text (kept as UTF-8) or bytes that tell what the record is about. Records with the same key
    ///         go to the same partition and stay in order; those without a key take turns.
    ///     headers, timestamp, timestamp_ns: As for `Topic.append`.
    ///     partition: The partition that the record goes to, whatever its key.
    ///     sync: "none", "interval", "durable" or "remote", see `falaj.open`.
    ///     timeout: Seconds that `sync="remote"` waits for the process that ships the store; None waits as
    ///         long as that process lives.
    ///     producer, sequence: As for `Topic.append`. Records of a producer without a key go to one partition.
    ///     expect: The offset that the record must get, in the partition that `partition` or the key names.
    ///
    /// Returns:
    ///     A `falaj.Position(partition, offset)`.
    ///
    /// Raises:
    ///     InvalidArgument: There is no such partition, or an offset is expected of several partitions.
    ///     OffsetConflict, AppendTooLarge, NoSpace, NotWritable, TopicDeleted: As for `Topic.append`, and so
    ///         are the others.
    ///
    /// Example:
    ///     >>> clicks = store.partitioned_topic("clicks", partitions=4)
    ///     >>> position = clicks.append(b"home", key="ann")
    ///     >>> clicks[position].to_bytes(), clicks.append(b"cart", key="ann").partition == position.partition
    ///     (b'home', True)
    #[pyo3(signature = (
        value, key=None, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, sync=None,
        timeout=None, producer=None, sequence=None, expect=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
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
    ) -> PyResult<Bound<'py, PyAny>> {
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
        position(slf.py(), slf.as_super().get().append_given(slf.py(), value, key, &given)?)
    }

    /// Append many records at once: all of them become visible together, or none.
    ///
    /// Args:
    ///     records: As for `Topic.extend`. Keys choose the partitions; records without a key go to one.
    ///     partition: The partition they go to, whatever their keys.
    ///     sync, timeout, producer, sequence, expect: As for `append`; they stand for all the records together.
    ///
    /// Returns:
    ///     The range of offsets of each partition that got records. Without records it is empty, and nothing
    ///     is appended or checked.
    ///
    /// Raises:
    ///     InvalidArgument: An offset is expected of several partitions; or the value of a `Record` of
    ///         another codec is not one for this topic's.
    ///     AppendTooLarge: Together they are larger than one append may be, and as for `append`.
    ///
    /// Example:
    ///     >>> clicks = store.partitioned_topic("clicks", partitions=4)
    ///     >>> clicks.extend([b"home", b"cart"], partition=2)
    ///     {2: range(0, 2)}
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
    ) -> PyResult<Bound<'py, PyDict>> {
        let given =
            Given { partition, sync, timeout, producer, sequence, expect, ..Given::default() };
        let mut appended = slf.as_super().get().extend_given(slf.py(), records, &given)?;
        appended.retain(|(_, offsets)| !offsets.is_empty());
        by_partition(slf.py(), &appended)
    }

    /// Append a tombstone, by which a key is deleted, to the key's partition; else as `Topic.tombstone`.
    ///
    /// Args:
    ///     key: Text (kept as UTF-8) or bytes that tell what is deleted.
    ///     partition: The partition that it goes to, whatever its key.
    ///     headers, timestamp, timestamp_ns, sync, timeout, producer, sequence, expect: As for `append`.
    ///
    /// Returns:
    ///     A `falaj.Position(partition, offset)`.
    ///
    /// Raises:
    ///     TypeError: The key is neither text nor bytes.
    ///     OffsetConflict, NotWritable, NoSpace, TopicDeleted: As for `append`; nothing was appended.
    ///
    /// Example:
    ///     >>> prices = store.partitioned_topic("prices", partitions=2, compacted=True)
    ///     >>> prices[prices.tombstone(b"tea")].is_tombstone
    ///     True
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
    ) -> PyResult<Bound<'py, PyAny>> {
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
        position(slf.py(), slf.as_super().get().delete_given(slf.py(), key, &given)?)
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Record>> {
        slf.as_super().get().record_at_position(index)
    }
}
