//! `Records`: a plain `for` over a topic, a partition or a range of offsets.
//!
//! Owns the merge of several partitions by timestamp ([`Merge`]), which [`crate::follow`] uses as
//! well. A single partition is read without any of that.

use std::sync::Arc;

use falaj::error::Result;
use falaj::topic::{RecordView, Scan, Topic};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::handle::{Handle, Open, Shape};
use crate::record::Record;

/// Where to read: a partition, from an offset on, up to another one or for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    pub(crate) end: Option<u64>,
}

#[derive(Debug)]
struct Stream {
    lane: Lane,
    scan: Scan,
    head: Option<RecordView>,
}

/// Records of some partitions, merged by timestamp.
#[derive(Debug)]
pub(crate) struct Merge {
    streams: Vec<Stream>,
    open: Arc<Open>,
}

impl Merge {
    pub(crate) fn new(open: Arc<Open>, lanes: &[Lane]) -> Result<Self> {
        let scan = |topic: &Topic, lane: &Lane| {
            let scan = topic.scan(lane.partition, lane.from, lane.end)?;
            Ok(Stream { lane: *lane, scan, head: None })
        };
        let streams = lanes.iter().map(|lane| scan(&open.topic, lane)).collect::<Result<_>>()?;
        Ok(Self { streams, open })
    }

    /// The only partition, if there is one: that needs no merging.
    #[inline]
    fn only(&mut self) -> Option<&mut Stream> {
        match self.streams.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The next record of all and its partition; `None` where there is none now.
    fn next(&mut self) -> Result<Option<(u32, RecordView)>> {
        for stream in &mut self.streams {
            if stream.head.is_none() {
                stream.head = stream.scan.next_record()?;
            }
        }
        let heads = self.streams.iter_mut().filter(|stream| stream.head.is_some());
        let time = |stream: &&mut Stream| stream.head.as_ref().map(RecordView::timestamp_ns);
        let Some(oldest) = heads.min_by_key(time) else { return Ok(None) };
        Ok(oldest.head.take().map(|record| (oldest.lane.partition, record)))
    }

    /// Where it stands, to go on from there.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let lane = |stream: &Stream| {
            let head = stream.head.as_ref().map(RecordView::offset);
            Lane { from: head.unwrap_or_else(|| stream.scan.next_offset()), ..stream.lane }
        };
        self.streams.iter().map(lane).collect()
    }

    /// Read no further than what is on the medium now.
    pub(crate) fn hold_back(&mut self) -> Result<()> {
        for stream in &mut self.streams {
            let end = self.open.topic.durable(stream.lane.partition)?;
            stream.lane.end = Some(end);
            stream.scan.set_end(end);
        }
        Ok(())
    }

    /// Step over damage in every partition.
    pub(crate) fn skip_damage(&mut self) -> Result<()> {
        for stream in &mut self.streams {
            let ahead = stream.scan.next_record();
            match ahead {
                Ok(found) => stream.head = stream.head.take().or(found),
                Err(_) => {
                    stream.scan.skip_damage()?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.open
    }
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

    /// The next record; in a forked child from a topic of its own.
    #[inline]
    pub(crate) fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        if !self.merge.open().is_ours() {
            self.merge = Merge::new(self.handle.open(py)?, &self.merge.lanes()).or_raise(py)?;
        }
        let next = match self.merge.only() {
            Some(Stream { lane, scan, .. }) => match scan.next_parts() {
                Ok(None) => return Ok(None),
                Ok(Some((block, parts))) => {
                    let record = RecordView::new(block.clone(), parts);
                    return Record::make(py, record, lane.partition, &self.shape).map(Some);
                }
                Err(error) => Err(error),
            },
            None => self.merge.next(),
        };
        match next {
            Ok(next) => next
                .map(|(partition, record)| Record::make(py, record, partition, &self.shape))
                .transpose(),
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

    #[inline]
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        self.reading.next(py)
    }

    /// After a `Corrupt`: go on behind the damage. What lies in between is lost to this reader.
    fn skip_damage(&mut self, py: Python<'_>) -> PyResult<()> {
        self.reading.merge.skip_damage().or_raise(py)
    }
}
