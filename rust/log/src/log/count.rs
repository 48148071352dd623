//! Counting records between two offsets, and finding the offset with a given number of records
//! after it.
//!
//! Owns the difference between offsets and records. In a log that was never compacted each offset
//! is a record, so a subtraction answers and nothing is read. Compaction leaves offsets without a
//! record. Its segments say so in their headers, and only these are counted: once, by the headers
//! of their blocks. [`RecordCounts`] remembers the counts while the file stays the same. A later
//! question reads at most [`STEP`] bytes of headers at each end of its range.
//!
//! Offsets that corruption hides count as records: [`Log::count`] is then an upper bound. An offset
//! that would depend on them is an error ([`Log::start_of_last`]), so that no record is deleted by
//! a guess. See `docs/decisions/0015-a-number-of-records-counts-records.md`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::error::{Error, IoResult, Result};
use crate::format::block::{HEADER_LEN, Kind, flag};
use crate::format::names;
use crate::segment::{Block, BlockError, Check, NO_BLOCK, Segment};
use crate::storage::Stat;

use super::chain::{is_missing, missing};
use super::{DataBlock, Log, enter};

/// Bytes between two remembered places of a segment.
const STEP: u64 = 64 << 10;
/// Remembered places, of all segments together: some 6 MiB.
const MOST: usize = 1 << 18;

/// Up to this many records before the end are found without counting whole segments.
const FEW: u64 = 1024;
/// How often a segment is read again while others compact.
const TRIES: u32 = 8;

/// Known counts of segments, by device and inode, with length and time of the last change.
#[derive(Debug, Default)]
pub struct RecordCounts(Mutex<BTreeMap<(u64, u64), KnownCounts>>);

#[derive(Debug)]
struct KnownCounts {
    len: u64,
    modified_us: i64,
    /// `None` for a segment that compaction did not make.
    counted: Option<Arc<CountedSegment>>,
}

/// A compacted segment: its topics by number.
#[derive(Debug, Default)]
struct CountedSegment {
    lanes: BTreeMap<u32, TopicCounts>,
    places: usize,
    is_whole: bool,
}

/// The offsets of a topic that a segment covers, and how many records have one.
#[derive(Debug, Default)]
struct TopicCounts {
    base: u64,
    end: u64,
    records: u64,
    places: Vec<CountMark>,
    hidden: Vec<HiddenOffsets>,
}

/// A block: its first offset, its position, and the records of the topic before it in the segment.
#[derive(Clone, Copy, Debug)]
struct CountMark {
    offset: u64,
    position: u64,
    before: u64,
}

/// Offsets that corruption hides.
#[derive(Clone, Debug)]
struct HiddenOffsets {
    offsets: Range<u64>,
    /// Records before them in the segment.
    before: u64,
    bad: BlockError,
}

/// A compacted segment on the way from the newest to the oldest.
struct OpenedCounts {
    segment: Arc<Segment>,
    counted: Arc<CountedSegment>,
}

impl Log {
    /// Count the records of a topic with an offset in a range. Unreadable offsets count as records.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed` if the segments cannot be listed.
    pub fn count(self: &Arc<Self>, topic: u32, offsets: Range<u64>) -> Result<u64> {
        let all = offsets.end.saturating_sub(offsets.start);
        if all == 0 || !self.may_be_compacted()? {
            return Ok(all);
        }
        self.with_segments(|list| {
            let (mut records, mut at) = (all, offsets.end);
            for sequence in list.sequences().iter().rev() {
                if at <= offsets.start {
                    break;
                }
                let found = match self.counted(*sequence) {
                    Err(error) if is_unreadable(&error) => None,
                    found => found?,
                };
                let Some(found) = found else { continue };
                let Some(lane) = found.counted.lanes.get(&topic) else { continue };
                let own = lane.base.max(offsets.start)..lane.end.min(at);
                if own.is_empty() {
                    continue;
                }
                let all = own.end - own.start;
                let there = match self.between(&found, topic, &own) {
                    Err(error) if is_unreadable(&error) => all,
                    there => there?,
                };
                (records, at) = (records - all.saturating_sub(there), own.start);
            }
            Ok(records)
        })
    }

    /// Return the offset from which on a topic has this many records before the end of a range. If
    /// it has fewer, return the beginning of the range.
    ///
    /// # Errors
    /// `CorruptData` and `NeedsRecovery` if that depends on records that cannot be read;
    /// `UnsupportedVersion`, `SystemCallFailed`.
    pub fn start_of_last(
        self: &Arc<Self>,
        topic: u32,
        offsets: Range<u64>,
        records: u64,
    ) -> Result<u64> {
        let Range { start, end } = offsets;
        if records == 0 || end.saturating_sub(start) <= records {
            return Ok(if records == 0 { end.max(start) } else { start });
        }
        if !self.may_be_compacted()? {
            return Ok(end - records);
        }
        self.chain.refresh()?;
        if records <= FEW {
            match self.walk_back(topic, start..end, records) {
                // The unreadable part may lie before the answer.
                Err(error) if is_unreadable(&error) => {}
                found => return found,
            }
        }
        self.with_segments(|list| self.find_start(list.sequences(), topic, start..end, records))
    }

    /// Find the last few records by reading the headers before the end, starting further back each
    /// time.
    fn walk_back(self: &Arc<Self>, topic: u32, offsets: Range<u64>, records: u64) -> Result<u64> {
        let (mut begin, mut span) = (offsets.end, records);
        loop {
            begin = begin.saturating_sub(span).max(offsets.start);
            let (mut blocks, mut there) = (Vec::new(), 0);
            let mut cursor = self.cursor_at(topic, begin, Check::Header)?;
            while let Some(data) = cursor.next_block()?.filter(|data| data.first() < offsets.end) {
                let below = |limit: u64| {
                    let whole = (data.end() <= limit).then(|| Ok(data.count().into()));
                    whole.unwrap_or_else(|| count_in(data, |at| at < limit))
                };
                let trimmed = if data.first() < offsets.start { below(offsets.start)? } else { 0 };
                blocks.push((data.clone(), there, trimmed));
                there += below(offsets.end)? - trimmed;
            }
            if let Some(number) = there.checked_sub(records) {
                let behind = blocks.partition_point(|(_, before, _)| *before <= number);
                let (data, before, trimmed) = &blocks[behind - 1];
                return nth_in(data, number - before + trimmed);
            }
            if begin == offsets.start {
                return Ok(begin);
            }
            span = span.saturating_mul(4);
        }
    }

    fn find_start(
        &self,
        sequences: &[u64],
        topic: u32,
        offsets: Range<u64>,
        records: u64,
    ) -> Result<u64> {
        let (mut left, mut at, mut doubt) = (records, offsets.end, None);
        // The beginning needs no count: there are no more offsets than that.
        let sure = |offset: u64, doubt: Option<Error>| match doubt {
            Some(error) if offset > offsets.start => Err(error),
            _ => Ok(offset.max(offsets.start)),
        };
        for (i, sequence) in sequences.iter().enumerate().rev() {
            let found = match self.counted(*sequence) {
                Err(error) if is_unreadable(&error) => {
                    let next = sequences.get(i + 1).map(|next| self.base_in(*next, topic));
                    let end = next.and_then(Result::ok).flatten().unwrap_or(at).min(at);
                    if at - end >= left {
                        return sure(at - left, doubt);
                    }
                    doubt = doubt.or(Some(error));
                    continue;
                }
                found => found?,
            };
            let Some(found) = found else { continue };
            let Some(lane) = found.counted.lanes.get(&topic) else { continue };
            // Between two compacted segments each offset is a record.
            let dense = at.saturating_sub(lane.end.max(offsets.start));
            if left <= dense {
                return sure(at - left, doubt);
            }
            (left, at) = (left - dense, at.min(lane.end));
            let own = lane.base.max(offsets.start)..at;
            if own.is_empty() {
                continue;
            }
            let hidden =
                lane.hidden.iter().rev().find(|hidden| {
                    hidden.offsets.start < own.end && own.start < hidden.offsets.end
                });
            if let Some(hidden) = hidden {
                let behind = hidden.offsets.end.min(own.end)..own.end;
                if self.between(&found, topic, &behind)? < left {
                    doubt = doubt.or(Some(self.doubted(&found.segment, hidden.bad)));
                }
            }
            let there = self.between(&found, topic, &own)?;
            if left <= there {
                let number = self.before(&found, topic, own.end)? - left;
                return doubt.map_or_else(|| self.nth(&found, topic, number), Err);
            }
            (left, at) = (left - there, own.start);
            if at <= offsets.start {
                break;
            }
        }
        sure(at.saturating_sub(left), doubt)
    }

    /// Return false if each offset has its record: nothing of the log was ever compacted.
    fn may_be_compacted(&self) -> Result<bool> {
        if self.chain.has_compacted()? {
            return Ok(true);
        }
        // A compacting process makes this file before anything else; a copy of a log has none.
        let lock = self.dir.join(names::COMPACTION_LOCK);
        match self.storage.stat(&lock) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            _ => Ok(true),
        }
    }

    fn between(&self, found: &OpenedCounts, topic: u32, offsets: &Range<u64>) -> Result<u64> {
        let before = self.before(found, topic, offsets.start)?;
        Ok(self.before(found, topic, offsets.end)?.saturating_sub(before))
    }

    fn base_in(&self, sequence: u64, topic: u32) -> Result<Option<u64>> {
        let segment = self.chain.beginning_uncached(sequence)?;
        Ok(self.opening(&segment)?.bases.get(topic))
    }

    /// Count a segment, by the file that has its name now; `None` for one that compaction did not
    /// make.
    fn counted(&self, sequence: u64) -> Result<Option<OpenedCounts>> {
        let path = self.dir.join(names::segment(sequence));
        let counts = self.counts();
        for _ in 0..TRIES {
            let stat = match self.storage.stat(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                stat => stat.doing("stat", &path)?,
            };
            let known = counts.get(&stat);
            if matches!(known, Some(None)) {
                return Ok(None);
            }
            let segment = self.chain.open_uncached(sequence)?;
            let is = segment.file().stat().doing("stat", &path)?;
            if is.id() != stat.id() {
                // Another one replaced it, now or since the listing.
                self.chain.refresh()?;
                continue;
            }
            if let Some(Some(counted)) = known {
                return Ok(Some(OpenedCounts { segment, counted }));
            }
            let is_compacted = segment.header().replaces.is_some();
            let counted =
                is_compacted.then(|| self.count_segment(&segment).map(Arc::new)).transpose()?;
            if counted.as_ref().is_none_or(|counted| counted.is_whole) {
                counts.remember(&stat, counted.clone());
            }
            return Ok(counted.map(|counted| OpenedCounts { segment, counted }));
        }
        Err(missing(&self.dir, sequence))
    }

    /// Read the headers of a compacted segment.
    fn count_segment(&self, segment: &Arc<Segment>) -> Result<CountedSegment> {
        let (opening, limit) = (self.opening(segment)?, self.limit(segment)?);
        let limit = limit.unwrap_or_else(|| segment.map().len());
        let lane = |(number, base): (u32, u64)| {
            (number, TopicCounts { base, end: base, ..TopicCounts::default() })
        };
        let bases = opening.state.topics().filter_map(|(n, _)| Some((n, opening.bases.get(n)?)));
        let mut counted =
            CountedSegment { lanes: bases.map(lane).collect(), ..CountedSegment::default() };
        counted.is_whole = true;
        let (mut position, mut segment, mut bad) = (opening.position, Arc::clone(segment), None);
        while position < limit {
            segment = self.chain.refreshed(segment)?;
            match segment.block(position, Check::Header) {
                Ok(Some(block)) => {
                    counted.add(&block, bad);
                    position = block.end();
                }
                other => {
                    let what = other.err().map_or(NO_BLOCK, |bad| bad.what);
                    bad = bad.or(Some(BlockError { position, what }));
                    counted.is_whole = false;
                    let behind = limit.saturating_add(HEADER_LEN as u64);
                    let next = segment.next_block(position + 8, behind);
                    position = next.filter(|next| *next <= limit).unwrap_or(limit);
                }
            }
        }
        if let (Some(bad), Some((next, _))) = (bad, self.chain.successor(&segment).ok()) {
            for (number, lane) in &mut counted.lanes {
                let end = self.base_in(next, *number)?.unwrap_or(lane.end);
                lane.hide(end, bad);
            }
        }
        counted.places = counted.lanes.values().map(|lane| lane.places.len()).sum();
        Ok(counted)
    }

    /// Return how many records of a topic a segment has before an offset.
    fn before(&self, found: &OpenedCounts, topic: u32, offset: u64) -> Result<u64> {
        let lane = &found.counted.lanes[&topic];
        if offset >= lane.end {
            return Ok(lane.records);
        }
        if let Some(hidden) = lane.hidden.iter().find(|hidden| hidden.offsets.contains(&offset)) {
            return Ok(hidden.before + (offset - hidden.offsets.start));
        }
        let mut records = 0;
        self.walk(
            found,
            topic,
            |place| place.offset <= offset,
            |data, before| {
                records = before;
                if data.end() <= offset {
                    records += u64::from(data.count());
                    return Ok(true);
                }
                if data.first() < offset {
                    records += count_in(data, |at| at < offset)?;
                }
                Ok(false)
            },
        )?;
        Ok(records)
    }

    /// Return the offset of a record of a topic in a segment, by its number there.
    fn nth(&self, found: &OpenedCounts, topic: u32, number: u64) -> Result<u64> {
        let mut offset = found.counted.lanes[&topic].base;
        self.walk(
            found,
            topic,
            |place| place.before <= number,
            |data, before| {
                let count = u64::from(data.count());
                if before + count <= number {
                    return Ok(true);
                }
                offset = nth_in(data, number - before)?;
                Ok(false)
            },
        )?;
        Ok(offset)
    }

    /// Walk the blocks of a topic from the last place that fits, each with the number of records
    /// before it, until `seen` returns false.
    fn walk(
        &self,
        found: &OpenedCounts,
        topic: u32,
        fits: impl Fn(&CountMark) -> bool,
        mut seen: impl FnMut(&DataBlock, u64) -> Result<bool>,
    ) -> Result<()> {
        let (lane, mut segment) = (&found.counted.lanes[&topic], Arc::clone(&found.segment));
        let Some(place) = lane.places[..lane.places.partition_point(fits)].last() else {
            return Ok(());
        };
        let CountMark { mut position, mut before, .. } = *place;
        loop {
            segment = self.chain.refreshed(segment)?;
            let block = match segment.block(position, Check::Header) {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(()),
                Err(bad) => return Err(self.doubted(&segment, bad)),
            };
            position = block.end();
            match block.header.kind {
                Kind::End => return Ok(()),
                Kind::Data if block.header.topic == topic => {
                    let first = lane.base.saturating_add(block.header.offset.into());
                    let data = DataBlock { segment: Arc::clone(&segment), block, first };
                    if !seen(&data, before)? {
                        return Ok(());
                    }
                    before += u64::from(block.header.count);
                }
                _ => {}
            }
        }
    }

    fn counts(&self) -> &Arc<RecordCounts> {
        self.counts.get_or_init(Arc::default)
    }

    /// Share counts with other handles of the store's logs, if nothing was counted yet.
    pub(crate) fn share_counts(&self, counts: &Arc<RecordCounts>) {
        self.counts.get_or_init(|| Arc::clone(counts));
    }
}

impl RecordCounts {
    /// Return the counts of a file, if it has not changed since.
    fn get(&self, stat: &Stat) -> Option<Option<Arc<CountedSegment>>> {
        let all = enter(&self.0);
        let known = all.get(&stat.id())?;
        let is_same = (known.len, known.modified_us) == (stat.len, stat.modified_us);
        is_same.then(|| known.counted.clone())
    }

    fn remember(&self, stat: &Stat, counted: Option<Arc<CountedSegment>>) {
        let mut all = enter(&self.0);
        let places =
            |counted: &Option<Arc<CountedSegment>>| 1 + counted.as_ref().map_or(0, |it| it.places);
        // This drops counts of deleted files too.
        if all.values().map(|known| places(&known.counted)).sum::<usize>() + places(&counted) > MOST
        {
            all.clear();
        }
        let (len, modified_us) = (stat.len, stat.modified_us);
        all.insert(stat.id(), KnownCounts { len, modified_us, counted });
    }
}

impl CountedSegment {
    /// Count a block, and offsets before it that corruption may hide.
    fn add(&mut self, block: &Block, bad: Option<BlockError>) {
        if block.header.kind != Kind::Data {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&block.header.topic) else { return };
        let offset = lane.base.saturating_add(block.header.offset.into());
        let is_behind = bad.is_some_and(|bad| lane.hide(offset, bad));
        let is_far = lane.places.last().is_none_or(|last| last.position + STEP <= block.position);
        if is_behind || is_far {
            let (position, before) = (block.position, lane.records);
            lane.places.push(CountMark { offset, position, before });
        }
        lane.records += u64::from(block.header.count);
        lane.end = lane.end.max(offset.saturating_add(block.header.span.into()));
    }
}

impl TopicCounts {
    /// Count the offsets up to this one as hidden, if no block was found for them; return true if
    /// there are any.
    fn hide(&mut self, until: u64, bad: BlockError) -> bool {
        let offsets = self.end..until;
        if offsets.is_empty() {
            return false;
        }
        self.hidden.push(HiddenOffsets { offsets: offsets.clone(), before: self.records, bad });
        self.records += offsets.end - offsets.start;
        self.end = until;
        true
    }
}

/// Return the offset of a record of a block, by its number there.
fn nth_in(data: &DataBlock, number: u64) -> Result<u64> {
    let (mut offset, mut left) = (data.first(), number);
    count_in(data, |at| {
        offset = at;
        left = left.wrapping_sub(1);
        left != u64::MAX
    })?;
    Ok(offset)
}

/// Return how many records of a block come before the first whose offset fails `wanted`.
fn count_in(data: &DataBlock, mut wanted: impl FnMut(u64) -> bool) -> Result<u64> {
    if data.block.header.flags & flag::SPARSE == 0 {
        return Ok((data.first()..data.end()).take_while(|at| wanted(*at)).count() as u64);
    }
    let whole = data.segment.block(data.position(), Check::Full);
    whole.map_err(|bad| data.damaged(bad.what))?;
    let (mut records, body, mut count) = (data.records()?, data.body(), 0);
    while let Some(spot) = records.next_span(body).map_err(|what| data.damaged(what))? {
        if !wanted(data.first() + u64::from(spot.offset_delta)) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// Return true for corruption of a file that exists.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::CorruptData { .. } | Error::NeedsRecovery { .. }) && !is_missing(error)
}
