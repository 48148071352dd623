//! `Records`: a plain `for` over a topic, a partition or a range of offsets.
//!
//! Owns [`Reading`], which all reading of a topic uses. The engine decides which records come;
//! these objects hold them.

use std::sync::Arc;

use falaj::internals::topic::{Follow, RecordBatch, ScanRange, Visibility};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::admin::skipped;
use crate::batch::Batch;
use crate::errors::OrRaise;
use crate::handle::{Handle, Open, Shape};
use crate::held::Held;
use crate::input;
use crate::record::Record;
use crate::wait::Pace;

/// A scan with all that reading needs besides: the handle, for a forked child, and the properties
/// that records share.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) follow: Follow,
    pub(crate) open: Arc<Open>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) shape: Arc<Shape>,
    pub(crate) visibility: Visibility,
    /// The batches of the last record of each partition.
    batches: Vec<Py<Batch>>,
    pace: Pace,
}

impl Reading {
    pub(crate) fn new(
        py: Python<'_>,
        handle: &Arc<Handle>,
        visibility: Visibility,
        ranges: &[ScanRange],
    ) -> PyResult<Self> {
        let open = handle.open_existing(py)?;
        let follow = open.seen(visibility).follow_ranges(ranges).or_raise(py)?;
        let (handle, shape) = (Arc::clone(handle), Arc::clone(&handle.shape));
        Ok(Self {
            follow,
            open,
            handle,
            shape,
            visibility,
            batches: Vec::new(),
            pace: Pace::default(),
        })
    }

    /// Return the ranges that are left.
    pub(crate) fn ranges(&self) -> Vec<ScanRange> {
        self.follow.merge().ranges().collect()
    }

    /// Describe the ranges and positions, for people.
    pub(crate) fn shown(&self) -> String {
        let (name, ranges) = (&self.shape.name, self.ranges());
        let part = match ranges.as_slice() {
            [ScanRange { partition, .. }] if self.open.topic.partitions() > 1 => {
                format!(" partition {partition}")
            }
            [_] => String::new(),
            ranges => format!(" {} partitions", ranges.len()),
        };
        let place = match ranges.as_slice() {
            [ScanRange { from, end: None, .. }] => format!("from offset {from} on"),
            [ScanRange { from, end: Some(end), .. }] => format!("offsets {from} up to {end}"),
            ranges if ranges.iter().any(|range| range.end.is_none()) => {
                let from = ranges.iter().map(|range| range.from.to_string()).collect::<Vec<_>>();
                format!("from offsets {} on", from.join(", "))
            }
            ranges => {
                let left = |range: &ScanRange| range.end.unwrap_or(0).saturating_sub(range.from);
                format!("{} records left", ranges.iter().map(left).sum::<u64>())
            }
        };
        format!("{name:?}{part}, {place}")
    }

    /// Continue with a topic of its own in a forked child.
    #[inline]
    fn expect_own(&mut self, py: Python<'_>) -> PyResult<()> {
        if !self.open.is_ours() {
            *self = Self::new(py, &self.handle, self.visibility, &self.ranges())?;
        }
        Ok(())
    }

    /// Return the next record, if there is one now.
    #[inline]
    pub(crate) fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        self.pace.step(py)?;
        self.expect_own(py)?;
        let (batches, shape) = (&mut self.batches, &self.shape);
        match self.follow.poll_ref() {
            Ok(Some((run, at))) => {
                let batch = match kept(batches, run) {
                    Some(batch) => batch.clone_ref(py),
                    None => keep(py, batches, run, shape)?,
                };
                Record::make(py, Held::In(batch, at)).map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.handle.expect_existing(py, &self.open)?;
                Err(error).or_raise(py)
            }
        }
    }

    /// Return the next records of one partition, if there are some now.
    pub(crate) fn next_batch(&mut self, py: Python<'_>, size: usize) -> PyResult<Option<Batch>> {
        py.check_signals()?;
        self.expect_own(py)?;
        let run = self.follow.poll_batch(size).or_raise(py)?;
        Ok(run.map(|run| Batch { run, shape: Arc::clone(&self.shape) }))
    }
}

/// Return the object that holds a batch, if it is that of a previous record, as mostly.
#[inline]
pub(crate) fn kept<'a>(batches: &'a [Py<Batch>], run: &RecordBatch) -> Option<&'a Py<Batch>> {
    batches.iter().find(|batch| batch.get().run.is(run))
}

/// Make the object that holds a batch, in the place of the previous one of its partition.
pub(crate) fn keep(
    py: Python<'_>,
    batches: &mut Vec<Py<Batch>>,
    run: &RecordBatch,
    shape: &Arc<Shape>,
) -> PyResult<Py<Batch>> {
    let batch = Py::new(py, Batch { run: run.clone(), shape: Arc::clone(shape) })?;
    batches.retain(|before| before.get().run.partition() != run.partition());
    batches.push(batch.clone_ref(py));
    Ok(batch)
}

/// An iterator over records that were committed when it began.
#[pyclass(module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Records {
    pub(crate) reading: Reading,
}

#[pymethods]
impl Records {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("what is read one after the other"))
    }

    #[inline]
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        self.reading.next(py)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        match slf.try_borrow() {
            Ok(records) => format!("<falaj.Records of {}>", records.reading.shown()),
            Err(_) => "<falaj.Records, in use>".to_owned(),
        }
    }

    /// Step over corruption after a `CorruptData`. This reader loses the records in between.
    /// Returns, for each partition with corruption, its path and position, the first lost offset
    /// and the one after the last. They are equal if no valid record follows that would tell.
    fn skip_damage<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        skipped(py, &self.reading.follow.merge_mut().step_over().or_raise(py)?)
    }
}
