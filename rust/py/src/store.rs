//! `Store`: a directory of topics.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::log::Reading;
use falaj::internals::store::{Access, Layout, Store as Inner, StoreOptions, TopicOptions};
use falaj::internals::topic::SyncMode;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::calling::{call, of_module};
use crate::cut::{Cut, generation};
use crate::errors::{OrRaise, raise};
use crate::handle::Handle;
use crate::input::{self, sync_mode, visibility as parse_visibility};
use crate::opened::{Asked, Opened};
use crate::retention::change;
use crate::turn::Shared;
use crate::view::PlaceView;
use crate::wait::{ATTEMPT, patiently, seconds};

/// An open store; see falaj.Store.
#[pyclass(frozen, subclass, weakref, module = "falaj._core")]
#[derive(Debug)]
pub struct Store {
    /// As in [`crate::handle`]: held for moments, by attached threads only.
    inner: RwLock<Option<Inner>>,
    /// Topics that were opened through it, to be closed with it.
    handles: Mutex<Vec<Weak<Handle>>>,
    /// Topics that transactions named, so that each is opened once.
    named: Mutex<HashMap<String, Opened>>,
    /// Likewise consumers, which are closed before the topics that they read.
    consumers: Mutex<Vec<Weak<Shared>>>,
    path: PathBuf,
    patience: Duration,
    sync: SyncMode,
    verify: bool,
}

impl Store {
    /// Open an existing topic for a caller that names it repeatedly.
    pub(crate) fn existing(slf: &Bound<'_, Self>, name: &str) -> PyResult<Opened> {
        let (py, own) = (slf.py(), slf.get());
        let known = own.named().get(name).cloned();
        if let Some(known) = known {
            let is_there = known.handle.at_once(py, |topic| !topic.is_deleted());
            if is_there == Some(true) {
                return Ok(known);
            }
        }
        static RESOLVER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let resolver = of_module(&RESOLVER, py, "falaj.codecs", "resolver")?;
        let (_, resolve): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            call(resolver, (py.None(),))?.extract()?;
        let inner = own.inner(py)?;
        py.detach(|| inner.topic_settings(name)).or_raise(py)?;
        let asked = Asked {
            options: TopicOptions::default(),
            resolve: &resolve,
            sync: own.sync,
            verify: own.verify,
            visibility: falaj::internals::topic::Visibility::default(),
            patience: own.patience,
        };
        let opened = Opened::open(py, &inner, name, &asked)?;
        own.note(opened.handle());
        own.named().insert(name.to_owned(), opened.clone());
        Ok(opened)
    }

    fn named(&self) -> MutexGuard<'_, HashMap<String, Opened>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the engine's store.
    pub(crate) fn inner(&self, py: Python<'_>) -> PyResult<Inner> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner).clone();
        inner.ok_or_else(|| raise(py, &Error::HandleClosed { what: "store" }))
    }

    /// Return how long to wait for a lock.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn note_consumer(&self, consumer: &Arc<Shared>) {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        consumers.retain(|consumer| consumer.strong_count() > 0);
        consumers.push(Arc::downgrade(consumer));
    }

    fn note(&self, handle: &Arc<Handle>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle));
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "what is converted comes by value")]
impl Store {
    #[new]
    #[pyo3(signature = (
        path, *, read_only, permissions, create, sync, verify, lock_timeout, allow_network_fs, mapped,
        view=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes a path of what it is given")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = input::path)] path: PathBuf,
        read_only: bool,
        #[pyo3(from_py_with = input::permissions)] permissions: u32,
        create: bool,
        sync: &Bound<'_, PyAny>,
        verify: bool,
        #[pyo3(from_py_with = input::lock_timeout)] lock_timeout: f64,
        allow_network_fs: bool,
        mapped: bool,
        view: Option<&PlaceView>,
    ) -> PyResult<Self> {
        let patience = seconds(py, Some(lock_timeout))?.unwrap_or(Duration::MAX);
        let sync = sync_mode(Some(sync))?.unwrap_or_default();
        let options = StoreOptions {
            access: if read_only { Access::Read } else { Access::Write },
            mode: permissions,
            create,
            allow_network_fs,
            lock_timeout: patience.min(ATTEMPT),
            reading: if mapped { Reading::Map } else { Reading::Pread },
            ..StoreOptions::default()
        };
        let inner = patiently(py, patience, || match view {
            Some(view) => view.0.open(&options),
            None => Inner::open_with(&path, &options),
        })?;
        let path = inner.path().to_path_buf();
        let (handles, named, consumers) = Default::default();
        let inner = RwLock::new(Some(inner));
        Ok(Self { inner, handles, named, consumers, path, patience, sync, verify })
    }

    /// The directory, absolute.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static PATH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        call(of_module(&PATH, py, "pathlib", "Path")?, (self.path.as_os_str(),))
    }

    /// The store's id from its creation, as hexadecimal digits; copies have the same.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(falaj::internals::format::names::hex(&self.inner(py)?.settings().id))
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
        name, *, codec, resolve, partitions, segment_bytes, sync_interval_ms, sync, verify,
        visibility=None, log=None, retention=None, compacted=None, create=true
    ))]
    #[allow(clippy::too_many_arguments, reason = "all but one are keywords in Python")]
    fn _open_topic(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::topic_name)] name: String,
        codec: Option<&Bound<'_, PyString>>,
        resolve: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = input::partitions)] partitions: Option<u32>,
        #[pyo3(from_py_with = input::segment_bytes)] segment_bytes: Option<u64>,
        #[pyo3(from_py_with = input::sync_interval_ms)] sync_interval_ms: Option<u64>,
        sync: Option<&Bound<'_, PyAny>>,
        verify: Option<bool>,
        visibility: Option<&Bound<'_, PyAny>>,
        log: Option<&Bound<'_, PyAny>>,
        retention: Option<&Bound<'_, PyDict>>,
        compacted: Option<bool>,
        create: bool,
    ) -> PyResult<Opened> {
        let log = input::log_name(log)?;
        let retention = retention.map(change).transpose()?.unwrap_or_default();
        let plain = |text: &Bound<'_, PyString>| text.to_string_lossy().into_owned();
        let options = TopicOptions {
            log: log.map(plain),
            codec: codec.map(plain),
            codec_later: true,
            partitions,
            segment_bytes,
            sync_interval_ms,
            compacted,
            retention,
            must_exist: !create,
        };
        let sync = sync_mode(sync)?.unwrap_or(self.sync);
        let verify = verify.unwrap_or(self.verify);
        let visibility = parse_visibility(visibility)?.unwrap_or_default();
        let asked = Asked { options, resolve, sync, verify, visibility, patience: self.patience };
        let opened = Opened::open(py, &self.inner(py)?, &name, &asked)?;
        self.note(opened.handle());
        Ok(opened)
    }

    /// Raise an error for a name and settings that no topic can have, before there is a store.
    #[staticmethod]
    #[pyo3(signature = (name, *, codec, partitions, segment_bytes, sync_interval_ms))]
    fn _check_topic(
        py: Python<'_>,
        #[pyo3(from_py_with = input::topic_name)] name: String,
        codec: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partitions)] partitions: Option<u32>,
        #[pyo3(from_py_with = input::segment_bytes)] segment_bytes: Option<u64>,
        #[pyo3(from_py_with = input::sync_interval_ms)] sync_interval_ms: Option<u64>,
    ) -> PyResult<()> {
        let codec = codec.map(|codec| codec.to_string_lossy().into_owned());
        let asked = TopicOptions {
            codec,
            partitions,
            segment_bytes,
            sync_interval_ms,
            ..TopicOptions::default()
        };
        asked.validate().or_raise(py)?;
        Layout::new(Path::new(".")).topic(&name).or_raise(py).map(drop)
    }

    /// Return whether there is a topic of this name.
    fn _has_topic(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::topic_name)] name: String,
    ) -> PyResult<bool> {
        let inner = self.inner(py)?;
        match py.detach(|| inner.topic_settings(&name)) {
            Err(Error::InvalidName { .. } | Error::UnknownTopic { .. }) => Ok(false),
            found => found.or_raise(py).map(|_| true),
        }
    }

    /// List the names of all topics, sorted.
    fn _topic_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let inner = self.inner(py)?;
        let topics = py.detach(|| inner.topics()).or_raise(py)?;
        Ok(topics.into_iter().map(|(name, _)| name).collect())
    }

    /// Make a cut: what the store holds now, all of it on the disk, with ends that agree.
    ///
    /// A log in which nothing happened since an earlier cut costs nothing. A log that cannot be
    /// synced ends where all of it is on the disk, at or behind its end in the earlier cut.
    ///
    /// Args:
    ///     previous: The cut before, of the same store.
    ///
    /// Raises:
    ///     NotWritable: The store was opened for reading.
    ///     SyncFailed: A log that the earlier cut does not have cannot be synced.
    ///     CorruptData: A log, or the settings of a topic, are corrupt.
    #[pyo3(signature = (previous = None))]
    fn _cut(&self, py: Python<'_>, previous: Option<&Cut>) -> PyResult<Cut> {
        self.cut(py, previous)
    }

    /// Return whether the store has the end of a partition as an earlier cut had it.
    ///
    /// It is true where the end cannot be there any more: the topic was deleted, or its records were
    /// trimmed or compacted. It is false for a store with another history.
    ///
    /// Args:
    ///     directory: The name of the log's directory.
    ///     topic: The topic's generation.
    ///     partition: The partition.
    ///     next_offset: The offset of the next record.
    ///     checksum: The checksum of the last block.
    ///
    /// Raises:
    ///     CorruptData: The block before the end is corrupt.
    fn _contains(
        &self,
        py: Python<'_>,
        directory: &str,
        topic: &str,
        partition: u32,
        next_offset: u64,
        checksum: u32,
    ) -> PyResult<bool> {
        let (inner, generation) = (self.inner(py)?, generation(py, topic)?);
        py.detach(|| inner.contains(directory, &generation, partition, next_offset, checksum))
            .or_raise(py)
    }

    /// Return the id that tells the store from its copies, and make it at the first call.
    ///
    /// Raises:
    ///     NotWritable: The store was opened for reading, and has none.
    ///     CorruptData: The file is corrupt.
    fn _origin(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner(py)?;
        let origin = patiently(py, self.patience, || inner.origin())?;
        Ok(falaj::internals::format::names::hex(&origin.id))
    }

    /// Delete a topic and all its records, for all processes; values that were read stay valid.
    ///
    /// Raises:
    ///     UnknownTopic: There is no topic of this name.
    ///     NotWritable: The store was opened for reading.
    ///
    /// Example:
    ///     >>> _ = store.topic("orders")
    ///     >>> store.delete_topic("orders")
    ///     >>> list(store.topics)
    ///     []
    fn delete_topic(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::topic_name)] name: String,
    ) -> PyResult<()> {
        let inner = self.inner(py)?;
        patiently(py, self.patience, || inner.delete_topic(&name))
    }

    /// Sync and close all topics that were opened through it, and the store. Values stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        let handles =
            std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        // They are closed like the others.
        let named = std::mem::take(&mut *self.named());
        let consumers =
            std::mem::take(&mut *self.consumers.lock().unwrap_or_else(PoisonError::into_inner));
        let mut first_error = Ok(());
        for consumer in consumers.iter().filter_map(Weak::upgrade) {
            first_error = first_error.and(consumer.close(py));
        }
        for handle in handles.iter().filter_map(Weak::upgrade) {
            first_error = first_error.and(handle.close(py));
        }
        drop(named);
        py.detach(move || drop(inner));
        first_error
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let state = match &*inner {
            None => ", closed",
            Some(inner) if inner.access() == Access::Read => ", read only",
            Some(_) => "",
        };
        format!("<falaj.Store {:?}{state}>", self.path)
    }
}
