//! A log as retention sees it: segments with their sizes, ages and first offsets.
//!
//! Owns what can be said of whole segments without reading their records. A *cut* is a segment that the
//! log could begin with: all before it would be deleted. The snapshot at its beginning tells what lies
//! before a cut, offsets and highest timestamps of each topic; so a plan costs a look at file sizes, and
//! one snapshot for each cut that is asked about. Invariants: no cut lies beyond the segment that holds
//! the durable end, so that all before it is on the disk; of all listed segments at most one is kept open,
//! however many there are. Which records to delete is left to [`crate::store`], trimming and removing to
//! [`super::trim`].

use std::sync::Arc;

use crate::error::Result;
use crate::format::names;
use crate::segment::Segment;
use crate::segment::walk::SegmentWalker;

use super::Log;

/// The segments of a log as they are listed now, oldest first.
#[derive(Debug)]
pub struct SegmentList<'a> {
    log: &'a Log,
    sequences: Vec<u64>,
    cuts: usize,
    /// The segment whose snapshot was looked at last.
    open: Option<(usize, Arc<Segment>)>,
}

impl Log {
    /// List the segments and look at them; list them again, and look again, where another process removed
    /// one of them meanwhile. The segments are not opened before they are asked for, since a log may have
    /// more of them than a process may have files.
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
    /// Sequences of the segments, the active one included.
    pub fn sequences(&self) -> &[u64] {
        &self.sequences
    }

    /// How many of them are cuts: the first, which cuts nothing, and those behind it.
    pub fn cuts(&self) -> usize {
        self.cuts
    }

    /// Which cut a segment is; `None` for one that is none, or not there any more.
    pub fn cut_of(&self, sequence: u64) -> Option<usize> {
        self.sequences[..self.cuts].binary_search(&sequence).ok()
    }

    /// Bytes that a segment takes on the disk with its index.
    pub fn bytes(&self, i: usize) -> u64 {
        self.log.allocated_for(self.sequences[i])
    }

    /// First offset of a topic in a segment; `None` where the topic came later.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn first(&mut self, cut: usize, topic: u32) -> Result<Option<u64>> {
        Ok(self.opening(cut)?.bases.get(topic))
    }

    /// Time of the newest record of some topics before a cut, nanoseconds since 1970: the highest
    /// timestamp, or when its segment was last written to, if that is earlier. So a wrong clock keeps
    /// nothing for good, and a copy of the file does not make its records young.
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

    /// Numbers of the topics that live in the log, as its newest segment begins with them.
    ///
    /// # Errors
    /// As [`SegmentList::first`].
    pub fn topic_numbers(&mut self) -> Result<Vec<u32>> {
        let newest = self.opening(self.sequences.len() - 1)?;
        Ok(newest.state.topics().map(|(number, _)| number).collect())
    }

    /// What the log knew when a segment began.
    pub(super) fn opening(&mut self, i: usize) -> Result<&SegmentWalker> {
        let known = self.open.take().filter(|(open, _)| *open == i);
        let opened = match known {
            Some((_, segment)) => segment,
            None => self.log.chain.open_uncached(self.sequences[i])?,
        };
        self.log.opening(&self.open.insert((i, opened)).1)
    }
}
