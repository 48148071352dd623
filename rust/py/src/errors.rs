//! The one mapping from the engine's errors to Python's exceptions.
//!
//! Owns which class of `falaj.errors` tells which situation, and the attributes that come with it.
//! The classes are Python's, because they derive from two bases; they are imported when first needed.

use std::ffi::OsStr;
use std::path::Path;

use falaj::internals::error::{Error, Remedy};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// Turns the engine's results into Python's.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception that tells the caller's situation.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}

/// An exception for a bad argument.
pub(crate) fn invalid(py: Python<'_>, what: impl Into<String>) -> PyErr {
    raise(py, &Error::Invalid { what: what.into() })
}

/// True for an exception of this class of `falaj.errors`.
#[cold]
pub(crate) fn is(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    error.get_type(py).name().is_ok_and(|name| name == class)
}

/// The exception for an error.
#[cold]
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if matches!(error, Error::Interrupted) {
        if let Err(signal) = py.check_signals() {
            return signal;
        }
    }
    build(py, error).unwrap_or_else(|failed| failed)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let exception = classes(py)?.getattr(class(error))?.call1((error.to_string(),))?;
    exception.setattr("remedy", remedy(error))?;
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
    if let Error::Conflict { expected, next } = error {
        exception.setattr("expected", expected)?;
        exception.setattr("next", next)?;
    }
    if let Error::OutOfSequence { next, .. } = error {
        exception.setattr("next", next)?;
    }
    if let Error::LogRewound { topic, partition, end, .. } = error {
        exception.setattr("topic", topic)?;
        exception.setattr("partition", partition)?;
        exception.setattr("end", end)?;
    }
    if let Error::OffsetOutOfRange { topic, partition, first, end, .. } = error {
        exception.setattr("topic", topic)?;
        exception.setattr("partition", partition)?;
        exception.setattr("first", first)?;
        exception.setattr("end", end)?;
    }
    if let Error::DurabilityUnknown { source, .. } = error {
        exception.setattr("__cause__", build(py, source)?.into_value(py))?;
    }
    Ok(PyErr::from_value(exception))
}

fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("falaj.errors").map(Bound::unbind))?;
    Ok(module.bind(py))
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            "NotPermitted"
        }
        Error::Io { .. } => "IOFailed",
        Error::NoSpace { .. } => "NoSpace",
        Error::NotAStore { .. } => "NotAStore",
        Error::Newer { .. } => "Newer",
        Error::Older { .. } => "Older",
        Error::Corrupt { .. } => "Corrupt",
        Error::NeedsRecovery { .. } => "NeedsRecovery",
        Error::Latched { .. } => "Latched",
        Error::LockTimeout { .. } => "LockTimeout",
        Error::LockFileReplaced { .. } => "LockFileReplaced",
        Error::FilesRemoved { .. } => "FilesRemoved",
        Error::NoSlot { .. } => "NoSlot",
        Error::Filesystem { .. } => "FilesystemRefused",
        Error::BadName { .. } => "BadName",
        Error::Invalid { .. } => "Invalid",
        Error::TooLarge { .. } => "TooLarge",
        Error::NoSuchTopic { .. } => "NoSuchTopic",
        Error::TopicDeleted { .. } => "TopicDeleted",
        Error::SettingsMismatch { .. } => "SettingsMismatch",
        Error::OffsetOutOfRange { .. } => "OffsetOutOfRange",
        Error::Compacted { .. } => "Compacted",
        Error::Conflict { .. } => "Conflict",
        Error::OutOfSequence { .. } => "OutOfSequence",
        Error::LogRewound { .. } => "LogRewound",
        Error::NotOwner { .. } | Error::CursorMoved { .. } => "NotOwner",
        Error::NoSuchConsumer { .. } => "NoSuchConsumer",
        Error::DuplicateUnknownOffset { .. } => "DuplicateUnknownOffset",
        Error::LeaseOver { .. } => "LeaseOver",
        Error::BadManifest { .. } => "BadManifest",
        Error::NotStaged { .. } => "NotStaged",
        Error::ReadOnly { .. } => "ReadOnly",
        Error::Closed { .. } => "Closed",
        Error::DurabilityUnknown { .. } => "DurabilityUnknown",
        _ => "Error",
    }
}

/// What helps against an error, in the words that `falaj.Error.remedy` has.
pub(crate) fn remedy(error: &Error) -> &'static str {
    match error.remedy() {
        Remedy::Retry => "retry",
        Remedy::FixInput => "fix the input",
        Remedy::FixMachine => "fix the machine",
        Remedy::Repair => "repair",
        Remedy::Upgrade => "upgrade",
        Remedy::Reopen => "reopen",
    }
}

fn path(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. }
        | Error::NoSpace { path, .. }
        | Error::NotAStore { path, .. }
        | Error::Newer { path, .. }
        | Error::Older { path, .. }
        | Error::Corrupt { path, .. }
        | Error::NeedsRecovery { path, .. }
        | Error::Latched { path, .. }
        | Error::LockTimeout { path, .. }
        | Error::LockFileReplaced { path }
        | Error::FilesRemoved { path }
        | Error::NoSlot { path, .. }
        | Error::Filesystem { path, .. }
        | Error::NotStaged { path, .. }
        | Error::ReadOnly { path } => Some(path),
        Error::NoSuchTopic { store, .. } | Error::NoSuchConsumer { store, .. } => Some(store),
        Error::DurabilityUnknown { source, .. } => path(source),
        _ => None,
    }
}

fn position(error: &Error) -> Option<u64> {
    match error {
        Error::Corrupt { position, .. } | Error::NeedsRecovery { position, .. } => Some(*position),
        Error::Newer { position, .. } => *position,
        _ => None,
    }
}

fn offset(error: &Error) -> Option<i128> {
    match error {
        Error::OffsetOutOfRange { offset, .. } => Some(*offset),
        Error::Compacted { offset, .. }
        | Error::LogRewound { offset, .. }
        | Error::LeaseOver { offset, .. }
        | Error::DurabilityUnknown { offset, .. } => Some(i128::from(*offset)),
        _ => None,
    }
}
