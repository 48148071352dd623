//! `ArrowStream`: record batches by the Arrow C stream interface.
//!
//! The one file that knows both Arrow and Python. The crate `falaj-arrow` defines the contents of a
//! batch, and `falaj.arrow` selects the records. A stream is read once: by its first consumer.

use std::sync::{Arc, PoisonError};

use falaj::internals::error::Result;
use falaj_arrow::columns::{Column, Columns};
use falaj_arrow::export;
use falaj_arrow::fill::Limits;
use falaj_arrow::filter::Filter;
use falaj_arrow::reader::{self, Batch, Lane, Losses, Reader, c_batch};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyString};

use crate::admin::skipped;
use crate::any_topic::AnyTopic;
use crate::batch;
use crate::bulk_load::{exported, exported_schema};
use crate::calling::Items;
use crate::errors::{OrRaise, invalid};
use crate::gil_cell::GilCell;
use crate::leaving;

/// Records as Arrow record batches; see falaj.arrow.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct ArrowStream {
    reader: GilCell<Option<Reader>>,
    columns: Columns,
    losses: Losses,
}

#[pymethods]
impl ArrowStream {
    /// Return the stream in a capsule; works once.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface calls it a wish: a consumer that gets another schema casts.
        drop(requested_schema);
        let Some(reader) = self.reader.replace(py, None) else {
            return Err(invalid(py, READ_ONCE));
        };
        PyCapsule::new_with_value(py, reader.into_c_stream(), c"arrow_array_stream")
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Return the next batch, for readers in this package, with our own errors.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let Some(mut reader) = self.reader.replace(py, None) else {
            return Err(invalid(py, READ_ONCE));
        };
        let (reader, next) = py.detach(move || {
            let next = reader.next_batch();
            (reader, next)
        });
        self.reader.replace(py, Some(reader));
        Ok(next.or_raise(py)?.map(|batch| ArrowBatch { batch }))
    }

    /// Return the schema in a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = self.columns.c_schema().or_raise(py)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Return what was stepped over so far.
    fn _skipped<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        skipped(py, &losses)
    }
}

const READ_ONCE: &str =
    "a stream of record batches is read once, by one consumer: make another one";

/// One record batch.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct ArrowBatch {
    batch: Batch,
}

#[pymethods]
impl ArrowBatch {
    /// Return schema and array in capsules.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let (array, schema) = c_batch(&self.batch).or_raise(py)?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}

/// Make a stream of record batches from partitions of a topic: (number, first offset, offset after
/// the last). It may be limited to times (first and last, microseconds since 1970) and keys. With
/// more than one thread, threads read ahead.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "lists of Python's come as vectors")]
#[allow(clippy::too_many_arguments, reason = "falaj.arrow is the only caller")]
pub(crate) fn _arrow(
    py: Python<'_>,
    topic: PyRef<'_, AnyTopic>,
    lanes: Vec<(u32, u64, u64)>,
    columns: Vec<Bound<'_, PyString>>,
    views: bool,
    batch_rows: usize,
    batch_bytes: usize,
    skip: bool,
    times: Option<(i64, i64)>,
    keys: Option<Vec<Option<Vec<u8>>>>,
    threads: usize,
) -> PyResult<ArrowStream> {
    let columns = chosen(&columns, views).or_raise(py)?;
    let open = topic.opened.handle.open_existing(py)?;
    let seen = topic.seen(&open).clone();
    let lanes =
        lanes.into_iter().map(|(partition, from, end)| Lane { partition, offsets: from..end });
    let losses = Losses::default();
    let noted = skip.then(|| Arc::clone(&losses));
    let limits = Limits { rows: batch_rows, bytes: batch_bytes };
    let (since, until) = times.unwrap_or((i64::MIN, i64::MAX));
    let filter = Filter::new(since..=until, keys);
    let reader = Reader::new(seen, lanes.collect(), columns.clone(), limits, filter, noted);
    let reader = reader.and_then(|r| if threads > 1 { r.ahead(threads) } else { Ok(r) });
    let reader = reader.or_raise(py)?;
    Ok(ArrowStream { reader: GilCell::new(Some(reader)), columns, losses })
}

/// Make a stream of what Python's code makes: an iterator of objects with `__arrow_c_array__`, all
/// of one schema. The consumer may pull it in any thread, also while the process ends.
#[pyfunction]
pub(crate) fn _arrow_stream<'py>(
    schema: &Bound<'py, PyAny>,
    batches: Py<PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batches = Pulled(Some(batches));
    let made = export::stream(exported_schema(schema)?, move || batches.next());
    PyCapsule::new_with_value(schema.py(), made, c"arrow_array_stream")
}

/// An iterator of Python's, for threads of other libraries.
struct Pulled(Option<Py<PyAny>>);

impl Pulled {
    fn next(&self) -> std::result::Result<Option<Batch>, String> {
        let ending = || "this process ends, and reads no more batches".to_owned();
        let (Some(_visit), Some(batches)) = (leaving::visit(), &self.0) else {
            return Err(ending());
        };
        let made = Python::try_attach(|py| {
            pulled(batches.bind(py)).map_err(|error| error.value(py).to_string())
        });
        made.unwrap_or_else(|| Err(ending()))
    }
}

fn pulled(batches: &Bound<'_, PyAny>) -> PyResult<Option<Batch>> {
    let Some(batch) = Items::of(batches)?.next() else { return Ok(None) };
    match exported(&batch?)? {
        None => Err(PyTypeError::new_err("a batch of a stream has __arrow_c_array__")),
        batch => Ok(batch),
    }
}

impl Drop for Pulled {
    /// Release the iterator at once, which may have files open.
    fn drop(&mut self) {
        if let (Some(_visit), Some(batches)) = (leaving::visit(), self.0.take()) {
            Python::try_attach(|_| drop(batches));
        }
    }
}

/// Return the records of a batch as record batches: one, except for very large batches.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "lists of Python's come as vectors")]
pub(crate) fn _arrow_of(
    py: Python<'_>,
    batch: &Bound<'_, batch::Batch>,
    columns: Vec<Bound<'_, PyString>>,
    views: bool,
    batch_rows: usize,
    batch_bytes: usize,
) -> PyResult<Vec<ArrowBatch>> {
    let columns = chosen(&columns, views).or_raise(py)?;
    let limits = Limits { rows: batch_rows, bytes: batch_bytes };
    let batch = batch.get();
    let made = py.detach(|| reader::of_batch(&batch.run, &batch.shape.name, &columns, limits));
    Ok(made.or_raise(py)?.into_iter().map(|batch| ArrowBatch { batch }).collect())
}

fn chosen(names: &[Bound<'_, PyString>], views: bool) -> Result<Columns> {
    let columns: Result<Vec<Column>> =
        names.iter().map(|name| name.to_string_lossy().parse()).collect();
    columns.and_then(|columns| Columns::new(columns, views))
}
