//! `Batch`: thousands of records at a time, without an object for each.

use std::sync::Arc;

use falaj::internals::topic::{RecordBatch, RecordRef, RecordRefs};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyRange};

use crate::buffer::{BatchView, View, memoryview};
use crate::calling;
use crate::errors::OrRaise;
use crate::handle::Shape;
use crate::held::Held;
use crate::input;
use crate::iterate::Reading;
use crate::record::Record;

/// Consecutive records of one partition, as `Topic.batches` yields them: no object for each. It
/// cannot be pickled or copied: pass on `list(batch)` or `batch.to_arrow()`.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> _ = orders.extend([b"a", b"b", b"c"])
///     >>> batch = next(orders.batches())
///     >>> batch.offsets, batch.to_list(), bytes(batch.values[1])
///     (range(0, 3), [b'a', b'b', b'c'], b'b')
///     >>> [record.offset for record in batch]
///     [0, 1, 2]
#[pyclass(frozen, module = "falaj", generic)]
#[derive(Debug)]
pub struct Batch {
    pub(crate) run: RecordBatch,
    pub(crate) shape: Arc<Shape>,
}

impl Batch {
    /// Collect a property of each record.
    fn each<'py>(
        &self,
        py: Python<'py>,
        of: impl Fn(&RecordRef) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (list, mut places) = (PyList::empty(py), RecordRefs::default());
        while let Some(place) = places.next(&self.run).or_raise(py)? {
            list.append(of(&place)?)?;
        }
        Ok(list)
    }

    /// Return the generation of its topic, its partition, and its first offset.
    pub(crate) fn place(&self) -> ([u8; 16], u32, u64) {
        (self.shape.generation, self.run.partition(), self.run.offsets().start)
    }
}

#[pymethods]
impl Batch {
    /// The values, as the topic's codec reads the payloads; None for a tombstone. A topic of "raw"
    /// has `raw_values`.
    ///
    /// Raises:
    ///     DecodeFailed: The codec cannot read a payload; `raw_values` has the bytes.
    ///     CorruptData: A record is corrupt.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, shape, run) = (slf.py(), Arc::clone(&slf.get().shape), &slf.get().run);
        if shape.coding.of_records(py)?.decode.is_none() {
            return Ok(Bound::new(py, Values { batch: slf.clone().unbind() })?.into_any());
        }
        let values = slf.get().each(py, |place| match run.value(place) {
            None => Ok(py.None().into_bound(py)),
            Some(payload) => {
                let at = (run.partition(), run.offset(place));
                let value = shape.value_of(py, payload, at)?;
                Ok(value.unwrap_or_else(|| py.None().into_bound(py)))
            }
        })?;
        Ok(values.into_any())
    }

    /// The payloads as read-only memoryviews, made on request.
    #[getter]
    fn raw_values(slf: Bound<'_, Self>) -> Values {
        Values { batch: slf.unbind() }
    }

    /// The keys; None for a record without one.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.each(py, |place| match self.run.key(place) {
            Some(key) => Ok(PyBytes::new(py, key).into_any()),
            None => Ok(py.None().into_bound(py)),
        })
    }

    /// When each record happened, or otherwise was appended, in nanoseconds since 1970.
    #[getter]
    fn timestamps_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.each(py, |place| Ok(self.run.timestamp_ns(place).into_pyobject(py)?.into_any()))
    }

    /// Number of the partition of its records.
    #[getter]
    fn partition(&self) -> u32 {
        self.run.partition()
    }

    /// Offsets of its records: a range, or a list where compaction removed some between them.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let offsets = self.run.offsets();
        if offsets.end - offsets.start == self.run.len() as u64 {
            return Ok(PyRange::new(py, offsets.start as isize, offsets.end as isize)?.into_any());
        }
        let offset = |place: &RecordRef| Ok(self.run.offset(place).into_pyobject(py)?.into_any());
        Ok(self.each(py, offset)?.into_any())
    }

    /// Name of the topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.shape.name
    }

    /// Copies of all payloads.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (mut places, mut damage) = (RecordRefs::default(), None);
        let copies = (0..self.run.len()).map(|_| {
            let place = places.next(&self.run).unwrap_or_else(|error| {
                damage.get_or_insert(error);
                None
            });
            match place.and_then(|place| self.run.value(&place)) {
                Some(value) => PyBytes::new(py, value).into_any(),
                None => py.None().into_bound(py),
            }
        });
        let list = PyList::new(py, copies)?;
        damage.map_or(Ok(list), Err).or_raise(py)
    }

    /// Convert the batch to a pyarrow table with the columns of `Topic.to_arrow`. Nothing is read
    /// again: the batch keeps its records, even after they were trimmed.
    ///
    /// Args:
    ///     columns: Which of `falaj.arrow.COLUMNS`, in this order; None for partition, offset, timestamp,
    ///         key and value.
    ///     views: Keys and values are not copied: the columns are of the type `binary_view`, and show the
    ///         mapped files.
    ///
    /// Returns:
    ///     A table of as many rows as the batch has records; of one chunk, but for very large ones.
    ///
    /// Raises:
    ///     MissingExtra: pyarrow is not installed.
    ///     InvalidArgument: An unknown column, or one named twice.
    ///     CorruptData: A record is corrupt.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> _ = orders.extend([b"a", b"b"])
    ///     >>> next(orders.batches()).to_arrow(columns=["offset", "value"]).to_pylist()
    ///     [{'offset': 0, 'value': b'a'}, {'offset': 1, 'value': b'b'}]
    #[pyo3(signature = (*, columns=None, views=false))]
    fn to_arrow<'py>(
        slf: Bound<'py, Self>,
        columns: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::views)] views: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of_batch = calling::import(slf.py(), "falaj.arrow")?.getattr("of_batch")?;
        calling::call(&of_batch, (slf, columns, views))
    }

    fn __iter__(slf: Bound<'_, Self>) -> BatchRecords {
        BatchRecords { batch: slf.unbind(), places: RecordRefs::default() }
    }

    fn __len__(&self) -> usize {
        self.run.len()
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("a batch"))
    }

    /// Refuse pickle and copy.
    fn __reduce__(&self) -> PyResult<()> {
        let what = "a batch cannot be pickled or copied, because it shows the map of its segment. Pass on \
                    list(batch), whose records then have their own bytes, or batch.to_arrow()";
        Err(PyTypeError::new_err(what))
    }

    fn __repr__(&self) -> String {
        let (name, count, offsets) = (&self.shape.name, self.run.len(), self.run.offsets());
        let last = offsets.end - 1;
        format!("<Batch {name} of {count} records, offsets {} to {last}>", offsets.start)
    }
}

/// Iterator over the records of a batch.
#[pyclass(module = "falaj._core", generic)]
#[derive(Debug)]
pub struct BatchRecords {
    batch: Py<Batch>,
    places: RecordRefs,
}

#[pymethods]
impl BatchRecords {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("what is read one after the other"))
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let place = self.places.next(&self.batch.get().run).or_raise(py)?;
        let Some(place) = place else { return Ok(None) };
        Record::make(py, Held::In(self.batch.clone_ref(py), place)).map(Some)
    }
}

/// Payloads of a batch: a sequence of memoryviews that are made on request.
#[pyclass(frozen, sequence, module = "falaj._core")]
#[derive(Debug)]
pub struct Values {
    batch: Py<Batch>,
}

#[pymethods]
impl Values {
    fn __len__(&self) -> usize {
        self.batch.get().run.len()
    }

    /// Refuse pickle and copy.
    fn __reduce__(&self) -> PyResult<()> {
        let what = "the values of a batch cannot be pickled or copied, because they show the map of its \
                    segment. Pass on [record.value for record in batch], or batch.to_arrow()";
        Err(PyTypeError::new_err(what))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<ValuesIterator> {
        let exporter = Py::new(py, BatchView::new(self.batch.clone_ref(py)))?;
        let (batch, places) = (self.batch.clone_ref(py), RecordRefs::default());
        Ok(ValuesIterator { batch, exporter, places })
    }

    /// Return one payload; costs a walk through its block.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = input::index)] index: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let run = &self.batch.get().run;
        let from_start = if index < 0 { index + run.len() as isize } else { index };
        let place = match usize::try_from(from_start) {
            Ok(n) => run.record(n).or_raise(py)?,
            Err(_) => None,
        };
        let Some(place) = place else {
            let what = format!("a batch of {} has no value {index}", run.len());
            return Err(PyIndexError::new_err(what));
        };
        if run.value(&place).is_none() {
            return Ok(py.None().into_bound(py));
        }
        let held = Held::In(self.batch.clone_ref(py), place);
        let exporter = Bound::new(py, View { held })?;
        memoryview(exporter.as_any()).map(Bound::into_any)
    }
}

/// Iterator over payloads.
#[pyclass(module = "falaj._core")]
#[derive(Debug)]
pub struct ValuesIterator {
    batch: Py<Batch>,
    exporter: Py<BatchView>,
    places: RecordRefs,
}

#[pymethods]
impl ValuesIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[inline]
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let run = &self.batch.get().run;
        let Some(place) = self.places.next(run).or_raise(py)? else { return Ok(None) };
        if run.value(&place).is_none() {
            return Ok(Some(py.None().into_bound(py)));
        }
        BatchView::show(self.exporter.bind(py), place).map(|view| Some(view.into_any()))
    }
}

/// Iterator over batches of one partition.
#[pyclass(module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Batches {
    pub(crate) reading: Reading,
    pub(crate) size: usize,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("what is read one after the other"))
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.reading.next_batch(py, self.size)
    }
}
