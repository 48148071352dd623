//! The producers that a topic remembers: for `Topic.producers` and related calls.
//!
//! Owns how their names become ids. The engine knows the producers, and forgets them.

use falaj::internals::format::block::Producer;
use pyo3::prelude::*;

use crate::opened::Opened;
use crate::precondition::producer_name;
use crate::wait::patiently;

/// Id, last sequence, its partition, its offset, and when it was appended.
pub(crate) type Row = (u64, u64, u32, u64, Option<i64>);

/// Return the highest sequence of a producer.
pub(crate) fn last_sequence(
    py: Python<'_>,
    opened: &Opened,
    producer: &Bound<'_, PyAny>,
) -> PyResult<Option<u64>> {
    let producer = &producer_name(producer)?;
    let topic = &opened.handle.open(py)?.topic;
    patiently(py, opened.handle.patience, || topic.last_sequence(producer))
}

/// List all producers that the topic remembers.
pub(crate) fn known(py: Python<'_>, opened: &Opened) -> PyResult<Vec<Row>> {
    let topic = &opened.handle.open_existing(py)?.topic;
    let known = patiently(py, opened.handle.patience, || topic.producers())?;
    Ok(known.iter().map(|p| (p.id, p.sequence, p.partition, p.offset, p.appended_ns)).collect())
}

/// Forget producers, by name or by id. Returns how many were known.
pub(crate) fn forget(
    py: Python<'_>,
    opened: &Opened,
    names: Vec<Bound<'_, PyAny>>,
    mut ids: Vec<u64>,
) -> PyResult<usize> {
    let topic = &opened.handle.open_existing(py)?.topic;
    for name in names {
        ids.push(Producer::id_of(&producer_name(&name)?));
    }
    patiently(py, opened.handle.patience, || topic.forget_producers(&ids))
}
