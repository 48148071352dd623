//! `Store`: a directory of topics.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use falaj::error::Error;
use falaj::store::{Access, Store as Inner, StoreOptions, TopicOptions};
use pyo3::prelude::*;

use crate::errors::{OrRaise, raise};
use crate::input::sync_mode;
use crate::topic::{Asked, Opened};

/// An open store; see falaj.Store.
#[pyclass(frozen, subclass, weakref, module = "falaj._core")]
#[derive(Debug)]
pub struct Store {
    /// As in [`crate::handle`]: held for moments, by attached threads only.
    inner: RwLock<Option<Inner>>,
    path: PathBuf,
}

impl Store {
    /// The engine's store.
    pub(crate) fn inner(&self, py: Python<'_>) -> PyResult<Inner> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner).clone();
        inner.ok_or_else(|| raise(py, &Error::Closed { what: "store" }))
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, *, write, permissions, timeout, force))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        write: bool,
        permissions: u32,
        timeout: f64,
        force: bool,
    ) -> PyResult<Self> {
        let lock_timeout = crate::wait::seconds(py, Some(timeout))?.unwrap_or(Duration::MAX);
        let access = if write { Access::Write } else { Access::Read };
        let options = StoreOptions {
            access,
            mode: permissions,
            force_filesystem: force,
            lock_timeout,
            ..StoreOptions::default()
        };
        let inner = py.detach(|| Inner::open(&path, &options)).or_raise(py)?;
        let path = inner.path().to_path_buf();
        Ok(Self { inner: RwLock::new(Some(inner)), path })
    }

    /// The directory, absolute.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// True when it was opened for writing.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner(py)?.access() == Access::Write)
    }

    /// Open a topic.
    #[pyo3(signature = (
        name, *, codec, resolve, partitions, segment_bytes, sync_interval_ms, sync, verify
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn _open_topic(
        &self,
        py: Python<'_>,
        name: &str,
        codec: Option<String>,
        resolve: &Bound<'_, PyAny>,
        partitions: Option<u32>,
        segment_bytes: Option<u64>,
        sync_interval_ms: Option<u64>,
        sync: Option<&Bound<'_, PyAny>>,
        verify: bool,
    ) -> PyResult<Opened> {
        let options = TopicOptions {
            codec,
            partitions,
            segment_bytes,
            sync_interval_ms,
            ..TopicOptions::default()
        };
        let sync = sync_mode(sync)?.unwrap_or_default();
        Opened::open(py, &self.inner(py)?, name, Asked { options, resolve, sync, verify })
    }

    /// Names of all topics, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let inner = self.inner(py)?;
        let topics = py.detach(|| inner.topics()).or_raise(py)?;
        Ok(topics.into_iter().map(|(name, _)| name).collect())
    }

    /// Delete a topic and what is in it.
    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let inner = self.inner(py)?;
        py.detach(|| inner.delete_topic(name)).or_raise(py)
    }

    /// Let the store go; topics that are open keep their place.
    fn _close(&self, py: Python<'_>) {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(move || drop(inner));
    }
}
