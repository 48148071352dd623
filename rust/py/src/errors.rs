//! The one mapping from the engine's errors to Python's exceptions.
//!
//! Owns which class of `falaj.errors` each error becomes, and its attributes. The classes are
//! Python's, because they derive from two bases; they are imported when first needed.

use std::ffi::OsStr;
use std::path::Path;

use falaj::internals::error::Error;
use pyo3::exceptions::{PyException, PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::calling::{call, once};
use crate::coding::Coding;

/// The codecs whose errors are sentences of falaj.
const BUILT_IN: [&str; 5] = ["bytes", "json", "msgpack", "pickle", "str"];

/// Turns the engine's results into Python's.
pub(crate) trait OrRaise<T> {
    /// Return the value, or raise the exception for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}

/// Make an exception for a bad argument.
pub(crate) fn invalid(py: Python<'_>, what: impl Into<String>) -> PyErr {
    raise(py, &Error::InvalidArgument { what: what.into() })
}

/// Convert an exception of a codec to the error of the record that it cannot read. Ctrl-C and a
/// lack of memory, which are no failures of the codec, pass unchanged.
#[cold]
pub(crate) fn not_decoded(
    py: Python<'_>,
    cause: PyErr,
    codec: &str,
    (topic, partition, offset): (&str, u32, u64),
) -> PyErr {
    if !is_of_codec(py, &cause) {
        return cause;
    }
    let place = shown(Some(partition));
    let what = format!(
        "the codec {codec:?} cannot read record {offset} of topic {topic:?}{place} ({cause}): read \
         `record.raw`, or open the topic with the codec that wrote the record"
    );
    let failed = of_codec(py, "DecodeFailed", what, (topic, Some(partition), Some(offset)));
    failed.set_cause(py, Some(cause));
    failed
}

/// Convert an exception of a codec to the error of a value that it does not take, as [`not_decoded`]
/// does. The built-in codecs say themselves what to do.
#[cold]
pub(crate) fn not_encoded(
    cause: PyErr,
    value: &Bound<'_, PyAny>,
    coding: &Coding,
    partition: Option<u32>,
) -> PyErr {
    let py = value.py();
    if !is_of_codec(py, &cause) {
        return cause;
    }
    let Coding { topic, name, encode, .. } = coding;
    let kind = value.get_type().name().map_or_else(|_| "value".into(), |name| name.to_string());
    let codec = encode.as_ref().map_or_else(String::new, |_| format!(" (codec {name:?})"));
    let begin =
        format!("topic {topic:?}{}{codec} does not take this {kind} value", shown(partition));
    let is_worded = cause.is_instance_of::<PyTypeError>(py) || is(py, &cause, "InvalidArgument");
    let what = match BUILT_IN.contains(&name.as_str()) {
        true if is_worded => format!("{begin}: {}", cause.value(py)),
        true => format!("{begin}: {cause}"),
        false if encode.is_none() => format!("{begin}: {}", cause.value(py)),
        false => format!("{begin} ({cause}): give what `encode` of the codec takes, or mend that"),
    };
    let failed = of_codec(py, "EncodeFailed", what, (topic, partition, None));
    failed.set_cause(py, Some(cause));
    failed
}

/// Return false for Ctrl-C and a lack of memory, which are no failures of a codec.
pub(crate) fn is_of_codec(py: Python<'_>, cause: &PyErr) -> bool {
    cause.is_instance_of::<PyException>(py) && !cause.is_instance_of::<PyMemoryError>(py)
}

/// Name a partition behind its topic, unless it may be the only one.
pub(crate) fn shown(partition: Option<u32>) -> String {
    let other = partition.filter(|partition| *partition > 0);
    other.map_or_else(String::new, |partition| format!(", partition {partition}"))
}

fn of_codec(
    py: Python<'_>,
    class: &str,
    what: String,
    (topic, partition, offset): (&str, Option<u32>, Option<u64>),
) -> PyErr {
    let make = || {
        let failed = call(&classes(py)?.getattr(class)?, (what,))?;
        failed.setattr("topic", topic)?;
        failed.setattr("partition", partition)?;
        failed.setattr("offset", offset)?;
        Ok(PyErr::from_value(failed))
    };
    make().unwrap_or_else(|error| error)
}

/// Return true for an exception of this class of `falaj.errors`.
#[cold]
pub(crate) fn is(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    error.get_type(py).name().is_ok_and(|name| name == class)
}

/// Convert an error to an exception.
#[cold]
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if matches!(error, Error::Interrupted) {
        if let Err(signal) = py.check_signals() {
            return signal;
        }
    }
    if let Some(raised) = raised_by_python(py, error) {
        return raised;
    }
    build(py, error).unwrap_or_else(|failed| failed)
}

/// Return the exception of Python code that the engine called, such as one that fetches a segment.
fn raised_by_python(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let Error::SystemCallFailed { source, .. } = error else { return None };
    source.get_ref()?.downcast_ref::<PyErr>().map(|raised| raised.clone_ref(py))
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let text = of_place(error).unwrap_or_else(|| error.to_string());
    let exception = call(&classes(py)?.getattr(class(error))?, (text,))?;
    if let Some(number) = error.os_error() {
        exception.setattr("errno", number)?;
        exception.setattr("strerror", std::io::Error::from_raw_os_error(number).to_string())?;
    }
    if let Some(path) = path(error) {
        let path: &OsStr = path.as_os_str();
        exception.setattr("path", path)?;
        if error.os_error().is_some() {
            exception.setattr("filename", path)?;
        }
    }
    if let Some(position) = position(error) {
        exception.setattr("position", position)?;
    }
    if let Some(offset) = offset(error) {
        exception.setattr("offset", offset)?;
    }
    if let Some(topic) = topic(error) {
        exception.setattr("topic", topic)?;
    }
    if let Some(partition) = partition(error) {
        exception.setattr("partition", partition)?;
    }
    if let Error::OffsetConflict { expected, next, .. } = error {
        exception.setattr("expected", expected)?;
        exception.setattr("next", next)?;
    }
    if let Error::OutOfOrderSequence { next, .. } = error {
        exception.setattr("next", next)?;
    }
    if let Error::DuplicateSequence { highest, .. } = error {
        exception.setattr("highest", highest)?;
    }
    if let Error::SettingsMismatch { setting, stored, asked, .. } = error {
        exception.setattr("setting", setting)?;
        exception.setattr("stored", stored)?;
        exception.setattr("asked", asked)?;
    }
    if let Error::LogTruncated { end, .. } = error {
        exception.setattr("end", end)?;
    }
    if let Error::OffsetOutOfRange { first, end, .. } = error {
        exception.setattr("first", first)?;
        exception.setattr("end", end)?;
    }
    if let Error::DurabilityUnknown { source, .. } = error {
        exception.setattr("__cause__", build(py, source)?.into_value(py))?;
    }
    Ok(PyErr::from_value(exception))
}

/// Describe an error of a store that is read from a place, which is named beside its directory: users do
/// not know the directory.
fn of_place(error: &Error) -> Option<String> {
    let (Error::NotWritable { path }
    | Error::UnknownTopic { store: path, .. }
    | Error::UnknownGroup { store: path, .. }
    | Error::UnknownQueue { store: path, .. }) = error
    else {
        return None;
    };
    let root = path.ancestors().take(4).find(|path| path.ends_with("store"))?;
    let place = std::fs::read_to_string(root.with_file_name("place.url")).ok()?;
    if !matches!(error, Error::NotWritable { .. }) {
        return Some(error.to_string().replace(&*root.to_string_lossy(), &place));
    }
    Some(format!(
        "nothing is written to {place}, which is a place that is read. Write to the store that is \
         shipped there, or to a copy that falaj.restore() makes"
    ))
}

fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    once(&MODULE, py, || py.import("falaj.errors").map(Bound::unbind)).map(|module| module.bind(py))
}

/// Return the name of the class of `falaj.errors` for an error.
pub(crate) fn class(error: &Error) -> &'static str {
    match error {
        Error::SystemCallFailed { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "PermissionDenied"
        }
        Error::SystemCallFailed { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            "PathNotFound"
        }
        Error::SystemCallFailed { .. } => "SystemCallFailed",
        Error::NoSpace { .. } => "NoSpace",
        Error::NotAStore { .. } => "NotAStore",
        Error::StoreNotFound { .. } => "StoreNotFound",
        Error::UnsupportedVersion { .. } => "UnsupportedVersion",
        Error::OutdatedFormat { .. } => "OutdatedFormat",
        Error::CorruptData { .. } | Error::CorruptPieces { .. } => "CorruptData",
        Error::NeedsRecovery { .. } => "NeedsRecovery",
        Error::SyncFailed { .. } => "SyncFailed",
        Error::LockTimeout { .. } => "LockTimeout",
        Error::LockFileReplaced { .. } => "LockFileReplaced",
        Error::FilesRemoved { .. } => "FilesRemoved",
        Error::TooManyWriters { .. } => "TooManyWriters",
        Error::UnsupportedFilesystem { .. } => "UnsupportedFilesystem",
        Error::InvalidName { .. } => "InvalidName",
        Error::InvalidArgument { .. } => "InvalidArgument",
        Error::AppendTooLarge { .. } => "AppendTooLarge",
        Error::UnknownTopic { .. } => "UnknownTopic",
        Error::TopicDeleted { .. } => "TopicDeleted",
        Error::TopicFinished { .. } => "TopicFinished",
        Error::SettingsMismatch { .. } => "SettingsMismatch",
        Error::OffsetOutOfRange { .. } => "OffsetOutOfRange",
        Error::RecordCompacted { .. } => "RecordCompacted",
        Error::OffsetConflict { .. } => "OffsetConflict",
        Error::OutOfOrderSequence { .. } => "OutOfOrderSequence",
        Error::LogTruncated { .. } => "LogTruncated",
        Error::PartitionNotAssigned { .. } => "PartitionNotAssigned",
        Error::CursorMoved { .. } => "CursorMoved",
        Error::UnknownGroup { .. } => "UnknownGroup",
        Error::UnknownQueue { .. } => "UnknownQueue",
        Error::DuplicateSequence { .. } => "DuplicateSequence",
        Error::LeaseExpired { .. } => "LeaseExpired",
        Error::InvalidManifest { .. } => "InvalidManifest",
        Error::NotStaged { .. } => "NotStaged",
        Error::NotWritable { .. } => "NotWritable",
        Error::HandleClosed { .. } => "HandleClosed",
        Error::DurabilityUnknown { .. } => "DurabilityUnknown",
        Error::NoShipper { .. } => "NoShipper",
        Error::Fenced { .. } => "Fenced",
        Error::RemoteTimeout { .. } => "RemoteTimeout",
        _ => "Error",
    }
}

fn path(error: &Error) -> Option<&Path> {
    match error {
        Error::SystemCallFailed { path, .. }
        | Error::NoSpace { path, .. }
        | Error::NotAStore { path, .. }
        | Error::StoreNotFound { path, .. }
        | Error::UnsupportedVersion { path, .. }
        | Error::OutdatedFormat { path, .. }
        | Error::CorruptData { path, .. }
        | Error::CorruptPieces { path, .. }
        | Error::NeedsRecovery { path, .. }
        | Error::SyncFailed { path, .. }
        | Error::LockTimeout { path, .. }
        | Error::RemoteTimeout { path, .. }
        | Error::LockFileReplaced { path }
        | Error::FilesRemoved { path }
        | Error::TooManyWriters { path, .. }
        | Error::UnsupportedFilesystem { path, .. }
        | Error::NotStaged { path, .. }
        | Error::NotWritable { path } => Some(path),
        Error::NoShipper { store, .. }
        | Error::Fenced { store, .. }
        | Error::UnknownTopic { store, .. }
        | Error::UnknownGroup { store, .. }
        | Error::UnknownQueue { store, .. } => Some(store),
        Error::DurabilityUnknown { source, .. } => path(source),
        _ => None,
    }
}

fn topic(error: &Error) -> Option<&str> {
    match error {
        Error::OffsetConflict { topic, .. }
        | Error::OutOfOrderSequence { topic, .. }
        | Error::DuplicateSequence { topic, .. }
        | Error::TopicFinished { topic, .. }
        | Error::TopicDeleted { name: topic }
        | Error::SettingsMismatch { topic, .. }
        | Error::LogTruncated { topic, .. }
        | Error::OffsetOutOfRange { topic, .. }
        | Error::RecordCompacted { topic, .. }
        | Error::PartitionNotAssigned { topic, .. } => Some(topic),
        _ => None,
    }
}

fn partition(error: &Error) -> Option<u32> {
    match error {
        Error::OffsetConflict { partition, .. }
        | Error::OutOfOrderSequence { partition, .. }
        | Error::DuplicateSequence { partition, .. }
        | Error::TopicFinished { partition, .. }
        | Error::LogTruncated { partition, .. }
        | Error::OffsetOutOfRange { partition, .. }
        | Error::PartitionNotAssigned { partition, .. } => Some(*partition),
        _ => None,
    }
}

fn position(error: &Error) -> Option<u64> {
    match error {
        Error::CorruptData { position, .. }
        | Error::CorruptPieces { position, .. }
        | Error::NeedsRecovery { position, .. } => Some(*position),
        Error::UnsupportedVersion { position, .. } => *position,
        _ => None,
    }
}

fn offset(error: &Error) -> Option<i128> {
    match error {
        Error::OffsetOutOfRange { offset, .. } => Some(*offset),
        Error::RecordCompacted { offset, .. }
        | Error::LogTruncated { offset, .. }
        | Error::LeaseExpired { offset, .. }
        | Error::DurabilityUnknown { offset, .. }
        | Error::NoShipper { offset: Some(offset), .. }
        | Error::Fenced { offset: Some(offset), .. }
        | Error::RemoteTimeout { offset: Some(offset), .. } => Some(i128::from(*offset)),
        _ => None,
    }
}
