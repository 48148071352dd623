//! `Part`: records of a bulk load that one process stages; and committing a bulk load.
//!
//! The file that knows parts, manifests and idempotency keys. Record batches come by the Arrow C
//! interfaces. This file takes the pointers out of their capsules, and passes them to the crate
//! `falaj-arrow` at once. Invariant: attached threads hold the mutex for moments, and detached
//! threads that hold it never attach.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use falaj::internals::error::{Error, Result};
use falaj::internals::sink::{self, BulkLoad};
use falaj_arrow::export::SchemaRef;
use falaj_arrow::reader::Batch;
use falaj_arrow::{import, rows};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyTuple};

use crate::calling::call;
use crate::errors::{OrRaise, invalid};
use crate::input::{self, Incoming};
use crate::opened::Opened;
use crate::receipts;
use crate::wait::{patiently, patiently_after};

/// A part of a bulk load; see falaj.Part.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Part {
    opened: Opened,
    name: String,
    /// `None` once it was finished or aborted.
    inner: Mutex<Option<sink::StagedPart>>,
}

impl Part {
    fn inner(&self) -> MutexGuard<'_, Option<sink::StagedPart>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self, py: Python<'_>, record: &Incoming<'_>, partition: Option<u32>) -> PyResult<()> {
        let partition = partition.or(self.opened.only);
        let appended =
            self.with(|part| record.with_record(|record| part.append_to(record, partition)));
        appended.or_raise(py)
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut sink::StagedPart) -> Result<T>) -> Result<T> {
        match self.inner().as_mut() {
            Some(part) => use_it(part),
            None => Err(OVER),
        }
    }
}

const OVER: Error = Error::HandleClosed { what: "part" };

#[pymethods]
impl Part {
    /// Append a record to the part.
    ///
    /// Args:
    ///     value, key, headers, timestamp, timestamp_ns, partition: As for `Topic.append`.
    ///
    /// Raises:
    ///     InvalidArgument: The topic has no such partition.
    ///     AppendTooLarge: It is larger than one append may be.
    ///     HandleClosed: The part was finished or aborted.
    ///     NoSpace: The disk is full.
    #[pyo3(signature = (value, key=None, *, headers=None, timestamp=None, timestamp_ns=None, partition=None))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn append<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        py: Python<'py>,
    ) -> PyResult<()> {
        let record = self.opened.handle.encoding(py, |coding| {
            let timestamp = input::Timestamp { moment: timestamp, ns: timestamp_ns };
            Incoming::encoded(value, (coding, partition), (key, headers), timestamp)
        })?;
        self.stage(py, &record, partition)
    }

    /// Append a tombstone to the part: a key without a value, which deletes the key.
    ///
    /// Args:
    ///     key, headers, timestamp, timestamp_ns, partition: As for `Topic.tombstone`.
    ///
    /// Raises:
    ///     InvalidArgument, AppendTooLarge, HandleClosed, NoSpace: As for `append`.
    #[pyo3(signature = (key, *, headers=None, timestamp=None, timestamp_ns=None, partition=None))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn tombstone(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        let timestamp = input::Timestamp { moment: timestamp, ns: timestamp_ns };
        self.stage(py, &Incoming::tombstone(key, headers, timestamp)?, partition)
    }

    /// Append the rows of record batches, without the codec.
    ///
    /// Args:
    ///     batch: Anything with `__arrow_c_array__` or `__arrow_c_stream__`: a record batch, a table or a
    ///         reader of pyarrow, a frame of Polars. It has the column value (bytes or text). It may have
    ///         key (likewise), headers (lists of structs of a key and a value), timestamp (with a time
    ///         zone) and partition (integers). Each may be null. A null value is a tombstone.
    ///
    /// Returns:
    ///     The number of rows.
    ///
    /// Raises:
    ///     InvalidArgument: A column is missing, unknown or of another type.
    ///     AppendTooLarge, HandleClosed, NoSpace: As for `append`. Earlier rows may be staged: abort
    ///         the part. So too after the exception of a signal's handler.
    fn append_arrow(&self, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = batch.py();
        if let Some(batch) = exported(batch)? {
            return py.detach(|| self.with(|part| rows::stage(part, &batch))).or_raise(py);
        }
        let Ok(export) = batch.getattr(pyo3::intern!(py, "__arrow_c_stream__")) else {
            let kind = batch.get_type().name()?.to_string();
            let what = format!(
                "record batches have __arrow_c_array__ or __arrow_c_stream__, and {kind} has neither"
            );
            return Err(PyTypeError::new_err(what));
        };
        let capsule = call(&export, ())?;
        let at_stream = pointer(&capsule, c"arrow_array_stream")?;
        // SAFETY: a capsule of this name holds what the C stream interface defines. It is ours: the
        // call above made it, and it lives until the end of this function; no other code runs
        // meanwhile.
        let taken = unsafe { import::stream(at_stream) };
        let mut batches = taken.or_raise(py)?;
        // A stream of Python's attaches while it makes a batch, so the mutex is not held meanwhile.
        let mut stage = || Some(batches.next()?.and_then(|b| self.with(|p| rows::stage(p, &b))));
        let mut count = 0;
        while let Some(staged) = py.detach(&mut stage) {
            count += staged.or_raise(py)?;
            py.check_signals()?;
        }
        Ok(count)
    }

    /// Finish the part and sync it.
    ///
    /// Returns:
    ///     Its manifest, a few hundred bytes, which `Topic.commit_load` takes.
    ///
    /// Raises:
    ///     NotStaged: The load was committed or aborted meanwhile.
    ///     NoSpace: The disk is full; the part is given up.
    ///     HandleClosed: The part was finished or aborted.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let finished = py.detach(|| {
            let part = self.inner().take();
            part.map_or(Err(OVER), sink::StagedPart::finish)
        });
        Ok(PyBytes::new(py, &finished.or_raise(py)?))
    }

    /// Discard the part, and remove its staged file. A second call, or one after `finish`, does
    /// nothing.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| drop(self.inner().take()));
    }

    /// Write the held records to the part's file, and release their memory. Blocks end there, so do
    /// not call it after each record. It is for a process that writes many parts at once.
    ///
    /// Raises:
    ///     NoSpace: The disk is full.
    ///     HandleClosed: The part was finished or aborted.
    fn spill(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(sink::StagedPart::spill)).or_raise(py)
    }

    /// Bytes of memory for records that are not written yet: up to 16 MiB, without the last record;
    /// 0 once the part is over.
    #[getter]
    fn held(&self) -> usize {
        self.inner().as_ref().map_or(0, sink::StagedPart::held)
    }

    /// Name of the part.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.abort(py);
    }

    fn __repr__(&self) -> String {
        let state = match self.inner().as_ref() {
            Some(part) => format!("{} records", part.count()),
            None => "over".to_owned(),
        };
        format!("<falaj.Part {:?} of {:?}, {state}>", self.name, self.opened.handle.shape.name)
    }
}

/// Return a batch that an object of Python's exports; `None` if it exports none.
pub(crate) fn exported(batch: &Bound<'_, PyAny>) -> PyResult<Option<Batch>> {
    let py = batch.py();
    let Ok(export) = batch.getattr(pyo3::intern!(py, "__arrow_c_array__")) else {
        return Ok(None);
    };
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = call(&export, ())?.extract()?;
    let (at_schema, at_array) =
        (pointer(&schema, c"arrow_schema")?, pointer(&array, c"arrow_array")?);
    // SAFETY: capsules of these names hold what the C data interface defines. They are ours: the
    // call above made them, and they live until the end of this function; no other code runs
    // meanwhile.
    let taken = unsafe { import::batch(at_schema, at_array) };
    taken.map(Some).or_raise(py)
}

/// Return the schema that an object of Python's exports.
pub(crate) fn exported_schema(schema: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let py = schema.py();
    let capsule = call(&schema.getattr(pyo3::intern!(py, "__arrow_c_schema__"))?, ())?;
    let at = pointer(&capsule, c"arrow_schema")?;
    // SAFETY: as above.
    let taken = unsafe { import::schema(at) };
    taken.or_raise(py)
}

/// Return the pointer in a capsule of this name.
fn pointer(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<NonNull<c_void>> {
    capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))
}

fn load(py: Python<'_>, opened: &Opened, name: &str) -> PyResult<BulkLoad> {
    BulkLoad::new(&opened.handle.open(py)?.topic, name).or_raise(py)
}

/// Begin a part of a bulk load.
pub(crate) fn stage(
    py: Python<'_>,
    opened: &Opened,
    name: &str,
    part: &str,
    token: Option<&(String, u64)>,
) -> PyResult<Part> {
    if opened.partitions > 1 && opened.only.is_some() {
        let what = "a part is staged for a topic, not for one of its partitions: name that with each record";
        return Err(invalid(py, what));
    }
    let load = load(py, opened, name)?;
    let inner = load.stage(part, borrowed(token)).or_raise(py)?;
    Ok(Part { opened: opened.clone(), name: part.to_owned(), inner: Mutex::new(Some(inner)) })
}

fn borrowed(token: Option<&(String, u64)>) -> Option<(&str, u64)> {
    token.map(|(name, version)| (name.as_str(), *version))
}

/// Commit a bulk load. `told` gets the result as soon as it is committed, whatever is raised
/// afterwards.
pub(crate) fn commit(
    py: Python<'_>,
    opened: &Opened,
    name: &str,
    parts: &[Bound<'_, PyBytes>],
    token: Option<&(String, u64)>,
    told: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let load = load(py, opened, name)?;
    let parts: Vec<&[u8]> = parts.iter().map(PyBytesMethods::as_bytes).collect();
    let patience = opened.handle.patience;
    let ready = py.detach(|| load.ready(&parts, borrowed(token))).or_raise(py)?;
    let placed = patiently(py, patience, || ready.commit_visible())?;
    let done = ready.outcome(&placed);
    let offsets = PyDict::new(py);
    for (partition, range) in done.offsets {
        offsets.set_item(partition, (range.start, range.end))?;
        receipts::note(py, &opened.handle.shape, partition, range);
    }
    told.set_item("committed", done.now)?;
    told.set_item("records", done.records)?;
    told.set_item("offsets", offsets)?;
    let visible = |error| ready.visible(&placed, error);
    patiently_after(py, patience, visible, || ready.finish(&placed)).map(drop)
}

/// Remove the staged files of a bulk load.
pub(crate) fn abort(py: Python<'_>, opened: &Opened, name: &str) -> PyResult<()> {
    let load = load(py, opened, name)?;
    py.detach(|| load.abort()).or_raise(py)
}

/// Return the last committed version of an idempotency key.
pub(crate) fn last_idempotency_key(
    py: Python<'_>,
    opened: &Opened,
    name: &str,
) -> PyResult<Option<u64>> {
    let open = opened.handle.open_existing(py)?;
    let patience = opened.handle.patience;
    let found = patiently(py, patience, || sink::last_idempotency_key(&open.topic, name))?;
    Ok(found.map(|token| token.version))
}

/// Forget an idempotency key.
pub(crate) fn forget_idempotency_key(
    py: Python<'_>,
    opened: &Opened,
    name: &str,
) -> PyResult<bool> {
    let open = opened.handle.open(py)?;
    patiently(py, opened.handle.patience, || sink::forget_idempotency_key(&open.topic, name))
}

/// Remove what abandoned bulk loads left.
pub(crate) fn sweep(py: Python<'_>, opened: &Opened, older_than: f64) -> PyResult<u64> {
    let open = opened.handle.open(py)?;
    let Some(age) = crate::wait::seconds(py, Some(older_than))? else {
        return Err(invalid(py, "older_than is a number of seconds"));
    };
    py.detach(|| sink::sweep(&open.topic, age)).or_raise(py)
}
