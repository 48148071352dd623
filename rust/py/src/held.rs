//! `Held`: the place of a record, and the batch that keeps it.
//!
//! A record refers to the [`Batch`] that it was read in: a Python object, whose counter costs a
//! plain increment. Invariant: the batch holds the map of its segment, so that its bytes stay
//! readable. A record that was pickled or copied has its bytes itself: [`Detached`].

use std::sync::Arc;

use falaj::internals::topic::{Record as LogRecord, RecordBatch, RecordRef};
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::detached::Detached;
use crate::handle::Shape;

/// A record, as a place in its batch, or with bytes of its own.
#[derive(Debug)]
pub(crate) enum Held {
    In(Py<Batch>, RecordRef),
    Alone(Py<Detached>),
}

impl Held {
    /// Make one for a record that was read alone.
    pub(crate) fn read(py: Python<'_>, record: LogRecord, shape: &Arc<Shape>) -> PyResult<Self> {
        let (run, at) = record.into_parts();
        Ok(Self::In(Py::new(py, Batch { run, shape: Arc::clone(shape) })?, at))
    }

    /// Return its place in the batch of the engine; `None` for a detached record.
    pub(crate) fn place(&self) -> Option<(&RecordBatch, &RecordRef)> {
        match self {
            Self::In(batch, at) => Some((&batch.get().run, at)),
            Self::Alone(_) => None,
        }
    }

    /// Return its payload; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self {
            Self::In(batch, at) => batch.get().run.value(at),
            Self::Alone(own) => own.get().value.as_deref(),
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::In(batch, at) => batch.get().run.key(at),
            Self::Alone(own) => own.get().key.as_deref(),
        }
    }

    pub(crate) fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        match self {
            Self::In(batch, at) => batch.get().run.headers(at).collect(),
            Self::Alone(own) => {
                own.get().headers.iter().map(|(n, v)| (&**n, v.as_deref())).collect()
            }
        }
    }

    pub(crate) fn event_time_ns(&self) -> Option<i64> {
        match self {
            Self::In(batch, at) => batch.get().run.event_time_ns(at),
            Self::Alone(own) => own.get().is_event_time.then_some(own.get().timestamp_ns),
        }
    }

    pub(crate) fn timestamp_ns(&self) -> i64 {
        match self {
            Self::In(batch, at) => batch.get().run.timestamp_ns(at),
            Self::Alone(own) => own.get().timestamp_ns,
        }
    }

    #[inline]
    pub(crate) fn partition(&self) -> u32 {
        match self {
            Self::In(batch, _) => batch.get().run.partition(),
            Self::Alone(own) => own.get().partition,
        }
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Self::In(batch, _) => &batch.get().shape,
            Self::Alone(own) => &own.get().shape,
        }
    }

    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::In(batch, at) => batch.get().run.offset(at),
            Self::Alone(own) => own.get().offset,
        }
    }
}
