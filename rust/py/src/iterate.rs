//! `Records`: a plain `for` over a topic, a partition or a range of offsets.
//!
//! Owns the merge of several partitions by timestamp ([`Merge`]), which [`crate::follow`] uses as
//! well. A single partition is read without any of that.

use std::sync::Arc;

use falaj::error::{Error, Result};
use falaj::format::address::Address;
use falaj::topic::{Record as LogRecord, RecordBatch, RecordRefs, Scan, Skipped, Visibility};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::admin::skipped;
use crate::batch::Batch;
use crate::errors::OrRaise;
use crate::handle::{Handle, Open, Shape};
use crate::held::Held;
use crate::input;
use crate::record::Record;

/// Where to read: a partition, from an offset on, up to another one or for ever, as far as it is
/// visible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    pub(crate) end: Option<u64>,
    pub(crate) visibility: Visibility,
}

impl Lane {
    pub(crate) fn scan(&self, open: &Open) -> Result<Scan> {
        open.seen(self.visibility).scan(self.partition, self.from, self.end)
    }
}

/// Records that are read at once, and held together while one of them is.
const AHEAD: usize = 64;

#[derive(Debug)]
struct Stream {
    lane: Lane,
    scan: Scan,
    head: Option<LogRecord>,
    /// What the only stream reads ahead: what is left of it, and the offset with which that begins.
    ahead: Option<(Py<Batch>, RecordRefs)>,
    next: u64,
}

impl Stream {
    /// The next record, where nothing is merged.
    #[inline]
    fn next(
        &mut self,
        py: Python<'_>,
        open: &Open,
        shape: &Arc<Shape>,
    ) -> Result<Option<PyResult<Held>>> {
        loop {
            if let Some((batch, places)) = &mut self.ahead {
                let run = &batch.get().run;
                match places.next(run) {
                    Ok(Some(place)) => {
                        self.next = run.offset(&place) + 1;
                        return Ok(Some(Ok(Held::Within { batch: batch.clone_ref(py), place })));
                    }
                    Ok(None) => self.ahead = None,
                    Err(_) => self.head = self.again(open)?,
                }
            }
            if let Some(head) = self.head.take() {
                return Ok(Some(Ok(Held::alone(head, self.lane.partition, shape))));
            }
            let Some(run) = self.scan.next_run(AHEAD)? else { return Ok(None) };
            let batch = Batch { run, partition: self.lane.partition, shape: Arc::clone(shape) };
            match Py::new(py, batch) {
                Ok(batch) => self.ahead = Some((batch, RecordRefs::default())),
                Err(error) => return Ok(Some(Err(error))),
            }
        }
    }

    /// A record that was read ahead is damaged: come to it record by record, so that the scan stands
    /// before it and can step over it.
    #[cold]
    fn again(&mut self, open: &Open) -> Result<Option<LogRecord>> {
        self.ahead = None;
        self.scan = Lane { from: self.next, ..self.lane }.scan(open)?;
        self.scan.next_record()
    }
}

/// Records of some partitions, merged by timestamp.
#[derive(Debug)]
pub(crate) struct Merge {
    streams: Vec<Stream>,
    open: Arc<Open>,
}

impl Merge {
    pub(crate) fn new(open: Arc<Open>, lanes: &[Lane]) -> Result<Self> {
        let stream = |lane: &Lane| {
            let scan = lane.scan(&open)?;
            Ok(Stream { lane: *lane, scan, head: None, ahead: None, next: lane.from })
        };
        let streams = lanes.iter().map(stream).collect::<Result<_>>()?;
        Ok(Self { streams, open })
    }

    /// The next record of all and its partition; `None` where there is none now.
    fn next(&mut self) -> Result<Option<(u32, LogRecord)>> {
        for stream in &mut self.streams {
            if stream.head.is_none() {
                stream.head = stream.scan.next_record()?;
            }
        }
        let heads = self.streams.iter_mut().filter(|stream| stream.head.is_some());
        let time = |stream: &&mut Stream| stream.head.as_ref().map(LogRecord::timestamp_ns);
        let Some(oldest) = heads.min_by_key(time) else { return Ok(None) };
        Ok(oldest.head.take().map(|record| (oldest.lane.partition, record)))
    }

    /// The next records of one of them, held together, and its partition; do not mix with records.
    pub(crate) fn next_run(&mut self, size: usize) -> Result<Option<(RecordBatch, u32)>> {
        for number in 0..self.streams.len() {
            let stream = &mut self.streams[number];
            while let Some(run) = stream.scan.next_run(size)? {
                // Compaction may have left nothing of some blocks.
                if !run.is_empty() {
                    let partition = stream.lane.partition;
                    self.streams.rotate_left(number + 1);
                    return Ok(Some((run, partition)));
                }
            }
        }
        Ok(None)
    }

    /// Up to where all of them have read. Behind it may be more of some.
    pub(crate) fn reached(&self) -> Address {
        let ends = self.streams.iter().map(|stream| stream.scan.cursor().address());
        ends.min().unwrap_or_default()
    }

    /// Where it stands, to go on from there.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let lane = |stream: &Stream| {
            let from = match (&stream.ahead, &stream.head) {
                (Some(_), _) => stream.next,
                (None, Some(head)) => head.offset(),
                (None, None) => stream.scan.next_offset(),
            };
            Lane { from, ..stream.lane }
        };
        self.streams.iter().map(lane).collect()
    }

    /// Step over damage in every partition; says in which there was some. An error of a later one
    /// comes again with the next record.
    pub(crate) fn skip_damage(&mut self) -> Result<Vec<(u32, Skipped)>> {
        let mut told = Vec::new();
        for stream in &mut self.streams {
            // What is read of it already lies before its next damage.
            if stream.ahead.is_some() || stream.head.is_some() {
                continue;
            }
            match stream.scan.next_record() {
                Ok(found) => stream.head = found,
                Err(_) => match step_over(&mut stream.scan) {
                    Ok(skipped) => told.push((stream.lane.partition, skipped)),
                    Err(error) if told.is_empty() => return Err(error),
                    Err(_) => break,
                },
            }
        }
        Ok(told)
    }

    /// Have records that were read and not handed out come again, in runs.
    pub(crate) fn put_back(&mut self) -> Result<()> {
        for stream in &mut self.streams {
            if let Some(head) = &stream.head {
                let lane = Lane { from: head.offset(), ..stream.lane };
                (stream.scan, stream.head) = (lane.scan(&self.open)?, None);
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.open
    }
}

/// Step over damage, of several blocks too.
fn step_over(scan: &mut Scan) -> Result<Skipped> {
    let (path, first) = (scan.cursor().path().to_path_buf(), scan.cursor().address());
    let mut before = first;
    let mut skipped = scan.skip_damage();
    while matches!(skipped, Err(Error::Corrupt { .. })) && scan.cursor().address() > before {
        before = scan.cursor().address();
        let offsets = |more: Skipped| more.offsets;
        let more = scan.skip_damage().map(offsets);
        skipped =
            more.map(|offsets| Skipped { path: path.clone(), position: first.position(), offsets });
    }
    skipped
}

/// What reading needs besides the records: the handle, for a forked child, and what records share.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) merge: Merge,
    pub(crate) handle: Arc<Handle>,
    pub(crate) shape: Arc<Shape>,
}

impl Reading {
    pub(crate) fn new(py: Python<'_>, handle: &Arc<Handle>, lanes: &[Lane]) -> PyResult<Self> {
        let open = handle.open_existing(py)?;
        let merge = Merge::new(open, lanes).or_raise(py)?;
        Ok(Self { merge, handle: Arc::clone(handle), shape: Arc::clone(&handle.shape) })
    }

    /// What is read and where it stands, for people.
    pub(crate) fn shown(&self) -> String {
        let (name, lanes) = (&self.shape.name, self.merge.lanes());
        let part = match lanes.as_slice() {
            [Lane { partition, .. }] if self.merge.open().topic.partitions() > 1 => {
                format!(" partition {partition}")
            }
            [_] => String::new(),
            lanes => format!(" {} partitions", lanes.len()),
        };
        let place = match lanes.as_slice() {
            [Lane { from, end: None, .. }] => format!("from offset {from} on"),
            [Lane { from, end: Some(end), .. }] => format!("offsets {from} up to {end}"),
            lanes if lanes.iter().any(|lane| lane.end.is_none()) => {
                let from = lanes.iter().map(|lane| lane.from.to_string()).collect::<Vec<_>>();
                format!("from offsets {} on", from.join(", "))
            }
            lanes => {
                let left = |lane: &Lane| lane.end.unwrap_or(0).saturating_sub(lane.from);
                format!("{} records left", lanes.iter().map(left).sum::<u64>())
            }
        };
        format!("{name:?}{part}, {place}")
    }

    /// The next record; in a forked child from a topic of its own.
    #[inline]
    pub(crate) fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        if !self.merge.open().is_ours() {
            self.merge = Merge::new(self.handle.open(py)?, &self.merge.lanes()).or_raise(py)?;
        }
        let Merge { streams, open } = &mut self.merge;
        let next = match streams.as_mut_slice() {
            [only] => match only.next(py, open, &self.shape) {
                Ok(Some(held)) => return Record::make(py, held?).map(Some),
                Ok(None) => return Ok(None),
                Err(error) => Err(error),
            },
            _ => self.merge.next(),
        };
        match next {
            Ok(None) => Ok(None),
            Ok(Some((partition, record))) => {
                Record::make(py, Held::alone(record, partition, &self.shape)).map(Some)
            }
            Err(error) => {
                self.handle.expect_existing(py, self.merge.open())?;
                Err(error).or_raise(py)
            }
        }
    }
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

    /// After a `Corrupt`: go on behind the damage. What lies in between is lost to this reader; says
    /// what that is, for each partition where there was some: path and position of the damage, and
    /// first and behind the last of the offsets, equal where nothing sound follows that would tell.
    fn skip_damage<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        skipped(py, &self.reading.merge.skip_damage().or_raise(py)?)
    }
}
