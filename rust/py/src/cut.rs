//! `Cut` and its parts: a store as it was at one moment, for code that ships it.
//!
//! Owns the Python objects over the engine's cut. Each part holds the cut and its place in it, so an
//! object is made only for what a program looks at. Invariant: the parts of a cut never change, and
//! reads of files release the GIL.

use std::ops::Range;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::names::{hex, unhex};
use falaj::internals::log::SegmentCut;
use falaj::internals::store::{Cut as Inner, CutFile as InnerFile, CutLog as InnerLog, TopicEnd};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::{OrRaise, raise};
use crate::store::Store;

/// A store as it was at one moment, all of it on the disk; see `Store._cut`.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Cut(Arc<Inner>);

/// A log of a cut.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct CutLog {
    cut: Arc<Inner>,
    log: usize,
}

/// A segment of a cut. Bytes below its length never change while log, sequence, salt and compaction
/// are the same.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct CutSegment {
    cut: Arc<Inner>,
    log: usize,
    segment: usize,
}

/// Where a partition of a topic ends in a cut.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct CutEnd(TopicEnd);

/// A small file of a cut.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct CutFile(InnerFile);

impl Store {
    /// Make a cut of the store, from an earlier one.
    pub(crate) fn cut(&self, py: Python<'_>, previous: Option<&Cut>) -> PyResult<Cut> {
        let inner = self.inner(py)?;
        let before = previous.map(|previous| Arc::clone(&previous.0));
        let cut = py.detach(|| inner.cut(before.as_deref())).or_raise(py)?;
        Ok(Cut(Arc::new(cut)))
    }
}

/// Read a generation.
pub(crate) fn generation(py: Python<'_>, text: &str) -> PyResult<[u8; 16]> {
    let unreadable = || {
        let what = format!("{text:?} is no generation; it has 32 hexadecimal digits");
        raise(py, &Error::InvalidArgument { what })
    };
    unhex(text).ok_or_else(unreadable)
}

/// A part that `Cut.gather` joins.
#[derive(FromPyObject)]
enum Part<'py> {
    Bytes(Bound<'py, PyBytes>),
    /// Log, sequence, start, stop.
    Blocks(String, u64, u64, u64),
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes().len(),
            Self::Blocks(_, _, start, stop) => stop.saturating_sub(*start) as usize,
        }
    }
}

impl Cut {
    fn position_of(&self, py: Python<'_>, log: &str) -> PyResult<usize> {
        let at = self.0.logs().iter().position(|of| of.directory() == log);
        at.ok_or_else(|| {
            let what = format!("the cut has no log {log:?}; ask for one of its logs");
            raise(py, &Error::InvalidArgument { what })
        })
    }

    /// Return the engine's cut.
    #[allow(dead_code, reason = "acknowledging a cut needs it")]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

#[pymethods]
impl Cut {
    /// The store's id, 32 hexadecimal digits.
    #[getter]
    fn store(&self) -> String {
        hex(&self.0.store())
    }

    /// The logs.
    #[getter]
    fn logs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let of = |log| CutLog { cut: Arc::clone(&self.0), log };
        let logs: Vec<_> = (0..self.0.logs().len()).map(of).collect();
        PyTuple::new(
            py,
            logs.into_iter().map(|log| Py::new(py, log)).collect::<PyResult<Vec<_>>>()?,
        )
    }

    /// The files beside the logs: settings, consumer groups, queues.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let files = self.0.files().map(|file| Py::new(py, CutFile(file.clone())));
        PyTuple::new(py, files.collect::<PyResult<Vec<_>>>()?)
    }

    /// Return bytes of a segment's blocks, from its file.
    ///
    /// Args:
    ///     log: The name of the log's directory.
    ///     sequence: The segment.
    ///     start: The first byte, 8192 at least.
    ///     stop: The byte after the last, at most the segment's length.
    ///
    /// Raises:
    ///     CorruptData: The segment is gone, or another one has its name.
    ///     InvalidArgument: The cut does not have these bytes.
    fn read<'py>(
        &self,
        py: Python<'py>,
        log: &str,
        sequence: u64,
        start: u64,
        stop: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let part = Part::Blocks(log.to_owned(), sequence, start, stop);
        self.gather(py, vec![part]).map(|(read, _)| read)
    }

    /// Join bytes and ranges of segments' blocks, which are read to their place without a copy.
    ///
    /// Args:
    ///     parts: Bytes, or the log, the sequence, the start and the stop of a range as in `read`.
    ///
    /// Returns:
    ///     All of it, and the CRC-32 of each part.
    ///
    /// Raises:
    ///     CorruptData: A segment is gone, or another one has its name.
    ///     InvalidArgument: The cut does not have these bytes.
    #[allow(clippy::needless_pass_by_value, reason = "a list of Python's comes as a vector")]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<Part<'py>>,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<u32>)> {
        let mut sources = Vec::with_capacity(parts.len());
        for part in &parts {
            sources.push(match part {
                Part::Bytes(_) => None,
                Part::Blocks(log, sequence, start, stop) => {
                    let at = self.position_of(py, log)?;
                    self.0.expect(at, *sequence, &(*start..*stop)).or_raise(py)?;
                    Some((at, *sequence, *start))
                }
            });
        }
        let mut checksums = Vec::new();
        let len = parts.iter().map(Part::len).sum();
        let joined = PyBytes::new_with(py, len, |mut rest| {
            let mut places = Vec::with_capacity(parts.len());
            for part in &parts {
                let (place, behind) = rest.split_at_mut(part.len());
                rest = behind;
                if let Part::Bytes(bytes) = part {
                    place.copy_from_slice(bytes.as_bytes());
                }
                places.push(place);
            }
            let fill = || {
                let each = sources.into_iter().zip(places).map(|(source, place)| {
                    if let Some((log, sequence, at)) = source {
                        self.0.read_into(log, sequence, at, place)?;
                    }
                    Ok(crc32(place))
                });
                each.collect::<Result<Vec<_>, Error>>()
            };
            checksums = py.detach(fill).or_raise(py)?;
            Ok(())
        })?;
        Ok((joined, checksums))
    }

    fn __repr__(&self) -> String {
        format!("<falaj._core.Cut of {} with {} logs>", self.store(), self.0.logs().len())
    }
}

impl CutLog {
    fn inner(&self) -> &InnerLog {
        &self.cut.logs()[self.log]
    }
}

#[pymethods]
impl CutLog {
    /// The name of its directory below `logs/`.
    #[getter]
    fn directory(&self) -> String {
        self.inner().directory()
    }

    /// The log's generation, 32 hexadecimal digits.
    #[getter]
    fn generation(&self) -> String {
        hex(&self.inner().generation())
    }

    /// Its segments, oldest first; only the last one is not sealed.
    #[getter]
    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let of = |segment| {
            Py::new(py, CutSegment { cut: Arc::clone(&self.cut), log: self.log, segment })
        };
        let segments = (0..self.inner().segments().len()).map(of);
        PyTuple::new(py, segments.collect::<PyResult<Vec<_>>>()?)
    }

    /// Where each partition of its topics ends.
    #[getter]
    fn ends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ends = self.inner().ends().iter().map(|end| Py::new(py, CutEnd(end.clone())));
        PyTuple::new(py, ends.collect::<PyResult<Vec<_>>>()?)
    }

    fn __repr__(&self) -> String {
        let end = self.inner().end();
        let at = (end.sequence(), end.position());
        format!("<falaj._core.CutLog {} up to {at:?}>", self.directory())
    }
}

impl CutSegment {
    fn inner(&self) -> &SegmentCut {
        &self.cut.logs()[self.log].segments()[self.segment]
    }
}

#[pymethods]
impl CutSegment {
    /// Its sequence, as in the file's name.
    #[getter]
    fn sequence(&self) -> u64 {
        self.inner().header.sequence
    }

    /// Its salt.
    #[getter]
    fn salt(&self) -> u64 {
        self.inner().header.salt
    }

    /// The random number of the compaction that made it; 0 for other segments.
    #[getter]
    fn compaction(&self) -> u64 {
        self.inner().header.compaction()
    }

    /// Its header, 512 bytes.
    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner().header.encode())
    }

    /// Where its content ends.
    #[getter]
    fn end(&self) -> u64 {
        self.inner().end
    }

    /// Where its bytes end: behind the end block of a sealed segment.
    #[getter]
    fn length(&self) -> u64 {
        self.inner().len
    }

    /// False for the last segment of a log, which may grow.
    #[getter]
    fn sealed(&self) -> bool {
        self.inner().sealed
    }

    /// List the ranges of its bytes from a position on, without the holes of void blocks.
    ///
    /// Args:
    ///     start: The position.
    ///
    /// Raises:
    ///     CorruptData: The segment is gone, or another one has its name.
    fn extents(&self, py: Python<'_>, start: u64) -> PyResult<Vec<(u64, u64)>> {
        let (log, sequence) = (&self.cut.logs()[self.log], self.sequence());
        let extents = py.detach(|| log.extents(sequence, start)).or_raise(py)?;
        Ok(extents.into_iter().map(|Range { start, end }| (start, end)).collect())
    }

    fn __repr__(&self) -> String {
        let SegmentCut { header, end, sealed, .. } = self.inner();
        format!("<falaj._core.CutSegment {} end={end} sealed={sealed}>", header.sequence)
    }
}

#[pymethods]
impl CutEnd {
    /// The topic's generation, 32 hexadecimal digits.
    #[getter]
    fn topic(&self) -> String {
        hex(&self.0.topic)
    }

    /// The topic's name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The partition.
    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition
    }

    /// The offset of the next record.
    #[getter]
    fn next(&self) -> u64 {
        self.0.next
    }

    /// The checksum of the body of the last block with records; 0 without one.
    #[getter]
    fn checksum(&self) -> u32 {
        self.0.checksum
    }

    /// When that block was appended, microseconds since 1970; 0 if it is not there any more.
    #[getter]
    fn time_us(&self) -> i64 {
        self.0.time_us
    }

    fn __repr__(&self) -> String {
        let TopicEnd { name, partition, next, .. } = &self.0;
        format!("<falaj._core.CutEnd {name} {partition} next={next}>")
    }
}

#[pymethods]
impl CutFile {
    /// The path in the store, with slashes.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// The length.
    #[getter]
    fn length(&self) -> u64 {
        self.0.len
    }

    /// The bytes, each with their position; all between is zero.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.0.parts.iter();
        PyTuple::new(
            py,
            parts.map(|(at, bytes)| (*at, PyBytes::new(py, bytes))).collect::<Vec<_>>(),
        )
    }

    fn __repr__(&self) -> String {
        format!("<falaj._core.CutFile {} of {} bytes>", self.0.path, self.0.len)
    }
}
