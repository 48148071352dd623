//! Writing the remaining records of a group of segments as one segment.
//!
//! Owns the bytes of a compacted segment. First comes the opening state of the group's first
//! segment. Each block with remaining records follows, with the time of its append and the offsets
//! that it covers. One block at the end has all facts beside records. Void blocks follow up to the
//! place where the content has to end, then the end block that names the next segment. A block that
//! keeps all its records keeps its bytes. Groups of blocks are resolved: all of them are on disk,
//! so no group can be there in part. Invariant: the blocks of a topic cover its offsets without a
//! gap, and each record keeps its offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{IoResult, Result};
use crate::format::address::align;
use crate::format::block::{
    BlockHeader, HEADER_LEN, Kind, MAX_HEADER_LEN, MAX_RELATIVE_TIME, flag,
};
use crate::format::segment::{Mark, Replaces, SegmentHeader};
use crate::format::state::{End, LogState, TopicState};
use crate::format::{checksum, names, varint};
use crate::segment::Segment;
use crate::segment::create::own_header;
use crate::segment::pack::Packer;
use crate::segment::walk::highest_ns;

use super::super::{DataBlock, Log, Member};
use super::keys::Marks;
use super::plan::SegmentGroup;
use super::source::{Source, walk};

/// Up to this many records after a gap have their offsets in the block itself. With more records,
/// another block covers the gap.
const FEW: u64 = 8;
/// Flags of a body, which stay with its records.
const OF_BODY: u16 = flag::TOPIC | flag::RICH | flag::EVENT_TIME;

/// The progress of a topic.
#[derive(Clone, Copy, Debug)]
struct TopicProgress {
    /// Base of its relative offsets.
    base: u64,
    /// Offsets before this are covered.
    covered: u64,
    /// Time of its last block.
    time: u64,
}

struct Filling<'a> {
    packer: Packer,
    lanes: BTreeMap<u32, TopicProgress>,
    /// The state that a reader of the blocks has so far.
    read: LogState,
    time_base_us: i64,
    /// Bytes of the longest body.
    most: usize,
    body: Vec<u8>,
    marks: &'a Marks,
    /// Records of the segment that were passed.
    passed: u64,
}

/// False is no error: the group then stays as it is.
type Fits = bool;

/// Write a group into the compaction's file, and sync it; `None` if it does not fit.
pub(super) fn fill(
    log: &Log,
    segments: &[Arc<Segment>],
    sources: &[Source],
    marks: &[Marks],
    group: &SegmentGroup,
    member: &dyn Member,
) -> Result<Option<Packer>> {
    let (Some(last), Some(newest)) = (segments.last(), sources.last()) else { return Ok(None) };
    let (path, end) = (log.dir.join(names::COMPACTED), newest.end);
    let packer = Packer::new(&*log.storage, path, last.salt(), log.settings.file_mode)?;
    let laid = lay_out(log, packer, segments, sources, marks)?;
    let Some((mut packer, time_base_us)) = laid.filter(|(packer, _)| fits(packer.position(), end))
    else {
        return Ok(None);
    };
    packer.cover(end)?;
    if let Some(next) = newest.next {
        let body = End { sequence: next.sequence, salt: next.salt }.encode();
        packer.block(&own_header(Kind::End, &body, 0), &body)?;
    }
    let (header, mark) = first_page(log, segments, group, time_base_us, end, member)?;
    let len = packer.position();
    packer.finish(&header, &mark, len)?;
    Ok(Some(packer))
}

/// Return where the blocks of a segment would end if it was written alone; `None` if it cannot be.
pub(super) fn measure(
    log: &Log,
    segment: &Arc<Segment>,
    source: &Source,
    marks: &Marks,
) -> Result<Option<u64>> {
    let (segments, sources) = (std::slice::from_ref(segment), std::slice::from_ref(source));
    let marks = std::slice::from_ref(marks);
    let laid = lay_out(log, Packer::counting(), segments, sources, marks)?;
    Ok(laid.map(|(packer, _)| packer.position()))
}

/// Return whether content up to a position can be extended to another one. The header of a void
/// block must fit in between, if there is any space.
pub(super) fn fits(position: u64, end: u64) -> Fits {
    position == end || position + HEADER_LEN as u64 <= end
}

/// Write all blocks but those that fill the remaining space and name the next segment. Also return
/// the time from which they count.
fn lay_out(
    log: &Log,
    packer: Packer,
    segments: &[Arc<Segment>],
    sources: &[Source],
    marks: &[Marks],
) -> Result<Option<(Packer, i64)>> {
    let (Some(first), Some(first_marks)) = (segments.first(), marks.first()) else {
        return Ok(None);
    };
    let began = &first.opening()?.state;
    let lane =
        |state: &TopicState| TopicProgress { base: state.next, covered: state.next, time: 0 };
    let lanes = began.topics().map(|(number, state)| (number, lane(state))).collect();
    let bases = sources.iter().map(|source| source.header.time_base_us);
    let time_base_us = bases.min().unwrap_or_default();
    let most = log.max_group_len().saturating_sub(align(MAX_HEADER_LEN as u64)) as usize;
    let (read, body) = (began.clone(), Vec::new());
    let marks_of = first_marks;
    let mut filling =
        Filling { packer, lanes, read, time_base_us, most, body, marks: marks_of, passed: 0 };
    let snapshot = began.encode_since(&LogState::default());
    filling.packer.block(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot)?;
    let mut known = LogState::default();
    for ((segment, source), marks) in segments.iter().zip(sources).zip(marks) {
        (filling.marks, filling.passed) = (marks, 0);
        let mut fits = true;
        let after = walk(segment, source.end, |data| {
            fits = filling.block(data)?;
            Ok(fits)
        })?;
        if !fits {
            return Ok(None);
        }
        known = after.state;
    }
    Ok(filling.end(&known)?.then_some((filling.packer, time_base_us)))
}

fn first_page(
    log: &Log,
    segments: &[Arc<Segment>],
    group: &SegmentGroup,
    time_base_us: i64,
    end: u64,
    member: &dyn Member,
) -> Result<(SegmentHeader, Mark)> {
    let (first, last) = (&segments[0], &segments[segments.len() - 1]);
    let clean_us = group.clean_us.unwrap_or_else(|| log.storage.now_us());
    let lowest = first.header().replaces.map_or(first.sequence(), |replaces| replaces.first);
    let random = log.storage.random().doing("draw a random number for", last.path())?;
    let replaces = Replaces { first: lowest, clean_us, compaction: random.max(1) };
    let header = SegmentHeader {
        log: log.settings.generation,
        sequence: last.sequence(),
        salt: last.salt(),
        supersedes: first.header().previous.is_some(),
        previous: first.header().previous,
        replaces: Some(replaces),
        time_base_us,
    };
    let before = last.mark().filter(|mark| mark.incarnation != 0);
    let control = log.control().map_or(0, super::super::Control::id);
    let (control, incarnation) =
        before.map_or((control, member.incarnation()), |mark| (mark.control, mark.incarnation));
    let mark =
        Mark { serial: 1, position: end, clean: false, succeeded: true, control, incarnation };
    Ok((header, mark))
}

impl Filling<'_> {
    /// Write the remaining records of a block.
    fn block(&mut self, data: &DataBlock) -> Result<Fits> {
        let (topic, first, count) = (data.block.header.topic, data.first, u64::from(data.count()));
        let begin = self.passed;
        self.passed += count;
        let marks = self.marks;
        let left = (begin..begin + count).filter(|record| !marks.goes(*record)).count() as u64;
        let time = (data.appended_ns() / 1000).saturating_sub(self.time_base_us).max(0);
        // A topic that the first segment did not know would be unknown here too.
        let Some(lane) = self.lanes.get_mut(&topic) else { return Ok(false) };
        lane.time = time as u64;
        if lane.time > MAX_RELATIVE_TIME || first < lane.covered {
            return Ok(false);
        }
        let is_behind_gap = lane.covered < first;
        if left == 0 {
            return Ok(true);
        }
        if left == count && (!is_behind_gap || count > FEW) {
            return Ok((!is_behind_gap || self.gap(topic, first)?) && self.whole(data)?);
        }
        self.part(data, begin)
    }

    /// Write a block as it is, at another place.
    fn whole(&mut self, data: &DataBlock) -> Result<Fits> {
        let (header, body) = (&data.block.header, data.body());
        let Some(lane) = self.lanes.get_mut(&header.topic) else { return Ok(false) };
        let Ok(offset) = u32::try_from(data.first - lane.base) else { return Ok(false) };
        let flags = header.flags & !(flag::GROUP | flag::MEMBER);
        let len = (BlockHeader::len_for(flags) + body.len()) as u32;
        let header = BlockHeader { flags, len, offset, group_len: 0, time: lane.time, ..*header };
        lane.covered = data.end();
        let highest = highest_ns(&data.segment, &data.block);
        self.know(&header, data.first, highest.map_err(|what| data.damaged(what))?);
        self.packer.block(&header, body)?;
        Ok(true)
    }

    /// Write a block without records, up to an offset.
    fn gap(&mut self, topic: u32, until: u64) -> Result<Fits> {
        self.sparse(topic, 0, 0, until, i64::MIN)
    }

    /// Apply a block to the reader's state.
    fn know(&mut self, header: &BlockHeader, first: u64, highest_ns: i64) {
        let is_known = self.read.apply_data(header, first, highest_ns, self.time_base_us);
        debug_assert!(is_known, "the topic has a lane");
    }

    /// Write some records of a block, each with its offset, and cover the offsets before them.
    fn part(&mut self, data: &DataBlock, begin: u64) -> Result<Fits> {
        let (header, first, topic) = (&data.block.header, data.first, data.block.header.topic);
        let flags = header.flags & OF_BODY;
        let (mut records, body) = (data.records()?, data.body());
        let base_time = if flags & flag::EVENT_TIME != 0 { &body[..8] } else { &[] };
        let (mut start, mut number, mut count) = (base_time.len(), begin, 0);
        let (appended, mut highest) = (data.appended_ns(), i64::MIN);
        self.body.clear();
        self.body.extend_from_slice(base_time);
        while let Some(parts) = records.next(body).map_err(|what| data.damaged(what))? {
            let (from, goes) = (start, self.marks.goes(number));
            (start, number) = (parts.end, number + 1);
            if goes {
                continue;
            }
            let mut from = from;
            if header.flags & flag::SPARSE != 0 {
                // Its old relative offset does not hold here.
                let _ = varint::get(body, &mut from);
            }
            let (offset, record) = (first + u64::from(parts.offset_delta), &body[from..parts.end]);
            if count > 0 && self.body.len() + record.len() + varint::MAX_LEN > self.most {
                if !self.sparse(topic, flags, count, offset, highest)? {
                    return Ok(false);
                }
                self.body.clear();
                self.body.extend_from_slice(base_time);
                (count, highest) = (0, i64::MIN);
            }
            let covered = self.lanes.get(&topic).map_or(offset, |lane| lane.covered);
            varint::put(&mut self.body, offset - covered);
            self.body.extend_from_slice(record);
            highest = highest.max(parts.event_time_ns.unwrap_or(appended));
            count += 1;
        }
        self.sparse(topic, flags, count, first + u64::from(header.span), highest)
    }

    /// Write a block of the collected records, if any, which covers everything up to an offset.
    fn sparse(
        &mut self,
        topic: u32,
        flags: u16,
        count: u32,
        until: u64,
        highest_ns: i64,
    ) -> Result<Fits> {
        let Some(lane) = self.lanes.get_mut(&topic) else { return Ok(false) };
        let numbers =
            (u32::try_from(lane.covered - lane.base), u32::try_from(until - lane.covered));
        let (Ok(offset), Ok(span)) = numbers else { return Ok(false) };
        let first = std::mem::replace(&mut lane.covered, until);
        let time = lane.time;
        let body = if count == 0 { &[][..] } else { &self.body[..] };
        let of_topic = if topic == 0 { 0 } else { flag::TOPIC };
        let flags = flags | flag::SPARSE | of_topic;
        let header = BlockHeader {
            len: (BlockHeader::len_for(flags) + body.len()) as u32,
            body_crc: checksum::crc32(body),
            time,
            ..BlockHeader { offset, count, span, flags, topic, ..BlockHeader::new(Kind::Data) }
        };
        self.packer.block(&header, body)?;
        // Its time alone counts if no record has a later one, as for any reader.
        let appended = self.time_base_us.saturating_add(time as i64).saturating_mul(1000);
        let by_records = flags & flag::EVENT_TIME != 0;
        self.know(&header, first, if by_records { highest_ns } else { appended });
        Ok(true)
    }

    /// Cover the remaining offsets, and write the facts of the last state that a reader of the
    /// blocks lacks.
    fn end(&mut self, known: &LogState) -> Result<Fits> {
        for (number, state) in known.topics() {
            let is_open = self.lanes.get(&number).is_some_and(|lane| lane.covered < state.next);
            if is_open && !self.gap(number, state.next)? {
                return Ok(false);
            }
        }
        let facts = known.encode_since(&self.read);
        if !facts.is_empty() {
            self.packer.block(&own_header(Kind::Meta, &facts, 0), &facts)?;
        }
        Ok(true)
    }
}
