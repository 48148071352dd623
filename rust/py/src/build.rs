//! `StoreBuilder`: a store that is built from pieces.
//!
//! A shell around the engine's builder. Invariant: threads that write share it, and `finish` and `discard` take
//! it from all of them. So they work only while no thread writes, and nothing works afterwards.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj::internals::error::{Error, Result};
use falaj::internals::format::names::{hex, unhex};
use falaj::internals::store::{Parent, PieceBuilder, PieceOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::admin::{Object, dict, told, with_progress};
use crate::errors::{OrRaise, invalid};
use crate::{input, payload};

/// A store that is built from pieces: bytes of segments, and small files, from another place.
///
/// The store is built beside its path, under a name of its own. Nothing has the path before `finish`
/// has checked all of it and has synced it. How processes write to the store follows from its file
/// system. As a context manager it discards what was not finished.
///
/// Args:
///     path: Directory of the store: a missing or an empty one.
///     permissions: Permission bits of its directories, as in `falaj.open`.
///     allow_network_fs: As in `falaj.open`.
///     resume: Go on where an earlier builder with this key was left or killed, such as the id of
///         an origin: 32 hexadecimal digits.
///
/// Raises:
///     InvalidArgument: There is something at the path.
///     LockTimeout: Another builder with this key works for this path.
///     UnsupportedFilesystem: falaj cannot keep its promises there.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct StoreBuilder {
    path: PathBuf,
    workplace: PathBuf,
    /// `None` once it was finished or discarded.
    inner: Mutex<Option<Arc<PieceBuilder>>>,
}

/// A part of a file: position and bytes.
type Part<'py> = (u64, Bound<'py, PyBytes>);

impl StoreBuilder {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<PieceBuilder>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        use_it: impl FnOnce(&PieceBuilder) -> Result<T> + Send,
    ) -> PyResult<T> {
        let builder = self.slot().clone().ok_or(OVER).or_raise(py)?;
        py.detach(move || {
            let done = use_it(&builder);
            drop(builder);
            done
        })
        .or_raise(py)
    }

    /// Take the builder from all threads; none of them may be using it.
    fn take(&self, py: Python<'_>) -> PyResult<PieceBuilder> {
        let mut slot = self.slot();
        let shared = slot.take().ok_or(OVER).or_raise(py)?;
        Arc::try_unwrap(shared).map_err(|shared| {
            *slot = Some(shared);
            invalid(py, "another thread still gives pieces: wait for it before you finish")
        })
    }
}

const OVER: Error = Error::HandleClosed { what: "store builder" };

#[pymethods]
impl StoreBuilder {
    #[new]
    #[pyo3(signature = (path, *, permissions = 0o700, allow_network_fs = false, resume = None))]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
    fn new(
        #[pyo3(from_py_with = input::path)] path: PathBuf,
        #[pyo3(from_py_with = input::permissions)] permissions: u32,
        allow_network_fs: bool,
        resume: Option<&Bound<'_, PyString>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let resume = resume.map(|key| origin_of(py, key)).transpose()?;
        let options = PieceOptions { mode: permissions, allow_network_fs, resume };
        let begun = py.detach(|| PieceBuilder::begin(&path, options)).or_raise(py)?;
        let [path, workplace] = [begun.destination(), begun.workplace()].map(Path::to_path_buf);
        Ok(Self { path, workplace, inner: Mutex::new(Some(Arc::new(begun))) })
    }

    /// The directory that the store will have, absolute.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Put a small file.
    ///
    /// Args:
    ///     path: `falaj.json`, `topics/<topic>/topic.json`, `consumers/<group>` or `queues/<queue>`.
    ///     length: Bytes of the file. Bytes that no part has are zero.
    ///     parts: Positions and bytes, in their order.
    ///
    /// Raises:
    ///     InvalidArgument: No store has such a file, or it was given before, or a part does not fit.
    ///     CorruptData: The settings in it are corrupt.
    ///     HandleClosed: The builder was finished or discarded.
    fn file(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        length: &Bound<'_, PyAny>,
        parts: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let path = input::text(path, "the path of a file")?;
        let length: u64 = input::number(length, "the length of a file")?;
        let parts: PyResult<Vec<Part<'_>>> = crate::calling::Items::of(parts)?
            .map(|part| {
                let (position, bytes): (Bound<'_, PyAny>, Bound<'_, PyAny>) = part?.extract()?;
                let position = input::number(&position, "the position of a part")?;
                Ok((position, payload::bytes(&bytes, "a part of a file")?))
            })
            .collect();
        let parts = parts?;
        let parts: Vec<(u64, &[u8])> =
            parts.iter().map(|(position, bytes)| (*position, bytes.as_bytes())).collect();
        self.with(py, |builder| builder.file(&path, length, &parts))
    }

    /// Begin a segment of a log.
    ///
    /// Args:
    ///     log: Name of the log's directory, as `orders@` and 32 hexadecimal digits.
    ///     header: The first 512 bytes of the segment.
    ///     end: Position at which its content ends.
    ///     length: Position at which its bytes end, behind the end block if there is one.
    ///     sealed: False for the last segment of the log, which alone is not sealed.
    ///
    /// Returns:
    ///     True if an earlier builder left bytes of it; `keep` finds out which.
    ///
    /// Raises:
    ///     InvalidArgument: No log has such a directory, or the segment was begun before.
    ///     CorruptData: The header is corrupt or of another log, or the numbers do not fit.
    ///     HandleClosed: The builder was finished or discarded.
    fn segment(
        &self,
        log: &Bound<'_, PyString>,
        header: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        sealed: bool,
    ) -> PyResult<bool> {
        let py = log.py();
        let log = input::text(log, "the name of a log's directory")?;
        let header = payload::bytes(header, "the header of a segment")?;
        let end: u64 = input::number(end, "the end of a segment")?;
        let length: u64 = input::number(length, "the length of a segment")?;
        let header = header.as_bytes();
        self.with(py, |builder| builder.segment(&log, header, end, length, sealed))
    }

    /// Write bytes of a segment that was begun; any thread may, and in any order. Only a compacted
    /// segment may keep holes, which read as zero.
    ///
    /// Args:
    ///     log, sequence: The segment.
    ///     position: Where the bytes lie in it, from 8192 on.
    ///     data: The bytes.
    ///
    /// Raises:
    ///     InvalidArgument: The segment was not begun, or the bytes lie outside of it, or some were
    ///         written before.
    ///     NoSpace: The disk is full; the call may be repeated.
    ///     HandleClosed: The builder was finished or discarded.
    fn write(
        &self,
        log: &Bound<'_, PyString>,
        sequence: &Bound<'_, PyAny>,
        position: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = log.py();
        let log = input::text(log, "the name of a log's directory")?;
        let sequence: u64 = input::number(sequence, "the sequence of a segment")?;
        let position: u64 = input::number(position, "a position")?;
        let data = payload::bytes(data, "the bytes of a segment")?;
        let data = data.as_bytes();
        self.with(py, |builder| builder.write(&log, sequence, position, data))
    }

    /// Write a part of some bytes as `write` does, if it has this checksum.
    ///
    /// Args:
    ///     log, sequence: The segment.
    ///     position: Where the part lies in it, from 8192 on.
    ///     data: Bytes with the part in them.
    ///     start, stop: The part.
    ///     checksum: The CRC-32 of the part, as of `zlib.crc32`.
    ///
    /// Returns:
    ///     False if it has another checksum: then it does not count as written.
    ///
    /// Raises:
    ///     InvalidArgument: As `write`, and for a part that lies outside of the bytes.
    ///     NoSpace: The disk is full; the call may be repeated.
    ///     HandleClosed: The builder was finished or discarded.
    #[allow(clippy::too_many_arguments, reason = "a part of a segment, and a part of some bytes")]
    fn write_checked(
        &self,
        log: &Bound<'_, PyString>,
        sequence: &Bound<'_, PyAny>,
        position: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        stop: &Bound<'_, PyAny>,
        checksum: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = log.py();
        let log = input::text(log, "the name of a log's directory")?;
        let sequence: u64 = input::number(sequence, "the sequence of a segment")?;
        let position: u64 = input::number(position, "a position")?;
        let data = payload::bytes(data, "the bytes of a segment")?;
        let [start, stop]: [usize; 2] =
            [input::number(start, "a position")?, input::number(stop, "a position")?];
        let checksum: u32 = input::number(checksum, "a checksum")?;
        let Some(part) = data.as_bytes().get(start..stop) else {
            return Err(invalid(py, format!("bytes {start} to {stop} lie outside of the data")));
        };
        self.with(py, |builder| builder.write_checked(&log, sequence, position, part, checksum))
    }

    /// Count bytes as written that an earlier builder wrote, if they have this checksum; any thread may.
    ///
    /// Args:
    ///     log, sequence: The segment.
    ///     position: Where the bytes lie in it, from 8192 on.
    ///     length: How many they are.
    ///     checksum: Their CRC-32, as of `zlib.crc32`.
    ///
    /// Returns:
    ///     False if they are others, or none: then `write` takes them.
    ///
    /// Raises:
    ///     InvalidArgument: The bytes lie outside of the segment, or some were written before.
    ///     HandleClosed: The builder was finished or discarded.
    fn keep(
        &self,
        log: &Bound<'_, PyString>,
        sequence: &Bound<'_, PyAny>,
        position: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        checksum: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = log.py();
        let log = input::text(log, "the name of a log's directory")?;
        let sequence: u64 = input::number(sequence, "the sequence of a segment")?;
        let position: u64 = input::number(position, "a position")?;
        let length: u64 = input::number(length, "a length")?;
        let checksum: u32 = input::number(checksum, "a checksum")?;
        self.with(py, |builder| builder.keep(&log, sequence, position, length, checksum))
    }

    /// Check every block, and give the store its name. After an error the builder is over, and nothing
    /// is left. Where a later builder can go on, `NoSpace` and an exception of `progress` leave it all.
    ///
    /// Args:
    ///     parent: The origin that the pieces came from, as 32 hexadecimal digits.
    ///     number: The number of their state in the place that has it; with a parent alone.
    ///     progress: Called with the bytes done and all bytes; its exception ends the call.
    ///
    /// Raises:
    ///     CorruptData: A piece is missing or corrupt; `path` and `position` say where.
    ///     InvalidArgument: There is no `falaj.json`, or another thread still writes.
    ///     HandleClosed: The builder was finished or discarded.
    #[pyo3(signature = (*, parent = None, number = None, progress = None))]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes values of what it is given")]
    fn finish<'py>(
        &self,
        py: Python<'py>,
        parent: Option<&Bound<'py, PyString>>,
        number: Option<&Bound<'py, PyAny>>,
        progress: Option<Py<PyAny>>,
    ) -> Object<'py> {
        let parent = parent_of(py, parent, number)?;
        let builder = self.take(py)?;
        let done = with_progress(py, progress.as_ref(), |tell| builder.finish(parent, tell))?;
        let (problems, error_classes) = told(&done.problems);
        Ok(dict!(py,
            "topics": done.topics,
            "logs": done.logs,
            "segments": done.segments,
            "bytes": done.bytes,
            "origin": hex(&done.origin),
            "problems": problems,
            "error_classes": error_classes,
        ))
    }

    /// End, and keep what was written for a later builder with the same key; without a key, discard it.
    /// After `finish` it only tells.
    ///
    /// Returns:
    ///     True if a later builder can go on.
    ///
    /// Raises:
    ///     InvalidArgument: Another thread still writes.
    fn leave(&self, py: Python<'_>) -> PyResult<bool> {
        if self.slot().is_some() {
            let builder = self.take(py)?;
            py.detach(|| builder.leave());
        }
        Ok(py.detach(|| self.workplace.is_dir()))
    }

    /// Remove what was built. A second call, or one after `finish`, does nothing.
    ///
    /// Raises:
    ///     InvalidArgument: Another thread still writes.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        if self.slot().is_none() {
            return Ok(());
        }
        let builder = self.take(py)?;
        py.detach(|| builder.discard());
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.discard(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.slot().is_some() { "unfinished" } else { "over" };
        format!("<falaj._core.StoreBuilder {:?}, {state}>", self.path.display().to_string())
    }
}

fn parent_of(
    py: Python<'_>,
    parent: Option<&Bound<'_, PyString>>,
    number: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Parent>> {
    match (parent, number) {
        (None, None) => Ok(None),
        (Some(parent), Some(number)) => {
            let origin = origin_of(py, parent)?;
            Ok(Some(Parent { origin, number: input::number(number, "the number of a state")? }))
        }
        _ => Err(invalid(py, "a parent has a number, and a number has a parent: give both")),
    }
}

fn origin_of(py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<[u8; 16]> {
    unhex(&text.to_string_lossy()).ok_or_else(|| {
        invalid(py, format!("an origin is 32 hexadecimal digits in small letters, not {text:?}"))
    })
}
