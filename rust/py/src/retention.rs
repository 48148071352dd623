//! Retention: settings that change, and deleting what is beyond them.
//!
//! `falaj._retention` interprets the arguments; here they are numbers, under their names in
//! `topic.json`.

use std::collections::BTreeMap;

use falaj::internals::format::retention::Retention;
use falaj::internals::store::{LogMaintenance, PartitionTrim, RetentionChange};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::admin::{Object, dict, list, told};
use crate::any_topic::AnyTopic;
use crate::errors::class;
use crate::store::Store;
use crate::wait::patiently;

/// Read a change: a missing setting stays, None lifts a limit.
pub(crate) fn change(given: &Bound<'_, PyDict>) -> PyResult<RetentionChange> {
    let limit = |name: &str| given.get_item(name)?.map(|limit| limit.extract()).transpose();
    let flag = |name: &str| given.get_item(name)?.map(|flag| flag.extract()).transpose();
    let mut change = RetentionChange::default();
    (change.bytes, change.age_ms) = (limit("bytes")?, limit("age_ms")?);
    (change.records, change.waits) = (limit("records")?, flag("waits")?);
    change.protected = flag("protected")?;
    Ok(change)
}

/// Return a topic's limits as a dict.
pub(crate) fn shown<'py>(py: Python<'py>, retention: &Retention) -> Object<'py> {
    Ok(dict!(py,
        "bytes": retention.bytes,
        "age_ms": retention.age_ms,
        "records": retention.records,
        "waits": retention.waits,
        "protected": retention.protected,
    ))
}

/// See falaj.Topic.configure.
#[pyfunction]
pub(crate) fn _configure_topic<'py>(
    py: Python<'py>,
    store: &Store,
    topic: &AnyTopic,
    changes: &Bound<'py, PyDict>,
) -> Object<'py> {
    let (inner, change) = (store.inner(py)?, change(changes)?);
    let shape = &topic.opened.handle.shape;
    let (name, generation) = (&shape.name, shape.generation);
    let stored =
        patiently(py, store.patience(), || inner.configure_topic(name, &change, Some(generation)))?;
    shown(py, &stored.retention)
}

/// See falaj.Topic.configure.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
pub(crate) fn _set_properties(
    py: Python<'_>,
    store: &Store,
    topic: &AnyTopic,
    properties: BTreeMap<String, Option<String>>,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    let shape = &topic.opened.handle.shape;
    let changes: Vec<_> =
        properties.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    let of = Some(shape.generation);
    patiently(py, store.patience(), || inner.set_properties(&shape.name, &changes, of)).map(drop)
}

/// See falaj.Store.configure.
#[pyfunction]
pub(crate) fn _configure_store(
    py: Python<'_>,
    store: &Store,
    retention_bytes: Option<u64>,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    patiently(py, store.patience(), || inner.configure(retention_bytes)).map(drop)
}

/// Change how many bytes of files each log keeps because they were not shipped.
#[pyfunction]
pub(crate) fn _configure_shipping(
    py: Python<'_>,
    store: &Store,
    ship_backlog_bytes: Option<u64>,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    patiently(py, store.patience(), || inner.configure_shipping(ship_backlog_bytes)).map(drop)
}

/// Change how many places must have a record before an append with `sync="remote"` returns.
#[pyfunction]
pub(crate) fn _configure_min_sync(
    py: Python<'_>,
    store: &Store,
    ship_min_sync: Option<u64>,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    patiently(py, store.patience(), || inner.configure_min_sync(ship_min_sync)).map(drop)
}

/// See falaj.Store.maintain.
#[pyfunction]
pub(crate) fn _maintain<'py>(py: Python<'py>, store: &Store, dry_run: bool) -> Object<'py> {
    let inner = store.inner(py)?;
    let done = patiently(py, store.patience(), || inner.maintain(dry_run))?;
    let (problems, error_classes) = told(&done.problems);
    Ok(dict!(py,
        "dry_run": done.dry_run,
        "retention_bytes": done.retention_bytes,
        "bytes": done.bytes,
        "logs": list(py, &done.logs, log)?,
        "problems": problems,
        "error_classes": error_classes,
    ))
}

fn log<'py>(py: Python<'py>, log: &LogMaintenance) -> Object<'py> {
    Ok(dict!(py,
        "name": &log.name,
        "path": log.dir.as_os_str(),
        "topics": &log.topics,
        "cuts": list(py, &log.cuts, cut)?,
        "segments": log.removed.segments,
        "bytes": log.removed.bytes,
        "problem": log.problem.as_ref().map(ToString::to_string),
        "error_class": log.problem.as_ref().map(class),
    ))
}

fn cut<'py>(py: Python<'py>, cut: &PartitionTrim) -> Object<'py> {
    Ok(dict!(py,
        "topic": &cut.topic,
        "partition": cut.partition,
        "first_before": cut.from,
        "first": cut.to,
        "limit": cut.limit.name(),
        "wanted": cut.wanted,
        "needed": cut.needed,
    ))
}
