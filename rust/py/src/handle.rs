//! The open topic that its handles share, until it is closed or the process forks.
//!
//! Invariant: the open topic is borrowed for moments, and never across a detach. So it can be
//! replaced whenever a thread is attached. A forked child, which an attached thread makes, never
//! inherits a borrow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::store::fork;
use falaj::internals::topic::{Topic, Visibility};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::calling::call;
use crate::coding::{Coding, LaterCoding};
use crate::errors::{not_decoded, raise};
use crate::gil_cell::GilCell;
use crate::queue_job::Batch;
use crate::wait::patiently;

/// The properties of a topic that its records refer to.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) generation: [u8; 16],
    pub(crate) coding: LaterCoding,
}

impl Shape {
    /// Convert a payload to a value; `None` for a raw topic, whose values are views.
    pub(crate) fn value_of<'py>(
        &self,
        py: Python<'py>,
        payload: &[u8],
        (partition, offset): (u32, u64),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let coding = self.coding.of_records(py)?;
        let Some(decode) = &coding.decode else { return Ok(None) };
        let payload = PyBytes::new(py, payload);
        if coding.gives_bytes {
            return Ok(Some(payload.into_any()));
        }
        let decoded = call(decode.bind(py), (payload,));
        let place = (&*self.name, partition, offset);
        decoded.map(Some).map_err(|error| not_decoded(py, error, &coding.name, place))
    }
}

/// A topic, open in the process with this epoch.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) topic: Topic,
    /// The same for readers that see only what is on disk, and only what has left the machine.
    durable: Topic,
    remote: Topic,
    epoch: u64,
}

impl Open {
    fn new(topic: Topic) -> Arc<Self> {
        let durable = topic.with_visibility(Visibility::Durable);
        let remote = topic.with_visibility(Visibility::Remote);
        Arc::new(Self { topic, durable, remote, epoch: fork::epoch() })
    }

    /// Return the topic as a reader with this visibility sees it.
    #[inline]
    pub(crate) fn seen(&self, visibility: Visibility) -> &Topic {
        match visibility {
            Visibility::Durable => &self.durable,
            Visibility::Remote => &self.remote,
            _ => &self.topic,
        }
    }

    /// Return true unless the process forked since.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        fork::epoch() == self.epoch
    }
}

/// An open or closed topic.
#[derive(Debug)]
pub(crate) struct Handle {
    open: GilCell<Option<Arc<Open>>>,
    closed: AtomicBool,
    pub(crate) shape: Arc<Shape>,
    /// How long to wait for a lock whose holder lives.
    pub(crate) patience: Duration,
    /// Jobs of queues over it that may not have begun.
    batches: Mutex<Vec<Weak<Batch>>>,
}

impl Handle {
    pub(crate) fn new(topic: Topic, shape: Shape, patience: Duration) -> Self {
        let open = Open::new(topic);
        Self {
            open: GilCell::new(Some(open)),
            closed: AtomicBool::new(false),
            shape: Arc::new(shape),
            patience,
            batches: Mutex::default(),
        }
    }

    /// Remember taken jobs, to return those that have not begun when it is closed.
    pub(crate) fn lends(&self, batch: &Arc<Batch>) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        if batches.len() == batches.capacity() {
            batches.retain(|batch| batch.strong_count() > 0);
        }
        batches.push(Arc::downgrade(batch));
    }

    /// Return the jobs of some batches that have not begun.
    pub(crate) fn take_back(&self, py: Python<'_>, which: impl Fn(&Batch) -> bool) {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let batches: Vec<_> =
            batches.iter().filter_map(Weak::upgrade).filter(|batch| which(batch)).collect();
        // A forked child leaves its parent's jobs to the parent.
        let open = self.open.borrow(py).clone().filter(|open| open.is_ours());
        if let Some(open) = open.filter(|_| !batches.is_empty()) {
            py.detach(|| batches.iter().for_each(|batch| batch.close(&open.topic)));
        }
    }

    /// Use the topic without detaching; `None` when it is closed or the process forked.
    #[inline(always)]
    pub(crate) fn at_once<T>(&self, py: Python<'_>, use_it: impl FnOnce(&Topic) -> T) -> Option<T> {
        let open = self.open.borrow(py);
        open.as_ref().filter(|open| open.is_ours()).map(|open| use_it(&open.topic))
    }

    /// Try an append without detaching; `None` when that is not possible. The engine itself notices
    /// a fork, before it touches anything.
    #[inline(always)]
    pub(crate) fn try_append<T>(
        &self,
        py: Python<'_>,
        attempt: impl FnOnce(&Topic) -> Option<T>,
    ) -> Option<T> {
        match &*self.open.borrow(py) {
            Some(open) => attempt(&open.topic),
            None => None,
        }
    }

    /// Encode values by the topic's codec. Where no program has named it, this names the one that encoded them.
    #[inline]
    pub(crate) fn encoding<T>(
        &self,
        py: Python<'_>,
        encode: impl FnOnce(&Coding) -> PyResult<T>,
    ) -> PyResult<T> {
        if let Some(coding) = self.shape.coding.known(py)? {
            return encode(coding);
        }
        let coding = self.shape.coding.supposed(py)?;
        let encoded = encode(&coding)?;
        let open = self.open(py)?;
        patiently(py, self.patience, || open.topic.name_codec(&coding.name))?;
        Ok(encoded)
    }

    /// Return the open topic; in a forked child one with a membership of its own.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let current = self.open.borrow(py).clone();
        match current {
            None => Err(raise(py, &Error::HandleClosed { what: "topic" })),
            Some(open) if open.is_ours() => Ok(open),
            Some(stale) => self.reopen(py, &stale),
        }
    }

    /// Return the open topic for reading; an error if it was deleted.
    pub(crate) fn open_existing(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let open = self.open(py)?;
        self.expect_existing(py, &open)?;
        Ok(open)
    }

    /// Raise an error when the topic was deleted.
    pub(crate) fn expect_existing(&self, py: Python<'_>, open: &Open) -> PyResult<()> {
        if open.topic.is_deleted() {
            return Err(raise(py, &Error::TopicDeleted { name: self.shape.name.clone() }));
        }
        Ok(())
    }

    #[cold]
    fn reopen(&self, py: Python<'_>, stale: &Arc<Open>) -> PyResult<Arc<Open>> {
        let topic = patiently(py, self.patience, || stale.topic.reopen())?;
        let fresh = Open::new(topic);
        // Other threads were attached meanwhile.
        let current = self.open.borrow(py).clone();
        match current {
            None => return Err(raise(py, &Error::HandleClosed { what: "topic" })),
            Some(other) if other.is_ours() => return Ok(other),
            Some(_) => {}
        }
        let before = self.open.replace(py, Some(Arc::clone(&fresh)));
        drop(before);
        Ok(fresh)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Make every wait on the topic check whether it is over, also on a topic that a fork copied.
    pub(crate) fn rouse(&self, py: Python<'_>) {
        self.open.borrow(py).iter().for_each(|open| open.topic.log().wake_all());
    }

    /// Sync and close the topic, and end every wait on it. A topic that a fork copied is only
    /// dropped.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.take_back(py, |_| true);
        self.closed.store(true, Ordering::Relaxed);
        let Some(open) = self.open.replace(py, None) else { return Ok(()) };
        let log = open.topic.log();
        log.wake_all();
        if !open.is_ours() {
            return Ok(());
        }
        let synced = match log.is_writable() && !log.is_deleted() {
            true => patiently(py, self.patience, || open.topic.sync_clean()),
            false => Ok(()),
        };
        py.detach(move || drop(open));
        synced
    }
}
