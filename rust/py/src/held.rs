//! `Held`: the place of a record, and the batch that keeps it.
//!
//! A record refers to the [`Batch`] that it was read in: a Python object, whose counter costs a
//! plain increment. Invariant: the batch holds the map of its segment, so that its bytes stay
//! readable.

use std::sync::Arc;

use falaj::internals::topic::{Record as LogRecord, RecordBatch, RecordRef};
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::handle::Shape;

/// A record, as a place in its batch.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) batch: Py<Batch>,
    pub(crate) at: RecordRef,
}

impl Held {
    /// Make one for a record that was read alone.
    pub(crate) fn alone(py: Python<'_>, record: LogRecord, shape: &Arc<Shape>) -> PyResult<Self> {
        let (run, at) = record.into_parts();
        Ok(Self { batch: Py::new(py, Batch { run, shape: Arc::clone(shape) })?, at })
    }

    /// Return its payload; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.run().value(&self.at)
    }

    #[inline]
    pub(crate) fn run(&self) -> &RecordBatch {
        &self.batch.get().run
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.batch.get().shape
    }

    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.run().offset(&self.at)
    }
}
