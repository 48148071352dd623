//! Consumer groups of a store, inspected and changed from outside.

use falaj::internals::consumer::{self, GroupInfo, GroupPartitionInfo, MemberInfo};
use falaj::internals::format::names::hex;
use falaj::internals::store::Store as Inner;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::any_topic::AnyTopic;
use crate::consumer::start_of;
use crate::errors::{OrRaise, class};
use crate::input;
use crate::store::Store;
use crate::wait::patiently;

/// Return the consumer groups of a store, all or one, as dicts.
#[pyfunction]
#[pyo3(signature = (store, group=None))]
pub(crate) fn _groups<'py>(
    py: Python<'py>,
    store: &Bound<'py, Store>,
    group: Option<&Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyList>> {
    let inner: Inner = store.get().inner(py)?;
    let group = group.map(|group| group.to_string_lossy());
    let found = py.detach(|| match &group {
        Some(group) => consumer::group_info(&inner, group).map(|info| vec![info]),
        None => consumer::list_groups(&inner),
    });
    let found = found.or_raise(py)?;
    let told: PyResult<Vec<_>> = found.iter().map(|found| tell(py, found)).collect();
    PyList::new(py, told?)
}

/// List the names of all consumer groups of a store, sorted.
#[pyfunction]
pub(crate) fn _group_names(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<String>> {
    let inner: Inner = store.get().inner(py)?;
    py.detach(|| consumer::group_names(&inner)).or_raise(py)
}

fn tell<'py>(py: Python<'py>, found: &GroupInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &found.name)?;
    let members: PyResult<Vec<_>> = found.members.iter().map(|m| member(py, m)).collect();
    dict.set_item("members", members?)?;
    dict.set_item("cursor_in", &found.cursor_in)?;
    let error = found.cursors.as_ref().err();
    dict.set_item("error", error.map(ToString::to_string))?;
    dict.set_item("error_class", error.map(class))?;
    let cursors: PyResult<Vec<_>> =
        found.cursors.iter().flatten().map(|found| cursor(py, found)).collect();
    dict.set_item("partitions", cursors?)?;
    Ok(dict)
}

fn member<'py>(py: Python<'py>, found: &MemberInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("process", found.process)?;
    dict.set_item("slot", found.slot)?;
    dict.set_item("handle", found.handle)?;
    Ok(dict)
}

fn cursor<'py>(py: Python<'py>, found: &GroupPartitionInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("topic", &found.topic)?;
    dict.set_item("generation", hex(&found.generation))?;
    dict.set_item("partition", found.partition)?;
    dict.set_item("committed", found.committed)?;
    dict.set_item("metadata", &found.metadata)?;
    dict.set_item("safe", found.safe)?;
    dict.set_item("owner", found.owner.as_ref().map(|owner| member(py, owner)).transpose()?)?;
    Ok(dict)
}

/// Return the name of a topic in a log; None without such a log.
#[pyfunction]
pub(crate) fn _topic_in_log(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    log: &Bound<'_, PyString>,
) -> PyResult<Option<String>> {
    let inner = store.get().inner(py)?;
    let log = log.to_string_lossy();
    let found = py.detach(|| inner.topic_in_log(&log)).or_raise(py)?;
    Ok(found.map(|topic| topic.name))
}

/// Set a committed offset of a group without members; return the offset.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "a tuple of Python's comes as one")]
pub(crate) fn _seek_group(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    name: &Bound<'_, PyString>,
    topic: &Bound<'_, PyString>,
    #[pyo3(from_py_with = input::partition_number)] partition: u32,
    start: (String, i64),
) -> PyResult<u64> {
    let (inner, patience) = (store.get().inner(py)?, store.get().patience());
    let (name, topic) = (name.to_string_lossy(), topic.to_string_lossy());
    let to = start_of(&start.0, start.1);
    let options = falaj::internals::store::TopicOptions::default();
    let topic = py.detach(|| {
        inner.topic_settings(&topic)?;
        falaj::internals::topic::Topic::open(&inner, &topic, &options)
    });
    let topic = topic.or_raise(py)?;
    patiently(py, patience, || consumer::seek_group(&inner, &name, &topic, partition, to))
}

/// Return the fingerprint of the block before an offset: (checksum, time), both 0 without one.
#[pyfunction]
pub(crate) fn _position_of(
    py: Python<'_>,
    topic: &Bound<'_, AnyTopic>,
    #[pyo3(from_py_with = input::partition_number)] partition: u32,
    #[pyo3(from_py_with = input::offset_number)] offset: u64,
) -> PyResult<(u32, i64)> {
    let open = topic.get().opened.handle.open_existing(py)?;
    let found = consumer::position_of(&open.topic, partition, offset).or_raise(py)?;
    Ok((found.crc, found.time_us))
}

/// Delete a consumer group without living members.
#[pyfunction]
pub(crate) fn _delete_group(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    name: &Bound<'_, PyString>,
) -> PyResult<()> {
    let (inner, patience) = (store.get().inner(py)?, store.get().patience());
    let name = name.to_string_lossy();
    patiently(py, patience, || consumer::delete_group(&inner, &name))
}

/// Forget the committed offsets of a consumer group in one topic.
#[pyfunction]
pub(crate) fn _forget_topic(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    group: &Bound<'_, PyString>,
    topic: &Bound<'_, PyString>,
) -> PyResult<()> {
    let (inner, patience) = (store.get().inner(py)?, store.get().patience());
    let (group, topic) = (group.to_string_lossy(), topic.to_string_lossy());
    patiently(py, patience, || consumer::forget_topic(&inner, &group, &topic).map(drop))
}
