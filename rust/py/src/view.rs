//! `PlaceView`: a directory that is read as a store, and kept as a place has it.
//!
//! A shell around the engine's view. The engine calls Python when it needs a segment that is elsewhere.
//! Invariant: it holds no lock then, and an exception of that call reaches the caller as it is.

use std::io;
use std::path::{Path, PathBuf};

use falaj::internals::error::Result;
use falaj::internals::format::names;
use falaj::internals::storage::{Needed, Source};
use falaj::internals::store::{PlaceView as Inner, SealedSegment, ViewSegment};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::calling::{Items, call};
use crate::errors::OrRaise;
use crate::input;

/// A directory that is read as a store, and kept as a place beyond the machine has it.
///
/// Args:
///     path: The directory, which must be missing.
///     bring: Called with the name of a log's directory, a sequence, and whether the whole of that
///         segment is needed or only its beginning. It calls `put` or `put_beginning`. Without a
///         sequence, it publishes the log. Its exceptions reach the reader.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct PlaceView(pub(crate) Inner);

#[derive(Debug)]
struct PythonSource(Py<PyAny>);

impl Source for PythonSource {
    fn bring(&self, path: &Path, needed: Needed) -> io::Result<()> {
        let Some((log, sequence)) = named(path) else {
            return Err(io::Error::other("no log, and no segment of one, has this path"));
        };
        Python::attach(|py| {
            let whole = needed == Needed::Whole;
            call(self.0.bind(py), (log, sequence, whole)).map(drop).map_err(io::Error::other)
        })
    }
}

/// Return the log, and the segment if the path is that of one.
fn named(path: &Path) -> Option<(String, Option<u64>)> {
    let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    let own = name(path)?;
    match names::parse_segment(&own) {
        Some(sequence) => Some((name(path.parent()?)?, Some(sequence))),
        None => Some((own, None)),
    }
}

/// A segment as Python describes it: its header, its end, its length, and whether it is sealed.
type Described<'py> = (Bound<'py, PyBytes>, u64, u64, bool);

impl PlaceView {
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Inner) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&self.0)).or_raise(py)
    }

    fn with_segment<T: Send>(
        &self,
        segment: &Described<'_>,
        work: impl FnOnce(&Inner, &ViewSegment<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let described = told(segment);
        self.detached(segment.0.py(), |inner| work(inner, &described))
    }
}

fn told<'a>((header, end, len, sealed): &'a Described<'_>) -> ViewSegment<'a> {
    ViewSegment { header: header.as_bytes(), end: *end, len: *len, sealed: *sealed }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
impl PlaceView {
    #[new]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = input::path)] path: PathBuf,
        bring: Py<PyAny>,
    ) -> PyResult<Self> {
        let source = Box::new(PythonSource(bring));
        py.detach(|| Inner::create(&path, source)).or_raise(py).map(Self)
    }

    /// Put a small file: its path, its length, positions and bytes.
    fn file(
        &self,
        py: Python<'_>,
        path: &str,
        length: u64,
        parts: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let parts: PyResult<Vec<(u64, Bound<'_, PyBytes>)>> =
            Items::of(parts)?.map(|part| part?.extract()).collect();
        let parts = parts?;
        let parts: Vec<(u64, &[u8])> =
            parts.iter().map(|(position, bytes)| (*position, bytes.as_bytes())).collect();
        self.detached(py, |inner| inner.file(path, length, &parts))
    }

    /// Remove a small file.
    fn remove_file(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.detached(py, |inner| inner.remove_file(path))
    }

    /// Make a file for a segment at any path, with its header pages.
    fn blank(
        &self,
        #[pyo3(from_py_with = input::path)] path: PathBuf,
        log: &str,
        segment: Described<'_>,
    ) -> PyResult<()> {
        self.with_segment(&segment, |inner, segment| inner.blank(&path, log, segment))
    }

    /// Let a stand-in take the place of a whole segment that readers know. `following` is the header of
    /// the segment behind it.
    fn give_up(
        &self,
        log: &str,
        segment: Described<'_>,
        following: &Bound<'_, PyBytes>,
    ) -> PyResult<()> {
        let next = following.as_bytes();
        self.with_segment(&segment, |inner, segment| {
            inner.give_up(log, &SealedSegment { segment: *segment, next })
        })
    }

    /// Rename a whole file of a segment into its place.
    fn put(
        &self,
        py: Python<'_>,
        log: &str,
        sequence: u64,
        #[pyo3(from_py_with = input::path)] path: PathBuf,
    ) -> PyResult<()> {
        self.detached(py, |inner| inner.put(log, sequence, &path))
    }

    /// Keep the first bytes of the blocks of a stand-in in memory.
    fn put_beginning(&self, log: &str, sequence: u64, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = data.as_bytes();
        self.detached(data.py(), |inner| inner.put_beginning(log, sequence, bytes))
    }

    /// Return whether a segment is a stand-in now.
    fn stands_in(&self, py: Python<'_>, log: &str, sequence: u64) -> PyResult<bool> {
        self.detached(py, |inner| inner.stands_in(log, sequence))
    }

    /// Store bytes of the segment in which a log ends, behind the end that readers see.
    fn store(&self, log: &str, position: u64, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = data.as_bytes();
        self.detached(data.py(), |inner| inner.store(log, position, bytes))
    }

    /// Let readers see that a log ends in this segment, and all that was stored before. At that moment
    /// stand-ins for these sealed segments take their names; each comes with the header of the one
    /// behind it. The segments with these sequences are removed.
    fn publish(
        &self,
        log: &str,
        segment: Described<'_>,
        sealed: Vec<(Described<'_>, Bound<'_, PyBytes>)>,
        gone: Vec<u64>,
    ) -> PyResult<()> {
        let sealed: Vec<_> = sealed
            .iter()
            .map(|(segment, next)| SealedSegment { segment: told(segment), next: next.as_bytes() })
            .collect();
        self.with_segment(&segment, |inner, last| inner.publish(log, last, &sealed, &gone))
    }

    /// Say that compaction may leave out records of a log.
    fn allow_compaction(&self, py: Python<'_>, log: &str) -> PyResult<()> {
        self.detached(py, |inner| inner.allow_compaction(log))
    }

    /// Make the directory of a log, which stands for the log until `publish`.
    fn begin_log(&self, py: Python<'_>, log: &str) -> PyResult<()> {
        self.detached(py, |inner| inner.begin_log(log))
    }

    /// Tell readers that a log was deleted, and remove it.
    fn remove_log(&self, py: Python<'_>, log: &str) -> PyResult<()> {
        self.detached(py, |inner| inner.remove_log(log))
    }
}
