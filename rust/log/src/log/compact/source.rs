//! Segments that are to be compacted, as they were when that was planned.
//!
//! Owns the list of those segments, and reading one from its beginning to the end of its content.
//! They are not kept open: a log may have more of them than a process has descriptors. Invariant:
//! all of a segment was on disk when it was listed.

use std::sync::Arc;

use crate::error::{IoResult, Result};
use crate::format::segment::{Previous, SegmentHeader};
use crate::segment::walk::{SegmentWalker, Step};
use crate::segment::{Check, Segment};

use super::super::chain::{is_missing, missing};
use super::super::{DataBlock, Log};

/// A sealed segment, all of it on disk.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) sequence: u64,
    pub(super) header: SegmentHeader,
    /// Where its content ends.
    pub(super) end: u64,
    /// The segment that an end block there names; `None` if the next one supersedes.
    pub(super) next: Option<Previous>,
    id: (u64, u64),
}

impl Log {
    /// List all segments before the one with the durable end.
    pub(super) fn sources(&self) -> Result<Vec<Source>> {
        self.with_segments(|list| self.find_sources(&list.sequences()[..list.cuts()]))
    }

    fn find_sources(&self, sequences: &[u64]) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        for (sequence, next) in sequences.iter().zip(sequences.iter().skip(1)) {
            let segment = self.chain.open_uncached(*sequence)?;
            let next = self.chain.header(*next)?;
            let told = next.previous.filter(|told| told.salt == segment.salt());
            let told = told.filter(|told| told.sequence == *sequence);
            let Some(told) = told else {
                let what = "a segment that the next one does not continue";
                return Err(segment.corrupt(0, what));
            };
            let named = Previous { sequence: next.sequence, salt: next.salt, end: told.end };
            sources.push(Source {
                sequence: *sequence,
                header: segment.header().clone(),
                end: told.end,
                next: (!next.supersedes).then_some(named),
                id: id_of(&segment)?,
            });
        }
        Ok(sources)
    }
}

fn id_of(segment: &Segment) -> Result<(u64, u64)> {
    let stat = segment.file().stat().doing("stat", segment.path())?;
    Ok(stat.id())
}

impl Source {
    /// Open the segment, unless another one has replaced it.
    pub(super) fn open(&self, log: &Log) -> Result<Option<Arc<Segment>>> {
        match log.chain.open_uncached(self.sequence) {
            Ok(segment) => Ok((id_of(&segment)? == self.id).then_some(segment)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Read it as [`walk`] does; an error if another one has replaced it.
    pub(super) fn walk(
        &self,
        log: &Log,
        seen: impl FnMut(&DataBlock) -> Result<bool>,
    ) -> Result<SegmentWalker> {
        match self.open(log)? {
            Some(segment) => walk(&segment, self.end, seen),
            None => Err(missing(&log.dir, self.sequence)),
        }
    }
}

/// Walk the data blocks of a segment, checked in full, until `seen` returns false. Returns the log's state
/// there.
pub(super) fn walk(
    segment: &Arc<Segment>,
    end: u64,
    mut seen: impl FnMut(&DataBlock) -> Result<bool>,
) -> Result<SegmentWalker> {
    let mut segment = Arc::clone(segment);
    let mut walk = segment.opening()?.clone();
    while walk.position < end {
        let position = walk.position;
        match walk.advance(&mut segment, Check::Full)? {
            Some(Step::Data { block, first, .. }) => {
                let segment = Arc::clone(&segment);
                if !seen(&DataBlock { segment, block, first })? {
                    break;
                }
            }
            Some(_) => {}
            None => return Err(segment.lacks_block(position)),
        }
    }
    Ok(walk)
}
