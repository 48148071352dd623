//! A log as retention sees it: segments with their sizes, ages and first offsets.
//!
//! Owns what can be said of whole segments without reading their records. A *cut* is a segment that the
//! log could begin with: all before it would go. What lies before a cut the snapshot at its beginning
//! tells, offsets and highest timestamps of each topic; so a plan costs a look at file sizes, and one
//! snapshot for each cut that is asked about. Invariant: no cut lies beyond the segment that holds the
//! durable end, so that all before it is on the medium. What is to go is left to
//! [`crate::store`], saying and removing it to [`super::trim`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::format::names;
use crate::segment::Segment;

use super::Log;

/// The segments of a log as they are listed now, oldest first.
#[derive(Debug)]
pub struct SegmentList {
    log: Arc<Log>,
    sequences: Vec<u64>,
    cuts: usize,
    /// Those whose snapshots were looked at.
    open: BTreeMap<usize, Arc<Segment>>,
}

impl Log {
    /// List the segments.
    ///
    /// # Errors
    /// `Corrupt`, `Newer`, `Io`.
    pub fn segment_list(self: &Arc<Self>) -> Result<SegmentList> {
        let sequences = self.chain.refresh()?;
        let durable = self.durable().unwrap_or_default().sequence();
        let cuts = sequences.iter().take_while(|sequence| **sequence <= durable).count();
        Ok(SegmentList {
            log: Arc::clone(self),
            sequences,
            cuts: cuts.max(1),
            open: BTreeMap::new(),
        })
    }
}

impl Log {
    /// Numbers of the topics that live in the log, as its newest segment begins with them.
    ///
    /// # Errors
    /// `Corrupt`, `Newer`, `Io`.
    pub fn topic_numbers(&self) -> Result<Vec<u32>> {
        let sequences = self.chain.refresh()?;
        let newest = self.chain.segment(sequences[sequences.len() - 1])?;
        Ok(self.opening(&newest)?.state.topics().map(|(number, _)| number).collect())
    }
}

impl SegmentList {
    /// How many segments there are, the active one included.
    pub fn count(&self) -> usize {
        self.sequences.len()
    }

    /// How many of them are cuts: the first, which cuts nothing, and those behind it.
    pub fn cuts(&self) -> usize {
        self.cuts
    }

    /// Sequence of a segment.
    pub fn sequence(&self, i: usize) -> u64 {
        self.sequences[i]
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
    /// `Corrupt`, `Newer`, `Io`.
    pub fn first(&mut self, cut: usize, topic: u32) -> Result<Option<u64>> {
        let segment = self.open(cut)?;
        Ok(self.log.opening(&segment)?.bases.get(topic))
    }

    /// Time of the newest record of some topics before a cut, nanoseconds since 1970: the highest
    /// timestamp, or when its segment was last written to, whatever is earlier. A wrong clock keeps
    /// nothing for ever so, and a copy of the file does not make its records young.
    ///
    /// # Errors
    /// As [`SegmentList::first`].
    pub fn newest_ns(&mut self, cut: usize, topics: &[u32]) -> Result<i64> {
        let segment = self.open(cut)?;
        let state = &self.log.opening(&segment)?.state;
        let known = topics.iter().filter_map(|topic| state.topic(*topic));
        let highest = known.map(|topic| topic.highest_ns).max().unwrap_or(i64::MIN);
        let path = self.log.dir.join(names::segment(self.sequences[cut - 1]));
        let written = self.log.storage.stat(&path).map_or(i64::MAX, |stat| stat.modified_us);
        Ok(highest.min(written.saturating_mul(1000)))
    }

    fn open(&mut self, i: usize) -> Result<Arc<Segment>> {
        if let Some(segment) = self.open.get(&i) {
            return Ok(Arc::clone(segment));
        }
        let segment = self.log.chain.open_uncached(self.sequences[i])?;
        self.open.insert(i, Arc::clone(&segment));
        Ok(segment)
    }
}
