//! Which records are removed: those with a later record of the same key, and old tombstones.
//!
//! Owns a bit for each record of the segments, in their order ([`Marks`]). A key is remembered by
//! 128 random bits, and no more keys than the memory allows. When it is full, the records read so
//! far are marked by those keys, and the next *round* continues after them. So a record is removed
//! if any later one has its key, in whichever round that one comes. A tombstone that is the last of
//! its key is removed once all older records have been gone for long enough. That time counts from
//! an earlier compaction of its segment. So a reader from the beginning of the log that is not
//! slower than that sees it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::error::Result;
use crate::format::block::flag;

use super::super::Log;
use super::source::Source;
use super::{Compacting, Last};

/// Most bytes of one key, including the free space of a table.
const KEY_BYTES: u64 = 96;

/// The fate of a segment's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    bits: Vec<u64>,
    /// Number of records.
    pub(super) records: u64,
    /// Records to be removed.
    pub(super) gone: u64,
    /// Those of them that are tombstones whose time is over.
    pub(super) tombstones: u64,
}

impl Marks {
    /// Return whether a record is removed.
    #[inline]
    pub(super) fn goes(&self, record: u64) -> bool {
        let word = self.bits.get((record / 64) as usize);
        word.is_some_and(|word| word >> (record % 64) & 1 != 0)
    }

    fn mark(&mut self, record: u64) -> bool {
        let word = (record / 64) as usize;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let bit = 1 << (record % 64);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.gone += u64::from(is_new);
        is_new
    }
}

/// The parts of a record that compaction needs.
pub(super) struct RecordKey<'a> {
    /// Its number among the records of its segment.
    pub(super) number: u64,
    pub(super) topic: u32,
    pub(super) offset: u64,
    pub(super) key: &'a [u8],
    pub(super) is_tombstone: bool,
}

/// The last record of a key, as far as was read.
struct Latest {
    offset: u64,
    is_tombstone: bool,
    /// True when an older one exists.
    has_older: bool,
}

/// Keys by an unpredictable fingerprint.
struct Keys {
    states: [RandomState; 2],
    known: HashMap<u128, Latest>,
    most: usize,
}

/// The edge of a round: a segment, and a record in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RoundEdge {
    source: usize,
    record: u64,
}

type Tell<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Mark records to be removed. `hurry` includes tombstones whose older records are being removed
/// just now.
pub(super) fn mark(
    log: &Log,
    sources: &[Source],
    how: &Compacting<'_>,
    hurry: bool,
    tell: Tell<'_>,
) -> Result<Vec<Marks>> {
    let mut marking = Marking { log, sources, how, hurry, marks: Vec::new() };
    marking.marks.resize(sources.len(), Marks::default());
    match how.last {
        Some(last) => marking.by_others(last, tell)?,
        None => marking.by_rounds(tell)?,
    }
    Ok(marking.marks)
}

struct Marking<'a> {
    log: &'a Log,
    sources: &'a [Source],
    how: &'a Compacting<'a>,
    hurry: bool,
    marks: Vec<Marks>,
}

impl Marking<'_> {
    fn by_rounds(&mut self, tell: Tell<'_>) -> Result<()> {
        let most = usize::try_from(self.how.memory / KEY_BYTES).unwrap_or(usize::MAX).max(1);
        let mut keys = Keys::new(most);
        let end = RoundEdge { source: self.sources.len(), record: 0 };
        let mut from = RoundEdge { source: 0, record: 0 };
        while from < end {
            let to = self.learn(&mut keys, from, tell)?;
            self.mark_older(&mut keys, to)?;
            self.mark_tombstones(&keys, from, to)?;
            keys.known.clear();
            from = to;
        }
        Ok(())
    }

    /// Remember keys from a place on; return where the next round begins.
    fn learn(&mut self, keys: &mut Keys, from: RoundEdge, tell: Tell<'_>) -> Result<RoundEdge> {
        for (i, source) in self.sources.iter().enumerate().skip(from.source) {
            let mut full = None;
            let begin = if i == from.source { from.record } else { 0 };
            let records = each_keyed(self.log, source, self.how, |record| {
                if record.number >= begin && !keys.learn(record) {
                    full = Some(record.number);
                }
                full.is_none()
            })?;
            if let Some(record) = full {
                return Ok(RoundEdge { source: i, record });
            }
            self.marks[i].records = records;
            tell(source.end)?;
        }
        Ok(RoundEdge { source: self.sources.len(), record: 0 })
    }

    /// Mark records that lie before a place and before the last record of their key.
    fn mark_older(&mut self, keys: &mut Keys, to: RoundEdge) -> Result<()> {
        for (i, source) in self.sources.iter().enumerate() {
            let marks = &mut self.marks[i];
            each_keyed(self.log, source, self.how, |record| {
                let is_before = RoundEdge { source: i, record: record.number } < to;
                if let Some(latest) = keys.latest(record).filter(|_| is_before) {
                    if record.offset < latest.offset {
                        latest.has_older = true;
                        marks.mark(record.number);
                    }
                }
                is_before
            })?;
            if i >= to.source {
                break;
            }
        }
        Ok(())
    }

    /// Mark tombstones of a round that have hidden nothing for long enough.
    fn mark_tombstones(&mut self, keys: &Keys, from: RoundEdge, to: RoundEdge) -> Result<()> {
        for (i, source) in self.sources.iter().enumerate().skip(from.source) {
            let stays = !self.hurry && !self.is_old(source);
            if i > to.source || stays {
                continue;
            }
            let marks = &mut self.marks[i];
            each_keyed(self.log, source, self.how, |record| {
                let spot = RoundEdge { source: i, record: record.number };
                let latest = keys.known.get(&keys.fingerprint(record));
                let is_last = |latest: &&Latest| {
                    latest.offset == record.offset && (self.hurry || !latest.has_older)
                };
                let is_meant = spot >= from && spot < to && record.is_tombstone;
                if is_meant && latest.filter(is_last).is_some_and(|latest| latest.is_tombstone) {
                    marks.tombstones += u64::from(marks.mark(record.number));
                }
                spot < to
            })?;
        }
        Ok(())
    }

    fn by_others(
        &mut self,
        last: &std::collections::BTreeMap<u32, Last>,
        tell: Tell<'_>,
    ) -> Result<()> {
        for (i, source) in self.sources.iter().enumerate() {
            let (is_old, hurry) = (self.is_old(source), self.hurry);
            let marks = &mut self.marks[i];
            let records = each_keyed(self.log, source, self.how, |record| {
                let Some(last) = last.get(&record.topic).filter(|l| record.offset < l.end) else {
                    return true;
                };
                if last.offsets.binary_search(&record.offset).is_err() {
                    marks.mark(record.number);
                } else if record.is_tombstone {
                    let is_alone = last.alone.binary_search(&record.offset).is_ok();
                    if hurry || (is_old && is_alone) {
                        marks.tombstones += u64::from(marks.mark(record.number));
                    }
                }
                true
            })?;
            marks.records = records;
            tell(source.end)?;
        }
        Ok(())
    }

    /// Return whether records older than a segment have lacked its keys for long enough.
    fn is_old(&self, source: &Source) -> bool {
        let clean = source.header.replaces.map_or(0, |replaces| replaces.clean_us);
        let kept = i64::try_from(self.how.tombstones_us).unwrap_or(i64::MAX);
        clean > 0 && clean.saturating_add(kept) <= self.log.storage.now_us()
    }
}

/// List the segments with a tombstone that hides a record of a *blocked* segment: one whose
/// removable records stay.
pub(super) fn hiding(
    log: &Log,
    sources: &[Source],
    how: &Compacting<'_>,
    (marks, blocked): (&[Marks], &[usize]),
) -> Result<Vec<bool>> {
    let mut keys = Keys::new(usize::MAX);
    for &i in blocked {
        each_keyed(log, &sources[i], how, |record| {
            !marks[i].goes(record.number) || keys.learn(record)
        })?;
    }
    let mut hides = vec![false; sources.len()];
    for (i, source) in sources.iter().enumerate() {
        each_keyed(log, source, how, |record| {
            let is_left = record.is_tombstone && !marks[i].goes(record.number);
            hides[i] |= is_left && keys.known.contains_key(&keys.fingerprint(record));
            !hides[i]
        })?;
    }
    Ok(hides)
}

impl Keys {
    fn new(most: usize) -> Self {
        let states = [RandomState::new(), RandomState::new()];
        Self { states, known: HashMap::new(), most }
    }

    fn fingerprint(&self, record: &RecordKey<'_>) -> u128 {
        let [high, low] = [0, 1].map(|i| self.states[i].hash_one((record.topic, record.key)));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Remember a record; false if there is no memory for its key.
    fn learn(&mut self, record: &RecordKey<'_>) -> bool {
        let key = self.fingerprint(record);
        let is_full = self.known.len() >= self.most;
        if is_full && !self.known.contains_key(&key) {
            return false;
        }
        let (offset, is_tombstone) = (record.offset, record.is_tombstone);
        self.known.insert(key, Latest { offset, is_tombstone, has_older: false });
        true
    }

    fn latest(&mut self, record: &RecordKey<'_>) -> Option<&mut Latest> {
        let key = self.fingerprint(record);
        self.known.get_mut(&key)
    }
}

/// Walk the removable records of a segment: those of the topic that have a key. Returns the number
/// of the topic's records, including those without a key, if `seen` never ended the walk.
pub(super) fn each_keyed(
    log: &Log,
    source: &Source,
    how: &Compacting<'_>,
    mut seen: impl FnMut(&RecordKey<'_>) -> bool,
) -> Result<u64> {
    let (mut number, mut records) = (0, 0);
    source.walk(log, |data| {
        let (header, begin) = (&data.block.header, number);
        number += u64::from(header.count);
        if !how.topics.contains(&header.topic) {
            return Ok(true);
        }
        records += u64::from(header.count);
        // Without attribute bytes no record has a key.
        if header.flags & flag::RICH == 0 {
            return Ok(true);
        }
        let (mut walk, body) = (data.records()?, data.body());
        let mut at = begin;
        while let Some(parts) = walk.next(body).map_err(|what| data.damaged(what))? {
            let number = at;
            at += 1;
            let Some(key) = parts.key.clone() else { continue };
            let (topic, offset) = (header.topic, data.first + u64::from(parts.offset_delta));
            let is_tombstone = parts.value.is_none();
            if !seen(&RecordKey { number, topic, offset, key: &body[key], is_tombstone }) {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    Ok(records)
}
