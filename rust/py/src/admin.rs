//! Backup, verification, repair and information: the calls of people who look after a store.
//!
//! Results are plain dicts and lists, for tables and JSON alike. Verification and repair take a
//! path: the stores that need them may fail to open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::format::names::hex;
use falaj::internals::log::{LockInfo, LogExtent, RepairStep};
use falaj::internals::shipper::Shipper;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{Filesystem, Storage};
use falaj::internals::store::{
    CountFrom, Finding, LogInfo, LogRepair, LogReport, SlotInfo, StoreInfo, StoreOptions,
    TopicInfo, repair, verify,
};
use falaj::internals::topic::Skipped;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::calling::call;
use crate::errors::{OrRaise, class};
use crate::input;
use crate::retention::shown;
use crate::store::Store;
use crate::wait::{ATTEMPT, patiently, seconds};

pub(crate) type Object<'py> = PyResult<Bound<'py, PyDict>>;

/// Makes a dict of names and values.
macro_rules! dict {
    ($py:expr, $($name:literal: $value:expr),+ $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item($name, $value)?;)+
        dict
    }};
}
pub(crate) use dict;

pub(crate) fn list<'py, T>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
    show: impl Fn(Python<'py>, T) -> Object<'py>,
) -> PyResult<Bound<'py, PyList>> {
    let items: PyResult<Vec<_>> = items.into_iter().map(|item| show(py, item)).collect();
    PyList::new(py, items?)
}

/// Run work that reports its progress to a callable, which may raise; signals end it, too.
pub(crate) fn with_progress<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let ended = py.detach(|| {
        work(&mut |done, total| {
            // None while the interpreter shuts down: then the work ends as well.
            let told = Python::try_attach(|py| {
                py.check_signals()?;
                progress.map_or(Ok(()), |tell| call(tell.bind(py), (done, total)).map(drop))
            });
            match told {
                Some(Ok(())) => Ok(()),
                Some(Err(error)) => {
                    raised = Some(error);
                    Err(Error::Interrupted)
                }
                None => Err(Error::Interrupted),
            }
        })
    });
    match (ended, raised) {
        (Err(_), Some(raised)) => Err(raised),
        (ended, _) => ended.or_raise(py),
    }
}

/// Return sentences, and the remedy for each.
pub(crate) fn told(problems: &[Error]) -> (Vec<String>, Vec<&'static str>) {
    problems.iter().map(|problem| (problem.to_string(), class(problem))).unzip()
}

fn real() -> Arc<dyn Storage> {
    Arc::new(RealStorage::new())
}

fn place(address: Address) -> (u64, u64) {
    (address.sequence(), address.position())
}

/// See falaj.Store.backup.
#[pyfunction]
#[pyo3(signature = (store, path, progress = None))]
#[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
pub(crate) fn _backup<'py>(
    py: Python<'py>,
    store: &Store,
    #[pyo3(from_py_with = input::path)] path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> Object<'py> {
    let inner = store.inner(py)?;
    let done = with_progress(py, progress.as_ref(), |tell| inner.backup(path, tell))?;
    let (problems, error_classes) = told(&done.problems);
    Ok(dict!(py,
        "topics": done.topics,
        "logs": done.logs,
        "segments": done.segments,
        "bytes": done.bytes,
        "problems": problems,
        "error_classes": error_classes,
    ))
}

/// See `Records.skip_damage`.
pub(crate) fn skipped<'py>(
    py: Python<'py>,
    told: &[(u32, Skipped)],
) -> PyResult<Bound<'py, PyList>> {
    list(py, told, |py, (partition, lost)| skipped_in(py, *partition, lost))
}

/// Describe the same for one partition.
pub(crate) fn skipped_in<'py>(py: Python<'py>, partition: u32, lost: &Skipped) -> Object<'py> {
    Ok(dict!(py,
        "path": lost.path.as_os_str(),
        "position": lost.position,
        "partition": partition,
        "offsets": (lost.offsets.start, lost.offsets.end),
    ))
}

/// See falaj.verify.
#[pyfunction]
#[pyo3(signature = (path, topic = None, progress = None))]
#[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
pub(crate) fn _verify<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = input::path)] path: PathBuf,
    topic: Option<&Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> Object<'py> {
    let topic = input::verified_topic(topic)?;
    let topic = topic.map(PyStringMethods::to_string_lossy);
    let topic = topic.as_deref();
    let found = with_progress(py, progress.as_ref(), |tell| verify(&real(), &path, topic, tell))?;
    Ok(dict!(py,
        "sound": found.is_sound(),
        "worst": found.worst().map(falaj::internals::store::Severity::name),
        "findings": list(py, &found.findings, finding)?,
        "logs": list(py, &found.logs, log_report)?,
    ))
}

fn finding<'py>(py: Python<'py>, finding: &Finding) -> Object<'py> {
    Ok(dict!(py,
        "severity": finding.severity.name(),
        "path": finding.path.as_os_str(),
        "position": finding.position,
        "length": finding.len,
        "topic": &finding.topic,
        "partition": finding.partition,
        "offsets": finding.offsets.as_ref().map(|lost| (lost.start, lost.end)),
        "what": &finding.what,
        "remedy": &*finding.remedy,
    ))
}

fn log_report<'py>(py: Python<'py>, log: &LogReport) -> Object<'py> {
    let topics = list(py, &log.topics, |py, topic| {
        Ok(dict!(py,
            "topic": &topic.topic,
            "partition": topic.partition,
            "first": topic.first,
            "end": topic.end,
            "found": topic.found,
            "durable": topic.durable,
        ))
    })?;
    Ok(dict!(py,
        "path": log.dir.as_os_str(),
        "topics": topics,
        "committed": place(log.committed),
        "recovered": log.recovered.map(place),
        "durable": place(log.durable),
        "latched": log.latched,
        "segments": log.segments,
        "blocks": log.blocks,
        "records": log.records,
        "bytes": log.bytes,
        "findings": list(py, &log.findings, finding)?,
        "more_findings": log.more_findings,
    ))
}

/// See falaj.repair.
#[pyfunction]
#[pyo3(signature = (path, *, dry_run = true, lock_timeout = 10.0, allow_network_fs = false))]
#[allow(clippy::needless_pass_by_value, reason = "pyo3 makes a path of what it is given")]
pub(crate) fn _repair(
    py: Python<'_>,
    #[pyo3(from_py_with = input::path)] path: PathBuf,
    dry_run: bool,
    #[pyo3(from_py_with = input::lock_timeout)] lock_timeout: f64,
    allow_network_fs: bool,
) -> Object<'_> {
    let patience = seconds(py, Some(lock_timeout))?.unwrap_or(Duration::MAX);
    let lock_timeout = patience.min(ATTEMPT);
    let options = StoreOptions { allow_network_fs, lock_timeout, ..StoreOptions::default() };
    let done = patiently(py, patience, || repair(real(), &path, &options, dry_run))?;
    let (problems, error_classes) = told(&done.problems);
    Ok(dict!(py,
        "dry_run": done.dry_run,
        "in_use": done.in_use,
        "complete": done.is_complete(),
        "logs": list(py, &done.logs, log_repair)?,
        "problems": problems,
        "error_classes": error_classes,
    ))
}

fn log_repair<'py>(py: Python<'py>, log: &LogRepair) -> Object<'py> {
    Ok(dict!(py,
        "path": log.dir.as_os_str(),
        "topics": &log.topics,
        "steps": list(py, &log.steps, step)?,
        "ends": &log.ends,
        "problem": log.problem.as_ref().map(ToString::to_string),
        "error_class": log.problem.as_ref().map(class),
    ))
}

fn step<'py>(py: Python<'py>, step: &RepairStep) -> Object<'py> {
    Ok(dict!(py,
        "action": step.mend.name(),
        "path": step.path.as_os_str(),
        "position": step.position,
        "bytes": step.bytes,
        "why": &step.why,
    ))
}

/// See falaj.Store.info.
#[pyfunction]
pub(crate) fn _info<'py>(py: Python<'py>, store: &Store) -> Object<'py> {
    let inner = store.inner(py)?;
    let info = py.detach(|| inner.info()).or_raise(py)?;
    let filesystem = match &info.filesystem {
        Filesystem::Promises(kind) | Filesystem::CopyOnWrite(kind) | Filesystem::Remote(kind) => {
            (*kind).to_owned()
        }
        Filesystem::Unknown(kind) => format!("{kind:#x}"),
    };
    let slots = &info.slots;
    Ok(dict!(py,
        "path": info.path.as_os_str(),
        "format": info.format,
        "id": hex(&info.settings.id),
        "created_us": info.settings.created_us,
        "write_mode": info.settings.write_mode.name(),
        "retention_bytes": info.settings.retention_bytes,
        "ship_backlog_bytes": info.settings.ship_backlog_bytes,
        "ship_min_sync": info.settings.ship_min_sync.unwrap_or(1),
        "shipper": shipper(py, &info)?,
        "filesystem": filesystem,
        "incarnation": info.incarnation.map(|number| format!("{number:016x}")),
        "slots": list(py, slots, slot)?,
        "topics": list(py, &info.topics, topic_info)?,
        "logs": list(py, &info.logs, |py, log| log_info(py, log, slots))?,
    ))
}

/// Count the records from each of these places on: topic, generation, partition, offset.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "a list of Python's comes as a vector")]
pub(crate) fn _count_from(
    py: Python<'_>,
    store: &Store,
    places: Vec<(String, String, u32, u64)>,
) -> PyResult<Vec<Option<u64>>> {
    let inner = store.inner(py)?;
    let place = |(topic, generation, partition, offset): (String, String, u32, u64)| {
        let generation = falaj::internals::format::names::unhex(&generation)?;
        Some(CountFrom { topic, generation, partition, offset })
    };
    let places: Vec<_> = places.into_iter().map(place).collect();
    let known: Vec<_> = places.iter().flatten().cloned().collect();
    let mut counted = py.detach(|| inner.count_from(&known)).into_iter();
    Ok(places.iter().map(|place| place.as_ref().and_then(|_| counted.next().flatten())).collect())
}

fn slot<'py>(py: Python<'py>, slot: &SlotInfo) -> Object<'py> {
    Ok(dict!(py,
        "slot": slot.slot,
        "generation": slot.generation,
        "process": slot.process,
        "since_us": slot.since_us,
        "alive": slot.alive,
    ))
}

/// Give the report of `_info` for one topic.
#[pyfunction]
pub(crate) fn _topic_info<'py>(
    py: Python<'py>,
    store: &Store,
    name: &Bound<'py, PyString>,
) -> Object<'py> {
    let (inner, name) = (store.inner(py)?, name.to_string_lossy());
    let info = py.detach(|| inner.topic_info(&name)).or_raise(py)?;
    topic_info(py, &info)
}

fn topic_info<'py>(py: Python<'py>, topic: &TopicInfo) -> Object<'py> {
    let problem = topic.settings.as_ref().err().or(topic.partitions.as_ref().err());
    let settings = topic.settings.as_ref().ok();
    let partitions = list(py, topic.partitions.iter().flatten(), |py, partition| {
        Ok(dict!(py,
            "partition": partition.partition,
            "first": partition.first,
            "end": partition.end,
            "durable": partition.durable,
        ))
    })?;
    let finished = topic.partitions.as_ref().ok().map(|parts| parts.iter().all(|it| it.finished));
    Ok(dict!(py,
        "name": &topic.name,
        "codec": settings.filter(|it| !it.codec_unnamed).map(|settings| &settings.codec),
        "partitions": partitions,
        "log": settings.map(|settings| &settings.log),
        "segment_bytes": settings.map(|settings| settings.segment_bytes),
        "sync_interval_ms": settings.map(|settings| settings.sync_interval_ms),
        "compacted": settings.map(|settings| settings.compacted),
        "finished": finished.filter(|_| settings.is_some()),
        "retention": settings.map(|settings| shown(py, &settings.retention)).transpose()?,
        "properties": settings.map(|settings| &settings.properties),
        "generation": settings.map(|settings| hex(&settings.generation)),
        "created_us": settings.map(|settings| settings.created_us),
        "problem": problem.map(ToString::to_string),
        "error_class": problem.map(class),
    ))
}

fn log_info<'py>(py: Python<'py>, log: &LogInfo, slots: &[SlotInfo]) -> Object<'py> {
    let nothing = LogExtent::default();
    let extent = log.extent.as_ref().unwrap_or(&nothing);
    let segments = list(py, &extent.segments, |py, segment| {
        Ok(dict!(py,
            "sequence": segment.sequence,
            "live": segment.live,
            "reserved": segment.reserved,
        ))
    })?;
    Ok(dict!(py,
        "name": &log.name,
        "path": log.dir.as_os_str(),
        "topics": &log.topics,
        "committed": extent.committed.map(place),
        "durable": extent.durable.map(place),
        "remote": extent.remote.map(place),
        "unshipped": extent.unshipped,
        "latched": extent.latched,
        "deleted": extent.deleted,
        "segments": segments,
        "live": extent.live,
        "reserved": extent.reserved,
        "quarantined": extent.quarantined,
        "append_lock": lock(py, &extent.append_lock, slots)?,
        "sync_lock": lock(py, &extent.sync_lock, slots)?,
        "retention_problem": &log.retention_problem,
        "problem": log.extent.as_ref().err().map(ToString::to_string),
        "error_class": log.extent.as_ref().err().map(class),
    ))
}

/// Describe the process that ships the store; None where none does.
fn shipper<'py>(py: Python<'py>, info: &StoreInfo) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (state, process) = match info.shipper {
        Shipper::Absent => return Ok(None),
        Shipper::Fenced => ("fenced", None),
        Shipper::Process(process) => ("ships", Some(process)),
    };
    let slot = process.map(falaj::internals::lock::Identity::slot);
    let generation = process.map(falaj::internals::lock::Identity::generation);
    let known = info.slots.iter().find(|other| Some(other.slot) == slot);
    let known = known.filter(|known| known.generation == generation);
    let alive = known.and_then(|known| known.alive);
    Ok(Some(dict!(py,
        "state": if alive == Some(false) { "dead" } else { state },
        "slot": slot,
        "process": known.and_then(|known| known.process),
    )))
}

/// Describe a lock, and the slot of its holder.
fn lock<'py>(py: Python<'py>, lock: &LockInfo, slots: &[SlotInfo]) -> Object<'py> {
    let slot = lock.owner.map(falaj::internals::lock::Identity::slot);
    let generation = lock.owner.map(falaj::internals::lock::Identity::generation);
    let holder = slots.iter().find(|other| Some(other.slot) == slot);
    let holder = holder.filter(|holder| holder.generation == generation);
    Ok(dict!(py,
        "held": lock.held,
        "slot": slot,
        "process": holder.and_then(|holder| holder.process),
        "alive": holder.and_then(|holder| holder.alive),
        "contended": lock.contended,
    ))
}
