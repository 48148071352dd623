//! Compaction: options in, the results as a dict out.

use std::time::{Duration, Instant};

use falaj::internals::error::Error;
use falaj::internals::topic::{CompactOptions, Last};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::admin::{Object, dict, with_progress};
use crate::any_topic::AnyTopic;
use crate::input;
use crate::store::Store;

/// A partition's last records as Python passes them: the offset up to which records were examined,
/// and two buffers of unsigned 64-bit numbers.
type Told<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// See falaj.Topic.configure.
#[pyfunction]
pub(crate) fn _mark_compacted(
    py: Python<'_>,
    store: &Store,
    topic: &AnyTopic,
    compacted: bool,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    let shape = &topic.opened.handle.shape;
    let (name, generation) = (&shape.name, shape.generation);
    let patience = store.patience();
    crate::wait::patiently(py, patience, || inner.mark_compacted(name, compacted, Some(generation)))
        .map(drop)
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
    topic: &AnyTopic,
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
