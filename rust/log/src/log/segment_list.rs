//! A log as retention sees it: segments with their sizes, ages and first offsets.
//!
//! Owns what is known of whole segments without reading their records. A *cut* is a segment that
//! the log could begin with: all before it would be deleted. The snapshot at its beginning has the
//! offsets and highest timestamps of each topic before the cut. So a plan costs a look at file
//! sizes, and one snapshot for each cut that it considers. Invariants: no cut lies beyond the
//! segment that holds the durable end, so that all before it is on disk. At most one of all listed
//! segments is kept open, however many there are. [`crate::store`] decides which records to delete,
//! [`super::trim`] trims and removes.

use std::sync::Arc;

use crate::error::Result;
use crate::format::names;
use crate::segment::Segment;
use crate::segment::walk::SegmentWalker;

use super::Log;

/// The segments of a log as listed now, oldest first.
#[derive(Debug)]
pub struct SegmentList<'a> {
    log: &'a Log,
    sequences: Vec<u64>,
    cuts: usize,
    /// The segment whose snapshot was read last.
    open: Option<(usize, Arc<Segment>)>,
}

impl Log {
    /// List the segments and call `look`; list and call again if another process removed one of
    /// them meanwhile. Segments are opened only on request, since a log may have more of them than
    /// a process may have files.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`, and those of `look`.
    pub fn with_segments<T>(
        &self,
        mut look: impl FnMut(&mut SegmentList<'_>) -> Result<T>,
    ) -> Result<T> {
        self.while_segments_go(|| {
            let sequences = self.chain.refresh()?;
            let durable = self.durable().unwrap_or_default().sequence();
            let cuts = sequences.iter().take_while(|sequence| **sequence <= durable).count();
            look(&mut SegmentList { log: self, sequences, cuts: cuts.max(1), open: None })
        })
    }
}

impl SegmentList<'_> {
    /// Return the sequences of the segments, including the active one.
    pub fn sequences(&self) -> &[u64] {
        &self.sequences
    }

    /// Return how many of them are cuts: the first, which cuts nothing, and later ones.
    pub fn cuts(&self) -> usize {
        self.cuts
    }

    /// Return which cut a segment is; `None` for one that is none, or no longer exists.
    pub fn cut_of(&self, sequence: u64) -> Option<usize> {
        self.sequences[..self.cuts].binary_search(&sequence).ok()
    }

    /// Return the bytes of a segment and its index on disk.
    pub fn bytes(&self, i: usize) -> u64 {
        self.log.allocated_for(self.sequences[i])
    }

    /// Return the first offset of a topic in a segment; `None` if the topic came later.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn first(&mut self, cut: usize, topic: u32) -> Result<Option<u64>> {
        Ok(self.opening(cut)?.bases.get(topic))
    }

    /// Return the time of the newest record of some topics before a cut, nanoseconds since 1970. It
    /// is the highest timestamp, or the last write to its segment if that is earlier. So a wrong
    /// clock keeps nothing for good, and a copy of the file does not make its records young.
    ///
    /// # Errors
    /// As [`SegmentList::first`].
    pub fn newest_ns(&mut self, cut: usize, topics: &[u32]) -> Result<i64> {
        let state = &self.opening(cut)?.state;
        let known = topics.iter().filter_map(|topic| state.topic(*topic));
        let highest = known.map(|topic| topic.highest_ns).max().unwrap_or(i64::MIN);
        let path = self.log.dir.join(names::segment(self.sequences[cut - 1]));
        let written = self.log.storage.stat(&path).map_or(i64::MAX, |stat| stat.modified_us);
        Ok(highest.min(written.saturating_mul(1000)))
    }

    /// List the topics in the log by number, as its newest segment begins with them.
    ///
    /// # Errors
    /// As [`SegmentList::first`].
    pub fn topic_numbers(&mut self) -> Result<Vec<u32>> {
        let newest = self.opening(self.sequences.len() - 1)?;
        Ok(newest.state.topics().map(|(number, _)| number).collect())
    }

    /// Return the log's state at the beginning of a segment.
    pub(super) fn opening(&mut self, i: usize) -> Result<&SegmentWalker> {
        let known = self.open.take().filter(|(open, _)| *open == i);
        let opened = match known {
            Some((_, segment)) => segment,
            None => self.log.chain.beginning_uncached(self.sequences[i])?,
        };
        self.log.opening(&self.open.insert((i, opened)).1)
    }
}
