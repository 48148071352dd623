//! Merging: the records of several partitions in the order of their times.
//!
//! Each partition stays in the order of its offsets. Among the next records of all partitions, the
//! one with the lowest timestamp is first. Invariant: the head of a stream was taken from its scan
//! and not returned yet. It counts as not read wherever the merge says how far it read.

use crate::error::Result;
use crate::format::address::Address;
use crate::log::{RecordBatch, RecordRef};

use super::{PartitionScan, Record, ScanRange, Skipped, Topic};

/// Reads records in the order of their timestamps, each partition in the order of its offsets. [`Topic::scan`] makes
/// it.
///
/// At the end the iterator returns `None`, and continues at a later call after more was appended.
/// After an error it stays where it is and returns the error again, until [`Scan::step_over`] steps
/// over the corruption.
#[derive(Debug)]
pub struct Scan {
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    scan: PartitionScan,
    /// The record that the scan returned last, and its time, if it is this partition's next one.
    head: Option<(RecordRef, i64)>,
}

impl Stream {
    fn find_head(&mut self) -> Result<()> {
        if self.head.is_none() {
            let next = self.scan.next_ref()?;
            self.head = next.map(|(batch, at)| (at, batch.timestamp_ns(&at)));
        } else if self.scan.has_new_trims() {
            let next = self.range().from;
            self.scan.expect_untrimmed(next)?;
        }
        Ok(())
    }

    /// Return the range that is left.
    fn range(&self) -> ScanRange {
        let range = self.scan.range();
        let head = self.head.as_ref().zip(self.scan.batch());
        let from = head.map_or(range.from, |((at, _), batch)| batch.offset(at));
        ScanRange { from, ..range }
    }
}

impl Topic {
    /// Scan several partitions at once, merged by timestamp.
    ///
    /// # Errors
    /// As [`Topic::scan`].
    #[doc(hidden)]
    pub fn scan_ranges(&self, ranges: &[ScanRange]) -> Result<Scan> {
        let stream = |range: &ScanRange| {
            let scan = self.scan_partition(range.partition, range.from, range.end)?;
            Ok(Stream { scan, head: None })
        };
        Ok(Scan { streams: ranges.iter().map(stream).collect::<Result<_>>()? })
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_ref().transpose()?;
        Some(next.map(|(batch, at)| Record::new(batch.clone(), at)))
    }
}

impl Scan {
    /// Get the next record as its batch and its place in it, which costs no reference; `None` at
    /// the end.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`: the scan stays where it is, and
    /// [`Scan::step_over`] continues. `OffsetOutOfRange` when the next records were trimmed
    /// meanwhile.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<(&RecordBatch, RecordRef)>> {
        let Some((number, at)) = self.advance()? else { return Ok(None) };
        Ok(self.batch(number).map(|batch| (batch, at)))
    }

    /// Return the next record with the number of its stream; [`Scan::batch`] is its batch.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<Option<(usize, RecordRef)>> {
        if let [Stream { scan, head: None }] = self.streams.as_mut_slice() {
            return Ok(scan.next_ref()?.map(|(_, at)| (0, at)));
        }
        self.advance_oldest()
    }

    fn advance_oldest(&mut self) -> Result<Option<(usize, RecordRef)>> {
        self.streams.iter_mut().try_for_each(Stream::find_head)?;
        let time = |stream: &Stream| stream.head.map(|(_, time_ns)| time_ns);
        let heads = self.streams.iter().enumerate().filter_map(|(n, s)| Some((time(s)?, n)));
        let Some((_, oldest)) = heads.min() else { return Ok(None) };
        let head = self.streams[oldest].head.take();
        Ok(head.map(|(at, _)| (oldest, at)))
    }

    /// Return the batch of the last record of a stream.
    #[inline]
    pub(crate) fn batch(&self, number: usize) -> Option<&RecordBatch> {
        self.streams[number].scan.batch()
    }

    /// Get at most this many next records of one partition, in turns. They are not merged.
    ///
    /// # Errors
    /// As [`Scan::next_ref`].
    pub fn next_batch(&mut self, records: usize) -> Result<Option<RecordBatch>> {
        for number in 0..self.streams.len() {
            let stream = &mut self.streams[number];
            if stream.head.is_some() {
                stream.scan.go_to(stream.range().from)?;
                stream.head = None;
            }
            if let Some(batch) = stream.scan.next_batch(records)? {
                self.streams.rotate_left(number + 1);
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Return how far all of them have read, once nothing came. Some may have more after it.
    #[doc(hidden)]
    pub fn reached(&self) -> Address {
        let ends = self.streams.iter().map(|stream| stream.scan.cursor().address());
        ends.min().unwrap_or_default()
    }

    /// Return the ranges left of each partition, to resume from there.
    #[doc(hidden)]
    pub fn ranges(&self) -> impl Iterator<Item = ScanRange> {
        self.streams.iter().map(Stream::range)
    }

    /// Step over corruption in every partition that is at some; return where, and what is lost.
    ///
    /// # Errors
    /// As [`Scan::next_ref`], when nothing was stepped over. A later error comes with the next
    /// record.
    pub fn step_over(&mut self) -> Result<Vec<(u32, Skipped)>> {
        let mut lost = Vec::new();
        for stream in &mut self.streams {
            if stream.find_head().is_ok() {
                continue;
            }
            match stream.scan.step_over() {
                Ok(skipped) => lost.push((stream.scan.range().partition, skipped)),
                Err(error) if lost.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(lost)
    }
}
