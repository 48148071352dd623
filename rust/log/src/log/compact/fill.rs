//! Laying out what is left of a group of segments as one.
//!
//! Owns the bytes of a compacted segment: what the first of the group began with; each block of which
//! records are left, with the time at which it was appended, telling which offsets it covers; what the log
//! learned beside records, in one block at the end; void blocks up to the place where the content has to
//! end; the end block that the next segment is named by. A block all of whose records are left keeps its
//! bytes. Groups of blocks are resolved: all of them are on the medium, so there is nothing left that could
//! be there in part. Invariant: the blocks of a topic cover its offsets without a gap, and each record has
//! the offset that it had.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::format::address::align;
use crate::format::block::{HEADER_LEN, Header, Kind, MAX_RELATIVE_TIME, flag};
use crate::format::segment::{Header as SegmentHeader, Mark, Replaces};
use crate::format::state::{End, LogState};
use crate::format::{checksum, names, varint};
use crate::segment::create::{own_header, own_len};
use crate::segment::pack::Packer;
use crate::segment::walk::appended_ns;
use crate::segment::{Bad, Block, Segment};

use super::super::{Log, Member};
use super::keys::{Marks, records_of};
use super::plan::Group;
use super::source::{Source, walk};

/// With no more records than this a block behind a gap tells their offsets itself, rather than standing
/// behind a block that covers the gap.
pub(super) const FEW: u64 = 8;
/// Flags that belong to a body and go with its records.
const OF_BODY: u16 = flag::TOPIC | flag::RICH | flag::EVENT_TIME;

/// A topic on the way.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Base of its relative offsets.
    base: u64,
    /// Offsets before this are covered.
    covered: u64,
    /// Time of its last block.
    time: u64,
}

struct Filling<'a> {
    packer: Packer,
    lanes: BTreeMap<u32, Lane>,
    time_base_us: i64,
    /// Bytes of the longest body.
    most: usize,
    body: Vec<u8>,
    marks: &'a Marks,
    /// Records of the segment that were passed.
    passed: u64,
}

/// What does not fit is not an error: the group then stays as it is.
type Fits = bool;

/// Lay a group out in the file of whoever compacts, all of it on the medium; `None` where it does not fit.
pub(super) fn fill(
    log: &Log,
    segments: &[Arc<Segment>],
    sources: &[Source],
    marks: &[Marks],
    group: &Group,
    member: &dyn Member,
) -> Result<Option<Packer>> {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(None) };
    let began = &first.opening()?.state;
    let end = sources[sources.len() - 1].end;
    let path = log.dir.join(names::COMPACTED);
    let packer = Packer::new(&*log.storage, path, last.salt(), log.settings.file_mode)?;
    let lane = |state: &crate::format::state::TopicState| {
        Lane { base: state.next, covered: state.next, time: 0 }
    };
    let lanes = began.topics().map(|(number, state)| (number, lane(state))).collect();
    let bases = sources.iter().map(|source| source.header.time_base_us);
    let mut filling = Filling {
        packer,
        lanes,
        time_base_us: bases.min().unwrap_or_default(),
        most: log.max_group_len() as usize - align(crate::format::block::MAX_HEADER_LEN as u64) as usize,
        body: Vec::new(),
        marks: &marks[0],
        passed: 0,
    };
    let snapshot = began.encode_since(&LogState::default());
    filling.packer.block(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot)?;
    let mut known = LogState::default();
    for ((segment, source), marks) in segments.iter().zip(sources).zip(marks) {
        (filling.marks, filling.passed) = (marks, 0);
        let mut fits = true;
        let after = walk(segment, source.end, |segment, block, first| {
            fits = filling.block(segment, block, first)? && filling.packer.position() < end;
            Ok(fits)
        })?;
        if !fits {
            return Ok(None);
        }
        known = after.state;
    }
    let Some(read) = filling.known_of(began, &known)? else { return Ok(None) };
    if !filling.end(&known.encode_since(&read), end)? {
        return Ok(None);
    }
    let next = sources[sources.len() - 1].next;
    if let Some(next) = next {
        let body = End { sequence: next.sequence, salt: next.salt }.encode();
        filling.packer.block(&own_header(Kind::End, &body, 0), &body)?;
    }
    let (header, mark) = first_page(log, segments, group, filling.time_base_us, end, member);
    let len = filling.packer.position();
    filling.packer.finish(&header, &mark, len)?;
    Ok(Some(filling.packer))
}

fn first_page(
    log: &Log,
    segments: &[Arc<Segment>],
    group: &Group,
    time_base_us: i64,
    end: u64,
    member: &dyn Member,
) -> (SegmentHeader, Mark) {
    let (first, last) = (&segments[0], &segments[segments.len() - 1]);
    let clean_us = group.clean_us.unwrap_or_else(|| log.storage.now_us());
    let lowest = first.header().replaces.map_or(first.sequence(), |replaces| replaces.first);
    let header = SegmentHeader {
        log: log.settings.generation,
        sequence: last.sequence(),
        salt: last.salt(),
        supersedes: first.header().previous.is_some(),
        previous: first.header().previous,
        replaces: Some(Replaces { first: lowest, clean_us }),
        time_base_us,
    };
    let before = last.mark().filter(|mark| mark.incarnation != 0);
    let control = log.control().map_or(0, super::super::Control::id);
    let (control, incarnation) =
        before.map_or((control, member.incarnation()), |mark| (mark.control, mark.incarnation));
    let mark = Mark { serial: 1, position: end, clean: false, succeeded: true, control, incarnation };
    (header, mark)
}

impl Filling<'_> {
    /// What is left of a block.
    fn block(&mut self, segment: &Segment, block: &Block, first: u64) -> Result<Fits> {
        let count = u64::from(block.header.count);
        let begin = self.passed;
        self.passed += count;
        let marks = self.marks;
        let left = (begin..begin + count).filter(|record| !marks.goes(*record)).count() as u64;
        let time = (appended_ns(segment, block) / 1000).saturating_sub(self.time_base_us).max(0);
        // A topic that the first segment did not know would not be known here.
        let Some(lane) = self.lanes.get_mut(&block.header.topic) else { return Ok(false) };
        lane.time = time as u64;
        if lane.time > MAX_RELATIVE_TIME || first < lane.covered {
            return Ok(false);
        }
        let lane = *lane;
        let end = first + u64::from(block.header.span);
        if left == 0 {
            return Ok(true);
        }
        let is_behind_gap = lane.covered < first;
        if left == count && (!is_behind_gap || count > FEW) {
            return Ok((!is_behind_gap || self.gap(block.header.topic, first)?)
                && self.whole(segment, block, first, end)?);
        }
        self.part(segment, block, first, begin)
    }

    /// A block as it is, in another place.
    fn whole(&mut self, segment: &Segment, block: &Block, first: u64, end: u64) -> Result<Fits> {
        let topic = block.header.topic;
        let Some(lane) = self.lanes.get_mut(&topic) else { return Ok(false) };
        let Ok(offset) = u32::try_from(first - lane.base) else { return Ok(false) };
        let flags = block.header.flags & !(flag::GROUP | flag::MEMBER);
        let body = segment.body(block);
        let len = (Header::len_for(flags) + body.len()) as u32;
        let header =
            Header { flags, len, offset, group_len: 0, time: lane.time, ..block.header };
        lane.covered = end;
        self.packer.block(&header, body)?;
        Ok(true)
    }

    /// A block without records, up to an offset.
    fn gap(&mut self, topic: u32, until: u64) -> Result<Fits> {
        self.sparse(topic, 0, 0, until)
    }

    /// Some records of a block, each with its offset; what is not covered before them, is.
    fn part(&mut self, segment: &Segment, block: &Block, first: u64, begin: u64) -> Result<Fits> {
        let (topic, header) = (block.header.topic, &block.header);
        let flags = header.flags & OF_BODY;
        let body = segment.body(block);
        let base_time = if flags & flag::EVENT_TIME != 0 { &body[..8] } else { &[] };
        let bad = |what| segment.error(Bad { position: block.position, what });
        let mut records = records_of(segment, block)?;
        let (mut start, mut number, mut count) = (base_time.len(), begin, 0);
        self.body.clear();
        self.body.extend_from_slice(base_time);
        while let Some(parts) = records.next(body).map_err(bad)? {
            let (from, goes) = (start, self.marks.goes(number));
            (start, number) = (parts.end, number + 1);
            if goes {
                continue;
            }
            let mut from = from;
            if header.flags & flag::SPARSE != 0 {
                // The offset that it told there is another here.
                let _ = varint::get(body, &mut from);
            }
            let (offset, record) = (first + u64::from(parts.offset_delta), &body[from..parts.end]);
            if count > 0 && self.body.len() + record.len() + varint::MAX_LEN > self.most {
                if !self.sparse(topic, flags, count, offset)? {
                    return Ok(false);
                }
                self.body.clear();
                self.body.extend_from_slice(base_time);
                count = 0;
            }
            let covered = self.lanes.get(&topic).map_or(offset, |lane| lane.covered);
            varint::put(&mut self.body, offset - covered);
            self.body.extend_from_slice(record);
            count += 1;
        }
        self.sparse(topic, flags, count, first + u64::from(header.span))
    }

    /// A block of the records that were collected, if any, which covers everything up to an offset.
    fn sparse(&mut self, topic: u32, flags: u16, count: u32, until: u64) -> Result<Fits> {
        let Some(lane) = self.lanes.get_mut(&topic) else { return Ok(false) };
        let numbers = (u32::try_from(lane.covered - lane.base), u32::try_from(until - lane.covered));
        let (Ok(offset), Ok(span)) = numbers else { return Ok(false) };
        lane.covered = until;
        let body = if count == 0 { &[][..] } else { &self.body[..] };
        let of_topic = if topic == 0 { 0 } else { flag::TOPIC };
        let flags = flags | flag::SPARSE | of_topic;
        let header = Header {
            len: (Header::len_for(flags) + body.len()) as u32,
            body_crc: checksum::crc32(body),
            time: lane.time,
            ..Header { offset, count, span, flags, topic, ..Header::new(Kind::Data) }
        };
        self.packer.block(&header, body)?;
        Ok(true)
    }

    /// What who reads the blocks knows at their end; the offsets that are not covered are made to be.
    fn known_of(&mut self, began: &LogState, known: &LogState) -> Result<Option<LogState>> {
        let mut read = began.clone();
        for (number, state) in known.topics() {
            let is_open = self.lanes.get(&number).is_some_and(|lane| lane.covered < state.next);
            if is_open && !self.gap(number, state.next)? {
                return Ok(None);
            }
            if let Some(topic) = read.topic_mut(number) {
                topic.next = state.next;
            }
        }
        Ok(Some(read))
    }

    /// Facts, and void blocks up to where the content ends.
    fn end(&mut self, facts: &[u8], end: u64) -> Result<Fits> {
        let own = if facts.is_empty() { 0 } else { own_len(facts.len()) };
        let behind = self.packer.position() + own;
        if behind != end && behind + HEADER_LEN as u64 > end {
            return Ok(false);
        }
        if own > 0 {
            self.packer.block(&own_header(Kind::Meta, facts, 0), facts)?;
        }
        self.packer.cover(end)?;
        Ok(true)
    }
}
