//! `Batch`: thousands of records at a time, without an object for each.

use std::sync::Arc;

use falaj::error::Result;
use falaj::format::record::{Parts, Walk};
use falaj::log::DataBlock;
use falaj::topic::{RecordView, Scan, Slice};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyRange};

use crate::buffer::{BatchView, View, memoryview};
use crate::errors::OrRaise;
use crate::handle::{Handle, Open, Shape};
use crate::iterate::Lane;
use crate::record::Record;

/// Consecutive records of one partition, as `Topic.batches` yields them: no object for each.
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
    pub(crate) slices: Vec<Slice>,
    count: usize,
    /// Number of the partition that its records are of.
    #[pyo3(get)]
    partition: u32,
    shape: Arc<Shape>,
}

impl Batch {
    fn cursor(&self) -> Cursor {
        Cursor { slice: 0, walk: None }
    }

    fn bounds(&self) -> (u64, u64) {
        let first = self.slices.first().map_or(0, |slice| slice.offsets.start);
        (first, self.slices.last().map_or(first, |slice| slice.offsets.end))
    }
}

/// Walks the records of a batch.
#[derive(Debug)]
struct Cursor {
    slice: usize,
    walk: Option<Walk>,
}

impl Cursor {
    #[inline]
    fn next<'a>(&mut self, batch: &'a Batch) -> Result<Option<(&'a DataBlock, Parts)>> {
        while let Some(slice) = batch.slices.get(self.slice) {
            let block = &slice.block;
            let walk = match &mut self.walk {
                Some(walk) => walk,
                None => self.walk.insert(block.records()?),
            };
            while let Some(parts) = walk.next(block.body()).map_err(|what| block.damaged(what))? {
                let offset = block.first() + u64::from(parts.offset_delta);
                if slice.offsets.contains(&offset) {
                    return Ok(Some((block, parts)));
                }
            }
            self.slice += 1;
            self.walk = None;
        }
        Ok(None)
    }
}

#[pymethods]
impl Batch {
    /// The payloads, as read-only memoryviews that are made when they are asked for.
    #[getter]
    fn values(slf: Bound<'_, Self>) -> Values {
        Values { batch: slf.unbind() }
    }

    /// Offsets of its records.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        let (first, end) = self.bounds();
        PyRange::new(py, first as isize, end as isize)
    }

    /// Name of the topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.shape.name
    }

    /// Copies of all payloads.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut cursor = self.cursor();
        let mut copies = Vec::with_capacity(self.count);
        while let Some((block, parts)) = cursor.next(self).or_raise(py)? {
            copies.push(parts.value.map(|value| PyBytes::new(py, &block.body()[value])));
        }
        PyList::new(py, copies)
    }

    fn __iter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, BatchRecords>> {
        let cursor = slf.get().cursor();
        Bound::new(slf.py(), BatchRecords { batch: slf.unbind(), cursor })
    }

    fn __len__(&self) -> usize {
        self.count
    }

    fn __repr__(&self) -> String {
        let (first, end) = self.bounds();
        format!(
            "<Batch {} of {} records, offsets {first} to {}>",
            self.shape.name,
            self.count,
            end - 1
        )
    }
}

/// Records of a batch.
#[pyclass(module = "falaj._core", generic)]
#[derive(Debug)]
pub struct BatchRecords {
    batch: Py<Batch>,
    cursor: Cursor,
}

#[pymethods]
impl BatchRecords {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let batch = self.batch.get();
        let Some((block, parts)) = self.cursor.next(batch).or_raise(py)? else { return Ok(None) };
        let record = RecordView::new(block.clone(), parts);
        Record::make(py, record, batch.partition, &batch.shape).map(Some)
    }
}

/// Payloads of a batch: a sequence of memoryviews that exist once they are asked for.
#[pyclass(frozen, sequence, module = "falaj._core")]
#[derive(Debug)]
pub struct Values {
    batch: Py<Batch>,
}

#[pymethods]
impl Values {
    fn __len__(&self) -> usize {
        self.batch.get().count
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<ValuesIterator> {
        let exporter = Py::new(py, BatchView::new(self.batch.clone_ref(py)))?;
        let cursor = self.batch.get().cursor();
        Ok(ValuesIterator { batch: self.batch.clone_ref(py), exporter, cursor })
    }

    /// One payload; costs a walk through its block.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.batch.get();
        let from_start = if index < 0 { index + batch.count as isize } else { index };
        let outside =
            || PyIndexError::new_err(format!("a batch of {} has no value {index}", batch.count));
        let mut left = usize::try_from(from_start).map_err(|_| outside())?;
        let mut cursor = batch.cursor();
        while let Some(slice) = batch.slices.get(cursor.slice) {
            let held = (slice.offsets.end - slice.offsets.start) as usize;
            if left < held {
                break;
            }
            left -= held;
            cursor.slice += 1;
        }
        while let Some((block, parts)) = cursor.next(batch).or_raise(py)? {
            if left == 0 {
                return view(py, RecordView::new(block.clone(), parts));
            }
            left -= 1;
        }
        Err(outside())
    }
}

#[inline]
fn view(py: Python<'_>, record: RecordView) -> PyResult<Bound<'_, PyAny>> {
    if record.value().is_none() {
        return Ok(py.None().into_bound(py));
    }
    let exporter = Bound::new(py, View { record })?;
    memoryview(exporter.as_any()).map(Bound::into_any)
}

/// Iterator over payloads.
#[pyclass(module = "falaj._core")]
#[derive(Debug)]
pub struct ValuesIterator {
    batch: Py<Batch>,
    exporter: Py<BatchView>,
    cursor: Cursor,
}

#[pymethods]
impl ValuesIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[inline]
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((_, parts)) = self.cursor.next(self.batch.get()).or_raise(py)? else {
            return Ok(None);
        };
        let Some(range) = parts.value else { return Ok(Some(py.None().into_bound(py))) };
        let value = BatchView::show(self.exporter.bind(py), self.cursor.slice, &range)?;
        Ok(Some(value.into_any()))
    }
}

/// Iterator over batches of one partition.
#[pyclass(module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Batches {
    scan: Scan,
    lane: Lane,
    size: usize,
    open: Arc<Open>,
    handle: Arc<Handle>,
}

impl Batches {
    pub(crate) fn new(
        py: Python<'_>,
        handle: &Arc<Handle>,
        lane: Lane,
        size: usize,
    ) -> PyResult<Self> {
        let open = handle.open_existing(py)?;
        let scan = open.topic.scan(lane.partition, lane.from, lane.end).or_raise(py)?;
        Ok(Self { scan, lane, size, open, handle: Arc::clone(handle) })
    }

    fn fill(&mut self) -> Result<(Vec<Slice>, usize)> {
        let (mut slices, mut count) = (Vec::new(), 0);
        while count < self.size {
            let Some(slice) = self.scan.next_slice()? else { break };
            let whole = (slice.block.first()..slice.block.end()) == slice.offsets;
            count += if whole {
                slice.block.count() as usize
            } else {
                (slice.offsets.end - slice.offsets.start) as usize
            };
            slices.push(slice);
        }
        Ok((slices, count))
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if !self.open.is_ours() {
            let from = self.scan.next_offset();
            *self = Self::new(py, &self.handle, Lane { from, ..self.lane }, self.size)?;
        }
        let (slices, count) = self.fill().or_raise(py)?;
        if count == 0 {
            return Ok(None);
        }
        let shape = Arc::clone(&self.handle.shape);
        Ok(Some(Batch { slices, count, partition: self.lane.partition, shape }))
    }
}
