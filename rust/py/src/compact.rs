//! Compaction: options in, the results as a dict out; and the tombstones that it acts on.

use std::time::{Duration, Instant};

use falaj::internals::error::Error;
use falaj::internals::topic::{CompactOptions, Last};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::admin::{Object, dict, with_progress};
use crate::input::{self, Incoming};
use crate::precondition::Preconditions;
use crate::store::Store;
use crate::topic::Topic;

/// A partition's last records as Python passes them: the offset up to which records were examined,
/// and two buffers of unsigned 64-bit numbers.
type Told<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// See falaj.Topic.configure.
#[pyfunction]
pub(crate) fn _mark_compacted(
    py: Python<'_>,
    store: &Store,
    topic: &Topic,
    compacted: bool,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    let shape = &topic.opened.handle.shape;
    let (name, generation) = (&shape.name, shape.generation);
    let patience = store.patience();
    crate::wait::patiently(py, patience, || inner.mark_compacted(name, compacted, Some(generation)))
        .map(drop)
}

/// See falaj.Topic.tombstone.
#[pyfunction]
#[pyo3(signature = (
    topic, key, *, headers, timestamp, timestamp_ns, partition, sync, producer, sequence, expect
))]
#[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn _tombstone<'py>(
    py: Python<'py>,
    topic: &Topic,
    key: &Bound<'py, PyAny>,
    headers: Option<&Bound<'py, PyAny>>,
    timestamp: Option<&Bound<'py, PyAny>>,
    timestamp_ns: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    sync: Option<&Bound<'py, PyAny>>,
    producer: Option<&Bound<'py, PyAny>>,
    sequence: Option<&Bound<'py, PyAny>>,
    expect: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let to = topic.target(py, partition, sync)?;
    let preconditions = Preconditions::new(py, producer, sequence, expect)?;
    let timestamp = input::Timestamp { moment: timestamp, ns: timestamp_ns };
    let record = Incoming::tombstone(key, headers, timestamp)?;
    let went = topic.append_record(py, &record, &to, &preconditions)?;
    topic.position_for_python(py, went)
}

/// See falaj.Topic.compact.
#[pyfunction]
#[allow(
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    reason = "pyo3 makes values of what it is given; they are keywords in Python"
)]
pub(crate) fn _compact<'py>(
    py: Python<'py>,
    topic: &Topic,
    tombstones_us: u64,
    #[pyo3(from_py_with = input::bytes_of_memory)] memory: u64,
    seal: bool,
    last: Option<Vec<Told<'py>>>,
    progress: Option<Py<PyAny>>,
) -> Object<'py> {
    let last = last.map(|told| told.iter().map(lasts).collect()).transpose()?;
    let tombstones = Duration::from_micros(tombstones_us);
    let mut options = CompactOptions::default().tombstones(tombstones).memory(memory).seal(seal);
    options.last = last;
    let open = topic.opened.handle.open(py)?;
    let start = Instant::now();
    let done = loop {
        let mut waits = false;
        let done = with_progress(py, progress.as_ref(), |tell| {
            let done = open.topic.compact(&options, tell);
            let timed_out = matches!(done, Err(Error::LockTimeout { .. }));
            waits = timed_out && start.elapsed() < topic.opened.handle.patience;
            done
        });
        if !waits {
            break done?;
        }
        py.check_signals()?;
    };
    Ok(dict!(py,
        "records": done.records,
        "removed": done.removed,
        "tombstones": done.tombstones,
        "segments": done.segments,
        "segments_removed": done.segments_removed,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
    ))
}

fn lasts((partition, end, offsets, alone): &Told<'_>) -> PyResult<(u32, Last)> {
    let numbers = |given: &Bound<'_, PyAny>| {
        let buffer = PyBuffer::<u64>::get(given).map_err(|_| {
            PyTypeError::new_err(
                "the offsets of a Last are unsigned 64-bit numbers, as array(\"Q\")",
            )
        });
        buffer?.to_vec(given.py())
    };
    let (offsets, alone) = (numbers(offsets)?, numbers(alone)?);
    let (partition, end) = (input::partition_number(partition)?, input::offset_number(end)?);
    Ok((partition, Last { end, offsets, alone }))
}
